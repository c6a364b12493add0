/*
 * The gated delta rule in training (Yang et al., Gated Delta Networks, arXiv:2412.06464, equation
 * 10), forward and backward. Of row t and value head h, from S = 0 at a document's first row:
 *
 *     alpha = exp(-exp(A_log[h]) softplus(a[t,h] + dt_bias[h]))    beta = write_max sigmoid(b[t,h])
 *     S <- alpha S;  u = beta (v - S^T k);  S <- S + k u^T;  o = S^T q
 *
 * with k / sqrt(k.k + 1e-6), and q the same way times key_dim^-1/2. The forward pass keeps S after
 * every SKV_DELTA_ROWS-th row of a document; the backward pass runs these rows again from there,
 * and then back.
 *
 * All of it is f32. Results do not depend on the number of threads: a task is a key head.
 */
#ifndef SKV_TRAIN_DELTA_RULE_H
#define SKV_TRAIN_DELTA_RULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/pool.h"

enum { SKV_DELTA_ROWS = 64 };

typedef struct skv_delta_shape {
    size_t n_key_heads, n_value_heads; /* nk divides nv */
    size_t key_dim, value_dim;
    bool tiled; /* value head h has key head h % nk; else h / (nv / nk) */
    float write_max;
} skv_delta_shape;

/* Inputs, or the gradients by them, which are added to. */
typedef struct skv_delta_tensors {
    float *q, *k;           /* [T, nk key_dim], before they are normalised */
    float *v;               /* [T, nv value_dim] */
    float *a, *b;           /* [T, nv] */
    float *a_log, *dt_bias; /* [nv] */
} skv_delta_tensors;

typedef struct skv_delta_rule {
    skv_delta_shape shape;
    size_t n_rows;             /* T */
    const uint32_t *doc_start; /* [T]: the first row of a row's document */
    skv_delta_tensors in;      /* not changed */
    float *kept; /* [skv_delta_rule_kept]: written by the forward pass, read by the backward one */
    float *scratch; /* [threads, skv_delta_rule_scratch] */
} skv_delta_rule;

/** Floats of `kept` for a batch of n_rows. */
size_t skv_delta_rule_kept(const skv_delta_shape *shape, size_t n_rows);
/** Floats of a thread's scratch. */
size_t skv_delta_rule_scratch(const skv_delta_shape *shape);
/** o [T, nv value_dim]. */
void skv_delta_rule_forward(const skv_delta_rule *rule, skv_pool *pool, float *o);
/** Gradients by the inputs, from that by o. */
void skv_delta_rule_backward(const skv_delta_rule *rule, skv_pool *pool, const float *d_o,
                             const skv_delta_tensors *gradients);

#endif
