/*
 * The product with quantised weights with AVX2. VPMADDUBSW multiplies unsigned with signed bytes
 * and adds pairs as 16-bit numbers.
 *
 * Even levels: the nibble is the unsigned byte. 8 pairs of at most 15 * 127 * 2 fit 16 bits, so a
 * whole group is added before it is widened, with the panel's bias taken back from the start.
 * Six bits, unsigned: two sums of at most 63 * 127 * 2 fit 16 bits, and the bias of 32 is taken
 * back from sums of 32 bits. Small levels from a table, made unsigned by the panel's bias: the
 * same, and in whole blocks as even levels, see matmul_q_blocks.inc. Other levels and codes of 8
 * bits: |w| times x with the sign of w is at most 2 * 128 * 127, which fits, and is widened each
 * time.
 */
#include <assert.h>

#include "kernels/quant_panel.h"
#include "kernels/x86/matmul_vec_avx2.h"

enum { STRIP = MR * COLUMNS, AHEAD_SINGLE = 4608 };

#define WHOLE_BLOCKS 1
#define SMALL_TABLES 1

static void pack_x(void *block, const float *x, size_t ldx, size_t m, size_t K)
{
    skv_pack_x_q_avx2(block, (skv_pack_rows){x, ldx, m, K});
}

#include "kernels/matmul_q_level.inc"

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

/* Even levels: sums of 16 bits, the first of each two beginning with the bias. */
INLINE void dots_even(ints dot[MR][COLUMNS], const part_args *a, const size_t m)
{
    const ints ones = _mm256_set1_epi16(1), bias = ints_set1(-a->h->bias & 0xffff);
    const unsigned char *codes = a->codes;
    const int32_t *x_units = a->x_units;
    for (size_t i = 0; i < m; i++) {
        dot[i][0] = dot[i][1] = _mm256_mullo_epi16(ints_set1(a->x_sums[i]), bias);
    }
#pragma GCC unroll 2
    for (size_t half = 0; half < 2; half++, codes += 2 * UNIT_BYTES) {
        if (half == a->n_halves) break;
#pragma GCC unroll 4
        for (size_t u = 0; u < 4; u++, x_units += m) {
            const unsigned char *from = codes + u / 2 * UNIT_BYTES;
            ints w0 = ints_load_nibbles(from, u % 2), w1 = ints_load_nibbles(from + 32, u % 2);
            for (size_t i = 0; i < m; i++) {
                ints xi = ints_set1(x_units[i]);
                dot[i][0] = dot2(dot[i][0], w0, xi);
                dot[i][1] = dot2(dot[i][1], w1, xi);
            }
        }
    }
    for (size_t i = 0; i < m; i++) {
        for (size_t j = 0; j < COLUMNS; j++) dot[i][j] = _mm256_madd_epi16(dot[i][j], ones);
    }
}

/* dot += two units of unsigned bytes of at most 64 times signed bytes of x. */
INLINE ints dot8(ints dot, ints w0, ints w1, ints x0, ints x1)
{
    ints pairs, more;
    __asm__("vpmaddubsw %5, %3, %1\n\tvpmaddubsw %6, %4, %2\n\t"
            "vpaddw %2, %1, %1\n\tvpmaddwd %7, %1, %1\n\tvpaddd %1, %0, %0"
            : "+x"(dot), "=&x"(pairs), "=&x"(more)
            : "x"(w0), "x"(w1), "x"(x0), "x"(x1), "x"(_mm256_set1_epi16(1)));
    return dot;
}

/* Units 2p and 2p + 1 of the half at codes, made unsigned, of the 8 columns from 8j on. */
INLINE void unsigned_pair(ints w[2], const unsigned char *codes, const size_t p, const size_t j,
                          const code_kind kind, ints table)
{
    const unsigned char *low = codes + p * UNIT_BYTES + 32 * j;
    w[0] = ints_load_nibbles(low, false);
    w[1] = ints_load_nibbles(low, true);
    if (kind == CODES_SMALL) {
        w[0] = ints_look_up(table, w[0]);
        w[1] = ints_look_up(table, w[1]);
        return;
    }
    const ints high = ints_load(codes + 2 * UNIT_BYTES + 32 * j);
    w[0] = ints_add_high(w[0], high, 2 * p);
    w[1] = ints_add_high(w[1], high, 2 * p + 1);
}

