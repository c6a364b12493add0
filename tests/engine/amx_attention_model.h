/*
 * Attention of kernels/x86/attention_amx.inc over the tile instructions in plain C, with packing
 * and softmax in plain C as well: so its products, paddings and edges are tested on every machine.
 */
#ifndef SKV_TESTS_AMX_ATTENTION_MODEL_H
#define SKV_TESTS_AMX_ATTENTION_MODEL_H

#include <math.h>

#include "amx_model.h"
#include "kernels/attention.h"
#include "kernels/attention_tiles.h"
#include "kernels/kv_page.h"

/* c += a * b, where the codes of a have no sign. */
static inline void amx_model_dot_codes(amx_tiles *t, size_t c, size_t a, size_t b)
{
    const size_t n_k = t->row_bytes[a] / 4, n_columns = t->row_bytes[c] / 4;
    amx_require(t->configured && c != a && c != b && a != b);
    amx_require(t->n_rows[c] == t->n_rows[a] && t->row_bytes[c] == t->row_bytes[b]);
    amx_require(t->n_rows[b] == n_k && t->row_bytes[a] % 4 == 0 && t->row_bytes[c] % 4 == 0);
    for (size_t i = 0; i < t->n_rows[c] * n_columns; i++) {
        const size_t row = i / n_columns, lane = 4 * (i % n_columns);
        uint32_t sum;
        memcpy(&sum, t->data[c][row] + lane, sizeof sum);
        for (size_t k = 0; k < 4 * n_k; k++) {
            const int code = (int8_t)t->data[b][k / 4][lane + k % 4];
            sum += (uint32_t)(t->data[a][row][k] * code);
        }
        memcpy(t->data[c][row] + lane, &sum, sizeof sum);
    }
}

static inline void amx_model_whole(const skv_tile_product *p, float *c, const int32_t *sums,
                                   size_t n)
{
    for (size_t i = 0; i < p->m; i++) {
        for (size_t j = 0; j < n; j++) {
            const float x = (float)sums[32 * i + j] * p->steps[i];
            float *to = c + i * p->ldc + j;
            *to = p->add ? *to + x : x;
        }
    }
}

/* ---- what the level below does: bfloat16 */

static float amx_model_pack_q_bf16(void *y, const float *x, float scale, size_t n)
{
    uint16_t *to = y;
    for (size_t i = 0; i < n; i++) to[i] = skv_f32_to_bf16(x[i] * scale);
    return 1.0f;
}

static uint16_t amx_model_element(const skv_tile_page *p, size_t which, size_t r, size_t d)
{
    const size_t at = r * p->head_dim + d;
    const unsigned char *rows = p->page + skv_page_rows_at(p->type, p->head_dim, which);
    uint16_t bits;
    if (r < p->row0 || r >= p->row1 || d >= p->head_dim) return 0;
    if (p->type != SKV_KV_TYPE_BF16) return skv_f32_to_bf16(skv_fp8_decode(rows[at]));
    memcpy(&bits, rows + 2 * at, sizeof bits);
    return bits;
}

static void amx_model_pack_k_bf16(void *panel, const skv_tile_page *p)
{
    uint16_t *to = panel;
    for (size_t i = 0; i < p->head_dim * SKV_PAGE_ROWS; i++) {
        const size_t r = i / 2 % SKV_PAGE_ROWS, d = i / 2 / SKV_PAGE_ROWS * 2 + i % 2;
        to[i] = amx_model_element(p, 0, r, d);
    }
}

static void amx_model_pack_v_bf16(void *panel, const skv_tile_page *p)
{
    uint16_t *to = panel;
    for (size_t i = 0; i < skv_round_up(p->row1, 2) * p->ld_v; i++) {
        const size_t d = i / 2 % p->ld_v, r = i / 2 / p->ld_v * 2 + i % 2;
        to[i] = amx_model_element(p, 1, r, d);
    }
}

/* ---- and codes */

static float amx_model_pack_q_i8(void *y, const float *x, float scale, size_t n)
{
    uint8_t *to = y;
    const float top = amx_model_largest(x, n);
    for (size_t i = 0; i < n; i++) {
        to[i] = (uint8_t)(128 + (top > 0x1p-100f ? lrintf(x[i] * (127.0f / top)) : 0));
    }
    return scale * top / 127.0f;
}

static void amx_model_pack_k_i8(void *panel, const skv_tile_page *p)
{
    int8_t *to = panel;
    const size_t Dh = p->head_dim;
    for (size_t r = 0; r < SKV_PAGE_ROWS; r++) {
        p->starts[r] = 0;
        for (size_t d = 0; d < Dh; d++) {
            const int8_t code = (int8_t)p->page[r * Dh + d];
            to[amx_unit_at(r, d, 4, SKV_PAGE_ROWS)] = code;
            p->starts[r] -= 128 * code;
        }
    }
}

static void amx_model_pack_v_i8(void *panel, const skv_tile_page *p)
{
    unsigned char *to = panel;
    const unsigned char *rows = p->page + skv_page_rows_at(SKV_KV_TYPE_INT8, p->head_dim, 1);
    for (size_t i = 0; i < skv_round_up(p->row1, 4) * p->ld_v; i++) {
        const size_t d = i / 4 % p->ld_v, r = i / 4 / p->ld_v * 4 + i % 4;
        to[i] = d < p->head_dim ? rows[r * p->head_dim + d] : 0;
    }
}

