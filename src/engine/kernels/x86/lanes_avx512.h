/* Vectors of sixteen floats, named as rows_level.inc, kv_level.inc and scan_level.inc name them.
 * For the AVX-512 sources only. */
#ifndef SKV_KERNELS_X86_LANES_AVX512_H
#define SKV_KERNELS_X86_LANES_AVX512_H

#include <immintrin.h>
#include <math.h>

#include "kernels/x86/math_avx512.h"

#define KERNEL(name) name##_avx512
#define VEC __m512
#define LANES 16
#define LOAD(p) _mm512_loadu_ps(p)
#define STORE(p, v) _mm512_storeu_ps(p, v)
#define LOAD_PART(x, i, n) _mm512_maskz_loadu_ps(skv_lanes16((n) - (i)), (x) + (i))
#define STORE_PART(y, i, n, v) _mm512_mask_storeu_ps((y) + (i), skv_lanes16((n) - (i)), v)
#define LOAD_LAST(x, i, n) _mm512_mask_loadu_ps(ALL(-HUGE_VALF), skv_lanes16((n) - (i)), (x) + (i))
#define LOAD_BF16(p)                                                                               \
    _mm512_castsi512_ps(                                                                           \
        _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)(p))), 16))
#define STORE_BF16(p, v) _mm256_storeu_si256((void *)(p), skv_to_bf16_avx512(v))
#define ALL(f) _mm512_set1_ps(f)
#define ZERO _mm512_setzero_ps()
#define ADD(a, b) _mm512_add_ps(a, b)
#define SUB(a, b) _mm512_sub_ps(a, b)
#define MUL(a, b) _mm512_mul_ps(a, b)
#define DIV(a, b) _mm512_div_ps(a, b)
#define FMA(a, b, c) _mm512_fmadd_ps(a, b, c)
#define FMS(a, b, c) _mm512_fmsub_ps(a, b, c)
#define FNMA(a, b, c) _mm512_fnmadd_ps(a, b, c)
#define MAX(x, most) _mm512_max_ps(x, most)
#define ABS(x) _mm512_abs_ps(x)
#define EXP(x) skv_exp_avx512(x)
#define TANH(x) skv_tanh_avx512(x)
#define SUM(x) _mm512_reduce_add_ps(x)
#define LARGEST(x) _mm512_reduce_max_ps(x)
#define ANY_EQUAL(a, b) (_mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ) != 0)

#endif
