/* The f32 matrix product with NEON: see matmul_float_neon.inc. */
#include <arm_neon.h>

#include "kernels/arm/matmul_tile_neon.h"
#include "kernels/matmul.h"

#define W float

static inline void get_weights(const W *w, float32x4_t at[4])
{
    for (size_t j = 0; j < 4; j++) at[j] = vld1q_f32(w + 4 * j);
}

#include "kernels/arm/matmul_float_neon.inc"

static void pack_w(void *panel, const float *w, size_t ldw, size_t n, size_t K)
{
    float *out = panel;
    for (size_t k = 0; k < K; k++, out += NR) {
        for (size_t j = 0; j < NR; j++) out[j] = j < n ? w[j * ldw + k] : 0.0f;
    }
}

const skv_matmul skv_matmul_f32_neon = {
    MATMUL_TILE, .w_bytes = w_bytes, .x_bytes = x_bytes, .pack_w = pack_w, .pack_x = pack_x_wide,
};
