/*
 * Packing for the x86 matrix products: see matmul_pack.h. Eight rows at a time are converted to
 * eight units each and transposed in registers.
 */
#include "kernels/x86/matmul_pack.h"

#include <immintrin.h>
#include <string.h>

#include "kernels/bf16.h"
#include "kernels/matmul.h"
#include "kernels/quant_panel.h"

enum {
    LANES = 8,
    NR_MAX = 64,
    ELEMENTS_MAX = 4 * LANES,
    SET = 4 * LANES,   /* int8 codes of a row in one 8 x 8 set of units */
    FETCH_AHEAD = 512, /* floats of a row that are asked for before they are rounded */
};

/* Reads as many floats of a row as make 8 units; `inverse` is for int8 only. */
typedef __m256i units_fn(const float *x, float inverse);

static inline __m256i units_f32(const float *x, float inverse)
{
    (void)inverse;
    return _mm256_castps_si256(_mm256_loadu_ps(x));
}

/* The bits of x rounded to bfloat16, in the upper halves; the lower ones hold noise. */
static inline __m256i round_bf16(__m256 x)
{
    __m256i bits = _mm256_castps_si256(x);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    return _mm256_blendv_epi8(rounded, quiet, is_nan);
}

static inline __m256i units_rounded(const float *x, float inverse)
{
    (void)inverse;
    return _mm256_and_si256(round_bf16(_mm256_loadu_ps(x)), _mm256_set1_epi32(-65536));
}

static inline __m256i units_bf16(const float *x, float inverse)
{
    (void)inverse;
    __m256i low = _mm256_srli_epi32(round_bf16(_mm256_loadu_ps(x)), 16);
    __m256i high = _mm256_srli_epi32(round_bf16(_mm256_loadu_ps(x + 8)), 16);
    return _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xd8);
}

static inline __m256i round_i8(const float *x, __m256 inverse)
{
    return _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x), inverse));
}

static inline __m256i units_i8(const float *x, float inverse)
{
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256 v = _mm256_set1_ps(inverse);
    __m256i low = _mm256_packs_epi32(round_i8(x, v), round_i8(x + 8, v));
    __m256i high = _mm256_packs_epi32(round_i8(x + 16, v), round_i8(x + 24, v));
    return _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high), order);
}

