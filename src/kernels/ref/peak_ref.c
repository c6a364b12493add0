/* The limits of plain C on this compiler's baseline: see peak.h. */
#include <string.h>

#include "kernels/peak.h"

enum { LANES = SKV_PEAK_FLOATS / 2 };

static void run_f32(float *data, size_t n_rounds)
{
    float sum[LANES], factor[LANES];
    memcpy(sum, data, sizeof sum);
    memcpy(factor, data + LANES, sizeof factor);
    for (size_t r = 0; r < n_rounds; r++) {
        for (size_t i = 0; i < LANES; i++) sum[i] = sum[i] * factor[i] + factor[i];
    }
    memcpy(data, sum, sizeof sum);
}

static void run_i8(float *data, size_t n_rounds)
{
    uint32_t sum[LANES];
    int16_t a[LANES], b[LANES];
    memcpy(sum, data, sizeof sum);
    memcpy(a, data, sizeof a);
    memcpy(b, data + LANES, sizeof b);
    for (size_t r = 0; r < n_rounds; r++) {
        for (size_t i = 0; i < LANES; i++) sum[i] += (uint32_t)(a[i] * b[i]);
        a[r % LANES] = (int16_t)sum[r % LANES];
    }
    memcpy(data, sum, sizeof sum);
}

uint64_t skv_peak_read_ref(const void *buffer, size_t n_bytes)
{
    const unsigned char *bytes = buffer;
    uint64_t sum[8] = {0};
    for (size_t i = 0; i + sizeof sum <= n_bytes; i += sizeof sum) {
        uint64_t line[8];
        memcpy(line, bytes + i, sizeof line);
        for (size_t j = 0; j < 8; j++) sum[j] += line[j];
    }
    for (size_t j = 1; j < 8; j++) sum[0] += sum[j];
    return sum[0];
}

const skv_peak_loop skv_peak_f32_ref = {run_f32, 2.0 * LANES};
const skv_peak_loop skv_peak_i8_ref = {run_i8, 2.0 * LANES};
