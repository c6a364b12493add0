/* The matrix products with AMX: see matmul_amx.inc. */
#include <immintrin.h>

#include "kernels/matmul.h"
#include "kernels/x86/amx.h"
#include "kernels/x86/amx_rows.h"
#include "kernels/x86/math_avx512.h"
#include "kernels/x86/matmul_pack.h"

enum { LANES = 16 };

static void round_bf16(uint16_t *out, const float *x, size_t n)
{
    for (size_t k = 0; k < n; k += LANES) {
        const __m256i bits = skv_to_bf16_avx512(amx_load_lanes(x + k, n - k));
        _mm256_mask_storeu_epi16(out + k, skv_lanes16(n - k), bits);
    }
}

static inline __m512 load_scales(const uint16_t *x)
{
    const __m256i bits = _mm256_loadu_si256((const __m256i *)(const void *)x);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

static inline __m512 scaled(const int32_t *dot, __m512 columns)
{
    return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_load_si512(dot)), columns);
}

static inline void scale_sums(float *c, size_t ldc, const int32_t *dot, const float *rows,
                              const uint16_t *columns, size_t m, bool add)
{
    const __m512 left = load_scales(columns), right = load_scales(columns + LANES);
    for (size_t i = 0; i < m; i++, c += ldc, dot += 2 * LANES) {
        const __m512 row = _mm512_set1_ps(rows[i]);
        const __m512 a = add ? _mm512_loadu_ps(c) : _mm512_setzero_ps();
        const __m512 b = add ? _mm512_loadu_ps(c + LANES) : _mm512_setzero_ps();
        _mm512_storeu_ps(c, _mm512_fmadd_ps(scaled(dot, left), row, a));
        _mm512_storeu_ps(c + LANES, _mm512_fmadd_ps(scaled(dot + LANES, right), row, b));
    }
}

#define AMX_PACK_W_I8(panel, w, ldw, n, K, nr, group)                                              \
    skv_pack_w_i8_avx2(panel, (skv_pack_rows){w, ldw, n, K}, nr, group, 0)
#define AMX_PACK_W_BF16(panel, w, ldw, n, K, nr)                                                   \
    skv_pack_w_bf16_avx2(panel, (skv_pack_rows){w, ldw, n, K}, nr)
#define AMX_FEW_I8 skv_few_i8_avx512vnni
#define AMX_FEW_BF16 skv_few_bf16_avx512vnni
#define AMX_LARGEST amx_largest
#define AMX_QUANTISE amx_quantise
#define AMX_ROUND round_bf16
#define AMX_SCALE(s, ldc, m) scale_sums((s)->c, ldc, (s)->dot, (s)->rows, (s)->columns, m, (s)->add)

#include "kernels/x86/matmul_amx.inc"

const skv_matmul skv_matmul_i8_amx = AMX_MATMUL_I8;
const skv_matmul skv_matmul_bf16_amx = AMX_MATMUL_BF16;
const skv_matmul skv_matmul_i8_amx_paired = AMX_MATMUL_I8_PAIRED;
const skv_matmul skv_matmul_i8_amx_few = AMX_MATMUL_I8_FEW;
const skv_matmul skv_matmul_bf16_amx_few = AMX_MATMUL_BF16_FEW;
const skv_matmul skv_matmul_i8_amx_whole = AMX_MATMUL_I8_WHOLE;
const skv_matmul skv_matmul_bf16_amx_paired = AMX_MATMUL_BF16_PAIRED;
const skv_peak_loop skv_peak_i8_amx = AMX_PEAK(i8, 64, "TDPBSSD");
const skv_peak_loop skv_peak_bf16_amx = AMX_PEAK(bf16, 32, "TDPBF16PS");
