/*
 * Dense products of row-major f32 matrices for training:
 *
 *     C[M, N] (+)= op(A)[M, K] op(B)[K, N]
 *
 * Both operands are packed on the fly for the tiles of kernels.h, so the arithmetic is that of the
 * chosen skv_matmul: f32, or operands rounded to bf16 with f32 sums. Results do not depend on the
 * number of threads.
 */
#ifndef SKV_TRAIN_GEMM_H
#define SKV_TRAIN_GEMM_H

#include <stdbool.h>
#include <stddef.h>

#include "base/fail.h"
#include "base/pool.h"
#include "kernels/kernels.h"

typedef struct skv_gemm skv_gemm;

/* A right operand that does not change, packed once. */
typedef struct skv_gemm_packed {
    unsigned char *panels; /* owned and mapped, unless borrowed */
    bool borrowed;         /* set before it is packed: `panels` are the caller's memory */
    size_t n_bytes;
    size_t panel_bytes, n_pieces; /* a panel is [n_pieces] pieces of K */
} skv_gemm_packed;

typedef struct skv_gemm_args {
    float *c; /* [M, N], rows ldc floats apart */
    size_t ldc;
    const float *a; /* [M, K], or with a_t [K, M] */
    size_t lda;
    const float *b; /* [K, N], or with b_t [N, K], as weights are stored */
    size_t ldb;
    size_t M, N, K;
    bool a_t, b_t;
    bool add;                         /* onto C */
    const skv_gemm_packed *packed;    /* op(B) if it is packed; NULL: from b */
    const struct skv_gemm_args *also; /* another product of the same op(A), or NULL */
} skv_gemm_args;

/** `mm` is one of the products of the kernel table; it and the pool are borrowed. */
SKV_MUST_CHECK skv_status skv_gemm_create(skv_pool *pool, const skv_matmul *mm, skv_gemm **out,
                                          skv_error *err);
void skv_gemm_free(skv_gemm *gemm);
/** Bytes of its working memory. */
size_t skv_gemm_bytes(const skv_gemm *gemm);

/** Bytes of op(B) [K, N] packed. */
size_t skv_gemm_packed_bytes(const skv_gemm *gemm, size_t n_columns, size_t depth);
/** Packs op(B) of such products: b, ldb, b_t, N and K are read. */
SKV_MUST_CHECK skv_status skv_gemm_pack(skv_gemm *gemm, const skv_gemm_args *args,
                                        skv_gemm_packed *out, skv_error *err);
void skv_gemm_packed_release(skv_gemm_packed *packed);

/** On all threads of the pool; called by the pool's owner. */
void skv_gemm_run(skv_gemm *gemm, const skv_gemm_args *args);
/** On one thread, from inside a task of the pool: small products, as those of attention. */
void skv_gemm_serial(skv_gemm *gemm, const skv_gemm_args *args, size_t i_thread);

#endif
