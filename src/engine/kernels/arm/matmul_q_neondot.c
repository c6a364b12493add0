/*
 * The product with quantised weights with SDOT: signed values of W, from a table of 16 where codes
 * have 4 bits, times the codes of X. Rows are packed by the reference.
 */
#include <arm_neon.h>

#include "kernels/arm/matmul_tile_neon.h"
#include "kernels/matmul.h"
#include "kernels/quant_panel.h"

#define INLINE static inline __attribute__((always_inline))

enum {
    MR = SKV_MR128,
    NR = SKV_NR128,
    KC = SKV_KC128,
    LANES = 4,
    COLUMNS = NR / LANES,
    STRIP = 12,
    AHEAD_SINGLE = 0
};

typedef float32x4_t vec;
typedef int32x4_t ints;

INLINE ints ints_add(ints x, ints y)
{
    return vaddq_s32(x, y);
}

INLINE ints ints_set1(int32_t x)
{
    return vdupq_n_s32(x);
}

#include "kernels/arm/vec_neon.inc"

INLINE vec vec_of_ints(ints x)
{
    return vcvtq_f32_s32(x);
}

INLINE vec vec_load_f16(const uint16_t *x)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(x)));
}

INLINE vec vec_load_bf16(const uint16_t *x)
{
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(x), 16));
}

INLINE vec vec_load_i8(const unsigned char *x)
{
    float values[4];
    for (size_t i = 0; i < 4; i++) values[i] = (float)(int8_t)x[i];
    return vld1q_f32(values);
}

INLINE vec vec_load_u8(const unsigned char *x)
{
    float values[4];
    for (size_t i = 0; i < 4; i++) values[i] = (float)x[i];
    return vld1q_f32(values);
}

/* A row of c is one line, which comes from far away. */
INLINE void vec_fetch(const float *c)
{
    __asm__ volatile("prfm pstl1keep, %0" : : "Q"(*c));
}

static void pack_x(void *block, const float *x, size_t ldx, size_t m, size_t K)
{
    skv_matmul_q_ref.pack_x(block, x, ldx, m, K);
}

#include "kernels/matmul_q_level.inc"

/* The signed values of elements 4u to 4u + 3 of the half at codes, of 4 columns. */
INLINE int8x16_t values(const unsigned char *codes, const size_t u, const code_kind kind,
                        int8x16_t table)
{
    if (kind == CODES_BYTES) return vreinterpretq_s8_u8(vld1q_u8(codes + u * UNIT_BYTES));
    uint8x16_t w = vld1q_u8(codes + u / 2 * UNIT_BYTES);
    w = u % 2 ? vshrq_n_u8(w, 4) : vandq_u8(w, vdupq_n_u8(15));
    if (kind != CODES_SIX) return vqtbl1q_s8(table, w);
    uint8x16_t high = vld1q_u8(codes + 2 * UNIT_BYTES);
    high = vshlq_u8(high, vdupq_n_s8((int8_t)(4 - 2 * (int)u)));
    w = vorrq_u8(w, vandq_u8(high, vdupq_n_u8(0x30)));
    return vsubq_s8(vreinterpretq_s8_u8(w), vdupq_n_s8(32));
}

INLINE void dots(ints dot[MR][COLUMNS], const part_args *a, const size_t m, const size_t nv,
                 const code_kind kind)
{
    const int8x16_t table = vld1q_s8(a->h->levels);
    const unsigned char *codes = a->codes;
    const int32_t *x_units = a->x_units;
    for (size_t i = 0; i < m; i++) {
        for (size_t j = 0; j < nv; j++) dot[i][j] = vdupq_n_s32(0);
    }
    for (size_t half = 0; half < a->n_halves; half++) {
        for (size_t u = 0; u < 4; u++, x_units += m) {
            int8x16_t w[COLUMNS];
            for (size_t j = 0; j < nv; j++) w[j] = values(codes + 16 * j, u, kind, table);
            for (size_t i = 0; i < m; i++) {
                int8x16_t xi = vreinterpretq_s8_s32(vdupq_n_s32(x_units[i]));
                for (size_t j = 0; j < nv; j++) dot[i][j] = vdotq_s32(dot[i][j], w[j], xi);
            }
        }
        codes += units_of_half(kind) * UNIT_BYTES;
    }
}

const skv_matmul skv_matmul_q_neondot = MATMUL_Q;