/* Rows become columns: r[t] ends up as { r[0][t], r[1][t], ... r[7][t] }. */
static inline void transpose8(__m256i r[LANES])
{
    __m256i a[LANES], b[LANES];
    for (int i = 0; i < LANES; i += 2) {
        a[i] = _mm256_unpacklo_epi32(r[i], r[i + 1]);
        a[i + 1] = _mm256_unpackhi_epi32(r[i], r[i + 1]);
    }
    for (int i = 0; i < LANES; i += 4) {
        b[i] = _mm256_unpacklo_epi64(a[i], a[i + 2]);
        b[i + 1] = _mm256_unpackhi_epi64(a[i], a[i + 2]);
        b[i + 2] = _mm256_unpacklo_epi64(a[i + 1], a[i + 3]);
        b[i + 3] = _mm256_unpackhi_epi64(a[i + 1], a[i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        r[i] = _mm256_permute2x128_si256(b[i], b[i + 4], 0x20);
        r[i + 4] = _mm256_permute2x128_si256(b[i], b[i + 4], 0x31);
    }
}

/* 8 units of a row of which only n floats are left. */
static inline __m256i units_tail(const float *x, size_t n, float inverse, units_fn *units)
{
    float copy[ELEMENTS_MAX] = {0};
    memcpy(copy, x, n * sizeof *copy);
    return units(copy, inverse);
}

/* The state that the functions below share about one strip of up to eight rows. */
struct strip {
    const float *rows;
    size_t ld, n, K;
    size_t unit;          /* elements in a unit */
    const float *inverse; /* [n], or NULL */
    __m256i flip;         /* xored onto the units */
    unsigned char *out;   /* unit u of row 0 */
    size_t out_step;      /* bytes from unit u to unit u + 1 */
};

/* Each vector of 8 lanes is stored whole: lanes beyond n are overwritten or unused. */
static inline __attribute__((always_inline)) void pack_strip(struct strip s, units_fn *units)
{
    size_t step = s.unit * LANES;
    for (size_t k = 0; k < s.K; k += step) {
        __m256i r[LANES];
        size_t left = s.K - k;
        for (size_t i = 0; i < LANES; i++) {
            r[i] = _mm256_setzero_si256();
            if (i >= s.n) continue;
            const float *x = s.rows + i * s.ld + k;
            float inverse = s.inverse ? s.inverse[i] : 0.0f;
            r[i] = left >= step ? units(x, inverse) : units_tail(x, left, inverse, units);
            r[i] = _mm256_xor_si256(r[i], s.flip);
        }
        transpose8(r);
        size_t n_units = left >= step ? LANES : skv_ceil_div(left, s.unit);
        for (size_t t = 0; t < n_units; t++, s.out += s.out_step) {
            _mm256_storeu_si256((__m256i *)(void *)s.out, r[t]);
        }
    }
}

static inline __attribute__((always_inline)) void
pack_panel(void *panel, skv_pack_rows w, size_t nr, size_t unit, units_fn *units)
{
    for (size_t j = 0; j < nr; j += LANES) {
        size_t first = skv_min_size(j, w.n - 1);
        struct strip s = {
            .rows = w.rows + first * w.ld,
            .ld = w.ld,
            .n = skv_min_size(w.n - skv_min_size(j, w.n), LANES),
            .K = w.K,
            .unit = unit,
            .flip = _mm256_setzero_si256(),
            .out = (unsigned char *)panel + j * SKV_UNIT,
            .out_step = nr * SKV_UNIT,
        };
        pack_strip(s, units);
    }
}

void skv_pack_w_f32_avx2(void *panel, skv_pack_rows w, size_t nr)
{
    pack_panel(panel, w, nr, 1, units_f32);
}

void skv_pack_w_bf16_avx2(void *panel, skv_pack_rows w, size_t nr)
{
    pack_panel(panel, w, nr, 2, units_bf16);
}

static inline __attribute__((always_inline)) void pack_block(void *block, skv_pack_rows x,
                                                             size_t unit, units_fn *units)
{
    struct strip s = {
        .rows = x.rows,
        .ld = x.ld,
        .n = x.n,
        .K = x.K,
        .unit = unit,
        .flip = _mm256_setzero_si256(),
        .out = block,
        .out_step = x.n * SKV_UNIT,
    };
    pack_strip(s, units);
}

void skv_pack_x_f32_avx2(void *block, skv_pack_rows x)
{
    pack_block(block, x, 1, units_f32);
}

void skv_pack_x_rounded_avx2(void *block, skv_pack_rows x)
{
    pack_block(block, x, 1, units_rounded);
}

void skv_pack_x_bf16_avx2(void *block, skv_pack_rows x)
{
    pack_block(block, x, 2, units_bf16);
}

static inline __attribute__((always_inline)) float largest(const float *x, size_t n)
{
    const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    __m256 a = _mm256_setzero_ps(), b = a;
    size_t k = 0;
    for (; k + 16 <= n; k += 16) {
        a = _mm256_max_ps(a, _mm256_and_ps(_mm256_loadu_ps(x + k), magnitude));
        b = _mm256_max_ps(b, _mm256_and_ps(_mm256_loadu_ps(x + k + 8), magnitude));
    }
    if (k < n) {
        float copy[16] = {0};
        memcpy(copy, x + k, (n - k) * sizeof *copy);
        a = _mm256_max_ps(a, _mm256_and_ps(_mm256_loadu_ps(copy), magnitude));
        b = _mm256_max_ps(b, _mm256_and_ps(_mm256_loadu_ps(copy + 8), magnitude));
    }
    a = _mm256_max_ps(a, b);
    __m128 v = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    v = _mm_max_ps(v, _mm_movehl_ps(v, v));
    v = _mm_max_ss(v, _mm_shuffle_ps(v, v, 1));
    return _mm_cvtss_f32(v);
}

static void pack_w_i8_group(unsigned char *out, skv_pack_rows w, size_t nr, uint8_t flip)
{
    uint16_t *scales = (uint16_t *)(void *)out;
    out += nr * sizeof *scales;
    for (size_t j = 0; j < nr; j += LANES) {
        float inverse[LANES] = {0};
        size_t first = skv_min_size(j, w.n - 1);
        size_t n = skv_min_size(w.n - skv_min_size(j, w.n), LANES);
        for (size_t i = 0; i < LANES; i++) {
            float amax = i < n ? largest(w.rows + (j + i) * w.ld, w.K) : 0.0f;
            scales[j + i] = skv_f32_to_bf16(skv_i8_scale(amax));
            inverse[i] = skv_i8_inverse(skv_bf16_to_f32(scales[j + i]));
        }
        struct strip s = {
            .rows = w.rows + first * w.ld,
            .ld = w.ld,
            .n = n,
            .K = w.K,
            .unit = 4,
            .inverse = inverse,
            .flip = _mm256_set1_epi8((char)flip),
            .out = out + j * SKV_UNIT,
            .out_step = nr * SKV_UNIT,
        };
        pack_strip(s, units_i8);
    }
}

void skv_pack_w_i8_avx2(void *panel, skv_pack_rows w, size_t nr, size_t length, uint8_t flip)
{
    unsigned char *out = panel;
    for (size_t k = 0; k < w.K; k += length) {
        skv_pack_rows group = {w.rows + k, w.ld, w.n, skv_min_size(length, w.K - k)};
        pack_w_i8_group(out, group, nr, flip);
        out += skv_pack_w_i8_group(nr, length);
    }
}

/* Units of a group, [nr][4] codes each, become [2][nr][2]; nr is a multiple of 16. */
static void split_units(unsigned char *units, size_t n_units, size_t nr)
{
    const __m256i low = _mm256_set1_epi32(0xffff);
    uint16_t halves[2 * NR_MAX];
    for (size_t u = 0; u < n_units; u++, units += nr * SKV_UNIT) {
        for (size_t j = 0; j < nr; j += 2 * LANES) {
            const __m256i *from = (const __m256i *)(const void *)(units + j * SKV_UNIT);
            __m256i a = _mm256_loadu_si256(from), b = _mm256_loadu_si256(from + 1);
            __m256i first = _mm256_packus_epi32(_mm256_and_si256(a, low), _mm256_and_si256(b, low));
            __m256i last = _mm256_packus_epi32(_mm256_srli_epi32(a, 16), _mm256_srli_epi32(b, 16));
            first = _mm256_permute4x64_epi64(first, 0xd8);
            last = _mm256_permute4x64_epi64(last, 0xd8);
            _mm256_storeu_si256((__m256i *)(void *)(halves + j), first);
            _mm256_storeu_si256((__m256i *)(void *)(halves + nr + j), last);
        }
        memcpy(units, halves, nr * SKV_UNIT);
    }
}

void skv_pack_w_i8_pairs_avx2(void *panel, skv_pack_rows w, size_t nr)
{
    skv_pack_w_i8_avx2(panel, w, nr, skv_i8_group(w.K), 0);
    unsigned char *group = panel;
    size_t length = skv_i8_group(w.K), n_units = skv_ceil_div(w.K, SKV_UNIT);
    for (; n_units; group += skv_pack_w_i8_group(nr, length)) {
        size_t n = skv_min_size(n_units, length / SKV_UNIT);
        split_units(group + nr * sizeof(uint16_t), n, nr);
        n_units -= n;
    }
}

static inline int32_t sum_lanes(__m256i v)
{
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1));
    return _mm_cvtsi128_si32(s);
}

