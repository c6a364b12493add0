/*
 * The product of kernels/x86/matmul_q_amx.inc over the tile instructions in plain C. What it
 * does with AVX-512 beside them is called as it is, where the processor has that; else it is plain
 * C too.
 */
#ifndef SKV_TESTS_AMX_Q_MODEL_H
#define SKV_TESTS_AMX_Q_MODEL_H

#include "amx_model.h"
#include "base/float16.h"
#include "kernels/x86/matmul_q_parts.h"

static inline bool amx_q_model_has_parts(void)
{
#if defined(__x86_64__)
    return skv_cpu_detect() & SKV_CPU_AVX512;
#else
    return false;
#endif
}

static inline const skv_matmul *amx_q_model_below(void)
{
#if defined(__x86_64__)
    if (amx_model_has_few()) return &skv_matmul_q_avx512vnni;
#endif
    return NULL;
}

/* Element e of column j of half a group. */
static inline int8_t amx_q_model_value(const unsigned char *codes, const skv_quant_header *h,
                                       size_t j, size_t e)
{
    const size_t lane = 4 * j + e % 4, row = 4 * SKV_Q_NR;
    if (h->bits == 8) return (int8_t)codes[e / 4 * row + lane];
    const unsigned nibble = ((unsigned)codes[e / 8 * row + lane] >> (e / 4 % 2 * 4)) & 15u;
    if (h->bits == 4) return h->levels[nibble];
    const unsigned high = codes[2 * row + lane] >> (e / 4 * 2) & 3u;
    return (int8_t)((int)(nibble + 16 * high) - 32);
}

static inline void amx_q_model_values(int8_t *to, const unsigned char *codes,
                                      const skv_quant_header *h)
{
#if defined(__x86_64__)
    if (amx_q_model_has_parts()) {
        skv_q_values_avx512(to, codes, h);
        return;
    }
#endif
    for (size_t i = 0; i < (size_t)SKV_QUANT_HALF * SKV_Q_NR; i++) {
        const size_t j = i / 4 % SKV_Q_NR, e = i / (4 * SKV_Q_NR) * 4 + i % 4;
        to[i] = amx_q_model_value(codes, h, j, e);
    }
}

static inline float amx_q_model_16(uint16_t bits, bool bf16)
{
    return bf16 ? skv_bf16_to_f32(bits) : skv_float_of_f16(bits);
}

static inline void amx_q_model_scales(float *scales, float *mins, const skv_quant_header *h,
                                      const unsigned char *at, const uint16_t *span)
{
#if defined(__x86_64__)
    if (amx_q_model_has_parts()) {
        skv_q_scales_avx512(scales, mins, h, at, span);
        return;
    }
#endif
    const uint16_t *words = h->fine ? span : (const uint16_t *)(const void *)at;
    for (size_t j = 0; j < SKV_Q_NR; j++) {
        scales[j] = amx_q_model_16(words[j], h->bf16);
        if (h->fine) scales[j] *= (float)(int8_t)at[j];
        if (!h->has_min) continue;
        mins[j] = amx_q_model_16(words[SKV_Q_NR + j], h->bf16);
        if (h->fine) mins[j] *= -(float)at[SKV_Q_NR + j];
        if (!h->fine && h->zeros) mins[j] *= scales[j];
    }
}

static inline void amx_q_model_end(const skv_q_end *e)
{
#if defined(__x86_64__)
    if (amx_q_model_has_parts()) {
        skv_q_end_avx512(e);
        return;
    }
#endif
    for (size_t i = 0; i < e->rows * SKV_Q_TILE; i++) {
        const size_t row = i / SKV_Q_TILE, j = i % SKV_Q_TILE;
        float *scaled = e->scaled + row * SKV_Q_NR + j;
        float x = e->first ? 0.0f : e->sum[i];
        for (size_t p = 0; p < e->n; p++) {
            const float dot = (float)e->dots[p * SKV_Q_TILE * SKV_Q_TILE + i];
            x = fmaf(dot, e->scales[p * SKV_Q_NR + j], x);
            if (e->mins) x = fmaf(e->mins[p * SKV_Q_NR + j], e->x_sums[p][row], x);
        }
        e->sum[i] = x;
        if (e->last) *scaled = fmaf(x, e->x_scales[row], *scaled);
    }
}

#define AMX_Q_BELOW amx_q_model_below
#define AMX_Q_VALUES amx_q_model_values
#define AMX_Q_SCALES amx_q_model_scales
#define AMX_Q_END amx_q_model_end

#include "kernels/x86/matmul_q_amx.inc"

#endif
