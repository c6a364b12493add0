/* The limit of VDPBF16PS: see peak.h. */
#include <immintrin.h>

#include "kernels/peak.h"

enum { SUMS = 12 };

static void run(float *data, size_t n_rounds)
{
    __m512bh a = (__m512bh)_mm512_loadu_ps(data), b = (__m512bh)_mm512_loadu_ps(data + 16);
    __m512 sum[SUMS];
    for (size_t i = 0; i < SUMS; i++) sum[i] = _mm512_setzero_ps();
    for (size_t r = 0; r < n_rounds; r++) {
        for (size_t i = 0; i < SUMS; i++) sum[i] = _mm512_dpbf16_ps(sum[i], a, b);
    }
    for (size_t i = 1; i < SUMS; i++) sum[0] = _mm512_add_ps(sum[0], sum[i]);
    _mm512_storeu_ps(data, sum[0]);
}

const skv_peak_loop skv_peak_bf16_avx512bf16 = {run, 4.0 * 16 * SUMS};
