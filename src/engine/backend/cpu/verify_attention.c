/*
 * The comparison of two levels' attention: see verify.h. Few rows of large scores, so that weights
 * differ by row and by column: a step that is missing, or a row or a sign that is taken for
 * another, moves results by far more than rounding does.
 */
#include <math.h>
#include <stdint.h>

#include "backend/cpu/verify.h"
#include "base/mem.h"
#include "base/size.h"

enum {
    GROUP = 2,
    TOKENS = 20, /* 40 query rows: a whole product, and one of a few rows */
    PAST = 70,   /* two pages, the second of which is short */
    DIM = 80,    /* no multiple of a step */
    PAGES = 2,
    N_OUT = TOKENS * GROUP * DIM
};

/* What two levels may differ by, of values up to 1: sums in another order, of numbers that are
 * rounded alike. */
static const float BF16_TOLERANCE = 0x1p-7f, INT8_TOLERANCE = 0x1p-9f;

typedef struct attention_check {
    unsigned char *pages[PAGES];
    float *q, *out[2]; /* [TOKENS, GROUP, DIM] */
    void *scratch;
} attention_check;

/* Uniform in [-1, 1]. */
static float number(uint32_t i)
{
    uint32_t h = i * 0x9e3779b1u + 1;
    h = (h ^ h >> 15) * 0x2c1b3c6du;
    h ^= h >> 13;
    return (float)(h >> 8) * 0x1p-23f - 1.0f;
}

static void fill(const attention_check *t, const skv_kernels *k, skv_kv_type type)
{
    float key[DIM], value[DIM];
    for (size_t r = 0; r < PAGES * SKV_PAGE_ROWS; r++) {
        for (size_t d = 0; d < DIM; d++) {
            key[d] = number((uint32_t)(r * DIM + d));
            value[d] = number((uint32_t)(r * DIM + d + 77777));
        }
        k->kv_store(t->pages[r / SKV_PAGE_ROWS], type, r % SKV_PAGE_ROWS, key, value, DIM);
    }
    for (size_t i = 0; i < N_OUT; i++) t->q[i] = 4.0f * number((uint32_t)i + 999999);
}

static void attend(const attention_check *t, const skv_kernels *k, skv_kv_type type, float *out)
{
    const skv_attention a = {
        .out = out,
        .q = t->q,
        .ld_out = GROUP * DIM,
        .ld_q = GROUP * DIM,
        .n_q = TOKENS,
        .n_group = GROUP,
        .head_dim = DIM,
        .pages = (const void *const *)t->pages,
        .type = type,
        .n_past = PAST,
        .scale = 0.25f,
    };
    k->attention(&a, t->scratch);
}

static bool agree(const attention_check *t, const skv_kernels *k, const skv_kernels *below,
                  skv_kv_type type)
{
    const float tolerance = type == SKV_KV_TYPE_INT8 ? INT8_TOLERANCE : BF16_TOLERANCE;
    fill(t, below, type);
    attend(t, k, type, t->out[0]);
    attend(t, below, type, t->out[1]);
    for (size_t i = 0; i < N_OUT; i++) {
        if (!(fabsf(t->out[0][i] - t->out[1][i]) <= tolerance)) return false;
    }
    return true;
}

bool skv_attention_agrees(const skv_kernels *k, const skv_kernels *below)
{
    const size_t page = skv_kv_page_bytes(SKV_KV_TYPE_BF16, DIM);
    const size_t scratch =
        skv_max_size(k->attention_scratch(GROUP, DIM), below->attention_scratch(GROUP, DIM));
    attention_check t = {
        .pages = {skv_alloc_aligned(1, page), skv_alloc_aligned(1, page)},
        .q = skv_alloc(N_OUT, sizeof *t.q),
        .out = {skv_alloc(N_OUT, sizeof *t.q), skv_alloc(N_OUT, sizeof *t.q)},
        .scratch = skv_alloc_aligned(1, scratch),
    };
    const bool all = t.pages[0] && t.pages[1] && t.q && t.out[0] && t.out[1] && t.scratch;
    const bool same =
        all && agree(&t, k, below, SKV_KV_TYPE_BF16) && agree(&t, k, below, SKV_KV_TYPE_INT8);
    void *const blocks[] = {t.pages[0], t.pages[1], t.q, t.out[0], t.out[1], t.scratch};
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) skv_free(blocks[i]);
    return same;
}
