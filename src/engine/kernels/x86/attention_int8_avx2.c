/*
 * Attention over pages of int8 with AVX2: tiles of 6 x 16 of VPMADDWD, whose operands have 16 bits.
 * With 15 bits for Q and the weights no sum passes 32 bits: 512 products of 32767 and 127 at most.
 */
#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "base/size.h"
#include "kernels/attention_tiles.h"
#include "kernels/kv_page.h"
#include "kernels/x86/attention_avx2.h"
#include "kernels/x86/math_avx2.h"

enum { UNIT = 2, ELEMENT = 2 };

static const float Q_MAX = 32767.0f, P_MAX = 32767.0f;

typedef __m256i operand;
typedef __m256i acc;

INLINE operand operand_load(const unsigned char *b)
{
    return _mm256_loadu_si256((const void *)b);
}

INLINE operand operand_repeat(const unsigned char *a)
{
    int pair;
    memcpy(&pair, a, sizeof pair);
    return _mm256_set1_epi32(pair);
}

/* In assembly, since gcc 12 keeps sums of the intrinsic on the stack. */
INLINE acc operand_dot(acc c, operand a, operand b)
{
    __m256i x = _mm256_madd_epi16(a, b);
    __asm__("vpaddd %1, %0, %0" : "+x"(c) : "x"(x));
    return c;
}

INLINE acc acc_zero(void)
{
    return _mm256_setzero_si256();
}

INLINE acc acc_load(const int32_t *x)
{
    return _mm256_loadu_si256((const void *)x);
}

INLINE vec vec_of(acc c)
{
    return _mm256_cvtepi32_ps(c);
}

INLINE vec vec_abs(vec x)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x);
}

INLINE vec vec_min(vec x, vec y)
{
    return _mm256_min_ps(x, y);
}

INLINE vec vec_load_some(const float *x, size_t n)
{
    return skv_load8_avx2(x, 0, n);
}

INLINE vec vec_exp2_weight(vec x)
{
    return skv_exp2_avx2(x);
}

/* Sixteen lanes of x, then y, as numbers of 16 bits. */
INLINE __m256i pack_16(vec x, vec y)
{
    __m256i z = _mm256_packs_epi32(_mm256_cvtps_epi32(x), _mm256_cvtps_epi32(y));
    return _mm256_permute4x64_epi64(z, 0xd8);
}

/* Heads are multiples of four. */
INLINE void q_store(unsigned char *y, vec x, size_t n)
{
    __m128i z = _mm256_castsi256_si128(pack_16(x, x));
    if (n >= LANES) {
        _mm_storeu_si128((void *)y, z);
    } else {
        _mm_storel_epi64((void *)y, z);
    }
}

INLINE void p_store(float *y, const vec x[SKV_PAGE_ROWS / LANES])
{
    for (size_t v = 0; v < SKV_PAGE_ROWS / LANES; v += 2) {
        _mm256_storeu_si256((void *)(y + LANES / 2 * v), pack_16(x[v], x[v + 1]));
    }
}

/* panel [Dh / 2][64][2]: eight rows of K, a pair of codes at a time, become columns. */
static void pack_k(void *panel, const skv_tile_page *p)
{
    size_t Dh = p->head_dim;
    memset(p->starts, 0, SKV_PAGE_ROWS * sizeof *p->starts);
    for (size_t r = 0; r < SKV_PAGE_ROWS; r += LANES) {
        for (size_t d = 0; d < Dh; d += UNIT * LANES) {
            __m256 x[LANES];
            size_t n = skv_min_size(LANES, (Dh - d) / UNIT);
            for (size_t i = 0; i < LANES; i++) { /* beyond Dh lies the next row, or V */
                const void *row = p->page + (r + i) * Dh + d;
                x[i] = _mm256_castsi256_ps(_mm256_cvtepi8_epi16(_mm_loadu_si128(row)));
            }
            skv_transpose8_avx2(x);
            float *to = (float *)panel + d / UNIT * SKV_PAGE_ROWS + r;
            for (size_t i = 0; i < n; i++) vec_store(to + i * SKV_PAGE_ROWS, x[i]);
        }
    }
}

/* panel [32][ld_v][2]: pairs of rows of V. */
static void pack_v(void *panel, const skv_tile_page *p)
{
    size_t Dh = p->head_dim;
    const unsigned char *rows = p->page + skv_page_rows_at(SKV_KV_TYPE_INT8, Dh, 1);
    unsigned char *to = panel;
    for (size_t r = 0; r < p->row1; r += UNIT, rows += UNIT * Dh) {
        for (size_t d = 0; d < p->ld_v; d += 16, to += 64) { /* beyond Dh lies the next row */
            __m128i x = _mm_loadu_si128((const void *)(rows + d));
            __m128i y = _mm_loadu_si128((const void *)(rows + Dh + d));
            __m256i low = _mm256_cvtepi8_epi16(_mm_unpacklo_epi8(x, y));
            __m256i high = _mm256_cvtepi8_epi16(_mm_unpackhi_epi8(x, y));
            _mm256_storeu_si256((void *)to, low);
            _mm256_storeu_si256((void *)(to + 32), high);
        }
    }
}

#include "kernels/attention_whole.inc"
#define TILES const skv_attention_tiles skv_attention_tiles_int8_avx2
#include "kernels/attention_level.inc"
