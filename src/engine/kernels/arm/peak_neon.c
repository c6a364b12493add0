/* The limits of NEON: see peak.h. */
#include <arm_neon.h>

#include "kernels/peak.h"

/* Up to four units with a latency of four. */
enum { F32_CHAINS = 16, I8_CHAINS = 12, I4_STEPS = 8, STREAMS = 2 };

/* Zeros that the compiler does not know for equal, or it might keep one sum for all. */
static inline float32x4_t zeros_f32(void)
{
    float32x4_t zeros = vdupq_n_f32(0.0f);
    __asm__ volatile("" : "+w"(zeros));
    return zeros;
}

static inline int32x4_t zeros_i32(void)
{
    int32x4_t zeros = vdupq_n_s32(0);
    __asm__ volatile("" : "+w"(zeros));
    return zeros;
}

static double total(const int32x4_t sum[I8_CHAINS])
{
    int32_t sums[4 * I8_CHAINS];
    for (size_t i = 0; i < I8_CHAINS; i++) vst1q_s32(sums + 4 * i, sum[i]);
    return skv_peak_total_i32(sums, 4 * I8_CHAINS);
}

/* With the intrinsic gcc 12 stores the sums in every round. */
static inline float32x4_t multiply_add(float32x4_t sum, float32x4_t x, float32x4_t y)
{
    __asm__("fmla %0.4s, %1.4s, %2.4s" : "+w"(sum) : "w"(x), "w"(y));
    return sum;
}

static double run_f32(const void *a, const void *b, size_t n_rounds)
{
    float32x4_t sum[F32_CHAINS], x = vld1q_f32(a), y = vld1q_f32(b);
    for (size_t i = 0; i < F32_CHAINS; i++) sum[i] = zeros_f32();
    for (size_t r = 0; r < n_rounds; r++) {
        for (size_t i = 0; i < F32_CHAINS; i++) sum[i] = multiply_add(sum[i], x, y);
    }
    float sums[4 * F32_CHAINS];
    for (size_t i = 0; i < F32_CHAINS; i++) vst1q_f32(sums + 4 * i, sum[i]);
    return skv_peak_total_f32(sums, 4 * F32_CHAINS);
}

/* Two products to an int16, which 2 * 127 * 127 fits. Volatile, or the compiler would compute the
 * products of constant operands once. */
static inline int16x8_t multiply(int8x16_t x, int8x16_t y)
{
    int16x8_t pairs;
    __asm__ volatile("smull %0.8h, %1.8b, %2.8b\n\tsmlal2 %0.8h, %1.16b, %2.16b"
                     : "=&w"(pairs)
                     : "w"(x), "w"(y));
    return pairs;
}

static double run_i8(const void *a, const void *b, size_t n_rounds)
{
    int8x16_t x = vld1q_s8(a), y = vld1q_s8(b);
    int32x4_t sum[I8_CHAINS];
    for (size_t i = 0; i < I8_CHAINS; i++) sum[i] = zeros_i32();
    for (size_t r = 0; r < n_rounds; r++) {
        for (size_t i = 0; i < I8_CHAINS; i++) sum[i] = vpadalq_s16(sum[i], multiply(x, y));
    }
    return total(sum);
}

/* Sixteen products are added as int16, which 16 * 15 * 127 fits. */
static double run_i4(const void *a, const void *b, size_t n_rounds)
{
    int8x16_t x = vld1q_s8(a), y = vld1q_s8(b);
    int32x4_t sum[I8_CHAINS];
    int16x8_t pairs[I8_CHAINS];
    for (size_t i = 0; i < I8_CHAINS; i++) sum[i] = zeros_i32();
    for (size_t r = 0; r < n_rounds; r++) {
        for (size_t i = 0; i < I8_CHAINS; i++) pairs[i] = multiply(x, y);
        for (size_t k = 1; k < I4_STEPS; k++) {
            for (size_t i = 0; i < I8_CHAINS; i++) {
                pairs[i] = vmlal_s8(pairs[i], vget_low_s8(x), vget_low_s8(y));
                pairs[i] = vmlal_high_s8(pairs[i], x, y);
            }
        }
        for (size_t i = 0; i < I8_CHAINS; i++) sum[i] = vpadalq_s16(sum[i], pairs[i]);
    }
    return total(sum);
}

uint64_t skv_peak_read_neon(const void *buffer, size_t n_bytes)
{
    const uint64_t *words = buffer;
    size_t stream = n_bytes / STREAMS / 64 * 8; /* words */
    uint64x2_t sum[STREAMS] = {vdupq_n_u64(0), vdupq_n_u64(0)};
    for (size_t i = 0; i < stream; i += 8) {
        for (size_t s = 0; s < STREAMS; s++) {
            const uint64_t *line = words + s * stream + i;
            for (size_t j = 0; j < 8; j += 2) sum[s] = vaddq_u64(sum[s], vld1q_u64(line + j));
        }
    }
    for (size_t i = STREAMS * stream; i + 2 <= n_bytes / 8; i += 2) {
        sum[0] = vaddq_u64(sum[0], vld1q_u64(words + i));
    }
    return vaddvq_u64(vaddq_u64(sum[0], sum[1]));
}

const skv_peak_loop skv_peak_f32_neon = {run_f32, 4 * F32_CHAINS, 4, "FMLA"};
const skv_peak_loop skv_peak_i8_neon = {run_i8, 16 * I8_CHAINS, 16, "SMULL, SMLAL, SADALP"};
const skv_peak_loop skv_peak_i4_neon = {run_i4, 16 * I4_STEPS *I8_CHAINS, 16, "SMLAL"};
