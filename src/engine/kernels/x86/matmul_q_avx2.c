/*
 * The product with quantised weights with AVX2. VPMADDUBSW multiplies unsigned with signed bytes
 * and adds pairs as 16-bit numbers.
 *
 * Even levels: the nibble is the unsigned byte. 8 pairs of at most 15 * 127 * 2 fit 16 bits, so a
 * whole group is added before it is widened, and the panel's bias is taken back afterwards.
 * Other levels and codes of 8 bits: |w| times x with the sign of w is at most 2 * 128 * 127, which
 * fits, and is widened each time.
 */
#include <immintrin.h>

#include "kernels/matmul.h"
#include "kernels/quant_panel.h"
#include "kernels/x86/matmul_pack.h"
#include "kernels/x86/matmul_tile_avx2.h"

#define INLINE static inline __attribute__((always_inline))

enum { MR = 4, NR = SKV_NR256, LANES = 8 };

typedef __m256 vec;
typedef __m256i ints;

INLINE vec vec_zero(void)
{
    return _mm256_setzero_ps();
}

INLINE vec vec_set1(float x)
{
    return _mm256_set1_ps(x);
}

INLINE vec vec_load(const float *from)
{
    return _mm256_loadu_ps(from);
}

INLINE void vec_store(float *to, vec x)
{
    _mm256_storeu_ps(to, x);
}

INLINE vec vec_add(vec x, vec y)
{
    return _mm256_add_ps(x, y);
}

INLINE vec vec_sub(vec x, vec y)
{
    return _mm256_sub_ps(x, y);
}

INLINE vec vec_mul(vec x, vec y)
{
    return _mm256_mul_ps(x, y);
}

INLINE vec vec_fma(vec x, vec y, vec z)
{
    return _mm256_fmadd_ps(x, y, z);
}

INLINE vec vec_of_ints(ints x)
{
    return _mm256_cvtepi32_ps(x);
}

INLINE vec vec_of_16(const uint16_t *from, bool bf16)
{
    __m128i bits = _mm_loadu_si128((const __m128i *)(const void *)from);
    if (!bf16) return _mm256_cvtph_ps(bits);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

INLINE vec vec_of_i8(const unsigned char *from)
{
    return vec_of_ints(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)from)));
}

INLINE vec vec_of_u8(const unsigned char *from)
{
    return vec_of_ints(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)from)));
}

INLINE void fetch(const float *c)
{
    (void)c;
}

#include "kernels/matmul_q_level.inc"

/* Four codes of 8 columns: those of the low or the high nibbles. */
INLINE ints nibbles(const unsigned char *codes, bool high)
{
    ints w = _mm256_loadu_si256((const __m256i *)(const void *)codes);
    return _mm256_and_si256(high ? _mm256_srli_epi16(w, 4) : w, _mm256_set1_epi8(15));
}

/* dot += pairs of unsigned bytes of w times signed bytes of x, in 16 bits. As assembly the compiler
 * keeps the accumulators in place; with intrinsics gcc 12 joins the sums of several products first
 * and spills. */
INLINE ints dot2(ints dot, ints w, ints x)
{
    ints pairs;
    __asm__("vpmaddubsw %3, %2, %1\n\tvpaddw %1, %0, %0"
            : "+x"(dot), "=&x"(pairs)
            : "x"(w), "x"(x));
    return dot;
}

/* Even levels: sums of 16 bits. */
INLINE void dots_even(ints dot[MR][VECTORS], const part_args *a, const size_t m)
{
    const ints ones = _mm256_set1_epi16(1);
    const unsigned char *codes = a->codes;
    const int32_t *x_units = a->x_units;
    for (size_t i = 0; i < m; i++) dot[i][0] = dot[i][1] = _mm256_setzero_si256();
#pragma GCC unroll 1
    for (size_t p = 0; p < a->n_units; p += 2, codes += UNIT_BYTES) {
        for (size_t high = 0; high < 2; high++, x_units += m) {
            ints w0 = nibbles(codes, high), w1 = nibbles(codes + 32, high);
            for (size_t i = 0; i < m; i++) {
                ints xi = _mm256_set1_epi32(x_units[i]);
                dot[i][0] = dot2(dot[i][0], w0, xi);
                dot[i][1] = dot2(dot[i][1], w1, xi);
            }
        }
    }
    for (size_t i = 0; i < m; i++) {
        ints start = _mm256_set1_epi32(-a->h->bias * a->x_sums[i]);
        dot[i][0] = _mm256_add_epi32(_mm256_madd_epi16(dot[i][0], ones), start);
        dot[i][1] = _mm256_add_epi32(_mm256_madd_epi16(dot[i][1], ones), start);
    }
}

/* The signed values of four elements of 8 columns. */
INLINE ints values(const unsigned char *codes, bool high, const code_kind kind, ints table)
{
    if (kind == CODES_BYTES) return _mm256_loadu_si256((const __m256i *)(const void *)codes);
    return _mm256_shuffle_epi8(table, nibbles(codes, high));
}

/* dot += four signed bytes of w times four signed bytes of x in every lane; aw is |w|. */
INLINE ints dot4(ints dot, ints w, ints aw, ints x)
{
    ints pairs;
    __asm__("vpsignb %2, %4, %1\n\tvpmaddubsw %1, %3, %1\n\t"
            "vpmaddwd %5, %1, %1\n\tvpaddd %1, %0, %0"
            : "+x"(dot), "=&x"(pairs)
            : "x"(w), "x"(aw), "x"(x), "x"(_mm256_set1_epi16(1)));
    return dot;
}

/* Any signed values: sums of 32 bits. */
INLINE void dots_signed(ints dot[MR][VECTORS], const part_args *a, const size_t m,
                        const code_kind kind)
{
    const ints table = _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)a->h->levels));
    const unsigned char *codes = a->codes;
    const int32_t *x_units = a->x_units;
    for (size_t i = 0; i < m; i++) dot[i][0] = dot[i][1] = _mm256_setzero_si256();
#pragma GCC unroll 1
    for (size_t p = 0; p < a->n_units; p += 2, codes += UNIT_BYTES) {
        for (size_t high = 0; high < 2; high++, x_units += m) {
            if (high && kind == CODES_BYTES) codes += UNIT_BYTES;
            ints w0 = values(codes, high, kind, table), aw0 = _mm256_abs_epi8(w0);
            ints w1 = values(codes + 32, high, kind, table), aw1 = _mm256_abs_epi8(w1);
            for (size_t i = 0; i < m; i++) {
                ints xi = _mm256_set1_epi32(x_units[i]);
                dot[i][0] = dot4(dot[i][0], w0, aw0, xi);
                dot[i][1] = dot4(dot[i][1], w1, aw1, xi);
            }
        }
    }
}

INLINE void dots(ints dot[MR][VECTORS], const part_args *a, const size_t m, const code_kind kind)
{
    if (kind == CODES_EVEN) {
        dots_even(dot, a, m);
    } else {
        dots_signed(dot, a, m, kind);
    }
}

static void pack_x(void *block, const float *x, size_t ldx, size_t m, size_t K)
{
    skv_pack_x_q_avx2(block, (skv_pack_rows){x, ldx, m, K});
}

const skv_matmul skv_matmul_q_avx2 = {
    .nr = NR,
    .mr = MR,
    .kc = SKV_KC256,
    .x_bytes = x_bytes,
    .pack_x = pack_x,
    .tile = tile,
};
