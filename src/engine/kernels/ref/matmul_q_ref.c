/*
 * The product with quantised weights, plainly: within a group the codes of X meet the values of W
 * as integers; the scales and the minimum come after. Layouts: quant_panel.h.
 *
 *   c[i, j] = sum over groups of xs_i (ws_j sum x_code w_value + min_j sum x_code)
 */
#include <math.h>

#include "kernels/matmul.h"
#include "kernels/quant_panel.h"
#include "kernels/ref/matmul_ref.h"

static size_t x_bytes(size_t m, size_t K)
{
    return skv_quant_x_bytes(m, K);
}

/* 32 elements of row i. */
static void pack_group(unsigned char *group, const float *x, float inverse, size_t m, size_t i)
{
    int32_t *sums = (int32_t *)(void *)group; /* [3][m] */
    int8_t *codes = (int8_t *)(sums + 3 * m);
    for (size_t s = 0; s < 3; s++) sums[s * m + i] = 0;
    for (size_t e = 0; e < SKV_QUANT_GROUP; e++) {
        int8_t code = (int8_t)lrintf(x[e] * inverse);
        codes[(e / 4 * m + i) * 4 + e % 4] = code;
        sums[i] += code;
        sums[(1 + e / (SKV_QUANT_GROUP / 2)) * m + i] += code;
    }
}

static void pack_x(void *block, const float *x, size_t ldx, size_t m, size_t K)
{
    size_t length = skv_i8_group(K);
    for (size_t k = 0; k < K; k += length) {
        unsigned char *to = (unsigned char *)block + skv_quant_x_offset(m, K, k);
        float *scales = (float *)(void *)to;
        size_t n = skv_min_size(length, K - k);
        to += m * sizeof *scales;
        for (size_t i = 0; i < m; i++)
            scales[i] = skv_i8_scale(skv_ref_largest(x + i * ldx + k, n));
        for (size_t e = 0; e < n; e += SKV_QUANT_GROUP, to += skv_quant_x_group(m)) {
            for (size_t i = 0; i < m; i++) {
                pack_group(to, x + i * ldx + k + e, skv_i8_inverse(scales[i]), m, i);
            }
        }
    }
}

/* sum [NR] += row i of one group of X times one group of W, whose unpacked floats are w [32][NR]:
 * within a group a value is a small integer times the scale, so its products are exact in f32 but
 * for the minimum's. */
static void add_group(float *sum, const unsigned char *x, float scale, size_t m, size_t i,
                      const float *w)
{
    const int8_t *codes = (const int8_t *)(x + 3 * m * sizeof(int32_t));
    float dot[NR] = {0};
    for (size_t e = 0; e < SKV_QUANT_GROUP; e++) {
        size_t unit = e / 4 * m + i;
        float code = codes[4 * unit + e % 4];
        for (size_t j = 0; j < NR; j++) dot[j] += code * w[e * NR + j];
    }
    for (size_t j = 0; j < NR; j++) sum[j] += scale * dot[j];
}

static void tile(float *c, size_t ldc, const void *block, const void *panel, size_t m, size_t K,
                 size_t k0, size_t k1, unsigned mode)
{
    const bool add = mode & SKV_TILE_ADD;
    float sum[MR * NR] = {0}, w[SKV_QUANT_GROUP * NR];
    const unsigned char *x = (const unsigned char *)block + skv_quant_x_offset(m, K, k0);
    const float *scales = (const float *)(const void *)x; /* [m] */
    for (; k0 < k1; k0 += SKV_QUANT_GROUP, x += skv_quant_x_group(m)) {
        if (k0 % skv_i8_group(K) == 0) {
            scales = (const float *)(const void *)x;
            x += m * sizeof *scales;
        }
        skv_quant_unpack(w, panel, NR, K, k0, SKV_QUANT_GROUP);
        for (size_t i = 0; i < m; i++) add_group(sum + i * NR, x, scales[i], m, i, w);
    }
    for (size_t i = 0; i < m; i++) {
        float *row = c + i * ldc;
        for (size_t j = 0; j < NR; j++) row[j] = (add ? row[j] : 0.0f) + sum[i * NR + j];
    }
}

const skv_matmul skv_matmul_q_ref = {
    SKV_REF_TILE,
    .x_bytes = x_bytes,
    .pack_x = pack_x,
    .tile = tile,
};

/* ---- rows of floats, for comparing ---- */

enum { WIDE_MR = 16 };

static void wide_tile(float *c, size_t ldc, const void *block, const void *panel, size_t m,
                      size_t K, size_t k0, size_t k1, unsigned mode)
{
    const bool add = mode & SKV_TILE_ADD;
    float sum[WIDE_MR * NR] = {0}, w[SKV_QUANT_GROUP * NR];
    for (; k0 < k1; k0 += SKV_QUANT_GROUP) {
        const float *x = (const float *)block + k0 * m;
        skv_quant_unpack(w, panel, NR, K, k0, SKV_QUANT_GROUP);
        for (size_t e = 0; e < SKV_QUANT_GROUP; e++, x += m) {
            for (size_t i = 0; i < m; i++) {
                for (size_t j = 0; j < NR; j++) sum[i * NR + j] += x[i] * w[e * NR + j];
            }
        }
    }
    for (size_t i = 0; i < m; i++) {
        float *row = c + i * ldc;
        for (size_t j = 0; j < NR; j++) row[j] = (add ? row[j] : 0.0f) + sum[i * NR + j];
    }
}

const skv_matmul skv_matmul_q_wide_ref = {
    .nr = NR,
    .mr = WIDE_MR,
    .kc = KC,
    .x_bytes = skv_ref_x_bytes,
    .pack_x = skv_ref_pack_x,
    .tile = wide_tile,
};
