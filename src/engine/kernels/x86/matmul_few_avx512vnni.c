/*
 * Few rows on the operands of AMX: see matmul_few.h.
 *
 * Codes of both operands have signs, and VPDPBUSD takes one without: so codes of W are made
 * unsigned by 128, and 128 times the sum of the codes of X is taken back. Integer sums are exact.
 *
 * TDPBF16PS adds up the even and the odd elements of a step apart, each by fused multiply-adds in
 * the order of K, and adds the sum of the two to c. It takes denormals for zeros and makes none. So
 * does this.
 */
#include <assert.h>
#include <immintrin.h>

#include "kernels/x86/matmul_few.h"

enum { LANES = 16, VECS = SKV_FEW_COLUMNS / LANES, UNIT = 4, BF16_STEP = 64 };
enum { NO_DENORMALS = 0x8040 }; /* MXCSR: neither operands nor results */

#define INLINE static inline __attribute__((always_inline))

/* An instruction of its own: with the intrinsic gcc 12 spills. */
INLINE __m512i dot4(__m512i dot, __m512i w, __m512i x)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(dot) : "v"(w), "v"(x));
    return dot;
}

/* Unit u of a step for all rows; `excess` are the sums of 128 times the codes of X. */
INLINE void unit_i8(__m512i dot[SKV_FEW_ROWS][VECS], __m512i excess[SKV_FEW_ROWS],
                    const skv_few_rows *r, size_t u, const size_t m)
{
    const __m512i sign = _mm512_set1_epi8((char)0x80);
    const unsigned char *columns = r->w + u * SKV_FEW_COLUMNS * UNIT;
    __m512i w[VECS];
    for (size_t j = 0; j < VECS; j++) {
        w[j] = _mm512_xor_si512(_mm512_loadu_si512(columns + j * LANES * UNIT), sign);
    }
    for (size_t i = 0; i < m; i++) {
        const int32_t *units = (const int32_t *)(const void *)(r->x + i * r->step);
        const __m512i x = _mm512_set1_epi32(units[u]);
        excess[i] = dot4(excess[i], sign, x);
        for (size_t j = 0; j < VECS; j++) dot[i][j] = dot4(dot[i][j], w[j], x);
    }
}

/* Inlined once for every m. Even and odd units have sums of their own, which do not wait for each
 * other. */
INLINE void rows_i8(int32_t *out, skv_few_rows r, const size_t m)
{
    __m512i dot[2][SKV_FEW_ROWS][VECS], excess[SKV_FEW_ROWS];
    for (size_t i = 0; i < m; i++) {
        excess[i] = _mm512_setzero_si512();
        for (size_t j = 0; j < VECS; j++) dot[0][i][j] = dot[1][i][j] = _mm512_setzero_si512();
    }
    const size_t n_units = r.step / UNIT;
    for (size_t s = 0; s < r.n_steps; s++) {
        for (size_t u = 0; u < n_units; u += 2) {
            unit_i8(dot[0], excess, &r, u, m);
            unit_i8(dot[1], excess, &r, u + 1, m);
        }
        r.x += m * r.step;
        r.w += r.step * SKV_FEW_COLUMNS;
    }
    for (size_t i = 0; i < m; i++) {
        for (size_t j = 0; j < VECS; j++) {
            const __m512i sum = _mm512_add_epi32(dot[0][i][j], dot[1][i][j]);
            _mm512_storeu_si512(out + i * SKV_FEW_COLUMNS + j * LANES,
                                _mm512_sub_epi32(sum, excess[i]));
        }
    }
}

void skv_few_i8_avx512vnni(int32_t *dot, const skv_few_rows *rows)
{
    assert(rows->m >= 1 && rows->m <= SKV_FEW_ROWS && rows->step % 32 == 0);
    switch (rows->m) {
    case 1: rows_i8(dot, *rows, 1); break;
    case 2: rows_i8(dot, *rows, 2); break;
    case 3: rows_i8(dot, *rows, 3); break;
    default: rows_i8(dot, *rows, 4); break;
    }
}

