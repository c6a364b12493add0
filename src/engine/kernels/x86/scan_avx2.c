/* Linear attention for AVX2 and FMA: see scan_level.inc. */
#include <immintrin.h>

#include "kernels/x86/math_avx2.h"

#define VEC __m256
#define LANES 8
#define LOAD(p) _mm256_loadu_ps(p)
#define STORE(p, v) _mm256_storeu_ps(p, v)
#define LOAD_PART(x, i, n) skv_load8_avx2(x, i, n)
#define STORE_PART(y, i, n, v) skv_store8_avx2(y, i, n, v)
#define ALL(f) _mm256_set1_ps(f)
#define ZERO _mm256_setzero_ps()
#define ADD(a, b) _mm256_add_ps(a, b)
#define MUL(a, b) _mm256_mul_ps(a, b)
#define DIV(a, b) _mm256_div_ps(a, b)
#define FMA(a, b, c) _mm256_fmadd_ps(a, b, c)
#define FNMA(a, b, c) _mm256_fnmadd_ps(a, b, c)
#define EXP(x) skv_exp_avx2(x)
#define TILE 4
#define PANELS 2
#define SCAN_TABLE skv_scan_avx2
#include "kernels/scan_level.inc"