/* ---- softmax */

/* The score of column c of row r. */
static float amx_model_score(const skv_tile_softmax *t, size_t r, size_t c)
{
    float x = t->s[r * SKV_PAGE_ROWS + c];
    if (t->k_scales) x *= t->k_scales[c];
    if (t->cap > 0.0f) x = t->cap * tanhf(x);
    return t->visible && !(t->visible[r] >> c & 1) ? -HUGE_VALF : x;
}

/* A row's scores become weights, before they are rounded; their largest. */
static float amx_model_weigh(const skv_tile_softmax *t, size_t r, float x[SKV_PAGE_ROWS])
{
    float top = -HUGE_VALF, most = 0.0f, *sums = t->sums + r * SKV_TILE_SUMS;
    for (size_t c = 0; c < SKV_PAGE_ROWS; c++) top = fmaxf(top, x[c] = amx_model_score(t, r, c));
    t->shrink[r] = 1.0f;
    if (top > t->max[r] + t->slack) {
        t->shrink[r] = exp2f(t->max[r] - top);
        for (size_t c = 0; c < SKV_TILE_SUMS; c++) sums[c] *= t->shrink[r];
        t->max[r] = top;
    }
    for (size_t c = 0; c < SKV_PAGE_ROWS; c++) {
        x[c] = exp2f(x[c] - t->max[r]);
        sums[c % SKV_TILE_SUMS] += x[c];
        if (t->v_scales) x[c] *= t->v_scales[c];
        most = fmaxf(most, x[c]);
    }
    return most;
}

static bool amx_model_softmax(const skv_tile_softmax *t, bool whole)
{
    bool grown = false;
    for (size_t r = 0; r < t->m; r++) {
        float x[SKV_PAGE_ROWS];
        const float most = amx_model_weigh(t, r, x);
        uint16_t *halves = (uint16_t *)(void *)(t->s + r * SKV_PAGE_ROWS);
        uint8_t *codes = (uint8_t *)(void *)halves;
        const float inverse = most > 0x1p-100f ? 255.0f / most : 0.0f;
        if (whole) t->steps[r] = most / 255.0f;
        for (size_t c = 0; c < SKV_PAGE_ROWS; c++) {
            if (whole) {
                codes[c] = (uint8_t)lrintf(x[c] * inverse);
            } else {
                halves[c] = skv_f32_to_bf16(x[c]);
            }
        }
        grown = grown || t->shrink[r] != 1.0f;
    }
    return grown;
}

static bool amx_model_softmax_bf16(const skv_tile_softmax *t)
{
    return amx_model_softmax(t, false);
}

static bool amx_model_softmax_i8(const skv_tile_softmax *t)
{
    return amx_model_softmax(t, true);
}

static const skv_attention_tiles amx_model_below_bf16 = {
    .element = 2,
    .pack_q = amx_model_pack_q_bf16,
    .pack_k = amx_model_pack_k_bf16,
    .pack_v = amx_model_pack_v_bf16,
    .softmax = amx_model_softmax_bf16,
};
static const skv_attention_tiles amx_model_below_i8 = {
    .element = 1,
    .pack_q = amx_model_pack_q_i8,
    .pack_k = amx_model_pack_k_i8,
    .pack_v = amx_model_pack_v_i8,
    .softmax = amx_model_softmax_i8,
};

#define AMX_DOT_CODES amx_model_dot_codes
#define AMX_WHOLE amx_model_whole
#define AMX_BELOW_BF16 amx_model_below_bf16
#define AMX_BELOW_I8 amx_model_below_i8

#include "kernels/x86/attention_amx.inc"

static const skv_attention_tiles amx_model_narrow = {ATTEND_TILES(bf16, 2)};
static const skv_attention_tiles amx_model_codes = {ATTEND_TILES(i8, 1)};

/* Pages of f32 have no tiles of AMX: they are the reference's. */
static const skv_attention_ways amx_model_ways = {
    .narrow = &amx_model_narrow,
    .int8 = &amx_model_codes,
};

static void amx_model_attention(const skv_attention *a, void *scratch)
{
    if (a->type == SKV_KV_TYPE_F32) {
        skv_attention_kernels_ref.attention(a, scratch);
    } else {
        skv_attention_run(a, &amx_model_ways, scratch);
    }
}

static void amx_model_part(const skv_attention *a, size_t row0, size_t row1, float *partial,
                           void *scratch)
{
    if (a->type == SKV_KV_TYPE_F32) {
        skv_attention_kernels_ref.part(a, row0, row1, partial, scratch);
    } else {
        skv_attention_run_part(a, &amx_model_ways, row0, row1, partial, scratch);
    }
}

static size_t amx_model_scratch(size_t n_group, size_t head_dim)
{
    return skv_max_size(skv_attention_kernels_ref.scratch(n_group, head_dim),
                        skv_attention_scratch_tiles(n_group, head_dim));
}

static inline void amx_model_attention_init(skv_kernels *k)
{
    k->attention_tokens = skv_attention_tokens_tiles;
    k->attention_scratch = amx_model_scratch;
    k->attention = amx_model_attention;
    k->attention_part = amx_model_part;
}

#endif
