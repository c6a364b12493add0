/* Rows of floats for the products of AMX: their largest magnitudes and their int8 codes. */
#ifndef SKV_KERNELS_X86_AMX_ROWS_H
#define SKV_KERNELS_X86_AMX_ROWS_H

#include <stdint.h>

#include "kernels/x86/math_avx512.h"

enum { AMX_LANES = 16 };

static inline __m512 amx_load_lanes(const float *x, size_t n)
{
    return n >= AMX_LANES ? _mm512_loadu_ps(x) : _mm512_maskz_loadu_ps(skv_lanes16(n), x);
}

static inline float amx_largest(const float *x, size_t n)
{
    __m512 most = _mm512_setzero_ps();
    for (size_t k = 0; k < n; k += AMX_LANES) {
        most = _mm512_max_ps(most, _mm512_abs_ps(amx_load_lanes(x + k, n - k)));
    }
    return _mm512_reduce_max_ps(most);
}

static inline void amx_quantise(int8_t *codes, const float *x, size_t n, float inverse)
{
    const __m512 factor = _mm512_set1_ps(inverse);
    for (size_t k = 0; k < n; k += AMX_LANES) {
        const __m512i c = _mm512_cvtps_epi32(_mm512_mul_ps(amx_load_lanes(x + k, n - k), factor));
        _mm_mask_storeu_epi8(codes + k, skv_lanes16(n - k), _mm512_cvtsepi32_epi8(c));
    }
}

#endif