/* Six bits and small levels: sums of 32 bits, of rows [i0, i1) of m. */
INLINE void dots_unsigned(ints dot[MR][COLUMNS], const part_args *a, const size_t m,
                          const size_t i0, const size_t i1, const code_kind kind)
{
    const ints bias = ints_set1(-a->h->bias), table = ints_load_table(a->h->biased);
    const unsigned char *codes = a->codes;
    const int32_t *x_units = a->x_units;
    for (size_t i = i0; i < i1; i++) {
        dot[i][0] = dot[i][1] = ints_mul(ints_set1(a->x_sums[i]), bias);
    }
#pragma GCC unroll 2
    for (size_t half = 0; half < 2; half++, codes += units_of_half(kind) * UNIT_BYTES) {
        if (half == a->n_halves) break;
#pragma GCC unroll 2
        for (size_t p = 0; p < 2; p++, x_units += 2 * m) {
            for (size_t j = 0; j < COLUMNS; j++) {
                ints w[2];
                unsigned_pair(w, codes, p, j, kind, table);
                for (size_t i = i0; i < i1; i++) {
                    ints x0 = ints_set1(x_units[i]), x1 = ints_set1(x_units[m + i]);
                    dot[i][j] = dot8(dot[i][j], w[0], w[1], x0, x1);
                }
            }
        }
    }
}

/* The signed values of elements 4u to 4u + 3 of the half at codes, of 8 columns. */
INLINE ints values(const unsigned char *codes, const size_t u, const code_kind kind, ints table)
{
    if (kind == CODES_BYTES) return ints_load(codes + u * UNIT_BYTES);
    return ints_look_up(table, ints_load_nibbles(codes + u / 2 * UNIT_BYTES, u % 2));
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

/* Any signed values: sums of 32 bits, of rows [i0, i1) of m. */
INLINE void dots_signed(ints dot[MR][COLUMNS], const part_args *a, const size_t m, const size_t i0,
                        const size_t i1, const code_kind kind)
{
    const ints table = ints_load_table(a->h->levels);
    const unsigned char *codes = a->codes;
    const int32_t *x_units = a->x_units;
    for (size_t i = i0; i < i1; i++) dot[i][0] = dot[i][1] = ints_set1(0);
#pragma GCC unroll 2
    for (size_t half = 0; half < 2; half++, codes += units_of_half(kind) * UNIT_BYTES) {
        if (half == a->n_halves) break;
#pragma GCC unroll 4
        for (size_t u = 0; u < 4; u++, x_units += m) {
            ints w0 = values(codes, u, kind, table), aw0 = _mm256_abs_epi8(w0);
            ints w1 = values(codes + 32, u, kind, table), aw1 = _mm256_abs_epi8(w1);
            for (size_t i = i0; i < i1; i++) {
                ints xi = ints_set1(x_units[i]);
                dot[i][0] = dot4(dot[i][0], w0, aw0, xi);
                dot[i][1] = dot4(dot[i][1], w1, aw1, xi);
            }
        }
    }
}

/* More than 4 rows would not fit the registers but for even levels. */
INLINE void dots(ints dot[MR][COLUMNS], const part_args *a, const size_t m, const size_t nv,
                 const code_kind kind)
{
    const size_t half = m > 4 ? m / 2 : m;
    (void)nv;
    if (kind == CODES_EVEN) {
        dots_even(dot, a, m);
        return;
    }
    if (kind == CODES_SIX || kind == CODES_SMALL) {
        dots_unsigned(dot, a, m, 0, half, kind);
        if (half < m) dots_unsigned(dot, a, m, half, m, kind);
        return;
    }
    dots_signed(dot, a, m, 0, half, kind);
    if (half < m) dots_signed(dot, a, m, half, m, kind);
}

#include "kernels/x86/matmul_q_blocks.inc"

const skv_matmul skv_matmul_q_avx2 = MATMUL_Q;
