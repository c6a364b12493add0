/*
 * Token pruning in an engine (prefill/pruning.h). The tokens that matter in a prompt are known only
 * when an output is wanted. Tokens whose output is not wanted therefore wait, and are read, without
 * the pruned ones, with the next token whose output is wanted.
 */
#ifndef SKV_ENGINE_PRUNE_H
#define SKV_ENGINE_PRUNE_H

#include "prefill/pruning.h"
#include "skv/skv.h"
#include "steps/step.h"

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
