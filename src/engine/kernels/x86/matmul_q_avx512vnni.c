/*
 * The product with quantised weights with VPDPBUSD: values of W are made unsigned by the panel's
 * bias, which the accumulators take back by starting at -bias times the sum of the codes of X.
 */
#include <immintrin.h>

#include "kernels/matmul.h"
#include "kernels/quant_panel.h"
#include "kernels/x86/matmul_pack.h"
#include "kernels/x86/matmul_tile_avx512.h"

#define INLINE static inline __attribute__((always_inline))

enum { MR = SKV_MR512, NR = SKV_NR512, LANES = 16 };

typedef __m512 vec;
typedef __m512i ints;

INLINE vec vec_zero(void)
{
    return _mm512_setzero_ps();
}

INLINE vec vec_set1(float x)
{
    return _mm512_set1_ps(x);
}

INLINE vec vec_load(const float *from)
{
    return _mm512_loadu_ps(from);
}

INLINE void vec_store(float *to, vec x)
{
    _mm512_storeu_ps(to, x);
}

INLINE vec vec_add(vec x, vec y)
{
    return _mm512_add_ps(x, y);
}

INLINE vec vec_sub(vec x, vec y)
{
    return _mm512_sub_ps(x, y);
}

INLINE vec vec_mul(vec x, vec y)
{
    return _mm512_mul_ps(x, y);
}

INLINE vec vec_fma(vec x, vec y, vec z)
{
    return _mm512_fmadd_ps(x, y, z);
}

INLINE vec vec_of_ints(ints x)
{
    return _mm512_cvtepi32_ps(x);
}

INLINE vec vec_of_16(const uint16_t *from, bool bf16)
{
    __m256i bits = _mm256_loadu_si256((const __m256i *)(const void *)from);
    if (!bf16) return _mm512_cvtph_ps(bits);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

INLINE vec vec_of_i8(const unsigned char *from)
{
    return vec_of_ints(_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)from)));
}

INLINE vec vec_of_u8(const unsigned char *from)
{
    return vec_of_ints(_mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)from)));
}

INLINE void fetch(const float *c)
{
    skv_fetch512(c);
}

#include "kernels/matmul_q_level.inc"

/* dot += four unsigned bytes of w times four signed bytes of x in every lane: see i8. */
INLINE ints dot4(ints dot, ints w, ints x)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(dot) : "v"(w), "v"(x));
    return dot;
}

/* The values, made unsigned, of four elements of 16 columns: those of the low or the high nibbles.
 */
INLINE ints values(const unsigned char *codes, bool high, const code_kind kind, ints table)
{
    ints w = _mm512_loadu_si512(codes);
    if (kind == CODES_BYTES) return _mm512_xor_si512(w, _mm512_set1_epi8((char)0x80));
    w = _mm512_and_si512(high ? _mm512_srli_epi16(w, 4) : w, _mm512_set1_epi8(15));
    return kind == CODES_TABLE ? _mm512_shuffle_epi8(table, w) : w;
}

INLINE void dots(ints dot[MR][VECTORS], const part_args *a, const size_t m, const code_kind kind)
{
    const ints table = _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)a->h->biased));
    const unsigned char *codes = a->codes;
    const int32_t *x_units = a->x_units;
    for (size_t i = 0; i < m; i++) {
        ints start = _mm512_set1_epi32(-a->h->bias * a->x_sums[i]);
        for (size_t j = 0; j < VECTORS; j++) dot[i][j] = start;
    }
#pragma GCC unroll 1
    for (size_t p = 0; p < a->n_units; p += 2, codes += UNIT_BYTES) {
        for (size_t high = 0; high < 2; high++, x_units += m) {
            ints w[VECTORS];
            if (high && kind == CODES_BYTES) codes += UNIT_BYTES;
            for (size_t j = 0; j < VECTORS; j++) w[j] = values(codes + 64 * j, high, kind, table);
            for (size_t i = 0; i < m; i++) {
                ints xi = _mm512_set1_epi32(x_units[i]);
                for (size_t j = 0; j < VECTORS; j++) dot[i][j] = dot4(dot[i][j], w[j], xi);
            }
        }
    }
}

static void pack_x(void *block, const float *x, size_t ldx, size_t m, size_t K)
{
    skv_pack_x_q_avx2(block, (skv_pack_rows){x, ldx, m, K});
}

const skv_matmul skv_matmul_q_avx512vnni = {
    .nr = NR,
    .mr = MR,
    .kc = SKV_KC512,
    .x_bytes = x_bytes,
    .pack_x = pack_x,
    .tile = tile,
};
