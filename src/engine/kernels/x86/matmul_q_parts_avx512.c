/* Codes, scales and sums of the product with quantised weights with AMX: see matmul_q_parts.h. */
#include <immintrin.h>
#include <string.h>

#include "kernels/x86/matmul_q_parts.h"

enum { LANES = 16, UNITS = 4 * SKV_Q_NR, VECTOR = 64 };

#define INLINE static inline __attribute__((always_inline))

INLINE __m512i load(const unsigned char *from)
{
    return _mm512_loadu_si512(from);
}

INLINE void store(int8_t *to, __m512i x)
{
    _mm512_storeu_si512(to, x);
}

/* Two rows of units from one of nibbles; `table` has their values. */
INLINE void nibbles(int8_t *to, const unsigned char *codes, __m512i table)
{
    const __m512i mask = _mm512_set1_epi8(15);
    for (size_t j = 0; j < UNITS; j += VECTOR) {
        const __m512i x = load(codes + j);
        const __m512i low = _mm512_and_si512(x, mask);
        const __m512i high = _mm512_and_si512(_mm512_srli_epi16(x, 4), mask);
        store(to + j, _mm512_shuffle_epi8(table, low));
        store(to + UNITS + j, _mm512_shuffle_epi8(table, high));
    }
}

/* Pair u of bits of each byte, as bits 4 and 5. */
INLINE __m512i pair_of(__m512i bits, const size_t u)
{
    const __m512i mask = _mm512_set1_epi8(0x30);
    if (u == 3) return _mm512_and_si512(_mm512_srli_epi16(bits, 2), mask);
    if (u == 2) return _mm512_and_si512(bits, mask);
    return _mm512_and_si512(u == 1 ? _mm512_slli_epi16(bits, 2) : _mm512_slli_epi16(bits, 4), mask);
}

/* Four rows of units of 6 bits; a code stands as value + 32. */
INLINE void sixes(int8_t *to, const unsigned char *codes)
{
    const __m512i mask = _mm512_set1_epi8(15), bias = _mm512_set1_epi8(32);
    for (size_t j = 0; j < UNITS; j += VECTOR) {
        const __m512i a = load(codes + j), b = load(codes + UNITS + j);
        const __m512i bits = load(codes + 2 * (size_t)UNITS + j);
        const __m512i low[] = {a, _mm512_srli_epi16(a, 4), b, _mm512_srli_epi16(b, 4)};
        for (size_t u = 0; u < 4; u++) {
            const __m512i code = _mm512_or_si512(_mm512_and_si512(low[u], mask), pair_of(bits, u));
            store(to + u * UNITS + j, _mm512_sub_epi8(code, bias));
        }
    }
}

void skv_q_values_avx512(int8_t *to, const unsigned char *codes, const skv_quant_header *h)
{
    if (h->bits == 8) {
        memcpy(to, codes, 4 * (size_t)UNITS);
        return;
    }
    if (h->bits == 6) {
        sixes(to, codes);
        return;
    }
    const __m128i levels = _mm_loadu_si128((const __m128i *)(const void *)h->levels);
    const __m512i table = _mm512_broadcast_i32x4(levels);
    nibbles(to, codes, table);
    nibbles(to + 2 * (size_t)UNITS, codes + UNITS, table);
}

/* f16 or bfloat16. */
INLINE __m512 load_16(const uint16_t *from, bool bf16)
{
    const __m256i bits = _mm256_loadu_si256((const __m256i *)(const void *)from);
    if (!bf16) return _mm512_cvtph_ps(bits);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

INLINE __m128i load_bytes(const unsigned char *from)
{
    return _mm_loadu_si128((const __m128i *)(const void *)from);
}

void skv_q_scales_avx512(float *scales, float *mins, const skv_quant_header *h,
                         const unsigned char *at, const uint16_t *span)
{
    const uint16_t *words = (const uint16_t *)(const void *)at;
    for (size_t j = 0; j < SKV_Q_NR; j += LANES) {
        __m512 scale, min;
        if (h->fine) {
            const __m512i fine = _mm512_cvtepi8_epi32(load_bytes(at + j));
            scale = _mm512_mul_ps(load_16(span + j, h->bf16), _mm512_cvtepi32_ps(fine));
        } else {
            scale = load_16(words + j, h->bf16);
        }
        _mm512_storeu_ps(scales + j, scale);
        if (!h->has_min) continue;
        if (h->fine) {
            const __m512i fine = _mm512_cvtepu8_epi32(load_bytes(at + SKV_Q_NR + j));
            min = _mm512_mul_ps(load_16(span + SKV_Q_NR + j, h->bf16), _mm512_cvtepi32_ps(fine));
            min = _mm512_sub_ps(_mm512_setzero_ps(), min);
        } else {
            min = load_16(words + SKV_Q_NR + j, h->bf16);
            if (h->zeros) min = _mm512_mul_ps(scale, min);
        }
        _mm512_storeu_ps(mins + j, min);
    }
}

/* Inlined for each n, so that the scales are registers. By value: what is stored is no member. */
INLINE void end_parts(const skv_q_end e, const size_t n, const bool has_min)
{
    __m512 scale[SKV_Q_SUMS], min[SKV_Q_SUMS];
    for (size_t p = 0; p < n; p++) {
        scale[p] = _mm512_loadu_ps(e.scales + p * SKV_Q_NR);
        if (has_min) min[p] = _mm512_loadu_ps(e.mins + p * SKV_Q_NR);
    }
    for (size_t i = 0; i < e.rows; i++) {
        float *sum = e.sum + i * LANES, *scaled = e.scaled + i * SKV_Q_NR;
        __m512 x = e.first ? _mm512_setzero_ps() : _mm512_loadu_ps(sum);
        for (size_t p = 0; p < n; p++) {
            const int32_t *dot = e.dots + (p * SKV_Q_TILE + i) * LANES;
            x = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_load_si512(dot)), scale[p], x);
            if (has_min) x = _mm512_fmadd_ps(min[p], _mm512_set1_ps(e.x_sums[p][i]), x);
        }
        if (e.last) {
            const __m512 row = _mm512_set1_ps(e.x_scales[i]);
            _mm512_storeu_ps(scaled, _mm512_fmadd_ps(x, row, _mm512_loadu_ps(scaled)));
        } else {
            _mm512_storeu_ps(sum, x);
        }
    }
}

void skv_q_end_avx512(const skv_q_end *e)
{
    if (e->n == SKV_Q_SUMS && !e->mins) {
        end_parts(*e, SKV_Q_SUMS, false);
    } else if (e->n == SKV_Q_SUMS) {
        end_parts(*e, SKV_Q_SUMS, true);
    } else if (!e->mins) {
        end_parts(*e, e->n, false);
    } else {
        end_parts(*e, e->n, true);
    }
}
