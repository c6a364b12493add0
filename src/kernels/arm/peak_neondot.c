/* The limit of SDOT: see peak.h. */
#include <arm_neon.h>

#include "kernels/peak.h"

enum { SUMS = 12 };

static void run(float *data, size_t n_rounds)
{
    const int8_t *bytes = (const int8_t *)(const void *)data;
    int8x16_t a = vld1q_s8(bytes), b = vld1q_s8(bytes + 16);
    int32x4_t sum[SUMS];
    for (size_t i = 0; i < SUMS; i++) sum[i] = vdupq_n_s32((int32_t)i);
    for (size_t r = 0; r < n_rounds; r++) {
        for (size_t i = 0; i < SUMS; i++) sum[i] = vdotq_s32(sum[i], a, b);
    }
    for (size_t i = 1; i < SUMS; i++) sum[0] = vaddq_s32(sum[0], sum[i]);
    vst1q_s32((int32_t *)(void *)data, sum[0]);
}

const skv_peak_loop skv_peak_i8_neondot = {run, 8.0 * 4 * SUMS};
