/*
 * Attention with AVX2: f32 tiles of 6 x 16 held in 12 registers. Pages of 16 and 8 bits are
 * widened when they are packed.
 */
#include "kernels/x86/attention_avx2.h"

#include <immintrin.h>
#include <math.h>

#include "kernels/attention.h"
#include "kernels/attention_tiles.h"
#include "kernels/x86/math_avx2.h"

#define INLINE static inline __attribute__((always_inline))

static void pack_q(void *y, const float *x, float scale, size_t n)
{
    float *to = y;
    for (size_t i = 0; i < n; i++) to[i] = x[i] * scale;
}

/* Elements d .. d + 7 of row r, zero if it is not seen. */
INLINE __m256 load_seen(const skv_tile_page *p, skv_kv_type type, size_t which, size_t r, size_t d)
{
    size_t Dh = p->head_dim;
    if (r < p->row0 || r >= p->row1) return _mm256_setzero_ps();
    const unsigned char *rows = p->page + skv_page_rows_at(type, Dh, which);
    return skv_kv8_avx2(rows + r * Dh * skv_kv_size(type), type, d, Dh);
}

/* panel [Dh][64]: eight rows of K become eight columns. */
INLINE void pack_k_of(float *panel, const skv_tile_page *p, skv_kv_type type)
{
    size_t Dh = p->head_dim;
    for (size_t r = 0; r < SKV_PAGE_ROWS; r += 8) {
        for (size_t d = 0; d < Dh; d += 8) {
            __m256 x[8];
            size_t n = Dh - d < 8 ? Dh - d : 8;
            for (size_t i = 0; i < 8; i++) x[i] = load_seen(p, type, 0, r + i, d);
            skv_transpose8_avx2(x);
            for (size_t i = 0; i < n; i++) {
                _mm256_storeu_ps(panel + (d + i) * SKV_PAGE_ROWS + r, x[i]);
            }
        }
    }
}

/* panel [64][ld_v]: the rows of V, zero where nothing is seen. */
INLINE void pack_v_of(float *panel, const skv_tile_page *p, skv_kv_type type)
{
    for (size_t r = 0; r < p->row1; r++) {
        for (size_t d = 0; d < p->head_dim; d += 8) {
            _mm256_storeu_ps(panel + r * p->ld_v + d, load_seen(p, type, 1, r, d));
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
    __m256 c[SKV_TILE_ROWS][2];
    for (size_t i = 0; i < m; i++) c[i][0] = c[i][1] = _mm256_setzero_ps();
    const float *a = (const float *)(const void *)p->a;
    const float *b = (const float *)(const void *)p->b + column;
    size_t lda = p->lda / sizeof *a;
    for (size_t k = 0; k < p->k; k++) {
        __m256 x = _mm256_loadu_ps(b);
        __m256 y = _mm256_loadu_ps(b + 8);
        for (size_t i = 0; i < m; i++) {
            __m256 z = _mm256_broadcast_ss(a + i * lda);
            c[i][0] = _mm256_fmadd_ps(z, x, c[i][0]);
            c[i][1] = _mm256_fmadd_ps(z, y, c[i][1]);
        }
        a++;
        b += p->ldb;
    }
    for (size_t i = 0; i < m; i++) {
        for (size_t v = 0; v < 2; v++) {
            float *to = p->c + i * p->ldc + column + 8 * v;
            if (p->add) c[i][v] = _mm256_add_ps(c[i][v], _mm256_loadu_ps(to));
            _mm256_storeu_ps(to, c[i][v]);
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

/* Eight scores from column 8 v of row r: scaled and capped if asked, minus infinity where nothing
 * is seen. */
INLINE __m256 load_scores(const skv_tile_softmax *t, size_t r, size_t v)
{
    __m256 x = _mm256_loadu_ps(t->s + r * SKV_PAGE_ROWS + 8 * v);
    if (t->k_scales) x = _mm256_mul_ps(x, _mm256_loadu_ps(t->k_scales + 8 * v));
    if (t->cap > 0.0f) x = _mm256_mul_ps(skv_tanh_avx2(x), _mm256_set1_ps(t->cap));
    if (t->visible) {
        const __m256i bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
        __m256i byte = _mm256_set1_epi32((int)(t->visible[r] >> 8 * v & 0xff));
        __m256i seen = _mm256_cmpeq_epi32(_mm256_and_si256(byte, bit), bit);
        x = _mm256_blendv_ps(_mm256_set1_ps(-HUGE_VALF), x, _mm256_castsi256_ps(seen));
    }
    return x;
}

/* Raises the maximum of row r if a score passes it by more than the slack; true if so. */
static bool raise_max(const skv_tile_softmax *t, size_t r, __m256 most)
{
    __m256 limit = _mm256_set1_ps(t->max[r] + t->slack);
    t->shrink[r] = 1.0f;
    if (_mm256_movemask_ps(_mm256_cmp_ps(most, limit, _CMP_GT_OQ)) == 0) return false;
    float max = skv_max8_avx2(most);
    float *sums = t->sums + r * SKV_TILE_SUMS;
    __m256 shrink = skv_exp2_avx2(_mm256_set1_ps(t->max[r] - max));
    _mm256_storeu_ps(sums, _mm256_mul_ps(_mm256_loadu_ps(sums), shrink));
    _mm256_storeu_ps(sums + 8, _mm256_mul_ps(_mm256_loadu_ps(sums + 8), shrink));
    t->shrink[r] = _mm256_cvtss_f32(shrink);
    t->max[r] = max;
    return true;
}

static bool softmax(const skv_tile_softmax *t)
{
    bool grown = false;
    for (size_t r = 0; r < t->m; r++) {
        __m256 x[8];
        __m256 most = _mm256_set1_ps(-HUGE_VALF);
        for (size_t v = 0; v < 8; v++) {
            x[v] = load_scores(t, r, v);
            most = _mm256_max_ps(most, x[v]);
        }
        grown |= raise_max(t, r, most);
        __m256 max = _mm256_set1_ps(t->max[r]);
        for (size_t v = 0; v < 8; v++) {
            float *sums = t->sums + r * SKV_TILE_SUMS + v % 2 * 8;
            x[v] = skv_exp2_avx2(_mm256_sub_ps(x[v], max));
            _mm256_storeu_ps(sums, _mm256_add_ps(_mm256_loadu_ps(sums), x[v]));
            if (t->v_scales) x[v] = _mm256_mul_ps(x[v], _mm256_loadu_ps(t->v_scales + 8 * v));
            _mm256_storeu_ps(t->s + r * SKV_PAGE_ROWS + 8 * v, x[v]);
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

static void attention_avx2(const skv_attention *a, void *scratch)
{
    skv_attention_run(a, &tiles, scratch);
}

static void attention_part_avx2(const skv_attention *a, size_t row0, size_t row1, float *partial,
                                void *scratch)
{
    skv_attention_run_part(a, &tiles, row0, row1, partial, scratch);
}

void skv_attention_init_avx2(skv_kernels *k, unsigned features)
{
    if (!(features & SKV_CPU_AVX2)) return;
    k->kv_store = skv_kv_store_avx2;
    k->kv_load = skv_kv_load_avx2;
    k->attention_tokens = skv_attention_tokens_tiles;
    k->attention_scratch = skv_attention_scratch_tiles;
    k->attention = attention_avx2;
    k->attention_part = attention_part_avx2;
}
