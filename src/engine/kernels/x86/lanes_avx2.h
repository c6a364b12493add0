/* Vectors of eight floats, named as rows_level.inc, kv_level.inc and scan_level.inc name them. For
 * the AVX2 sources only. */
#ifndef SKV_KERNELS_X86_LANES_AVX2_H
#define SKV_KERNELS_X86_LANES_AVX2_H

#include <immintrin.h>
#include <math.h>

#include "kernels/x86/math_avx2.h"

#define KERNEL(name) name##_avx2
#define VEC __m256
#define LANES 8
#define LOAD(p) _mm256_loadu_ps(p)
#define STORE(p, v) _mm256_storeu_ps(p, v)
#define LOAD_PART(x, i, n) skv_load8_avx2(x, i, n)
#define STORE_PART(y, i, n, v) skv_store8_avx2(y, i, n, v)
#define LOAD_LAST(x, i, n)                                                                         \
    _mm256_blendv_ps(ALL(-HUGE_VALF), LOAD_PART(x, i, n),                                          \
                     _mm256_castsi256_ps(skv_lanes8((n) - (i))))
#define LOAD_BF16(p)                                                                               \
    _mm256_castsi256_ps(                                                                           \
        _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)(p))), 16))
#define STORE_BF16(p, v) _mm_storeu_si128((void *)(p), skv_to_bf16_avx2(v))
#define ALL(f) _mm256_set1_ps(f)
#define ZERO _mm256_setzero_ps()
#define ADD(a, b) _mm256_add_ps(a, b)
#define SUB(a, b) _mm256_sub_ps(a, b)
#define MUL(a, b) _mm256_mul_ps(a, b)
#define DIV(a, b) _mm256_div_ps(a, b)
#define FMA(a, b, c) _mm256_fmadd_ps(a, b, c)
#define FMS(a, b, c) _mm256_fmsub_ps(a, b, c)
#define FNMA(a, b, c) _mm256_fnmadd_ps(a, b, c)
#define MAX(x, most) _mm256_max_ps(x, most)
#define ABS(x) _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x)
#define EXP(x) skv_exp_avx2(x)
#define TANH(x) skv_tanh_avx2(x)
#define SUM(x) skv_sum8_avx2(x)
#define LARGEST(x) skv_max8_avx2(x)
#define ANY_EQUAL(a, b) (_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_EQ_OQ)) != 0)

#endif
