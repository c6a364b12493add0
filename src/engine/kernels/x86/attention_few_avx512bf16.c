/*
 * Attention of a single token with AVX-512 and BF16 instructions: scores and sums straight from
 * the rows of a page. With so few query rows a panel is used once, and making it would cost more
 * than it saves: this way pages are read about as fast as memory gives them.
 *
 * Codes of int8 pages are whole numbers, and widening them to 16 bits costs a quarter of widening
 * to bfloat16. Their factors become whole numbers too, n = x / step with 15 bits for the
 * largest x, so that VPDPWSSD adds up exactly:
 *
 *     q = step n:  s = step sum n c               p = step n:  o += step sum n c
 */
#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "kernels/x86/attention_avx512bf16.h"

#define INLINE static inline __attribute__((always_inline))

enum {
    FEW = SKV_TILE_FEW,
    SUMS = 16,                       /* of query rows and rows of K, added up together */
    ROW_BYTES = 2 * SKV_HEAD_DIM_MAX /* of a cached row, at most */
};

static const float WHOLE_MAX = 32767.0f;
static const unsigned char UNSEEN[ROW_BYTES] = {0}; /* a row that no query sees */

/* Sums as they are added up: f32, or whole numbers of 32 bits for int8 pages. */
INLINE __m512i add(skv_kv_type type, __m512i x, __m512i y)
{
    if (type == SKV_KV_TYPE_INT8) return _mm512_add_epi32(x, y);
    return _mm512_castps_si512(_mm512_add_ps(_mm512_castsi512_ps(x), _mm512_castsi512_ps(y)));
}

/* In assembly, since gcc 12 copies the sums of the intrinsics to and fro. */
INLINE __m512i add_product(skv_kv_type type, __m512i sum, __m512i x, __m512i y)
{
    if (type == SKV_KV_TYPE_INT8) {
        __asm__("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(x), "v"(y));
    } else {
        __asm__("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(x), "v"(y));
    }
    return sum;
}

INLINE __m512 to_floats(skv_kv_type type, __m512i sum, __m512 step)
{
    if (type != SKV_KV_TYPE_INT8) return _mm512_castsi512_ps(sum);
    return _mm512_mul_ps(_mm512_cvtepi32_ps(sum), step);
}

/* o + sum. An FMA by name: compilers would make one for some numbers of rows only. */
INLINE __m512 add_floats(skv_kv_type type, __m512 o, __m512i sum, __m512 step)
{
    if (type != SKV_KV_TYPE_INT8) return _mm512_add_ps(o, _mm512_castsi512_ps(sum));
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), step, o);
}

/* Elements d .. d + 31 of a row in the form that add_product takes; zero from n on. */
INLINE __m512i load32(const unsigned char *row, skv_kv_type type, size_t d, size_t n)
{
    if (type != SKV_KV_TYPE_INT8) return skv_load32_avx512(row, type, d, n);
    const void *codes = row + d;
    if (n - d >= 32) return _mm512_cvtepi8_epi16(_mm256_loadu_si256(codes));
    __mmask32 lanes = ((__mmask32)1 << (n - d)) - 1;
    return _mm512_cvtepi8_epi16(_mm256_maskz_loadu_epi8(lanes, codes));
}

