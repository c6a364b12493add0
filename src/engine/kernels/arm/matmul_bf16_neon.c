/*
 * The products with bfloat16 weights, with NEON (see matmul_float_neon.inc): weights are widened
 * once for the rows of a tile; bf16 rounds rows when they are packed, wide does not, and both store
 * them as f32.
 */
#include <arm_neon.h>

#include "kernels/arm/matmul_tile_neon.h"
#include "kernels/bf16.h"
#include "kernels/matmul.h"

#define W uint16_t

static inline void get_weights(const W *w, float32x4_t at[4])
{
    for (size_t j = 0; j < 4; j += 2) {
        const uint16x8_t two = vld1q_u16(w + 4 * j);
        at[j] = skv_widen_neon(vget_low_u16(two));
        at[j + 1] = skv_widen_neon(vget_high_u16(two));
    }
}

#include "kernels/arm/matmul_float_neon.inc"

static void pack_w(void *panel, const float *w, size_t ldw, size_t n, size_t K)
{
    uint16_t *out = panel;
    for (size_t k = 0; k < K; k++, out += NR) {
        for (size_t j = 0; j < NR; j++) {
            out[j] = j < n ? skv_f32_to_bf16(w[j * ldw + k]) : 0;
        }
    }
}

static void pack_x(void *block, const float *x, size_t ldx, size_t m, size_t K)
{
    float *out = block;
    for (size_t k = 0; k < K; k++, out += m) {
        for (size_t i = 0; i < m; i++) out[i] = skv_bf16_to_f32(skv_f32_to_bf16(x[i * ldx + k]));
    }
}

const skv_matmul skv_matmul_wide_neon = {
    MATMUL_TILE, .w_bytes = w_bytes, .x_bytes = x_bytes, .pack_w = pack_w, .pack_x = pack_x_wide,
};

const skv_matmul skv_matmul_bf16_neon = {
    MATMUL_TILE, .w_bytes = w_bytes, .x_bytes = x_bytes, .pack_w = pack_w, .pack_x = pack_x,
};
