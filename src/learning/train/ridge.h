/*
 * K and V projections of SwiftKV in closed form, before any training (no paper has this).
 *
 * The teacher's projection W of layer j, for keys or for values, reads n_j; the student's must
 * read x (below). The closest it can come in the mean square over a text, pulled towards the
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

#include <stdbool.h>
#include <stddef.h>

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

/*
 * ---- moments.c ----
 *
 * The statistics of a text that the closed form needs: second moments between
 *     x   = norm_swiftkv(x_l), where norm_swiftkv is the input norm of layer l, and
 *     n_j = the normed input of layer j, from which the model makes its own k and v of layer j,
 * for every layer j >= l, over all tokens. They are accumulated while the text streams through the
 * engine; no rows are kept. n_l is x.
 */

typedef struct skv_moments {
    size_t D;
    size_t first, n_deep; /* l; L - l */
    size_t n_rows;        /* tokens that were counted */
    double *gram;         /* [D, D], owned: sum of x x^T */
    double **cross;       /* [n_deep], owned: sum of x n_j^T [D, D]; [0] is NULL, being gram */
    double *sums;         /* [n_deep, D], owned: sum of n_j */
    double *squares;      /* [n_deep, D], owned: sum of n_j^2, by element */
} skv_moments;

/* The tools for the sums. */
typedef struct skv_moments_tools {
    skv_pool *pool;
    skv_gemm *gemm; /* f32 */
    const skv_kernels *kernels;
} skv_moments_tools;

/**
 * Runs the text of options through the model at `path`. The source is the same model, for its
 * norms. SKV_MEMORY with the figures before memory is taken that
 * the machine does not have; SKV_ARGUMENT for a text without tokens, SKV_RANGE for activations
 * that are not finite.
 */
SKV_MUST_CHECK skv_status skv_moments_gather(const char *path, const skv_source *source,
                                             const skv_transform_options *options,
                                             const skv_moments_tools *tools, skv_moments *out,
                                             skv_error *err);
void skv_moments_release(skv_moments *m);

/*
 * ---- cholesky.c ----
 *
 * Systems of linear equations with a symmetric positive definite matrix, in f64 (Cholesky):
 * A = L L^T, then A X = B. Every sum has a fixed order, so results do not depend on the number of
 * threads.
 */

/**
 * Factors a [n, n] in place: the lower triangle becomes L, and the part above it is not modified.
 * Returns false if a pivot is not positive (or not finite): A is not positive definite in f64.
 */
SKV_MUST_CHECK bool skv_cholesky_factor(skv_pool *pool, double *a, size_t n);

enum { SKV_CHOLESKY_STRIP = 32 /* columns of B that are solved together */ };

/** b [n, SKV_CHOLESKY_STRIP] becomes the solution of L L^T x = b. On the caller's thread. */
void skv_cholesky_solve(const double *l, size_t n, double *b);

#endif
