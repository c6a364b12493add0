/*
 * The tile instructions of AMX in plain C, as Intel's manual defines them, and the products of
 * kernels/x86/matmul_amx.inc over them: so their loops, layouts and edges are tested on every
 * machine. What the processor would refuse (shapes that do not fit, a tile that is not configured)
 * ends the test.
 */
#ifndef SKV_TESTS_AMX_MODEL_H
#define SKV_TESTS_AMX_MODEL_H

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "kernels/bf16.h"
#include "kernels/matmul.h"
#include "kernels/x86/matmul_few.h"

typedef struct amx_tiles {
    bool configured;
    size_t n_rows[8], row_bytes[8];
    unsigned char data[8][16][64];
} amx_tiles;

static inline void amx_require(bool condition)
{
    if (!condition) abort();
}

static inline void amx_model_configure(amx_tiles *t, const void *config)
{
    const unsigned char *bytes = config; /* palette; at 16: row bytes of 16 bits; at 48: rows */
    *t = (amx_tiles){.configured = true};
    amx_require(bytes[0] == 1);
    for (size_t i = 1; i < 16; i++) amx_require(bytes[i] == 0);
    for (size_t i = 0; i < 8; i++) {
        t->row_bytes[i] = bytes[16 + 2 * i] + 256u * bytes[17 + 2 * i];
        t->n_rows[i] = bytes[48 + i];
        amx_require(t->row_bytes[i] >= 1 && t->row_bytes[i] <= 64);
        amx_require(t->n_rows[i] >= 1 && t->n_rows[i] <= 16);
        amx_require(bytes[32 + 2 * i] == 0 && bytes[33 + 2 * i] == 0 && bytes[56 + i] == 0);
    }
}

static inline void amx_model_zero(amx_tiles *t, size_t i)
{
    amx_require(t->configured);
    memset(t->data[i], 0, sizeof t->data[i]);
}

static inline void amx_model_load(amx_tiles *t, size_t i, const void *address, size_t between)
{
    amx_model_zero(t, i);
    for (size_t r = 0; r < t->n_rows[i]; r++) {
        memcpy(t->data[i][r], (const unsigned char *)address + r * between, t->row_bytes[i]);
    }
}

static inline void amx_model_store(const amx_tiles *t, size_t i, void *address, size_t between)
{
    amx_require(t->configured);
    for (size_t r = 0; r < t->n_rows[i]; r++) {
        memcpy((unsigned char *)address + r * between, t->data[i][r], t->row_bytes[i]);
    }
}

/* Lane n of a row of c: four codes of a times four of b. The sum wraps. */
static inline void amx_dot_i8(unsigned char *c, const unsigned char *a, const unsigned char *b)
{
    uint32_t sum;
    memcpy(&sum, c, sizeof sum);
    for (size_t e = 0; e < 4; e++) sum += (uint32_t)((int8_t)a[e] * (int8_t)b[e]);
    memcpy(c, &sum, sizeof sum);
}

/* The processor takes denormals for zeros and makes none. */
static inline float amx_flush(float x)
{
    return fabsf(x) < FLT_MIN ? copysignf(0.0f, x) : x;
}

/* One of the two bfloat16 in a lane. */
static inline float amx_half(const unsigned char *lane, size_t e)
{
    uint16_t bits;
    memcpy(&bits, lane + e * sizeof bits, sizeof bits);
    return amx_flush(skv_bf16_to_f32(bits));
}

/* Rows of c += rows of a times units of b; even and odd elements have sums of their own. */
static inline void amx_model_dot(amx_tiles *t, bool bf16, size_t c, size_t a, size_t b)
{
    const size_t n_k = t->row_bytes[a] / 4, n_columns = t->row_bytes[c] / 4;
    amx_require(t->configured && c != a && c != b && a != b);
    amx_require(t->n_rows[c] == t->n_rows[a] && t->row_bytes[c] == t->row_bytes[b]);
    amx_require(t->n_rows[b] == n_k && t->row_bytes[a] % 4 == 0 && t->row_bytes[c] % 4 == 0);
    for (size_t i = 0; i < t->n_rows[c] * n_columns; i++) {
        const size_t row = i / n_columns, lane = 4 * (i % n_columns);
        float sums[3] = {0};
        for (size_t k = 0; k < n_k; k++) {
            const unsigned char *x = t->data[a][row] + 4 * k, *w = t->data[b][k] + lane;
            if (!bf16) amx_dot_i8(t->data[c][row] + lane, x, w);
            for (size_t e = 0; bf16 && e < 2; e++) {
                sums[e] = amx_flush(fmaf(amx_half(x, e), amx_half(w, e), sums[e]));
            }
        }
        if (!bf16) continue;
        memcpy(sums + 2, t->data[c][row] + lane, sizeof *sums);
        sums[2] = amx_flush(amx_flush(sums[2]) + amx_flush(sums[0] + sums[1]));
        memcpy(t->data[c][row] + lane, sums + 2, sizeof *sums);
    }
}

/* Units of `unit` elements of nr rows of W, by the index of element k of row j. */
static inline size_t amx_unit_at(size_t j, size_t k, size_t unit, size_t nr)
{
    return (k / unit * nr + j) * unit + k % unit;
}

static inline void amx_model_pack_w_bf16(void *panel, const float *w, size_t ldw, size_t n,
                                         size_t K, size_t nr)
{
    uint16_t *out = panel;
    memset(out, 0, skv_round_up(K, 2) * nr * sizeof *out);
    for (size_t i = 0; i < n * K; i++) {
        out[amx_unit_at(i / K, i % K, 2, nr)] = skv_f32_to_bf16(w[i / K * ldw + i % K]);
    }
}

