/*
 * The bf16 matrix product with BFMMLA: two rows by two columns and four numbers along K to an
 * instruction, a tile of up to 6 rows by 16 columns. The last row of an odd number is its own
 * partner. The instruction flushes denormals and rounds its sums to odd, unless the processor is
 * told otherwise.
 * Panel [ceil(K / 4)][16][4], block [ceil(K / 4)][m][4] bfloat16, K padded with zeros.
 *
 * The limit of the instruction is at the end.
 */
#include <arm_neon.h>

#include "base/size.h"
#include "kernels/arm/matmul_tile_neon.h"
#include "kernels/bf16.h"
#include "kernels/matmul.h"
#include "kernels/peak.h"

enum { NR = SKV_NR128, MR = SKV_MR128, KC = SKV_KC128 };
enum { PEAK_CHAINS = 16 };

static size_t w_bytes(size_t K)
{
    return skv_round_up(K, 4) * NR * sizeof(uint16_t);
}

static size_t x_bytes(size_t m, size_t K)
{
    return skv_round_up(K, 4) * m * sizeof(uint16_t);
}

/* The first n of n_out rows of x [n, K], ld floats apart, with zero rows after them. */
static void pack(uint16_t *out, size_t n_out, const float *x, size_t ld, size_t n, size_t K)
{
    for (size_t k = 0; k < K; k += 4) {
        for (size_t i = 0; i < n_out; i++, out += 4) {
            for (size_t d = 0; d < 4; d++) {
                out[d] = i < n && k + d < K ? skv_f32_to_bf16(x[i * ld + k + d]) : 0;
            }
        }
    }
}

static void pack_w(void *panel, const float *w, size_t ldw, size_t n, size_t K)
{
    pack(panel, NR, w, ldw, n, K);
}

static void pack_x(void *block, const float *x, size_t ldx, size_t m, size_t K)
{
    pack(block, m, x, ldx, m, K);
}

static inline bfloat16x8_t load_pair(const uint16_t *first, const uint16_t *second)
{
    return vreinterpretq_bf16_u16(vcombine_u16(vld1_u16(first), vld1_u16(second)));
}

/* Row i of four columns, from the sums of its pair with two columns each. */
static inline float32x4_t row_of(float32x4_t left, float32x4_t right, size_t i)
{
    if (i % 2 == 0) return vcombine_f32(vget_low_f32(left), vget_low_f32(right));
    return vcombine_f32(vget_high_f32(left), vget_high_f32(right));
}

/* Inlined once for every constant m, so that the accumulators are registers. */
static inline __attribute__((always_inline)) void tile_m(skv_tile128 t, const uint16_t *x,
                                                         const uint16_t *w, const size_t m)
{
    float32x4_t sum[MR / 2][8];
    for (size_t p = 0; p < (m + 1) / 2; p++) {
        for (size_t j = 0; j < 8; j++) sum[p][j] = vdupq_n_f32(0.0f);
    }
    for (size_t u = 0; u < t.n_k; u++, x += 4 * m, w += 4 * NR) {
        bfloat16x8_t pair[MR / 2];
        for (size_t p = 0; p < (m + 1) / 2; p++) {
            pair[p] = load_pair(x + 8 * p, x + 4 * skv_min_size(2 * p + 1, m - 1));
        }
        for (size_t j = 0; j < 8; j++) {
            bfloat16x8_t columns = vreinterpretq_bf16_u16(vld1q_u16(w + 8 * j));
            for (size_t p = 0; p < (m + 1) / 2; p++) {
                sum[p][j] = vbfmmlaq_f32(sum[p][j], pair[p], columns);
            }
        }
    }
    for (size_t i = 0; i < m; i++) {
        float32x4_t row[4];
        for (size_t j = 0; j < 4; j++) row[j] = row_of(sum[i / 2][2 * j], sum[i / 2][2 * j + 1], i);
        skv_tile128_store(t, i, row);
    }
}

#define UNIT_K 4
#define TILE skv_tile128
#define X uint16_t
#define X_AT (k0 * m)
#define W uint16_t
#define W_AT (k0 * NR)
#include "kernels/matmul_tile.inc"

const skv_matmul skv_matmul_bf16_neonbf16 = {
    MATMUL_TILE, .w_bytes = w_bytes, .x_bytes = x_bytes, .pack_w = pack_w, .pack_x = pack_x,
};

/* Both rows of each operand are the same four numbers. */
static double run_peak(const void *a, const void *b, size_t n_rounds)
{
    bfloat16x8_t x = load_pair(a, a), y = load_pair(b, b);
    float32x4_t sum[PEAK_CHAINS];
    for (size_t i = 0; i < PEAK_CHAINS; i++) {
        sum[i] = vdupq_n_f32(0.0f);
        /* Hides that the sums are equal, or the compiler might keep only one. */
        __asm__ volatile("" : "+w"(sum[i]));
    }
    for (size_t r = 0; r < n_rounds; r++) {
        for (size_t i = 0; i < PEAK_CHAINS; i++) sum[i] = vbfmmlaq_f32(sum[i], x, y);
    }
    float sums[4 * PEAK_CHAINS];
    for (size_t i = 0; i < PEAK_CHAINS; i++) vst1q_f32(sums + 4 * i, sum[i]);
    return skv_peak_total_f32(sums, 4 * PEAK_CHAINS);
}

const skv_peak_loop skv_peak_bf16_neonbf16 = {run_peak, 16 * PEAK_CHAINS, 4, "BFMMLA"};
