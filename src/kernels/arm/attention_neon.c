/*
 * Attention with AArch64 NEON: f32 tiles of 6 x 16 held in 24 registers. Pages of 16 and 8 bits
 * are widened when they are packed.
 */
#include "kernels/arm/attention_neon.h"

#include <arm_neon.h>
#include <math.h>

#include "kernels/arm/math_neon.h"
#include "kernels/attention.h"
#include "kernels/attention_tiles.h"

#define INLINE static inline __attribute__((always_inline))

static void pack_q(void *y, const float *x, float scale, size_t n)
{
    float *to = y;
    for (size_t i = 0; i < n; i++) to[i] = x[i] * scale;
}

/* Elements d .. d + 3 of row r, zero if it is not seen. */
INLINE float32x4_t load_seen(const skv_tile_page *p, skv_kv_type type, size_t which, size_t r,
                             size_t d)
{
    size_t Dh = p->head_dim;
    if (r < p->row0 || r >= p->row1) return vdupq_n_f32(0.0f);
    const unsigned char *rows = p->page + skv_page_rows_at(type, Dh, which);
    return skv_kv4_neon(rows + r * Dh * skv_kv_size(type), type, d);
}

/* panel [Dh][64]: four rows of K become four columns. */
INLINE void pack_k_of(float *panel, const skv_tile_page *p, skv_kv_type type)
{
    for (size_t r = 0; r < SKV_PAGE_ROWS; r += 4) {
        for (size_t d = 0; d < p->head_dim; d += 4) {
            float32x4_t x[4];
            for (size_t i = 0; i < 4; i++) x[i] = load_seen(p, type, 0, r + i, d);
            skv_transpose4_neon(x);
            for (size_t i = 0; i < 4; i++) vst1q_f32(panel + (d + i) * SKV_PAGE_ROWS + r, x[i]);
        }
    }
}

/* panel [64][ld_v]: the rows of V, zero where nothing is seen. */
INLINE void pack_v_of(float *panel, const skv_tile_page *p, skv_kv_type type)
{
    for (size_t r = 0; r < p->row1; r++) {
        for (size_t d = 0; d < p->head_dim; d += 4) {
            vst1q_f32(panel + r * p->ld_v + d, load_seen(p, type, 1, r, d));
        }
    }
}

static void pack_k(void *panel, const skv_tile_page *p)
{
    switch (p->type) {
    case SKV_KV_TYPE_F32: pack_k_of(panel, p, SKV_KV_TYPE_F32); break;
    case SKV_KV_TYPE_BF16: pack_k_of(panel, p, SKV_KV_TYPE_BF16); break;
    case SKV_KV_TYPE_FP8: pack_k_of(panel, p, SKV_KV_TYPE_FP8); break;
    case SKV_KV_TYPE_INT8: pack_k_of(panel, p, SKV_KV_TYPE_INT8); break;
    }
}

static void pack_v(void *panel, const skv_tile_page *p)
{
    switch (p->type) {
    case SKV_KV_TYPE_F32: pack_v_of(panel, p, SKV_KV_TYPE_F32); break;
    case SKV_KV_TYPE_BF16: pack_v_of(panel, p, SKV_KV_TYPE_BF16); break;
    case SKV_KV_TYPE_FP8: pack_v_of(panel, p, SKV_KV_TYPE_FP8); break;
    case SKV_KV_TYPE_INT8: pack_v_of(panel, p, SKV_KV_TYPE_INT8); break;
    }
}

/* Sixteen columns of the product; m is a constant where this is inlined. */
INLINE void product_of(const skv_tile_product *p, size_t column, size_t m)
{
    float32x4_t c[SKV_TILE_ROWS][4];
    for (size_t i = 0; i < m; i++) {
        for (size_t v = 0; v < 4; v++) c[i][v] = vdupq_n_f32(0.0f);
    }
    const float *a = (const float *)(const void *)p->a;
    const float *b = (const float *)(const void *)p->b + column;
    size_t lda = p->lda / sizeof *a;
    for (size_t k = 0; k < p->k; k++) {
        float32x4_t x[4];
        for (size_t v = 0; v < 4; v++) x[v] = vld1q_f32(b + 4 * v);
        for (size_t i = 0; i < m; i++) {
            float32x4_t y = vld1q_dup_f32(a + i * lda);
            for (size_t v = 0; v < 4; v++) c[i][v] = vfmaq_f32(c[i][v], y, x[v]);
        }
        a++;
        b += p->ldb;
    }
    for (size_t i = 0; i < m; i++) {
        for (size_t v = 0; v < 4; v++) {
            float *to = p->c + i * p->ldc + column + 4 * v;
            if (p->add) c[i][v] = vaddq_f32(c[i][v], vld1q_f32(to));
            vst1q_f32(to, c[i][v]);
        }
    }
}

