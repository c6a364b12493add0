/*
 * Attention with AVX-512: f32 tiles of 6 x 64 held in 24 registers. Pages of 16 and 8 bits are
 * widened when they are packed; with BF16 instructions they go to attention_avx512bf16.c.
 */
#include "kernels/x86/attention_avx512.h"

#include <immintrin.h>

#include "base/size.h"
#include "kernels/attention.h"
#include "kernels/attention_tiles.h"
#include "kernels/x86/math_avx512.h"

#define INLINE static inline __attribute__((always_inline))

static void pack_q(void *y, const float *x, float scale, size_t n)
{
    float *to = y;
    for (size_t i = 0; i < n; i++) to[i] = x[i] * scale;
}

/* Row r of the page as f32 in to [n], n rounded up to 16; zero if it is not seen. */
INLINE void widen_row(float *to, const skv_tile_page *p, skv_kv_type type, size_t which, size_t r)
{
    size_t Dh = p->head_dim;
    const unsigned char *rows = p->page + skv_page_rows_at(type, Dh, which);
    bool seen = r >= p->row0 && r < p->row1;
    for (size_t d = 0; d < Dh; d += 16) {
        __m512 x = _mm512_setzero_ps();
        if (seen)
            x = skv_kv16_avx512(rows + r * Dh * skv_kv_size(type), type, d, skv_lanes16(Dh - d));
        _mm512_storeu_ps(to + d, x);
    }
}

