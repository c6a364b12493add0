/*
 * The product with quantised weights with SDOT: signed values of W, from a table of 16 where codes
 * have 4 bits, times the codes of X. Layouts: quant_panel.h. Rows are packed by the reference.
 */
#include <arm_neon.h>

#include "kernels/arm/matmul_tile_neon.h"
#include "kernels/matmul.h"
#include "kernels/quant_panel.h"

enum { UNIT_BYTES = SKV_NR128 * 4 };

static size_t x_bytes(size_t m, size_t K)
{
    return skv_quant_x_bytes(m, K);
}

static void pack_x(void *block, const float *x, size_t ldx, size_t m, size_t K)
{
    skv_matmul_q_ref.pack_x(block, x, ldx, m, K);
}

/* 4 floats of 16 bits. */
static inline float32x4_t load_16(const uint16_t *from, bool bf16)
{
    uint16x4_t bits = vld1_u16(from);
    if (!bf16) return vcvt_f32_f16(vreinterpret_f16_u16(bits));
    return vreinterpretq_f32_u32(vshll_n_u16(bits, 16));
}

/* 4 bytes as floats. */
static inline float32x4_t load_8(const unsigned char *from, bool is_signed)
{
    float values[4];
    for (size_t i = 0; i < 4; i++) {
        values[i] = is_signed ? (float)(int8_t)from[i] : (float)from[i];
    }
    return vld1q_f32(values);
}

/* Scales and minimums of 4 columns, from column j on, for one part of a group. */
static inline void decode_scales(float32x4_t *scale, float32x4_t *min, const skv_quant_header *h,
                                 const unsigned char *at, const uint16_t *span, size_t j)
{
    const uint16_t *scales = (const uint16_t *)(const void *)at;
    *min = vdupq_n_f32(0.0f);
    if (!h->fine) {
        *scale = load_16(scales + j, h->bf16);
        if (h->has_min) *min = load_16(scales + SKV_NR128 + j, h->bf16);
        return;
    }
    *scale = vmulq_f32(load_16(span + j, h->bf16), load_8(at + j, true));
    if (!h->has_min) return;
    float32x4_t dmin = load_16(span + SKV_NR128 + j, h->bf16);
    *min = vnegq_f32(vmulq_f32(dmin, load_8(at + SKV_NR128 + j, false)));
}

/* The signed values of four elements of 4 columns. */
static inline int8x16_t values(const unsigned char *codes, bool high, bool nibbles, int8x16_t table)
{
    uint8x16_t w = vld1q_u8(codes);
    if (!nibbles) return vreinterpretq_s8_u8(w);
    return vqtbl1q_s8(table, high ? vshrq_n_u8(w, 4) : vandq_u8(w, vdupq_n_u8(15)));
}

/* Part of a group whose elements share a scale. */
typedef struct part_args {
    const skv_quant_header *h;
    const unsigned char *scales, *codes;
    const uint16_t *span;
    const float *x_scales;  /* [m] */
    const int32_t *x_sums;  /* [m] */
    const int32_t *x_units; /* [n_units][m] units of four codes */
    size_t n_units;
    int8x16_t table;
} part_args;

/* sum is [m][16]. Inlined once for every constant m, so that the accumulators are registers. */
static inline __attribute__((always_inline)) void part_m(float *sum, part_args a, const size_t m,
                                                         const bool nibbles)
{
    int32x4_t dot[SKV_MR128][4];
    for (size_t i = 0; i < m; i++) {
        for (size_t j = 0; j < 4; j++) dot[i][j] = vdupq_n_s32(0);
    }
    for (size_t u = 0; u < a.n_units; u++, a.x_units += m) {
        const unsigned char *codes = a.codes + (nibbles ? u / 2 : u) * UNIT_BYTES;
        int8x16_t w0 = values(codes, u % 2, nibbles, a.table);
        int8x16_t w1 = values(codes + 16, u % 2, nibbles, a.table);
        int8x16_t w2 = values(codes + 32, u % 2, nibbles, a.table);
        int8x16_t w3 = values(codes + 48, u % 2, nibbles, a.table);
        for (size_t i = 0; i < m; i++) {
            int8x16_t xi = vreinterpretq_s8_s32(vdupq_n_s32(a.x_units[i]));
            dot[i][0] = vdotq_s32(dot[i][0], w0, xi);
            dot[i][1] = vdotq_s32(dot[i][1], w1, xi);
            dot[i][2] = vdotq_s32(dot[i][2], w2, xi);
            dot[i][3] = vdotq_s32(dot[i][3], w3, xi);
        }
    }
    for (size_t j = 0; j < 4; j++) {
        float32x4_t scale, min;
        decode_scales(&scale, &min, a.h, a.scales, a.span, 4 * j);
        for (size_t i = 0; i < m; i++) {
            float *to = sum + i * SKV_NR128 + 4 * j;
            float32x4_t scaled = vmulq_f32(vcvtq_f32_s32(dot[i][j]), scale);
            float32x4_t y = vfmaq_n_f32(vld1q_f32(to), scaled, a.x_scales[i]);
            vst1q_f32(to, vfmaq_n_f32(y, min, a.x_scales[i] * (float)a.x_sums[i]));
        }
    }
}

