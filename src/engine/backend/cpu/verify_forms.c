/*
 * The comparison of two forms of a product, bit for bit: see verify.h. Operands are any numbers,
 * denormal ones among them, so results are rounded, and forms agree only if they round alike.
 */
#include <stdint.h>
#include <string.h>

#include "backend/cpu/verify.h"
#include "base/mem.h"
#include "base/size.h"
#include "kernels/quant_panel.h"

enum {
    AGREE_K = 1152, /* two whole int8 groups of 512 and a tail; nine of 128 */
    ROWS_MAX = 32
};

typedef struct operands {
    const skv_quant_form *form; /* of quantised weights; else NULL */
    skv_quant_rows rows;        /* [nr, K] */
    const float *x, *w;         /* [ROWS_MAX, K], [nr, K] */
    float *c[2];                /* [ROWS_MAX, nr] */
} operands;

static uint32_t next_bits(uint32_t *state)
{
    *state = *state * 0x2c1b3c6du + 0x297a2d39u;
    return *state >> 8;
}

/* In [-1, 1), one in 61 so small that its bfloat16 is denormal. */
static float next_float(uint32_t *state)
{
    const float x = (float)next_bits(state) * 0x1p-23f - 1.0f;
    return next_bits(state) % 61 == 0 ? x * 0x1p-127f : x;
}

/* A block of n rows; `unpacked` has room for weights that are unpacked ahead, or is NULL. */
static void multiply_block(const skv_matmul *mm, const void *block, const void *panel,
                           void *unpacked, size_t n, float *c)
{
    const bool ahead = unpacked && n >= mm->mr / 2;
    for (size_t k = 0; k < AGREE_K; k += mm->kc) {
        const size_t end = skv_min_size(AGREE_K, k + mm->kc);
        if (ahead) mm->unpack(unpacked, panel, AGREE_K, k, end, 0);
        mm->tile(c, mm->nr, block, ahead ? unpacked : panel, n, AGREE_K, k, end,
                 (k > 0 ? SKV_TILE_ADD : 0U) | (ahead ? SKV_TILE_UNPACKED : 0U));
    }
}

/* m rows of a product, packed anew, into c [m, nr]. */
static bool multiply(const operands *o, const skv_matmul *mm, size_t m, float *c)
{
    const size_t nr = mm->nr, n_panel = o->form ? skv_quant_panel_bytes(o->form, nr, AGREE_K)
                                                : mm->w_bytes(AGREE_K);
    void *panel = skv_alloc_aligned(1, n_panel);
    void *block = skv_alloc_aligned(1, mm->x_bytes(mm->mr, AGREE_K));
    void *unpacked = mm->unpack ? skv_alloc_aligned(1, mm->unpacked_bytes(AGREE_K, AGREE_K)) : NULL;
    const bool ready = panel && block && (unpacked || !mm->unpack);
    if (ready && o->form) {
        skv_quant_pack(panel, nr, o->form, &o->rows);
    } else if (ready) {
        mm->pack_w(panel, o->w, AGREE_K, nr, AGREE_K);
    }
    for (size_t i = 0; ready && i < m; i += mm->mr) {
        const size_t n = skv_min_size(mm->mr, m - i);
        mm->pack_x(block, o->x + i * AGREE_K, AGREE_K, n, AGREE_K);
        multiply_block(mm, block, panel, unpacked, n, c + i * nr);
    }
    skv_matmul_finish(mm);
    skv_free(panel);
    skv_free(block);
    skv_free(unpacked);
    return ready;
}

/* One to eight rows, a tile's, and a block. */
static bool all_agree(const operands *o, const skv_matmul *mm, const skv_matmul *usual)
{
    static const size_t heights[] = {1, 2, 3, 4, 5, 6, 7, 8, 16, 17, ROWS_MAX};
    for (size_t i = 0; i < sizeof heights / sizeof heights[0]; i++) {
        const size_t m = heights[i];
        if (!multiply(o, mm, m, o->c[0]) || !multiply(o, usual, m, o->c[1])) return false;
        if (memcmp(o->c[0], o->c[1], m * mm->nr * sizeof *o->c[0]) != 0) return false;
    }
    return true;
}

static void fill_words(uint16_t *out, size_t n, bool bf16, uint32_t *state)
{
    for (size_t i = 0; out && i < n; i++) {
        out[i] = (uint16_t)((bf16 ? 0x3c00u : 0x2000u) + next_bits(state) % 256u);
    }
}

static void fill_rows(skv_quant_rows *rows, const skv_quant_form *form, uint32_t *state)
{
    const size_t n_scales = rows->n * skv_quant_spans(form, rows->K);
    const size_t n_groups = rows->n * (rows->K / form->group);
    for (size_t i = 0; i < rows->n * rows->K; i++) {
        const unsigned any = next_bits(state) % 256u;
        const unsigned six = any % 64u - 32u;
        rows->codes[i] = (uint8_t)(form->bits == 4 ? any % 16u : form->bits == 6 ? six : any);
    }
    fill_words(rows->scales, n_scales, form->bf16, state);
    fill_words(rows->mins, n_scales, form->bf16, state);
    for (size_t i = 0; rows->fine && i < n_groups; i++) rows->fine[i] = (int8_t)next_bits(state);
    for (size_t i = 0; rows->fine_min && i < n_groups; i++) {
        rows->fine_min[i] = (uint8_t)next_bits(state);
    }
}

bool skv_matmul_agrees(const skv_matmul *mm, const skv_matmul *usual, const skv_quant_form *form)
{
    const size_t nr = mm->nr, n_x = ROWS_MAX * AGREE_K, n_w = nr * AGREE_K;
    if (usual->nr != nr) return false;
    float *numbers = skv_alloc(n_x + n_w + 2 * ROWS_MAX * nr, sizeof *numbers);
    void *rows = form ? skv_alloc_aligned(1, skv_quant_rows_bytes(form, nr, AGREE_K)) : NULL;
    uint32_t state = 1;
    bool agree = numbers && (rows || !form);
    if (agree) {
        float *c = numbers + n_x + n_w;
        operands o = {.form = form, .x = numbers, .w = numbers + n_x, .c = {c, c + ROWS_MAX * nr}};
        for (size_t i = 0; i < n_x + n_w; i++) numbers[i] = next_float(&state);
        if (form) {
            skv_quant_rows_init(&o.rows, form, nr, AGREE_K, rows);
            fill_rows(&o.rows, form, &state);
        }
        agree = all_agree(&o, mm, usual);
    }
    skv_free(numbers);
    skv_free(rows);
    return agree;
}

bool skv_matmul_q_agrees(const skv_matmul *mm, const skv_matmul *usual)
{
    /* Forms like those of Q4_K, Q6_K and Q8_0. */
    static const skv_quant_form files[] = {
        {.bits = 4,
         .group = 32,
         .fine = true,
         .has_min = true,
         .even = true,
         .levels = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}},
        {.bits = 6, .group = 16, .fine = true},
        {.bits = 8, .group = 32},
    };
    if (!skv_matmul_agrees(mm, usual, skv_quant_form_int4())) return false;
    if (!skv_matmul_agrees(mm, usual, skv_quant_form_zeros(SKV_QUANT_WIDE, true))) return false;
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        if (!skv_matmul_agrees(mm, usual, &files[i])) return false;
    }
    return true;
}
