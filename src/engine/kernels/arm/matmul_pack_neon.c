/* Packing for the NEON int8 matrix products: see matmul_pack_neon.h. */
#include "kernels/arm/matmul_pack_neon.h"

#include <arm_neon.h>
#include <string.h>

#include "kernels/bf16.h"
#include "kernels/matmul.h"

/* Rows to pack: [n, K], ld floats apart. */
typedef struct skv_rows128 {
    const float *rows;
    size_t ld, n, K;
} skv_rows128;

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
static inline uint32_t codes(const float *x, float inverse)
{
    int32x4_t wide = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x), inverse));
    int16x4_t narrow = vqmovn_s32(wide);
    int8x8_t bytes = vqmovn_s16(vcombine_s16(narrow, narrow));
    return vget_lane_u32(vreinterpret_u32_s8(bytes), 0);
}

/* The codes of one row of a group, `unit` of them together, units `stride` bytes apart. */
static void pack_row(unsigned char *out, size_t stride, const float *x, size_t n, float inverse,
                     size_t unit)
{
    for (size_t k = 0; k < skv_round_up(n, unit); k += 4) {
        float last[4] = {0};
        const float *from = x + k;
        if (n < k + 4) from = k < n ? memcpy(last, from, (n - k) * sizeof *last) : last;
        uint32_t four = codes(from, inverse);
        memcpy(out + k / unit * stride + k % unit, &four, sizeof four);
    }
}

static void pack_w_group(unsigned char *out, skv_rows128 w, size_t unit)
{
    const size_t nr = SKV_I8_NR128;
    unsigned char *units = out + nr * sizeof(uint16_t);
    memset(units, 0, skv_round_up(w.K, unit) * nr);
    for (size_t j = 0; j < nr; j++) {
        const float *row = w.rows + (j < w.n ? j * w.ld : 0);
        uint16_t scale = j < w.n ? skv_f32_to_bf16(skv_i8_scale(largest(row, w.K))) : 0;
        memcpy(out + j * sizeof scale, &scale, sizeof scale);
        float inverse = skv_i8_inverse(skv_bf16_to_f32(scale));
        if (j < w.n) pack_row(units + unit * j, unit * nr, row, w.K, inverse, unit);
    }
}

static void pack_w(unsigned char *out, skv_rows128 w, size_t unit)
{
    size_t length = skv_i8_group(w.K);
    for (size_t k = 0; k < w.K; k += length, out += skv_pack_w_i8_group_neon(length)) {
        size_t n = skv_min_size(length, w.K - k);
        pack_w_group(out, (skv_rows128){w.rows + k, w.ld, w.n, n}, unit);
    }
}

static void pack_x(unsigned char *out, skv_rows128 x, size_t unit)
{
    size_t m = x.n, length = skv_i8_group(x.K);
    for (size_t k = 0; k < x.K; k += length, out += skv_pack_x_i8_group_neon(m, length)) {
        size_t n = skv_min_size(length, x.K - k);
        for (size_t i = 0; i < m; i++) {
            const float *row = x.rows + i * x.ld + k;
            float scale = skv_i8_scale(largest(row, n));
            memcpy(out + i * sizeof scale, &scale, sizeof scale);
            pack_row(out + m * sizeof scale + unit * i, unit * m, row, n, skv_i8_inverse(scale),
                     unit);
        }
    }
}

/* Bytes of n rows whose groups have scales of scale_bytes each. */
static size_t bytes(size_t n, size_t scale_bytes, size_t K, size_t unit)
{
    return n * (skv_ceil_div(K, skv_i8_group(K)) * scale_bytes + skv_round_up(K, unit));
}

size_t skv_pack_w_i8_bytes_neon(size_t K)
{
    return bytes(SKV_I8_NR128, sizeof(uint16_t), K, 4);
}

size_t skv_pack_x_i8_bytes_neon(size_t m, size_t K)
{
    return bytes(m, sizeof(float), K, 4);
}

void skv_pack_w_i8_neon(void *panel, const float *w, size_t ldw, size_t n, size_t K)
{
    pack_w(panel, (skv_rows128){w, ldw, n, K}, 4);
}

void skv_pack_x_i8_neon(void *block, const float *x, size_t ldx, size_t m, size_t K)
{
    pack_x(block, (skv_rows128){x, ldx, m, K}, 4);
}

size_t skv_pack_w_i8_bytes_neoni8mm(size_t K)
{
    return bytes(SKV_I8_NR128, sizeof(uint16_t), K, 8);
}

size_t skv_pack_x_i8_bytes_neoni8mm(size_t m, size_t K)
{
    return bytes(m, sizeof(float), K, 8);
}

void skv_pack_w_i8_neoni8mm(void *panel, const float *w, size_t ldw, size_t n, size_t K)
{
    pack_w(panel, (skv_rows128){w, ldw, n, K}, 8);
}

void skv_pack_x_i8_neoni8mm(void *block, const float *x, size_t ldx, size_t m, size_t K)
{
    pack_x(block, (skv_rows128){x, ldx, m, K}, 8);
}