/* One row of a group, x [32 * n_sets], becomes row i of each of n_sets 8 x 8 sets of units. */
static inline void quantise_row(__m256i (*units)[LANES], size_t n_sets, size_t i, const float *x,
                                float inverse, int32_t *start)
{
    const __m256i ones8 = _mm256_set1_epi8(1), ones16 = _mm256_set1_epi16(1);
    __m256i sum = _mm256_setzero_si256();
    for (size_t c = 0; c < n_sets; c++) {
        /* Rows of a wide product lie in the third-level cache, each in a place of its own. */
        __builtin_prefetch(x + FETCH_AHEAD + SET * c);
        __builtin_prefetch(x + FETCH_AHEAD + SET * c + SET / 2);
        __m256i codes = units_i8(x + SET * c, inverse);
        __m256i pairs = _mm256_maddubs_epi16(ones8, codes);
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, ones16));
        units[c][i] = codes;
    }
    *start = -128 * sum_lanes(sum);
}

/* The codes of a single row are in order already: no units of other rows lie between them. */
static void pack_x_i8_row(unsigned char *out, const float *x, size_t K, size_t length, size_t code)
{
    const __m256i ones8 = _mm256_set1_epi8(1), ones16 = _mm256_set1_epi16(1);
    float copy[SKV_I8_GROUP];
    float *scale = (float *)(void *)out;
    int32_t *start = (int32_t *)(void *)(out + SKV_UNIT);
    __m256i sum = _mm256_setzero_si256();
    if (K < length) {
        memset(copy, 0, sizeof copy);
        x = memcpy(copy, x, K * sizeof *copy);
    }
    *scale = skv_i8_scale(largest(x, length));
    float inverse = skv_i8_inverse(*scale);
    out += 2 * SKV_UNIT;
    for (size_t k = 0; k < K; k += SET, out += SET * code) {
        __m256i codes = units_i8(x + k, inverse), *to = (__m256i *)(void *)out;
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(ones8, codes), ones16));
        if (code == 1) {
            _mm256_storeu_si256(to, codes);
            continue;
        }
        _mm256_storeu_si256(to, _mm256_cvtepi8_epi16(_mm256_castsi256_si128(codes)));
        if (K - k <= SET / 2) continue;
        _mm256_storeu_si256(to + 1, _mm256_cvtepi8_epi16(_mm256_extracti128_si256(codes, 1)));
    }
    *start = -128 * sum_lanes(sum);
}

