/*
 * The step of an engine. Every pass over the layers of one of its models begins with skv_step_pass,
 * whoever asks for it: ordinary steps, KV Prediction, pruning, prompts read layer by layer, and
 * rows that come back from a disk. It knows when to stop, what rows leave out and where the work is
 * counted, and names the one sink of every wanted row.
 */
#ifndef SKV_ENGINE_STEP_H
#define SKV_ENGINE_STEP_H

#include "model/forward.h"
#include "prefill/pruning.h"
#include "skv/skv.h"

/** A pass of an engine's model over spans that all run as `sequence` does, by its plan and with
 * what its rows leave out; NULL: by the engine's plan, and nothing is left out. `hook` may be NULL,
 * and `sink`: nothing is wanted. The caller says which spans, and what else is not the engine's
 * own. */
skv_pass skv_step_pass(skv_engine *engine, const skv_sequence *sequence, const skv_step_sink *sink,
                       const skv_hook *hook);

/** Tokens ids [n] from position `at` on of a sequence whose rows are not pruned, as a span. */
skv_pass_span skv_step_span(skv_sequence *sequence, const int32_t *ids, size_t n, size_t at);
/** The wanted outputs of a span, reported as rows of span i_span from 0 on. */
void skv_step_want(skv_pass_span *span, skv_want want, size_t i_span);
/** Refuses ids outside the vocabulary. */
SKV_MUST_CHECK skv_status skv_engine_check_ids(const skv_engine *engine, const int32_t *ids,
                                               size_t n, skv_error *err);

/** Adds the work of the unmodified model for the last n tokens of a sequence. */
void skv_engine_count_model(skv_engine *engine, const skv_sequence *sequence, size_t n,
                            skv_want want);

/* ---- step.c ---- */

/** skv_step, with a sink. */
SKV_MUST_CHECK skv_status skv_engine_step(skv_engine *engine, const skv_span *spans, size_t n_spans,
                                          const skv_step_sink *sink, skv_error *err);

/* ---- read_prompt.c ---- */

/** skv_prompt with a sink for the last row in place of options->logits; NULL: nothing is wanted. */
SKV_MUST_CHECK skv_status skv_engine_prompt(skv_sequence *sequence, const int32_t *ids, size_t n,
                                            const skv_prompt_options *options,
                                            const skv_step_sink *sink, skv_error *err);

/* ---- prompt_layers.c ---- */

/** True when the n expected tokens do not fit into the store and their sequence can read them layer
 * by layer: it is empty, and its rows are by KV head and not predicted by another model. */
bool skv_prompt_wants_layers(const skv_sequence *sequence, size_t n);
/** Reads the n expected tokens and evicts rows. Cache and logits are the same bits as after steps
 * of step_tokens and skv_sequence_evict. The sink (NULL: no logits are wanted) receives the logits
 * of the last token. Of the options only the progress is used. On failure the sequence is empty. */
SKV_MUST_CHECK skv_status skv_prompt_by_layers(skv_sequence *sequence, const int32_t *ids, size_t n,
                                               const skv_step_sink *sink,
                                               const skv_prompt_options *options, skv_error *err);

/*
 * ---- engine_prune.c ----
 *
 * Token pruning in an engine (prefill/pruning.h). The tokens that matter in a prompt are known only
 * when an output is wanted. Tokens whose output is not wanted therefore wait, and are read, without
 * the pruned ones, with the next token whose output is wanted.
 */

typedef struct skv_engine_prune {
    bool *kept; /* owned, [context], and so are the next three */
    double *scores, *weights;
    int32_t *ids;
} skv_engine_prune;

SKV_MUST_CHECK skv_status skv_engine_prune_init(skv_engine *engine, skv_error *err);
void skv_engine_prune_release(skv_engine *engine);

/* The state of a sequence of an engine that prunes. Tokens [n_run, n_seen) wait, and token t <
 * n_run, or the first one after it that is kept, is row row_of[t]. */
typedef struct skv_pruned {
    size_t n_run;
    uint32_t *row_of;  /* owned, [max_tokens], mapped */
    size_t *slot_rows; /* owned, [n_slots]: LAZY: rows of each slot, which then differ; or NULL */
    size_t rows_mark;  /* rows of the cache before the step that is running */
} skv_pruned;

/** Gives a sequence its state. */
SKV_MUST_CHECK skv_status skv_pruned_create(skv_sequence *sequence, skv_error *err);
/** max_tokens: the sequence's. */
void skv_pruned_free(skv_pruned *pruned, size_t max_tokens);
/** Runs the tokens that a span of the sequence makes due; its ids follow those that it has seen. */
SKV_MUST_CHECK skv_status skv_pruned_run(skv_sequence *sequence, const skv_pass_span *span,
                                         const skv_step_sink *sink, skv_error *err);
/** Before a step, and when it has failed. */
void skv_pruned_mark(skv_sequence *sequence);
void skv_pruned_undo(skv_sequence *sequence);
/** An empty sequence becomes the first n tokens of another, but for the rows of its cache; returns
 * how many of these can be shared. */
size_t skv_pruned_share(skv_sequence *sequence, const skv_sequence *from, size_t n);
/** Forgets the rows of the tokens from n on. */
void skv_pruned_truncate(skv_sequence *sequence, size_t n);

#endif
