/*
 * Matrix products by cuBLASLt, opened at run time like the driver (cuda_api.h): only what is used
 * is declared, as libcublasLt.so.12 and .13 export it. It chooses an algorithm for each shape,
 * which is kept.
 */
#ifndef SKV_BACKEND_CUDA_BLAS_H
#define SKV_BACKEND_CUDA_BLAS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/cuda/cuda_api.h"

typedef struct cublasLtContext *skv_blas_handle;
typedef void *skv_blas_desc, *skv_blas_layout, *skv_blas_preference;

typedef struct skv_blas_algorithm {
    uint64_t data[8];
} skv_blas_algorithm;

typedef struct skv_blas_found {
    skv_blas_algorithm algorithm;
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
} skv_blas_found;

enum {
    SKV_BLAS_F32 = 0,
    SKV_BLAS_BF16 = 14,
    SKV_BLAS_E4M3 = 28,
    SKV_BLAS_COMPUTE_F32 = 68,
    SKV_BLAS_TRANSPOSED = 1,
    SKV_BLAS_DESC_TRANS_A = 3,
    SKV_BLAS_DESC_TRANS_B = 4,
    SKV_BLAS_DESC_SCALE = 17,      /* of A: the device's address; then of B */
    SKV_BLAS_DESC_SCALE_MODE = 31, /* of A; then of B */
    SKV_BLAS_SCALE_EACH = 3,       /* a mode: a scale for each row of ours */
    SKV_BLAS_PREFERENCE_WORKSPACE = 1,
    SKV_BLAS_PREFERENCE_ALIGNMENT = 5, /* of A; then B, C and D */
    SKV_BLAS_NOT_SUPPORTED = 15        /* a result */
};

/* X(member, exported name, arguments) */
#define SKV_BLAS_FUNCTIONS(X)                                                                      \
    X(create, "cublasLtCreate", (skv_blas_handle *))                                               \
    X(destroy, "cublasLtDestroy", (skv_blas_handle))                                               \
    X(desc_create, "cublasLtMatmulDescCreate", (skv_blas_desc *, int, int))                        \
    X(desc_destroy, "cublasLtMatmulDescDestroy", (skv_blas_desc))                                  \
    X(desc_set, "cublasLtMatmulDescSetAttribute", (skv_blas_desc, int, const void *, size_t))      \
    X(layout_create, "cublasLtMatrixLayoutCreate",                                                 \
      (skv_blas_layout *, int, uint64_t, uint64_t, int64_t))                                       \
    X(layout_destroy, "cublasLtMatrixLayoutDestroy", (skv_blas_layout))                            \
    X(preference_create, "cublasLtMatmulPreferenceCreate", (skv_blas_preference *))                \
    X(preference_destroy, "cublasLtMatmulPreferenceDestroy", (skv_blas_preference))                \
    X(preference_set, "cublasLtMatmulPreferenceSetAttribute",                                      \
      (skv_blas_preference, int, const void *, size_t))                                            \
    X(heuristic, "cublasLtMatmulAlgoGetHeuristic",                                                 \
      (skv_blas_handle, skv_blas_desc, skv_blas_layout, skv_blas_layout, skv_blas_layout,          \
       skv_blas_layout, skv_blas_preference, int, skv_blas_found *, int *))                        \
    X(multiply, "cublasLtMatmul",                                                                  \
      (skv_blas_handle, skv_blas_desc, const void *, const void *, skv_blas_layout, const void *,  \
       skv_blas_layout, const void *, const void *, skv_blas_layout, void *, skv_blas_layout,      \
       const skv_blas_algorithm *, void *, size_t, skv_cu_stream))

/* Shape of a product: y[M, N] = x[M, K] w[N, K]^T, or y += it. x and w have one type, every row at
 * a multiple of 16 bytes. */
typedef struct skv_cuda_product_shape {
    uint32_t M, N, K, ld_x, ld_w, ld_y; /* ld: elements */
    int type;                           /* SKV_BLAS_BF16, F32 or E4M3 */
    bool y_is_f32;                      /* else bf16 */
    bool add;                           /* f32 alone */
} skv_cuda_product_shape;

/* All of the device. */
typedef struct skv_cuda_operands {
    void *y;
    const void *x, *w;
    const float *x_scales, *w_scales; /* of E4M3: [M], [N] */
} skv_cuda_operands;

typedef struct skv_cuda_plan skv_cuda_plan;

typedef struct skv_cuda_blas {
    void *library;
/* NOLINTNEXTLINE(bugprone-macro-parentheses): parts of a declaration */
#define X(member, name, arguments) int(*member) arguments;
    SKV_BLAS_FUNCTIONS(X)
#undef X
    const skv_cuda_api *driver; /* borrowed */
    skv_blas_handle handle;
    skv_cu_address workspace; /* of the device: owned */
    skv_cuda_plan *plans;     /* owned, the last used first */
} skv_cuda_blas;

/** `driver` has a context. SKV_UNSUPPORTED names the missing part. */
SKV_MUST_CHECK skv_status skv_cuda_blas_open(skv_cuda_blas *blas, const skv_cuda_api *driver,
                                             skv_error *err);
/** When its products are done; also of one that could not be opened. */
void skv_cuda_blas_close(skv_cuda_blas *blas);

/** Chooses the algorithm of a shape. SKV_UNSUPPORTED: cuBLASLt has none. */
SKV_MUST_CHECK skv_status skv_cuda_blas_prepare(skv_cuda_blas *blas,
                                                const skv_cuda_product_shape *shape,
                                                skv_error *err);
/** Puts a product into the stream. SKV_UNSUPPORTED: cuBLASLt has no algorithm for the shape. */
SKV_MUST_CHECK skv_status skv_cuda_multiply(skv_cuda_blas *blas, skv_cuda_product_shape shape,
                                            const skv_cuda_operands *operands, skv_cu_stream stream,
                                            skv_error *err);

#endif