/* A unit of up to 8 rows, m of which count: as they are, or as pairs of 16 bits. */
static inline unsigned char *store_unit(unsigned char *out, __m256i unit, size_t m, size_t code)
{
    if (code == 1) {
        _mm256_storeu_si256((__m256i *)(void *)out, unit);
        return out + m * SKV_UNIT;
    }
    /* Codes 0 and 1 into the upper bytes of the two words of their lane; 2 and 3 likewise. */
    const __m128i order = _mm_setr_epi8(-1, 0, -1, 1, -1, 4, -1, 5, -1, 8, -1, 9, -1, 12, -1, 13);
    const __m256i first = _mm256_broadcastsi128_si256(order);
    __m256i a = _mm256_shuffle_epi8(unit, first);
    __m256i b = _mm256_shuffle_epi8(_mm256_srli_epi32(unit, 16), first);
    _mm256_storeu_si256((__m256i *)(void *)out, _mm256_srai_epi16(a, 8));
    _mm256_storeu_si256((__m256i *)(void *)(out + m * SKV_UNIT), _mm256_srai_epi16(b, 8));
    return out + 2 * m * SKV_UNIT;
}

/* `length` is that of the group, a multiple of SET; x.K is shorter in the last one. */
static inline __attribute__((always_inline)) void
pack_x_i8_group(unsigned char *out, skv_pack_rows x, size_t length, const size_t code)
{
    size_t m = x.n, n_units = skv_ceil_div(x.K, 4), n_sets = length / SET;
    float *scales = (float *)(void *)out;
    int32_t *starts = (int32_t *)(void *)(out + m * sizeof *scales);
    float copy[SKV_I8_GROUP];
    __m256i units[SKV_I8_GROUP / SET][LANES];
    if (x.K < length) memset(copy, 0, sizeof copy);
    for (size_t i = m; i < LANES; i++) {
        for (size_t c = 0; c < n_sets; c++) units[c][i] = _mm256_setzero_si256();
    }
    for (size_t i = 0; i < m; i++) scales[i] = skv_i8_scale(largest(x.rows + i * x.ld, x.K));
    for (size_t i = 0; i < m; i++) {
        const float *row = x.rows + i * x.ld;
        if (x.K < length) row = memcpy(copy, row, x.K * sizeof *copy);
        quantise_row(units, n_sets, i, row, skv_i8_inverse(scales[i]), starts + i);
    }
    out += 2 * m * SKV_UNIT;
    for (size_t c = 0; c * LANES < n_units; c++) {
        transpose8(units[c]);
        size_t n = skv_min_size(n_units - c * LANES, LANES);
        for (size_t t = 0; t < n; t++) out = store_unit(out, units[c][t], m, code);
    }
}