/* Of pairs of bfloat16 in a lane. */
INLINE __m512 even_of(__m512i pairs)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
}

INLINE __m512 odd_of(__m512i pairs)
{
    return _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32((int)0xffff0000u)));
}

/* The sums of a step of all rows, of its even and of its odd elements. */
INLINE void step_bf16(__m512 even[SKV_FEW_ROWS][VECS], __m512 odd[SKV_FEW_ROWS][VECS],
                      const skv_few_rows *r, const size_t m)
{
    _Alignas(64) float x[SKV_FEW_ROWS][2][LANES]; /* even and odd elements of the step */
    for (size_t i = 0; i < m; i++) {
        const __m512i pairs = _mm512_loadu_si512(r->x + i * BF16_STEP);
        _mm512_store_ps(x[i][0], even_of(pairs));
        _mm512_store_ps(x[i][1], odd_of(pairs));
        for (size_t j = 0; j < VECS; j++) even[i][j] = odd[i][j] = _mm512_setzero_ps();
    }
    for (size_t u = 0; u < BF16_STEP / UNIT; u++) {
        const unsigned char *columns = r->w + u * SKV_FEW_COLUMNS * UNIT;
        for (size_t j = 0; j < VECS; j++) {
            const __m512i pairs = _mm512_loadu_si512(columns + j * LANES * UNIT);
            const __m512 w0 = even_of(pairs), w1 = odd_of(pairs);
            for (size_t i = 0; i < m; i++) {
                even[i][j] = _mm512_fmadd_ps(_mm512_set1_ps(x[i][0][u]), w0, even[i][j]);
                odd[i][j] = _mm512_fmadd_ps(_mm512_set1_ps(x[i][1][u]), w1, odd[i][j]);
            }
        }
    }
}

INLINE void rows_bf16(float *c, size_t ldc, skv_few_rows r, bool add, const size_t m)
{
    __m512 sum[SKV_FEW_ROWS][VECS];
    for (size_t i = 0; i < m; i++) {
        for (size_t j = 0; j < VECS; j++) {
            sum[i][j] = add ? _mm512_loadu_ps(c + i * ldc + j * LANES) : _mm512_setzero_ps();
        }
    }
    for (size_t s = 0; s < r.n_steps; s++) {
        __m512 even[SKV_FEW_ROWS][VECS], odd[SKV_FEW_ROWS][VECS];
        step_bf16(even, odd, &r, m);
        for (size_t i = 0; i < m; i++) {
            for (size_t j = 0; j < VECS; j++) {
                sum[i][j] = _mm512_add_ps(sum[i][j], _mm512_add_ps(even[i][j], odd[i][j]));
            }
        }
        r.x += m * BF16_STEP;
        r.w += BF16_STEP * SKV_FEW_COLUMNS;
    }
    for (size_t i = 0; i < m; i++) {
        for (size_t j = 0; j < VECS; j++) _mm512_storeu_ps(c + i * ldc + j * LANES, sum[i][j]);
    }
}

/* Not inlined: no operation may leave it for a place where denormals count. */
static __attribute__((noinline)) void all_bf16(float *c, size_t ldc, const skv_few_rows *rows,
                                               bool add)
{
    switch (rows->m) {
    case 1: rows_bf16(c, ldc, *rows, add, 1); break;
    case 2: rows_bf16(c, ldc, *rows, add, 2); break;
    case 3: rows_bf16(c, ldc, *rows, add, 3); break;
    default: rows_bf16(c, ldc, *rows, add, 4); break;
    }
}

void skv_few_bf16_avx512vnni(float *c, size_t ldc, const skv_few_rows *rows, bool add)
{
    assert(rows->m >= 1 && rows->m <= SKV_FEW_ROWS && rows->step == BF16_STEP);
    const unsigned control = _mm_getcsr();
    _mm_setcsr(control | NO_DENORMALS);
    all_bf16(c, ldc, rows, add);
    _mm_setcsr(control);
}