INLINE __m512 from_bf16(const unsigned char *x, __mmask16 lanes)
{
    __m256i bits = _mm256_maskz_loadu_epi16(lanes, x);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

/* n bfloat16 from x as whole numbers of 16 bits in y, which may be x. The step between them; NaN
 * where not all are finite. */
INLINE float to_whole(void *y, const void *x, size_t n)
{
    const unsigned char *from = x;
    unsigned char *to = y;
    const __m512 inf = _mm512_set1_ps(HUGE_VALF);
    __m512 most = _mm512_setzero_ps();
    for (size_t i = 0; i < n; i += 16) {
        __m512 v = _mm512_abs_ps(from_bf16(from + 2 * i, skv_lanes16(n - i)));
        /* A NaN counts as infinite: the second operand stays when one is a NaN. */
        most = _mm512_max_ps(most, _mm512_min_ps(v, inf));
    }
    float top = _mm512_reduce_max_ps(most);
    bool none = !(top > 0x1p-100f && top < HUGE_VALF); /* else its inverse might not be finite */
    __m512 inverse = _mm512_set1_ps(none ? 0.0f : WHOLE_MAX / top);
    for (size_t i = 0; i < n; i += 16) {
        __mmask16 lanes = skv_lanes16(n - i);
        __m512i number = _mm512_cvtps_epi32(_mm512_mul_ps(from_bf16(from + 2 * i, lanes), inverse));
        if (none) number = _mm512_setzero_si512();
        _mm256_mask_storeu_epi16(to + 2 * i, lanes, _mm512_cvtepi32_epi16(number));
    }
    return top < HUGE_VALF ? top / WHOLE_MAX : NAN;
}

float skv_few_q_avx512bf16(void *q, size_t n, skv_kv_type type)
{
    return type == SKV_KV_TYPE_INT8 ? to_whole(q, q, n) : 1.0f;
}

/* Lane i of the result is the sum of x[i]. */
INLINE __m512i sums_of(skv_kv_type type, __m512i x[SUMS])
{
    __m512i y[4];
    for (size_t i = 0; i < 4; i++) {
        const __m512i *z = x + 4 * i;
        __m512i a = add(type, _mm512_unpacklo_epi32(z[0], z[1]), _mm512_unpackhi_epi32(z[0], z[1]));
        __m512i b = add(type, _mm512_unpacklo_epi32(z[2], z[3]), _mm512_unpackhi_epi32(z[2], z[3]));
        y[i] = add(type, _mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
    }
    __m512i a =
        add(type, _mm512_shuffle_i32x4(y[0], y[1], 0x88), _mm512_shuffle_i32x4(y[0], y[1], 0xdd));
    __m512i b =
        add(type, _mm512_shuffle_i32x4(y[2], y[3], 0x88), _mm512_shuffle_i32x4(y[2], y[3], 0xdd));
    return add(type, _mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xdd));
}

/* Elements d .. d + 31, those before n, of `keys` rows of K and m query rows. */
INLINE void add_scores(__m512i sum[SUMS], const skv_tile_few *f, const unsigned char *rows,
                       size_t row_bytes, skv_kv_type type, size_t d, size_t n, const size_t m,
                       const size_t keys)
{
    __m512i k[SUMS];
    for (size_t j = 0; j < keys; j++) k[j] = load32(rows + j * row_bytes, type, d, n);
    for (size_t i = 0; i < m; i++) {
        __m512i x = skv_load32_avx512(f->q + i * f->q_bytes, SKV_KV_TYPE_BF16, d, n);
        for (size_t j = 0; j < keys; j++) {
            sum[i * keys + j] = add_product(type, sum[i * keys + j], x, k[j]);
        }
    }
}

/* Rows that no query sees are read with their neighbours; the softmax leaves them out. */
INLINE void scores_of(const skv_tile_few *f, const skv_tile_page *p, skv_kv_type type,
                      const size_t m)
{
    const size_t keys = SUMS / (m == 3 ? 4 : m), n_bytes = keys * sizeof(float);
    size_t Dh = p->head_dim, row_bytes = Dh * skv_kv_size(type);
    float step[SUMS] = {0};
    for (size_t i = 0; i < m * keys; i++) step[i] = f->q_steps[i / keys];
    const __m512 steps = _mm512_loadu_ps(step);
    for (size_t r = p->row0 / keys * keys; r < p->row1; r += keys) {
        const unsigned char *rows = p->page + r * row_bytes;
        __m512i sum[SUMS];
        size_t d = 0;
        skv_tile_fetch(f, r * row_bytes, keys * row_bytes);
        for (size_t i = 0; i < SUMS; i++) sum[i] = _mm512_setzero_si512();
        for (; d + 32 <= Dh; d += 32) {
            add_scores(sum, f, rows, row_bytes, type, d, d + 32, m, keys);
        }
        if (d < Dh) add_scores(sum, f, rows, row_bytes, type, d, Dh, m, keys);
        float all[SUMS];
        _mm512_storeu_ps(all, to_floats(type, sums_of(type, sum), steps));
        for (size_t i = 0; i < m; i++) {
            memcpy(f->s + i * SKV_PAGE_ROWS + r, all + i * keys, n_bytes);
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

/* Columns [d, d + 32 halves) of O; V has n of them. step: of the weights of an int8 page. */
INLINE void columns_of(const skv_tile_few *f, const skv_tile_page *p, skv_kv_type type,
                       const float step[FEW], size_t d, size_t n, const size_t m,
                       const size_t halves)
{
    size_t size = skv_kv_size(type), row_bytes = p->head_dim * size;
    size_t begin = skv_page_rows_at(type, p->head_dim, 1);
    __m512i sum[FEW][4];
    for (size_t i = 0; i < m; i++) {
        for (size_t v = 0; v < 2 * halves; v++) sum[i][v] = _mm512_setzero_si512();
    }
    for (size_t r = p->row0 / 2 * 2; r < p->row1; r += 2) {
        const unsigned char *rows = p->page + begin + r * row_bytes;
        const unsigned char *row0 = r >= p->row0 ? rows : UNSEEN;
        const unsigned char *row1 = r + 1 < p->row1 ? rows + row_bytes : UNSEEN;
        __m512i pairs[4];
        skv_tile_fetch(f, r * row_bytes + d * size, 32 * halves * size);
        skv_tile_fetch(f, (r + 1) * row_bytes + d * size, 32 * halves * size);
        for (size_t h = 0; h < halves; h++) {
            __m512i x = load32(row0, type, d + 32 * h, n), y = load32(row1, type, d + 32 * h, n);
            pairs[2 * h] = skv_pairs_low_avx512(x, y);
            pairs[2 * h + 1] = skv_pairs_high_avx512(x, y);
        }
        for (size_t i = 0; i < m; i++) {
            int weights; /* two of 16 bits: of rows r and r + 1 */
            memcpy(&weights, (const unsigned char *)(f->s + i * SKV_PAGE_ROWS) + 2 * r,
                   sizeof weights);
            __m512i w = _mm512_set1_epi32(weights);
            for (size_t v = 0; v < 2 * halves; v++) {
                sum[i][v] = add_product(type, sum[i][v], w, pairs[v]);
            }
        }
    }
    for (size_t i = 0; i < m; i++) {
        for (size_t v = 0; v < 2 * halves && d + 16 * v < p->ld_v; v++) {
            float *o = f->o + i * p->ld_v + d + 16 * v;
            __m512 steps = _mm512_set1_ps(step[i]);
            _mm512_storeu_ps(o, add_floats(type, _mm512_loadu_ps(o), sum[i][v], steps));
        }
    }
}

INLINE void values_of(const skv_tile_few *f, const skv_tile_page *p, skv_kv_type type,
                      const size_t m)
{
    float step[FEW] = {0};
    for (size_t i = 0; type == SKV_KV_TYPE_INT8 && i < m; i++) {
        float *weights = f->s + i * SKV_PAGE_ROWS;
        step[i] = to_whole(weights, weights, SKV_PAGE_ROWS);
    }
    size_t d = 0, Dh = p->head_dim;
    for (; d + 64 <= Dh; d += 64) columns_of(f, p, type, step, d, d + 64, m, 2);
    for (; d + 32 <= Dh; d += 32) columns_of(f, p, type, step, d, d + 32, m, 1);
    if (d < Dh) columns_of(f, p, type, step, d, Dh, m, 1);
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
