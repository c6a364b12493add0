/*
 * Attention of a single token with AVX-512 and BF16 instructions: scores and sums straight from
 * the rows of a page. With so few query rows a panel is used once, and making it would cost more
 * than it saves: this way pages are read about as fast as memory gives them.
 */
#include <immintrin.h>
#include <string.h>

#include "base/size.h"
#include "kernels/x86/attention_avx512bf16.h"

#define INLINE static inline __attribute__((always_inline))

enum { FEW = SKV_TILE_FEW, KEYS = 4 /* rows of K whose sums are added up together */ };

/* Lane 4 i + j of the result is the sum of x[i][j]. */
INLINE __m512 sums_of(__m512 x[FEW][KEYS])
{
    __m512 y[FEW];
    for (size_t i = 0; i < FEW; i++) {
        __m512 a = _mm512_add_ps(_mm512_unpacklo_ps(x[i][0], x[i][1]),
                                 _mm512_unpackhi_ps(x[i][0], x[i][1]));
        __m512 b = _mm512_add_ps(_mm512_unpacklo_ps(x[i][2], x[i][3]),
                                 _mm512_unpackhi_ps(x[i][2], x[i][3]));
        __m512d low = _mm512_unpacklo_pd(_mm512_castps_pd(a), _mm512_castps_pd(b));
        __m512d high = _mm512_unpackhi_pd(_mm512_castps_pd(a), _mm512_castps_pd(b));
        y[i] = _mm512_add_ps(_mm512_castpd_ps(low), _mm512_castpd_ps(high));
    }
    __m512 a = _mm512_add_ps(_mm512_shuffle_f32x4(y[0], y[1], 0x88),
                             _mm512_shuffle_f32x4(y[0], y[1], 0xdd));
    __m512 b = _mm512_add_ps(_mm512_shuffle_f32x4(y[2], y[3], 0x88),
                             _mm512_shuffle_f32x4(y[2], y[3], 0xdd));
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
}

/* Rows that nobody sees are read with their neighbours; the softmax leaves them out. */
INLINE void scores_of(const skv_tile_few *f, const skv_tile_page *p, skv_kv_type type,
                      const size_t m)
{
    size_t Dh = p->head_dim, row_bytes = Dh * skv_kv_size(type);
    for (size_t r = p->row0 / KEYS * KEYS; r < p->row1; r += KEYS) {
        const unsigned char *rows = p->page + r * row_bytes;
        if (p->ahead) skv_fetch_avx512(p->ahead + r * row_bytes, KEYS * row_bytes);
        __m512 sum[FEW][KEYS];
        for (size_t i = 0; i < FEW; i++) {
            for (size_t j = 0; j < KEYS; j++) sum[i][j] = _mm512_setzero_ps();
        }
        for (size_t d = 0; d < Dh; d += 32) {
            __m512i k[KEYS];
            for (size_t j = 0; j < KEYS; j++) {
                k[j] = skv_load32_avx512(rows + j * row_bytes, type, d, Dh);
            }
            for (size_t i = 0; i < m; i++) {
                __m512i q = skv_load32_avx512(f->q + i * f->q_bytes, SKV_KV_TYPE_BF16, d, Dh);
                for (size_t j = 0; j < KEYS; j++) {
                    sum[i][j] = skv_dot_pairs_avx512(sum[i][j], q, k[j]);
                }
            }
        }
        float all[FEW * KEYS];
        _mm512_storeu_ps(all, sums_of(sum));
        for (size_t i = 0; i < m; i++) {
            memcpy(f->s + i * SKV_PAGE_ROWS + r, all + i * KEYS, KEYS * sizeof *all);
        }
    }
}

INLINE void scores_by_type(const skv_tile_few *f, const skv_tile_page *p, const size_t m)
{
    switch (p->type) {
    case SKV_KV_TYPE_F32: break; /* f32 pages take the f32 tiles */
    case SKV_KV_TYPE_BF16: scores_of(f, p, SKV_KV_TYPE_BF16, m); break;
    case SKV_KV_TYPE_FP8: scores_of(f, p, SKV_KV_TYPE_FP8, m); break;
    case SKV_KV_TYPE_INT8: scores_of(f, p, SKV_KV_TYPE_INT8, m); break;
    }
}

