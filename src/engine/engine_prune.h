/*
 * Token pruning in an engine (prefill/pruning.h). What matters in a prompt is known when somebody
 * wants to know something of it: tokens whose output nobody wants only wait, and are read, without
 * those that are pruned, with the next token whose output is wanted.
 */
#ifndef SKV_ENGINE_PRUNE_H
#define SKV_ENGINE_PRUNE_H

#include "prefill/pruning.h"
#include "skv/skv.h"

typedef struct skv_engine_prune {
    bool *kept; /* owned, [context], and so are the next three */
    double *scores, *weights;
    int32_t *ids;
    void *page; /* owned, [page bytes] */
} skv_engine_prune;

SKV_MUST_CHECK skv_status skv_engine_prune_init(skv_engine *engine, skv_error *err);
void skv_engine_prune_release(skv_engine *engine);

/** skv_step of an engine that prunes; the spans have been checked. */
SKV_MUST_CHECK skv_status skv_engine_prune_step(skv_engine *engine, const skv_span *spans,
                                                size_t n_spans, skv_logits_fn *on_logits,
                                                void *user, skv_error *err);
/** LAZY: an empty sequence becomes the first n tokens of another as far as slots can be shared;
 * returns how many rows of the cache are. */
size_t skv_engine_prune_share(skv_sequence *sequence, const skv_sequence *from, size_t n);
/** Forgets the tokens from n on. */
void skv_engine_prune_truncate(skv_sequence *sequence, size_t n);

#endif
