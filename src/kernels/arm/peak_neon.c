/* The limits of NEON: see peak.h. */
#include <arm_neon.h>

#include "kernels/peak.h"

enum { SUMS = 12, STREAMS = 2 };

static void run_f32(float *data, size_t n_rounds)
{
    float32x4_t sum[SUMS], a = vld1q_f32(data), b = vld1q_f32(data + 4);
    for (size_t i = 0; i < SUMS; i++) sum[i] = a;
    for (size_t r = 0; r < n_rounds; r++) {
        for (size_t i = 0; i < SUMS; i++) sum[i] = vfmaq_f32(sum[i], a, b);
    }
    for (size_t i = 1; i < SUMS; i++) sum[0] = vaddq_f32(sum[0], sum[i]);
    vst1q_f32(data, sum[0]);
}

/* Products of bytes, added in pairs. The accumulator is an operand, or the compiler would take
 * the product out of the loop. */
static void run_i8(float *data, size_t n_rounds)
{
    int8x8_t a = vld1_s8((const int8_t *)(const void *)data);
    int32x4_t sum[SUMS];
    for (size_t i = 0; i < SUMS; i++) sum[i] = vdupq_n_s32((int32_t)i);
    for (size_t r = 0; r < n_rounds; r++) {
        for (size_t i = 0; i < SUMS; i++) {
            int8x8_t b = vget_low_s8(vreinterpretq_s8_s32(sum[i]));
            sum[i] = vpadalq_s16(sum[i], vmull_s8(a, b));
        }
    }
    for (size_t i = 1; i < SUMS; i++) sum[0] = vaddq_s32(sum[0], sum[i]);
    vst1q_s32((int32_t *)(void *)data, sum[0]);
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

const skv_peak_loop skv_peak_f32_neon = {run_f32, 2.0 * 4 * SUMS};
const skv_peak_loop skv_peak_i8_neon = {run_i8, 2.0 * 8 * SUMS};
