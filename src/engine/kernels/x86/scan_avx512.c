/* Linear attention for AVX-512: see scan_level.inc. */
#include <immintrin.h>

#include "kernels/x86/math_avx512.h"

#define VEC __m512
#define LANES 16
#define LOAD(p) _mm512_loadu_ps(p)
#define STORE(p, v) _mm512_storeu_ps(p, v)
#define LOAD_PART(x, i, n) _mm512_maskz_loadu_ps(skv_lanes16((n) - (i)), (x) + (i))
#define STORE_PART(y, i, n, v) _mm512_mask_storeu_ps((y) + (i), skv_lanes16((n) - (i)), v)
#define ALL(f) _mm512_set1_ps(f)
#define ZERO _mm512_setzero_ps()
#define ADD(a, b) _mm512_add_ps(a, b)
#define MUL(a, b) _mm512_mul_ps(a, b)
#define DIV(a, b) _mm512_div_ps(a, b)
#define FMA(a, b, c) _mm512_fmadd_ps(a, b, c)
#define FNMA(a, b, c) _mm512_fnmadd_ps(a, b, c)
#define EXP(x) skv_exp_avx512(x)
#define TILE 16
#define PANELS 4
#define SCAN_TABLE skv_scan_avx512
#include "kernels/scan_level.inc"
