/* The limits of AVX-512: see peak.h. */
#include <immintrin.h>

#include "kernels/peak.h"

enum { SUMS = 12, STREAMS = 2 };

static void run_f32(float *data, size_t n_rounds)
{
    __m512 sum[SUMS], a = _mm512_loadu_ps(data), b = _mm512_loadu_ps(data + 16);
    for (size_t i = 0; i < SUMS; i++) sum[i] = a;
    for (size_t r = 0; r < n_rounds; r++) {
        for (size_t i = 0; i < SUMS; i++) sum[i] = _mm512_fmadd_ps(a, b, sum[i]);
    }
    for (size_t i = 1; i < SUMS; i++) sum[0] = _mm512_add_ps(sum[0], sum[i]);
    _mm512_storeu_ps(data, sum[0]);
}

/* Two streams: one leaves gaps where the hardware's prefetcher starts anew, more confuse it. */
uint64_t skv_peak_read_avx512(const void *buffer, size_t n_bytes)
{
    const unsigned char *bytes = buffer;
    size_t stream = n_bytes / STREAMS / 64 * 64;
    __m512i sum[STREAMS];
    for (size_t s = 0; s < STREAMS; s++) sum[s] = _mm512_setzero_si512();
    for (size_t i = 0; i < stream; i += 64) {
        for (size_t s = 0; s < STREAMS; s++) {
            const unsigned char *line = bytes + s * stream + i;
            sum[s] = _mm512_add_epi64(sum[s], _mm512_loadu_si512(line));
        }
    }
    for (size_t i = STREAMS * stream; i + 64 <= n_bytes; i += 64) {
        sum[0] = _mm512_add_epi64(sum[0], _mm512_loadu_si512(bytes + i));
    }
    for (size_t s = 1; s < STREAMS; s++) sum[0] = _mm512_add_epi64(sum[0], sum[s]);
    return (uint64_t)_mm512_reduce_add_epi64(sum[0]);
}

const skv_peak_loop skv_peak_f32_avx512 = {run_f32, 2.0 * 16 * SUMS};
