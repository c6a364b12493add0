/*
 * What the closed-form initialisation (ridge.h) has to know of a text: second moments between
 *     x   = norm_swiftkv(x_l), where norm_swiftkv is the input norm of layer l, and
 *     n_j = the normed input of layer j, from which the model makes its own k and v of layer j,
 * for every layer j >= l, over all tokens. They are added up while the text streams through the
 * engine; no rows are kept. n_l is x.
 */
#ifndef SKV_TRAIN_MOMENTS_H
#define SKV_TRAIN_MOMENTS_H

#include "base/pool.h"
#include "format/source.h"
#include "skv/tools.h"
#include "train/gemm.h"

typedef struct skv_moments {
    size_t D;
    size_t first, n_deep; /* l; L - l */
    size_t n_rows;        /* tokens that were counted */
    double *gram;         /* [D, D], owned: sum of x x^T */
    double **cross;       /* [n_deep], owned: sum of x n_j^T [D, D]; [0] is NULL, being gram */
    double *sums;         /* [n_deep, D], owned: sum of n_j */
    double *squares;      /* [n_deep, D], owned: sum of n_j^2, by element */
} skv_moments;

/* Who does the sums. */
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

#endif
