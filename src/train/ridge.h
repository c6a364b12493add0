/*
 * K and V projections of SwiftKV in closed form, before any training (no paper has this).
 *
 * The teacher's projection W of layer j, for keys or for values, reads n_j; the student's must
 * read x (moments.h). The closest it can come in the mean square over a text, pulled towards the
 * copied weights W by a ridge, is
 *
 *     argmin_V  sum |V x - W n_j|^2 + lambda |V - W|^2  =  W (I + Delta_j)
 *     Delta_j^T = (sum x x^T + lambda I)^-1 sum x (n_j - x)^T
 *
 * so one D x D matrix a layer serves both, and keys and values that a group of layers shares,
 * which are fitted to the mean of the layers' targets, are the mean of W_j (I + Delta_j).
 * Delta_l is zero: layer l reads its own input, and so do the queries of all layers. A ridge
 * towards zero replaces the right-hand side by (sum x n_j^T) and is kept for comparison. With
 * biases all moments are about the mean, and the bias takes up W shift_j, shift_j = mean(n_j) - (I
 * + Delta_j) mean(x).
 */
#ifndef SKV_TRAIN_RIDGE_H
#define SKV_TRAIN_RIDGE_H

#include "base/pool.h"
#include "format/source.h"
#include "skv/tools.h"
#include "train/gemm.h"

typedef struct skv_ridge {
    size_t D, first, n_deep; /* l; L - l */
    float **delta;           /* [n_deep], owned: [D, D] row by row; NULL: zero */
    float **shift;           /* [n_deep], owned: [D]; NULL: zero */
    skv_pool *pool;          /* owned */
    skv_gemm *gemm;          /* owned; f32, with the kernels below: the struct must not move */
    skv_kernels kernels;
} skv_ridge;

/** Reads the text of `options` with the model at `path` and solves. `report` is filled. */
SKV_MUST_CHECK skv_status skv_ridge_solve(const char *path, const skv_source *source,
                                          const skv_transform_options *options, skv_ridge *out,
                                          skv_transform_report *report, skv_error *err);
void skv_ridge_release(skv_ridge *r);

/** out [n, D] += w Delta_j, for rows w [n, D] of a projection of layer j. */
void skv_ridge_add(const skv_ridge *r, size_t j, const float *w, size_t n, float *out);
/** out[i] += scale * (w[i] . shift_j), for rows w [n, D] of a projection of layer j. */
void skv_ridge_add_bias(const skv_ridge *r, size_t j, const float *w, size_t n, float scale,
                        float *out);

#endif