/* panel [Dh][64]: sixteen rows of K become sixteen columns. */
INLINE void pack_k_of(unsigned char *panel, const skv_tile_page *p, skv_kv_type type)
{
    size_t Dh = p->head_dim;
    bool whole = type == SKV_KV_TYPE_F32 && p->row0 == 0 && p->row1 == SKV_PAGE_ROWS;
    float wide[16 * SKV_HEAD_DIM_MAX];
    size_t ld = skv_round_up(Dh, 16);
    size_t chunk = 16 * Dh * skv_kv_size(type);
    for (size_t r0 = 0; r0 < SKV_PAGE_ROWS; r0 += 16) {
        const unsigned char *from = p->page + r0 * Dh * sizeof(float);
        size_t stride = Dh * sizeof(float);
        if (p->ahead) skv_fetch_avx512(p->ahead + r0 / 16 * chunk, chunk);
        if (!whole) {
            for (size_t i = 0; i < 16; i++) widen_row(wide + i * ld, p, type, 0, r0 + i);
            from = (const unsigned char *)wide;
            stride = ld * sizeof(float);
        }
        skv_columns16_avx512(panel + r0 * sizeof(float), SKV_PAGE_ROWS, from, stride, Dh);
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

/* panel [64][ld_v]: the rows of V, zero where nothing is seen. */
INLINE void pack_v_of(float *panel, const skv_tile_page *p, skv_kv_type type)
{
    size_t row_bytes = p->head_dim * skv_kv_size(type);
    size_t begin = skv_page_rows_at(type, p->head_dim, 1);
    for (size_t r = 0; r < p->row1; r++) {
        if (p->ahead) skv_fetch_avx512(p->ahead + begin + r * row_bytes, row_bytes);
        widen_row(panel + r * p->ld_v, p, type, 1, r);
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

/* Columns [16 nv] of the product; m and nv are constants where this is inlined. */
INLINE void block(const skv_tile_product *p, size_t column, size_t m, size_t nv)
{
    __m512 c[SKV_TILE_ROWS][4];
    float *out = p->c + column;
    for (size_t i = 0; i < m; i++) {
        for (size_t v = 0; v < nv; v++) c[i][v] = _mm512_setzero_ps();
    }
    const float *a = (const float *)(const void *)p->a;
    const float *b = (const float *)(const void *)p->b + column;
    size_t lda = p->lda / sizeof *a;
    for (size_t k = 0; k < p->k; k++) {
        __m512 x[4];
        for (size_t v = 0; v < nv; v++) x[v] = _mm512_loadu_ps(b + 16 * v);
        for (size_t i = 0; i < m; i++) {
            __m512 y = _mm512_set1_ps(a[i * lda]);
            for (size_t v = 0; v < nv; v++) c[i][v] = _mm512_fmadd_ps(y, x[v], c[i][v]);
        }
        a++;
        b += p->ldb;
    }
    for (size_t i = 0; i < m; i++) {
        for (size_t v = 0; v < nv; v++) {
            float *to = out + i * p->ldc + 16 * v;
            if (p->add) c[i][v] = _mm512_add_ps(c[i][v], _mm512_loadu_ps(to));
            _mm512_storeu_ps(to, c[i][v]);
        }
    }
}

INLINE void product_of(const skv_tile_product *p, size_t m)
{
    size_t n = 0;
    for (; n + 64 <= p->n; n += 64) block(p, n, m, 4);
    if (p->n - n == 48) {
        block(p, n, m, 3);
    } else if (p->n - n == 32) {
        block(p, n, m, 2);
    } else if (p->n - n == 16) {
        block(p, n, m, 1);
    }
}

static void product(const skv_tile_product *p)
{
    switch (p->m) {
    case 1: product_of(p, 1); break;
    case 2: product_of(p, 2); break;
    case 3: product_of(p, 3); break;
    case 4: product_of(p, 4); break;
    case 5: product_of(p, 5); break;
    default: product_of(p, 6); break;
    }
}

static bool softmax(const skv_tile_softmax *t)
{
    bool grown = false;
    for (size_t r = 0; r < t->m; r++) {
        float *s = t->s + r * SKV_PAGE_ROWS;
        __m512 x[4];
        skv_softmax_load_avx512(t, r, x);
        grown |= skv_softmax_raise_avx512(t, r, x);
        __m512 max = _mm512_set1_ps(t->max[r]);
        __m512 sum = _mm512_loadu_ps(t->sums + r * SKV_TILE_SUMS);
        for (size_t v = 0; v < 4; v++) {
            x[v] = skv_exp2_avx512(_mm512_sub_ps(x[v], max));
            sum = _mm512_add_ps(sum, x[v]);
            if (t->v_scales) x[v] = _mm512_mul_ps(x[v], _mm512_loadu_ps(t->v_scales + 16 * v));
            _mm512_storeu_ps(s + 16 * v, x[v]);
        }
        _mm512_storeu_ps(t->sums + r * SKV_TILE_SUMS, sum);
    }
    return grown;
}

const skv_attention_tiles skv_attention_tiles_avx512 = {
    .unit = 1,
    .element = sizeof(float),
    .pack_q = pack_q,
    .pack_k = pack_k,
    .pack_v = pack_v,
    .product = product,
    .softmax = softmax,
};

static void attention_avx512(const skv_attention *a, void *scratch)
{
    skv_attention_run(a, &skv_attention_tiles_avx512, scratch);
}

static void attention_part_avx512(const skv_attention *a, size_t row0, size_t row1, float *partial,
                                  void *scratch)
{
    skv_attention_run_part(a, &skv_attention_tiles_avx512, row0, row1, partial, scratch);
}

void skv_attention_init_avx512(skv_kernels *k, unsigned features)
{
    if (!(features & SKV_CPU_AVX512)) return;
    k->kv_store = skv_kv_store_avx512;
    k->kv_load = skv_kv_load_avx512;
    k->attention_tokens = skv_attention_tokens_tiles;
    k->attention_scratch = skv_attention_scratch_tiles;
    k->attention = attention_avx512;
    k->attention_part = attention_part_avx512;
    if (!(features & SKV_CPU_AVX512_BF16)) return;
    k->attention = skv_attention_avx512bf16;
    k->attention_part = skv_attention_part_avx512bf16;
}
