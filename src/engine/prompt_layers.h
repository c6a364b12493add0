/*
 * A prompt that will lose rows, layer by layer: all of it through one layer, whose slot then keeps
 * what was chosen, and on to the next. Keys and values of one layer alone are there whole, and the
 * residual stream of all tokens; so prompts fit that are much longer than the pool has room for.
 * SwiftKV's deep layers take their rows from the residual stream as it stood before the first of
 * them, one slot at a time, and the tokens that vote or are wanted have another one for themselves.
 */
#ifndef SKV_PROMPT_LAYERS_H
#define SKV_PROMPT_LAYERS_H

#include "base/fail.h"
#include "skv/skv.h"

/** True when the n expected tokens do not fit into the pool, and their sequence is one that can
 * read them layer by layer: empty, with rows by KV head that no other model predicts. */
bool skv_prompt_wants_layers(const skv_sequence *sequence, size_t n);
/** Reads the n expected tokens and evicts: the same rows, cache and logits [V] (may be NULL) as
 * steps of step_tokens and skv_sequence_evict, to the bit. On failure the sequence is empty. */
SKV_MUST_CHECK skv_status skv_prompt_by_layers(
    skv_sequence *sequence, const int32_t *ids, size_t n, float *logits,
    void (*progress)(void *user, size_t done, size_t total), void *user, skv_error *err);

#endif
