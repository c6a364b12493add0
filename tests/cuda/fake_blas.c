/*
 * libcublasLt.so.13 for machines without a GPU: what cuda_blas.h declares, for bf16, f32 and e4m3
 * with a scale for each row, in plain C. It refuses what cuBLASLt would: rows that are not aligned,
 * e4m3 without whole groups of 16, a matrix that is shorter than its rows, a product by another
 * shape than the one that was asked for. With SKV_FAKE_NO_FP8 it is one that has no products of
 * e4m3. What is left at the end is a fault.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "backend/cuda/cuda_blas.h"
#include "base/float16.h"
#include "fake_recording.h"
#include "kernels/kv_page.h"

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

enum { INVALID = 7 };

typedef struct layout {
    int type;
    uint64_t n, n_vectors; /* numbers of a vector, and vectors: columns */
    int64_t ld;
} layout;

/* A product's description. */
typedef struct description {
    int transposed;
    int32_t modes[2];       /* of the scales of A and B */
    const float *scales[2]; /* the device's */
} description;

static atomic_int n_left;

__attribute__((destructor)) static void check_end(void)
{
    if (n_left == 0) return;
    (void)fprintf(stderr, "fake cuBLASLt: %d descriptions are left\n", n_left);
    abort();
}

static void *new_thing(size_t n_bytes)
{
    void *at = calloc(1, n_bytes);
    if (!at) abort();
    n_left++;
    return at;
}

static int free_thing(void *at)
{
    if (!at) return INVALID;
    free(at);
    n_left--;
    return 0;
}

int cublasLtCreate(skv_blas_handle *out)
{
    *out = new_thing(1);
    return 0;
}

int cublasLtDestroy(skv_blas_handle handle)
{
    return free_thing(handle);
}

int cublasLtMatmulDescCreate(skv_blas_desc *out, int compute, int scale)
{
    if (compute != SKV_BLAS_COMPUTE_F32 || scale != SKV_BLAS_F32) return INVALID;
    *out = new_thing(sizeof(description));
    return 0;
}

int cublasLtMatmulDescDestroy(skv_blas_desc desc)
{
    return free_thing(desc);
}

int cublasLtMatmulDescSetAttribute(skv_blas_desc desc, int attribute, const void *value, size_t n)
{
    description *d = desc;
    switch (attribute) {
    case SKV_BLAS_DESC_TRANS_A: d->transposed = *(const int *)value; return n == 4 ? 0 : INVALID;
    case SKV_BLAS_DESC_SCALE_MODE:
    case SKV_BLAS_DESC_SCALE_MODE + 1:
        d->modes[attribute - SKV_BLAS_DESC_SCALE_MODE] = *(const int32_t *)value;
        return n == 4 ? 0 : INVALID;
    case SKV_BLAS_DESC_SCALE:
    case SKV_BLAS_DESC_SCALE + 1:
        d->scales[attribute - SKV_BLAS_DESC_SCALE] = *(const float *const *)value;
        return n == sizeof(void *) ? 0 : INVALID;
    default: return INVALID;
    }
}

int cublasLtMatrixLayoutCreate(skv_blas_layout *out, int type, uint64_t n, uint64_t n_vectors,
                               int64_t ld)
{
    if (n == 0 || n_vectors == 0 || ld < (int64_t)n) return INVALID;
    layout *l = new_thing(sizeof *l);
    *l = (layout){.type = type, .n = n, .n_vectors = n_vectors, .ld = ld};
    *out = l;
    return 0;
}

int cublasLtMatrixLayoutDestroy(skv_blas_layout at)
{
    return free_thing(at);
}

int cublasLtMatmulPreferenceCreate(skv_blas_preference *out)
{
    *out = new_thing(1);
    return 0;
}

int cublasLtMatmulPreferenceDestroy(skv_blas_preference preference)
{
    return free_thing(preference);
}

int cublasLtMatmulPreferenceSetAttribute(skv_blas_preference preference, int attribute,
                                         const void *value, size_t n)
{
    const size_t wanted = attribute == SKV_BLAS_PREFERENCE_WORKSPACE ? 8 : 4;
    return preference && value && n == wanted ? 0 : INVALID;
}

static int64_t size_of(int type)
{
    return type == SKV_BLAS_F32 ? 4 : type == SKV_BLAS_E4M3 ? 1 : 2;
}

static bool is_product(const description *desc, const layout *a, const layout *b, const layout *d)
{
    const int64_t size = size_of(a->type);
    if (a->type == SKV_BLAS_E4M3) {
        const bool scaled =
            desc->modes[0] == SKV_BLAS_SCALE_EACH && desc->modes[1] == desc->modes[0];
        if (getenv("SKV_FAKE_NO_FP8") || !scaled || a->n % 16 != 0 || a->n_vectors % 16 != 0) {
            return false;
        }
    }
    if (a->type == SKV_BLAS_F32 && d->type != SKV_BLAS_F32) return false;
    return desc->transposed == SKV_BLAS_TRANSPOSED && a->type == b->type && a->n == b->n &&
           a->n_vectors == d->n && b->n_vectors == d->n_vectors && a->ld * size % 16 == 0 &&
           b->ld * size % 16 == 0 && d->ld * size_of(d->type) % 16 == 0;
}

