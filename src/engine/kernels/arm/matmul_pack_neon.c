/* Packing for the NEON int8 matrix products: see matmul_pack_neon.h. */
#include "kernels/arm/matmul_pack_neon.h"

#include <arm_neon.h>
#include <string.h>

#include "kernels/bf16.h"
#include "kernels/matmul.h"

size_t skv_pack_w_i8_bytes_neon(size_t K)
{
    size_t n_groups = skv_ceil_div(K, skv_i8_group(K));
    return SKV_I8_NR128 * (n_groups * sizeof(uint16_t) + skv_round_up(K, 4));
}

size_t skv_pack_x_i8_bytes_neon(size_t m, size_t K)
{
    size_t n_groups = skv_ceil_div(K, skv_i8_group(K));
    return m * (n_groups * sizeof(float) + skv_round_up(K, 4));
}

static float largest(const float *x, size_t n)
{
    float32x4_t v = vdupq_n_f32(0.0f);
    size_t k = 0;
    for (; k + 4 <= n; k += 4) v = vmaxq_f32(v, vabsq_f32(vld1q_f32(x + k)));
    float rest[4] = {0};
    memcpy(rest, x + k, (n - k) * sizeof *rest);
    return vmaxvq_f32(vmaxq_f32(v, vabsq_f32(vld1q_f32(rest))));
}

/* The codes of x[0..4), rounded to nearest even. */
static inline uint32_t unit(const float *x, float inverse)
{
    int32x4_t codes = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x), inverse));
    int16x4_t narrow = vqmovn_s32(codes);
    int8x8_t bytes = vqmovn_s16(vcombine_s16(narrow, narrow));
    return vget_lane_u32(vreinterpret_u32_s8(bytes), 0);
}

/* The units of one row of a group, `stride` bytes apart. */
static void pack_row(unsigned char *out, size_t stride, const float *x, size_t n, float inverse)
{
    for (size_t k = 0; k < n; k += 4, out += stride) {
        float last[4] = {0};
        const float *from = x + k;
        if (n - k < 4) from = memcpy(last, from, (n - k) * sizeof *last);
        uint32_t codes = unit(from, inverse);
        memcpy(out, &codes, sizeof codes);
    }
}

static void pack_w_group(unsigned char *out, const float *w, size_t ldw, size_t n, size_t K)
{
    const size_t nr = SKV_I8_NR128;
    unsigned char *units = out + nr * sizeof(uint16_t);
    memset(units, 0, skv_round_up(K, 4) * nr);
    for (size_t j = 0; j < nr; j++) {
        float amax = j < n ? largest(w + j * ldw, K) : 0.0f;
        uint16_t scale = skv_f32_to_bf16(skv_i8_scale(amax));
        memcpy(out + j * sizeof scale, &scale, sizeof scale);
        float inverse = skv_i8_inverse(skv_bf16_to_f32(scale));
        if (j < n) pack_row(units + 4 * j, 4 * nr, w + j * ldw, K, inverse);
    }
}

void skv_pack_w_i8_neon(void *panel, const float *w, size_t ldw, size_t n, size_t K)
{
    unsigned char *out = panel;
    size_t length = skv_i8_group(K);
    for (size_t k = 0; k < K; k += length, out += skv_pack_w_i8_group_neon(length)) {
        pack_w_group(out, w + k, ldw, n, skv_min_size(length, K - k));
    }
}

void skv_pack_x_i8_neon(void *block, const float *x, size_t ldx, size_t m, size_t K)
{
    unsigned char *out = block;
    size_t length = skv_i8_group(K);
    for (size_t k = 0; k < K; k += length, out += skv_pack_x_i8_group_neon(m, length)) {
        size_t n = skv_min_size(length, K - k);
        for (size_t i = 0; i < m; i++) {
            const float *row = x + i * ldx + k;
            float scale = skv_i8_scale(largest(row, n));
            memcpy(out + i * sizeof scale, &scale, sizeof scale);
            pack_row(out + m * sizeof scale + 4 * i, 4 * m, row, n, skv_i8_inverse(scale));
        }
    }
}
