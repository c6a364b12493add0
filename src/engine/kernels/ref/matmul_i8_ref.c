/*
 * The int8 matrix product, plainly: symmetric codes -127..127, one scale for each row (of W and
 * of X) and group along K, int32 sums within a group and f32 sums across groups.
 *
 * Panel  [NR * n_groups] bfloat16 scales, then [K][NR] codes, padded to a multiple of 4 bytes.
 * Block  [n_groups][m] f32 scales, then [K][m] codes, padded in the same way.
 */
#include <math.h>

#include "base/size.h"
#include "kernels/bf16.h"
#include "kernels/matmul.h"
#include "kernels/ref/matmul_ref.h"

static size_t w_bytes(size_t K)
{
    return skv_ceil_div(K, skv_i8_group(K)) * NR * sizeof(uint16_t) + K * NR;
}

static size_t x_bytes(size_t m, size_t K)
{
    return skv_ceil_div(K, skv_i8_group(K)) * m * sizeof(float) +
           skv_round_up(K * m, sizeof(float));
}

/* Codes of one group of one row, `stride` bytes apart. */
static void quantise(int8_t *codes, size_t stride, const float *x, size_t n, float scale)
{
    float inverse = skv_i8_inverse(scale);
    for (size_t k = 0; k < n; k++) codes[k * stride] = (int8_t)lrintf(x[k] * inverse);
}

static void pack_w(void *panel, const float *w, size_t ldw, size_t n, size_t K)
{
    size_t group = skv_i8_group(K), n_groups = skv_ceil_div(K, group);
    uint16_t *scales = panel;
    int8_t *codes = (int8_t *)(scales + n_groups * NR);
    for (size_t g = 0; g < n_groups; g++) {
        size_t k0 = g * group, len = skv_min_size(group, K - k0);
        for (size_t j = 0; j < NR; j++) {
            /* The codes are made with the rounded scale, so its rounding costs nothing. */
            const float *row = w + (j < n ? j * ldw + k0 : 0);
            uint16_t scale = j < n ? skv_f32_to_bf16(skv_i8_scale(skv_ref_largest(row, len))) : 0;
            scales[g * NR + j] = scale;
            quantise(codes + k0 * NR + j, NR, row, len, skv_bf16_to_f32(scale));
        }
    }
}

static void pack_x(void *block, const float *x, size_t ldx, size_t m, size_t K)
{
    size_t group = skv_i8_group(K), n_groups = skv_ceil_div(K, group);
    float *scales = block;
    int8_t *codes = (int8_t *)(scales + n_groups * m);
    for (size_t g = 0; g < n_groups; g++) {
        size_t k0 = g * group, len = skv_min_size(group, K - k0);
        for (size_t i = 0; i < m; i++) {
            const float *row = x + i * ldx + k0;
            float scale = skv_i8_scale(skv_ref_largest(row, len));
            scales[g * m + i] = scale;
            quantise(codes + k0 * m + i, m, row, len, scale);
        }
    }
}

static void tile_row(float *sum, const void *block, const void *panel, size_t m, size_t i, size_t K,
                     size_t k0, size_t k1)
{
    size_t group = skv_i8_group(K), n_groups = skv_ceil_div(K, group);
    const float *x_scales = block;
    const uint16_t *w_scales = panel;
    const int8_t *x = (const int8_t *)(x_scales + n_groups * m);
    const int8_t *w = (const int8_t *)(w_scales + n_groups * NR);
    for (; k0 < k1; k0 += group) {
        size_t g = k0 / group, end = skv_min_size(k0 + group, k1);
        int32_t dot[NR] = {0};
        for (size_t k = k0; k < end; k++) {
            for (size_t j = 0; j < NR; j++) dot[j] += x[k * m + i] * w[k * NR + j];
        }
        for (size_t j = 0; j < NR; j++) {
            float scale = skv_bf16_to_f32(w_scales[g * NR + j]) * x_scales[g * m + i];
            sum[j] += (float)dot[j] * scale;
        }
    }
}

static void tile(float *c, size_t ldc, const void *block, const void *panel, size_t m, size_t K,
                 size_t k0, size_t k1, unsigned mode)
{
    const bool add = mode & SKV_TILE_ADD;
    for (size_t i = 0; i < m; i++) {
        float sum[NR] = {0};
        tile_row(sum, block, panel, m, i, K, k0, k1);
        for (size_t j = 0; j < NR; j++) c[i * ldc + j] = add ? c[i * ldc + j] + sum[j] : sum[j];
    }
}

const skv_matmul skv_matmul_i8_ref = {
    SKV_REF_TILE,     .w_bytes = w_bytes, .x_bytes = x_bytes,
    .pack_w = pack_w, .pack_x = pack_x,   .tile = tile,
};
