/* What the AVX-512 sources of attention share: the f32 tiles and the head of the softmax. */
#ifndef SKV_KERNELS_X86_ATTENTION_AVX512_H
#define SKV_KERNELS_X86_ATTENTION_AVX512_H

#include <immintrin.h>
#include <math.h>

#include "kernels/attention_tiles.h"
#include "kernels/x86/math_avx512.h"

extern const skv_attention_tiles skv_attention_tiles_avx512;

skv_kv_store_fn skv_kv_store_avx512;
skv_kv_load_fn skv_kv_load_avx512;
skv_attention_fn skv_attention_avx512bf16;
skv_attention_part_fn skv_attention_part_avx512bf16;

/* The scores of row r: scaled and capped if asked, minus infinity where nothing is seen. */
static inline void skv_softmax_load_avx512(const skv_tile_softmax *t, size_t r, __m512 x[4])
{
    const float *s = t->s + r * SKV_PAGE_ROWS;
    for (size_t v = 0; v < 4; v++) x[v] = _mm512_loadu_ps(s + 16 * v);
    if (t->k_scales) {
        for (size_t v = 0; v < 4; v++) {
            x[v] = _mm512_mul_ps(x[v], _mm512_loadu_ps(t->k_scales + 16 * v));
        }
    }
    if (t->cap > 0.0f) {
        for (size_t v = 0; v < 4; v++) {
            x[v] = _mm512_mul_ps(skv_tanh_avx512(x[v]), _mm512_set1_ps(t->cap));
        }
    }
    if (t->visible) {
        for (size_t v = 0; v < 4; v++) {
            __mmask16 seen = (__mmask16)(t->visible[r] >> 16 * v);
            x[v] = _mm512_mask_mov_ps(_mm512_set1_ps(-HUGE_VALF), seen, x[v]);
        }
    }
}

/* Raises the maximum of row r if a score passes it by more than the slack; true if so. */
static inline bool skv_softmax_raise_avx512(const skv_tile_softmax *t, size_t r, const __m512 x[4])
{
    __m512 most = _mm512_max_ps(_mm512_max_ps(x[0], x[1]), _mm512_max_ps(x[2], x[3]));
    __m512 limit = _mm512_set1_ps(t->max[r] + t->slack);
    t->shrink[r] = 1.0f;
    if (_mm512_cmp_ps_mask(most, limit, _CMP_GT_OQ) == 0) return false;
    float max = _mm512_reduce_max_ps(most);
    float *sums = t->sums + r * SKV_TILE_SUMS;
    __m512 shrink = skv_exp2_avx512(_mm512_set1_ps(t->max[r] - max));
    _mm512_storeu_ps(sums, _mm512_mul_ps(_mm512_loadu_ps(sums), shrink));
    t->shrink[r] = _mm512_cvtss_f32(shrink);
    t->max[r] = max;
    return true;
}

#endif