void skv_pack_x_i8_avx2(void *block, skv_pack_rows x, size_t code)
{
    unsigned char *out = block;
    size_t length = skv_i8_group(x.K);
    for (size_t k = 0; k < x.K; k += length) {
        skv_pack_rows group = {x.rows + k, x.ld, x.n, skv_min_size(length, x.K - k)};
        if (x.n == 1) {
            pack_x_i8_row(out, group.rows, group.K, length, code);
        } else if (code == 1) {
            pack_x_i8_group(out, group, length, 1);
        } else {
            pack_x_i8_group(out, group, length, 2);
        }
        out += skv_pack_x_i8_group(x.n, length, code);
    }
}

/* Sums of the codes, of the first and of the second half of a group. */
static inline void sum_halves(__m256i codes, int32_t *sums, size_t step)
{
    __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), codes);
    __m256i fours = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
    __m256i eights = _mm256_hadd_epi32(fours, fours);
    __m256i halves = _mm256_hadd_epi32(eights, eights);
    sums[step] = _mm256_extract_epi32(halves, 0);
    sums[2 * step] = _mm256_extract_epi32(halves, 4);
    sums[0] = sums[step] + sums[2 * step];
}

/* One group of m rows. */
static inline void pack_x_q_group(unsigned char *out, const float *x, size_t ldx, size_t m,
                                  const float inverse[LANES])
{
    int32_t *sums = (int32_t *)(void *)out;
    __m256i units[LANES];
    for (size_t i = 0; i < LANES; i++) units[i] = _mm256_setzero_si256();
    for (size_t i = 0; i < m; i++) {
        units[i] = units_i8(x + i * ldx, inverse[i]);
        sum_halves(units[i], sums + i, m);
    }
    out += 3 * m * SKV_UNIT;
    if (m == 1) { /* in order already */
        _mm256_storeu_si256((__m256i *)(void *)out, units[0]);
        return;
    }
    transpose8(units);
    for (size_t t = 0; t < LANES; t++, out += m * SKV_UNIT) {
        _mm256_storeu_si256((__m256i *)(void *)out, units[t]);
    }
}

void skv_pack_x_q_avx2(void *block, skv_pack_rows x)
{
    unsigned char *out = block;
    size_t length = skv_i8_group(x.K);
    for (size_t k = 0; k < x.K; k += length) {
        float *scales = (float *)(void *)out, inverse[LANES];
        size_t n = skv_min_size(length, x.K - k);
        out += x.n * sizeof *scales;
        for (size_t i = 0; i < x.n; i++) {
            scales[i] = skv_i8_scale(largest(x.rows + i * x.ld + k, n));
            inverse[i] = skv_i8_inverse(scales[i]);
        }
        for (size_t e = 0; e < n; e += SET, out += skv_quant_x_group(x.n)) {
            pack_x_q_group(out, x.rows + k + e, x.ld, x.n, inverse);
        }
    }
}
