/* The limit of VPDPBUSD: see peak.h. */
#include <immintrin.h>

#include "kernels/peak.h"

enum { SUMS = 12 };

static inline __m512i dot4(__m512i sum, __m512i a, __m512i b)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
    return sum;
}

static void run(float *data, size_t n_rounds)
{
    __m512i a = _mm512_loadu_si512(data), b = _mm512_loadu_si512(data + 16), sum[SUMS];
    for (size_t i = 0; i < SUMS; i++) sum[i] = a;
    for (size_t r = 0; r < n_rounds; r++) {
        for (size_t i = 0; i < SUMS; i++) sum[i] = dot4(sum[i], a, b);
    }
    for (size_t i = 1; i < SUMS; i++) sum[0] = _mm512_add_epi32(sum[0], sum[i]);
    _mm512_storeu_si512(data, sum[0]);
}

const skv_peak_loop skv_peak_i8_avx512vnni = {run, 8.0 * 16 * SUMS};