/* Where a tile stands in its panel and block. */
typedef struct tile_args {
    skv_tile128 to;
    const skv_quant_header *h;
    const unsigned char *x; /* of group0 */
    size_t K, group0, group1;
} tile_args;

/* Parts of a group are all of it, or its halves. */
static inline __attribute__((always_inline)) void
group_m(float *sum, const tile_args *t, const unsigned char *w, const size_t m, const bool nibbles)
{
    const size_t n_parts = t->h->n_parts, scale_bytes = skv_quant_scale_bytes(t->h, SKV_NR128);
    const int32_t *sums = (const int32_t *)(const void *)t->x + m; /* [2][m] */
    int32_t both[SKV_MR128];
    for (size_t i = 0; i < m; i++) both[i] = sums[i] + sums[m + i];
    part_args a = {.h = t->h,
                   .scales = w,
                   .codes = w + n_parts * scale_bytes,
                   .span = skv_quant_span(t->h, SKV_NR128, t->group0),
                   .x_scales = (const float *)(const void *)t->x,
                   .x_units = sums + 2 * m,
                   .n_units = 8 / n_parts,
                   .table = vld1q_s8(t->h->levels)};
    for (size_t part = 0; part < n_parts; part++, a.scales += scale_bytes) {
        a.x_sums = n_parts == 1 ? both : sums + part * m;
        part_m(sum, a, m, nibbles);
        a.x_units += a.n_units * m;
        a.codes += (nibbles ? a.n_units / 2 : a.n_units) * UNIT_BYTES;
    }
}

static inline __attribute__((always_inline)) void tile_m(tile_args t, const size_t m,
                                                         const bool nibbles)
{
    float sum[SKV_MR128 * SKV_NR128] = {0};
    const size_t group_bytes = skv_quant_group_bytes(t.h, SKV_NR128);
    const unsigned char *w = skv_quant_group(t.h, SKV_NR128, t.K, t.group0);
    for (; t.group0 < t.group1; t.group0++) {
        group_m(sum, &t, w, m, nibbles);
        w += group_bytes;
        t.x += skv_quant_x_group(m);
    }
    for (size_t i = 0; i < m; i++) {
        float32x4_t row[4];
        for (size_t j = 0; j < 4; j++) row[j] = vld1q_f32(sum + i * SKV_NR128 + 4 * j);
        skv_tile128_store(t.to, i, row);
    }
}

static inline __attribute__((always_inline)) void tile_of_kind(tile_args t, size_t m,
                                                               const bool nibbles)
{
    switch (m) {
    case 1: tile_m(t, 1, nibbles); break;
    case 2: tile_m(t, 2, nibbles); break;
    case 3: tile_m(t, 3, nibbles); break;
    case 4: tile_m(t, 4, nibbles); break;
    case 5: tile_m(t, 5, nibbles); break;
    default: tile_m(t, 6, nibbles); break;
    }
}

static void tile(float *c, size_t ldc, const void *block, const void *panel, size_t m, size_t K,
                 size_t k0, size_t k1, bool add)
{
    size_t group0 = k0 / SKV_QUANT_GROUP, group1 = k1 / SKV_QUANT_GROUP;
    tile_args t = {.to = {c, ldc, 0, add},
                   .h = panel,
                   .x = (const unsigned char *)block + group0 * skv_quant_x_group(m),
                   .K = K,
                   .group0 = group0,
                   .group1 = group1};
    if (t.h->bits == 4) {
        tile_of_kind(t, m, true);
    } else {
        tile_of_kind(t, m, false);
    }
}

const skv_matmul skv_matmul_q_neondot = {
    .nr = SKV_NR128,
    .mr = SKV_MR128,
    .kc = SKV_KC128,
    .x_bytes = x_bytes,
    .pack_x = pack_x,
    .tile = tile,
};