static inline float amx_model_largest(const float *x, size_t n)
{
    float largest = 0.0f;
    for (size_t k = 0; k < n; k++) largest = fmaxf(largest, fabsf(x[k]));
    return largest;
}

static inline void amx_model_pack_w_i8(void *panel, const float *w, size_t ldw, size_t n, size_t K,
                                       size_t nr, size_t length)
{
    unsigned char *out = panel;
    for (size_t k = 0; k < K; k += length, out += nr * (sizeof(uint16_t) + length)) {
        const size_t n_k = skv_min_size(length, K - k);
        uint16_t *scales = (uint16_t *)(void *)out;
        int8_t *codes = (int8_t *)(scales + nr);
        memset(scales, 0, nr * (sizeof *scales + skv_round_up(n_k, 4)));
        for (size_t j = 0; j < n; j++) {
            const float *row = w + j * ldw + k;
            scales[j] = skv_f32_to_bf16(skv_i8_scale(amx_model_largest(row, n_k)));
            float inverse = skv_i8_inverse(skv_bf16_to_f32(scales[j]));
            for (size_t e = 0; e < n_k; e++) {
                codes[amx_unit_at(j, e, 4, nr)] = (int8_t)lrintf(row[e] * inverse);
            }
        }
    }
}

static inline void amx_model_quantise(int8_t *codes, const float *x, size_t n, float inverse)
{
    for (size_t k = 0; k < n; k++) codes[k] = (int8_t)lrintf(x[k] * inverse);
}

static inline void amx_model_round(uint16_t *out, const float *x, size_t n)
{
    for (size_t k = 0; k < n; k++) out[k] = skv_f32_to_bf16(x[k]);
}

static inline void amx_model_scale_sums(float *c, size_t ldc, const int32_t *dot, const float *rows,
                                        const uint16_t *columns, size_t m, bool add)
{
    for (size_t i = 0; i < 32 * m; i++) {
        float *to = c + i / 32 * ldc + i % 32;
        const float sum = (float)dot[i] * skv_bf16_to_f32(columns[i % 32]) * rows[i / 32];
        *to = add ? *to + sum : sum;
    }
}

/* What matmul_few.h promises, in plain C: a tile of m rows does the same. */
static inline void amx_model_few_tile(void *sums, size_t between, const skv_few_rows *r, bool bf16,
                                      bool add)
{
    amx_tiles t = {.configured = true};
    const size_t n_bytes = SKV_FEW_COLUMNS * sizeof(float) / 2;
    for (size_t i = 0; i < 8; i++) {
        t.n_rows[i] = i >= 6 ? r->step / 4 : r->m;
        t.row_bytes[i] = i == 4 ? r->step : n_bytes;
    }
    for (size_t half = 0; half < 2; half++) {
        unsigned char *to = (unsigned char *)sums + half * n_bytes;
        const unsigned char *x = r->x, *w = r->w + half * n_bytes;
        if (add) {
            amx_model_load(&t, 0, to, between);
        } else {
            amx_model_zero(&t, 0);
        }
        for (size_t s = 0; s < r->n_steps; s++) {
            amx_model_load(&t, 4, x, r->step);
            amx_model_load(&t, 6, w, SKV_FEW_COLUMNS * 4);
            amx_model_dot(&t, bf16, 0, 4, 6);
            x += r->m * r->step;
            w += r->step * SKV_FEW_COLUMNS;
        }
        amx_model_store(&t, 0, to, between);
    }
}

/* The kernels themselves, where the processor runs them. */
static inline bool amx_model_has_few(void)
{
#if defined(__x86_64__)
    const unsigned needs = SKV_CPU_AVX512 | SKV_CPU_AVX512_VNNI;
    return (skv_cpu_detect() & needs) == needs;
#else
    return false;
#endif
}

static inline void amx_model_few_i8(int32_t *dot, const skv_few_rows *rows)
{
#if defined(__x86_64__)
    if (amx_model_has_few()) {
        skv_few_i8_avx512vnni(dot, rows);
        return;
    }
#endif
    amx_model_few_tile(dot, SKV_FEW_COLUMNS * sizeof *dot, rows, false, false);
}

static inline void amx_model_few_bf16(float *c, size_t ldc, const skv_few_rows *rows, bool add)
{
#if defined(__x86_64__)
    if (amx_model_has_few()) {
        skv_few_bf16_avx512vnni(c, ldc, rows, add);
        return;
    }
#endif
    amx_model_few_tile(c, ldc * sizeof *c, rows, true, add);
}

#define AMX_CONFIGURE(t, shapes) amx_model_configure(t, shapes)
#define AMX_RELEASE() ((void)0)
#define AMX_ZERO amx_model_zero
#define AMX_LOAD amx_model_load
#define AMX_STORE amx_model_store
#define AMX_DOT amx_model_dot
#define AMX_PACK_W_I8 amx_model_pack_w_i8
#define AMX_PACK_W_BF16 amx_model_pack_w_bf16
#define AMX_FEW_I8 amx_model_few_i8
#define AMX_FEW_BF16 amx_model_few_bf16
#define AMX_LARGEST amx_model_largest
#define AMX_QUANTISE amx_model_quantise
#define AMX_ROUND amx_model_round
#define AMX_SCALE(s, ldc, m)                                                                       \
    amx_model_scale_sums((s)->c, ldc, (s)->dot, (s)->rows, (s)->columns, m, (s)->add)

#include "kernels/x86/matmul_amx.inc"

#endif