static void product(const skv_tile_product *p)
{
    for (size_t n = 0; n < p->n; n += 16) {
        switch (p->m) {
        case 1: product_of(p, n, 1); break;
        case 2: product_of(p, n, 2); break;
        case 3: product_of(p, n, 3); break;
        case 4: product_of(p, n, 4); break;
        case 5: product_of(p, n, 5); break;
        default: product_of(p, n, 6); break;
        }
    }
}

/* Four scores from column 4 v of row r: scaled and capped if asked, minus infinity where nothing
 * is seen. */
INLINE float32x4_t load_scores(const skv_tile_softmax *t, size_t r, size_t v)
{
    float32x4_t x = vld1q_f32(t->s + r * SKV_PAGE_ROWS + 4 * v);
    if (t->k_scales) x = vmulq_f32(x, vld1q_f32(t->k_scales + 4 * v));
    if (t->cap > 0.0f) x = vmulq_n_f32(skv_tanh_neon(x), t->cap);
    if (t->visible) {
        static const uint32_t bits[4] = {1, 2, 4, 8};
        uint32x4_t four = vdupq_n_u32((uint32_t)(t->visible[r] >> 4 * v));
        x = vbslq_f32(vtstq_u32(four, vld1q_u32(bits)), x, vdupq_n_f32(-HUGE_VALF));
    }
    return x;
}

/* Raises the maximum of row r if a score passes it by more than the slack; true if so. */
static bool raise_max(const skv_tile_softmax *t, size_t r, float most)
{
    t->shrink[r] = 1.0f;
    if (!(most > t->max[r] + t->slack)) return false;
    float32x4_t shrink = skv_exp2_neon(vdupq_n_f32(t->max[r] - most));
    float *sums = t->sums + r * SKV_TILE_SUMS;
    for (size_t c = 0; c < SKV_TILE_SUMS; c += 4) {
        vst1q_f32(sums + c, vmulq_f32(vld1q_f32(sums + c), shrink));
    }
    t->shrink[r] = vgetq_lane_f32(shrink, 0);
    t->max[r] = most;
    return true;
}

static bool softmax(const skv_tile_softmax *t)
{
    bool grown = false;
    for (size_t r = 0; r < t->m; r++) {
        float32x4_t x[16];
        float32x4_t most = vdupq_n_f32(-HUGE_VALF);
        for (size_t v = 0; v < 16; v++) {
            x[v] = load_scores(t, r, v);
            most = vmaxq_f32(most, x[v]);
        }
        grown |= raise_max(t, r, vmaxvq_f32(most));
        float32x4_t max = vdupq_n_f32(t->max[r]);
        for (size_t v = 0; v < 16; v++) {
            float *sums = t->sums + r * SKV_TILE_SUMS + v % 4 * 4;
            x[v] = skv_exp2_neon(vsubq_f32(x[v], max));
            vst1q_f32(sums, vaddq_f32(vld1q_f32(sums), x[v]));
            if (t->v_scales) x[v] = vmulq_f32(x[v], vld1q_f32(t->v_scales + 4 * v));
            vst1q_f32(t->s + r * SKV_PAGE_ROWS + 4 * v, x[v]);
        }
    }
    return grown;
}

static const skv_attention_tiles tiles = {
    .unit = 1,
    .element = sizeof(float),
    .pack_q = pack_q,
    .pack_k = pack_k,
    .pack_v = pack_v,
    .product = product,
    .softmax = softmax,
};

static void attention_neon(const skv_attention *a, void *scratch)
{
    skv_attention_run(a, &tiles, scratch);
}

static void attention_part_neon(const skv_attention *a, size_t row0, size_t row1, float *partial,
                                void *scratch)
{
    skv_attention_run_part(a, &tiles, row0, row1, partial, scratch);
}

void skv_attention_init_neon(skv_kernels *k, unsigned features)
{
    if (!(features & SKV_CPU_NEON)) return;
    k->kv_store = skv_kv_store_neon;
    k->kv_load = skv_kv_load_neon;
    k->attention_tokens = skv_attention_tokens_tiles;
    k->attention_scratch = skv_attention_scratch_tiles;
    k->attention = attention_neon;
    k->attention_part = attention_part_neon;
}
