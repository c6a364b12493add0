/*
 * The step of an engine. Every pass over the layers of one of its models goes through skv_step_run,
 * whoever asks for it: ordinary steps, KV Prediction, pruning, prompts read layer by layer, and
 * rows that come back from a disk. It knows when to stop, what rows leave out and where the work is
 * counted, and it hands every wanted row to one sink.
 */
#ifndef SKV_ENGINE_STEP_H
#define SKV_ENGINE_STEP_H

#include "model/forward.h"
#include "skv/skv.h"

/* Where the rows of a step go, and who watches it. */
typedef struct skv_step_sink {
    skv_logits_fn *on_row;    /* may be NULL */
    skv_wish_fn *on_wish;     /* in its place, for logits; may be NULL */
    skv_picked_fn *on_picked; /* with it */
    void *user;
    const skv_hook *tap; /* may be NULL */
} skv_step_sink;

/* Some spans through some layers; what is not named is the engine's own, or nothing. */
typedef struct skv_step_pass {
    skv_engine *engine;
    const skv_sequence *sequence;  /* its plan, and what its rows leave out, hold for all spans */
    const skv_forward_span *spans; /* [n_spans] */
    size_t n_spans;
    const skv_step_sink *sink;
    const skv_hook *hook;   /* beside the sink's */
    const skv_plan *plan;   /* in place of the sequence's */
    const skv_model *model; /* another model, with a plan and a workspace */
    skv_workspace *ws;
    size_t first_layer, end_layer; /* as in skv_forward, and so are the next three */
    bool stack_only;
    skv_rows rows;
    const unsigned char *saved;
} skv_step_pass;

SKV_MUST_CHECK skv_status skv_step_run(const skv_step_pass *pass, skv_error *err);

/** Tokens ids [n] from position `at` on of a sequence whose rows are not pruned, as a span. */
skv_forward_span skv_step_span(skv_sequence *sequence, const int32_t *ids, size_t n, size_t at);
/** What is wanted of a span, told as rows of span i_span from 0 on. */
void skv_step_want(skv_forward_span *span, skv_want want, size_t i_span);
/** Tokens of n whose output is wanted: the last ones. */
size_t skv_step_wanted(skv_want want, size_t n);
/** Refuses ids outside the vocabulary. */
SKV_MUST_CHECK skv_status skv_engine_check_ids(const skv_engine *engine, const int32_t *ids,
                                               size_t n, skv_error *err);

/** Adds what the unmodified model takes for the last n tokens of a sequence. */
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

/** True when the n expected tokens do not fit into the store, and their sequence is one that can
 * read them layer by layer: empty, with rows by KV head that no other model predicts. */
bool skv_prompt_wants_layers(const skv_sequence *sequence, size_t n);
/** Reads the n expected tokens and evicts: the same rows, cache and logits, of the last token to
 * the sink (NULL: nobody wants them), as steps of step_tokens and skv_sequence_evict, to the bit;
 * of the options only the progress. On failure the sequence is empty. */
SKV_MUST_CHECK skv_status skv_prompt_by_layers(skv_sequence *sequence, const int32_t *ids, size_t n,
                                               const skv_step_sink *sink,
                                               const skv_prompt_options *options, skv_error *err);

#endif
