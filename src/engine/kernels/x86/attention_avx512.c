/*
 * Attention with AVX-512: f32 tiles of 6 x 64 held in 24 registers. Pages of 16 and 8 bits are
 * widened when they are packed; with BF16 instructions they go to attention_avx512bf16.c.
 */
#include "kernels/x86/attention_avx512.h"

#include <immintrin.h>

#include "base/size.h"
#include "kernels/attention.h"
#include "kernels/attention_tiles.h"
#include "kernels/x86/math_avx512.h"

INLINE vec vec_fma(vec x, vec y, vec z)
{
    return _mm512_fmadd_ps(x, y, z);
}

INLINE vec vec_load_kv(const unsigned char *row, skv_kv_type type, size_t d, size_t n)
{
    return skv_kv16_avx512(row, type, d, skv_lanes16(n - d));
}

INLINE vec sums_of_pairs(vec x, vec y)
{
    return _mm512_add_ps(_mm512_unpacklo_ps(x, y), _mm512_unpackhi_ps(x, y));
}

INLINE vec sums_of_quarters(vec x, vec y)
{
    return _mm512_add_ps(_mm512_shuffle_f32x4(x, y, 0x88), _mm512_shuffle_f32x4(x, y, 0xdd));
}

INLINE vec vec_sums(const vec x[LANES])
{
    vec y[4];
    for (size_t i = 0; i < 4; i++) {
        __m512d a = _mm512_castps_pd(sums_of_pairs(x[4 * i], x[4 * i + 1]));
        __m512d b = _mm512_castps_pd(sums_of_pairs(x[4 * i + 2], x[4 * i + 3]));
        y[i] = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)),
                             _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
    }
    return sums_of_quarters(sums_of_quarters(y[0], y[1]), sums_of_quarters(y[2], y[3]));
}

enum { FEW_VECTORS = 16 };
#define ATTENTION_OWN_PACK_K
#include "kernels/attention_f32.inc"
#include "kernels/attention_few_f32.inc"
#define FEW_SCORES few_scores
#define FEW_VALUES few_values

/* panel [Dh][64]: sixteen rows of K become sixteen columns. */
INLINE void pack_k_of(unsigned char *panel, const skv_tile_page *p, skv_kv_type type)
{
    size_t Dh = p->head_dim;
    bool whole = type == SKV_KV_TYPE_F32 && p->row0 == 0 && p->row1 == SKV_PAGE_ROWS;
    float wide[16 * SKV_HEAD_DIM_MAX];
    size_t ld = skv_round_up(Dh, 16);
    for (size_t r0 = 0; r0 < SKV_PAGE_ROWS; r0 += 16) {
        const unsigned char *from = p->page + r0 * Dh * sizeof(float);
        size_t stride = Dh * sizeof(float);
        if (!whole) {
            for (size_t i = 0; i < 16; i++) widen_row(wide + i * ld, p, type, 0, r0 + i);
            from = (const unsigned char *)wide;
            stride = ld * sizeof(float);
        }
        skv_columns16_avx512(panel + r0 * sizeof(float), SKV_PAGE_ROWS, from, stride, Dh);
    }
}

#include "kernels/attention_pack.inc"
#define TILES const skv_attention_tiles skv_attention_tiles_avx512
#include "kernels/attention_level.inc"

static const skv_attention_ways ways = {
    .f32 = &skv_attention_tiles_avx512,
    .narrow = &skv_attention_tiles_avx512,
};
#include "kernels/attention_run.inc"

const skv_attention_kernels skv_attention_kernels_avx512 =
    ATTENTION_KERNELS(skv_kv_store_avx512, skv_kv_load_avx512);
