/**
 * Inspection of a sequence, for research: reads keys and values and attention weights, and evicts
 * rows that the caller chooses. Everything is read through the back end and costs nothing when
 * unused.
 *
 * Layers and heads are counted from 0. A row is identified by its position, the number of tokens
 * before it; skv_sequence_kept (skv/skv.h) returns the positions of a head's rows. On several ranks
 * a process has only its own heads, and these functions return SKV_UNSUPPORTED.
 */
#ifndef SKV_INSPECT_H
#define SKV_INSPECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "skv/api.h"
#include "skv/error.h"
#include "skv/skv.h"

SKV_BEGIN

/* The rows that a layer reads. */
typedef struct skv_kv_shape {
    size_t n_heads; /* that hold rows: KV heads, or query heads once each has its own rows */
    /* Head h is read by n_query_heads / n_heads of them, from h n_query_heads / n_heads on. */
    size_t n_query_heads;
    size_t head_dim; /* elements of a key, and of a value */
    size_t slot;     /* layers with the same slot read the same rows */
    size_t window;   /* rows that a token attends to, its own included; 0: all */
} skv_kv_shape;

/** Describes the rows that layer i_layer of the sequence's model reads. Returns false if there is
 * no such layer, or if it has no keys and values. */
SKV_API bool skv_sequence_kv_shape(const skv_sequence *sequence, size_t i_layer, skv_kv_shape *out);

/**
 * Reads the rows that a head holds, in the order of skv_sequence_kept: keys k [n, head_dim], after
 * their norm and rotation, and values v [n, head_dim], both as f32 from the type in which the cache
 * holds them. Either may be NULL. No step of the engine may be running. Fails with SKV_ARGUMENT if
 * there is no such head, and with SKV_UNSUPPORTED where tokens were pruned.
 */
SKV_CHECKED skv_status skv_sequence_read_kv(const skv_sequence *sequence, size_t i_layer,
                                            size_t i_head, float *k, float *v, skv_error *err);

/* Receives the attention weights of token i_token of a step in one layer: weights [n_heads, n] of
 * its query heads, where n is the number of tokens up to and including it. weights[h * n + p] is
 * the share of the token at position p: the softmax of the scaled (and capped) scores, as attention
 * uses it. It is 0 if the head has no such row, or if the row is outside the layer's window. The
 * weights of a head add up to 1 minus the share of its sink. Valid during the call. */
typedef void skv_weights_fn(void *user, size_t i_layer, size_t i_token, const float *weights,
                            size_t n_heads, size_t n);

/**
 * Appends ids [n] to a sequence in one step through all layers, and reports their attention weights
 * layer by layer, token by token. To inspect only the last tokens of a prompt, run the others
 * through skv_step first. Fails like skv_step, and with SKV_UNSUPPORTED if a method skips layers
 * for some tokens (pruning, early exits, KV Prediction). On failure the sequence does not change.
 */
SKV_CHECKED skv_status skv_step_attention(skv_sequence *sequence, const int32_t *ids, size_t n,
                                          skv_weights_fn *on_weights, void *user, skv_error *err);

/* The rows that one head of a layer is to keep. */
typedef struct skv_head_rows {
    size_t i_layer, i_head;
    const size_t *positions; /* [n], ascending, of rows that it holds */
    size_t n;                /* >= 1 */
} skv_head_rows;

/**
 * Evicts all rows of the given heads [n] except the listed ones; other heads keep all their rows.
 * Later tokens attend to the remaining rows, as after skv_sequence_evict. Layers that share a slot
 * share its rows, so list only one of them. Fails with SKV_ARGUMENT if there is no such head or
 * row, if a head is named twice, and while a prompt is announced (skv_sequence_expect); with
 * SKV_UNSUPPORTED for layers with sliding windows, which drop rows on their own, and if the
 * sequence or its engine cannot evict rows by head; with SKV_FULL like skv_sequence_evict. On
 * failure nothing changes.
 */
SKV_CHECKED skv_status skv_sequence_keep(skv_sequence *sequence, const skv_head_rows *heads,
                                         size_t n, skv_error *err);

SKV_END

#endif