void skv_few_scores_avx512bf16(const skv_tile_few *f, const skv_tile_page *page)
{
    switch (f->m) {
    case 1: scores_by_type(f, page, 1); break;
    case 2: scores_by_type(f, page, 2); break;
    case 3: scores_by_type(f, page, 3); break;
    default: scores_by_type(f, page, 4); break;
    }
}

/* Columns [d, d + 32 halves) of O. */
INLINE void columns_of(const skv_tile_few *f, const skv_tile_page *p, skv_kv_type type, size_t d,
                       const size_t m, const size_t halves)
{
    size_t Dh = p->head_dim, row_bytes = Dh * skv_kv_size(type);
    size_t begin = skv_page_rows_at(type, Dh, 1);
    __m512 sum[FEW][4];
    for (size_t i = 0; i < m; i++) {
        for (size_t v = 0; v < 4; v++) sum[i][v] = _mm512_setzero_ps();
    }
    for (size_t r = p->row0 / 2 * 2; r < p->row1; r += 2) {
        const unsigned char *row = p->page + begin + r * row_bytes;
        bool seen0 = r >= p->row0, seen1 = r + 1 < p->row1;
        __m512i pairs[4];
        if (p->ahead && d == 0) skv_fetch_avx512(p->ahead + begin + r * row_bytes, 2 * row_bytes);
        for (size_t h = 0; h < halves; h++) {
            __m512i x = _mm512_setzero_si512(), y = x;
            if (seen0) x = skv_load32_avx512(row, type, d + 32 * h, Dh);
            if (seen1) y = skv_load32_avx512(row + row_bytes, type, d + 32 * h, Dh);
            pairs[2 * h] = skv_pairs_low_avx512(x, y);
            pairs[2 * h + 1] = skv_pairs_high_avx512(x, y);
        }
        for (size_t i = 0; i < m; i++) {
            int weights; /* two bfloat16: of rows r and r + 1 */
            memcpy(&weights, (const unsigned char *)(f->s + i * SKV_PAGE_ROWS) + 2 * r,
                   sizeof weights);
            __m512i w = _mm512_set1_epi32(weights);
            for (size_t v = 0; v < 2 * halves; v++) {
                sum[i][v] = skv_dot_pairs_avx512(sum[i][v], w, pairs[v]);
            }
        }
    }
    for (size_t i = 0; i < m; i++) {
        for (size_t v = 0; v < 2 * halves && d + 16 * v < p->ld_v; v++) {
            float *o = f->o + i * p->ld_v + d + 16 * v;
            _mm512_storeu_ps(o, _mm512_add_ps(_mm512_loadu_ps(o), sum[i][v]));
        }
    }
}

INLINE void values_of(const skv_tile_few *f, const skv_tile_page *p, skv_kv_type type,
                      const size_t m)
{
    size_t d = 0;
    for (; d + 32 < p->head_dim; d += 64) columns_of(f, p, type, d, m, 2);
    if (d < p->head_dim) columns_of(f, p, type, d, m, 1);
}

INLINE void values_by_type(const skv_tile_few *f, const skv_tile_page *p, const size_t m)
{
    switch (p->type) {
    case SKV_KV_TYPE_F32: break;
    case SKV_KV_TYPE_BF16: values_of(f, p, SKV_KV_TYPE_BF16, m); break;
    case SKV_KV_TYPE_FP8: values_of(f, p, SKV_KV_TYPE_FP8, m); break;
    case SKV_KV_TYPE_INT8: values_of(f, p, SKV_KV_TYPE_INT8, m); break;
    }
}

void skv_few_values_avx512bf16(const skv_tile_few *f, const skv_tile_page *page)
{
    switch (f->m) {
    case 1: values_by_type(f, page, 1); break;
    case 2: values_by_type(f, page, 2); break;
    case 3: values_by_type(f, page, 3); break;
    default: values_by_type(f, page, 4); break;
    }
}