/* The algorithm remembers the shape it was chosen for. */
int cublasLtMatmulAlgoGetHeuristic(skv_blas_handle handle, skv_blas_desc desc, skv_blas_layout a,
                                   skv_blas_layout b, skv_blas_layout c, skv_blas_layout d,
                                   skv_blas_preference preference, int n, skv_blas_found *out,
                                   int *n_found)
{
    const layout *la = a, *lb = b;
    if (!handle || !desc || c != d || !preference || n < 1) return INVALID;
    if (!is_product(desc, a, b, d)) return SKV_BLAS_NOT_SUPPORTED;
    *out = (skv_blas_found){.algorithm = {{la->n, la->n_vectors, lb->n_vectors}}};
    *n_found = 1;
    return 0;
}

/* The vectors of a matrix as floats, one behind the other; the caller frees them. */
static float *numbers_of(const layout *l, const void *at)
{
    float *out = malloc(l->n * l->n_vectors * sizeof *out), *to = out;
    if (!out) abort();
    for (uint64_t i = 0; i < l->n_vectors; i++) {
        for (uint64_t k = 0; k < l->n; k++) {
            const uint64_t from = i * (uint64_t)l->ld + k;
            *to++ = l->type == SKV_BLAS_F32    ? ((const float *)at)[from]
                    : l->type == SKV_BLAS_E4M3 ? skv_fp8_decode(((const uint8_t *)at)[from])
                                               : skv_float_of_bf16(((const uint16_t *)at)[from]);
        }
    }
    return out;
}

static float dot(const float *a, const float *b, uint64_t n)
{
    enum { SUMS = 8 }; /* so that a compiler can take several numbers at a time */
    float sums[SUMS] = {0}, sum = 0;
    uint64_t k = 0;
    for (; k + SUMS <= n; k += SUMS) {
        for (uint64_t i = 0; i < SUMS; i++) sums[i] += a[k + i] * b[k + i];
    }
    for (; k < n; k++) sum += a[k] * b[k];
    for (uint64_t i = 0; i < SUMS; i++) sum += sums[i];
    return sum;
}

/* A product, by value: what describes it may be gone when it runs. */
typedef struct product {
    layout w, x, y;
    const void *A, *B;
    void *D;
    float beta;
    const float *scales[2];
} product;

static void multiply(const void *args)
{
    const product *p = args;
    const layout *w = &p->w, *x = &p->x, *y = &p->y;
    float *rows_of_w = numbers_of(w, p->A), *rows_of_x = numbers_of(x, p->B);
    for (uint64_t i = 0; i < y->n * y->n_vectors; i++) {
        const uint64_t row = i / y->n, column = i % y->n;
        const uint64_t to = row * (uint64_t)y->ld + column;
        float sum = dot(rows_of_w + column * w->n, rows_of_x + row * w->n, w->n);
        if (w->type == SKV_BLAS_E4M3) sum *= p->scales[0][column] * p->scales[1][row];
        if (y->type == SKV_BLAS_BF16) {
            ((uint16_t *)p->D)[to] = skv_bf16_of_float(sum);
        } else {
            ((float *)p->D)[to] = p->beta != 0 ? ((float *)p->D)[to] + sum : sum;
        }
    }
    free(rows_of_w);
    free(rows_of_x);
}

int cublasLtMatmul(skv_blas_handle handle, skv_blas_desc desc, const void *alpha, const void *A,
                   skv_blas_layout a, const void *B, skv_blas_layout b, const void *beta,
                   const void *C, skv_blas_layout c, void *D, skv_blas_layout d,
                   const skv_blas_algorithm *algorithm, void *workspace, size_t n_workspace,
                   skv_cu_stream stream)
{
    const layout *w = a, *x = b, *y = d;
    const description *how = desc;
    const bool scaled = w->type == SKV_BLAS_E4M3;
    const bool aligned = ((uintptr_t)A | (uintptr_t)B | (uintptr_t)D) % 16 == 0;
    if (!handle || !desc || !workspace || n_workspace == 0 || !stream) return INVALID;
    if (scaled && (!how->scales[0] || !how->scales[1])) return INVALID;
    if (!aligned || C != D || c != d || *(const float *)alpha != 1) return INVALID;
    if (algorithm->data[0] != w->n || algorithm->data[1] != w->n_vectors ||
        algorithm->data[2] != x->n_vectors) {
        return INVALID;
    }
    product p = {.w = *w,
                 .x = *x,
                 .y = *y,
                 .A = A,
                 .B = B,
                 .D = D,
                 .beta = *(const float *)beta,
                 .scales = {how->scales[0], how->scales[1]}};
    return fake_do(stream, multiply, &p, sizeof p) ? 0 : INVALID;
}
