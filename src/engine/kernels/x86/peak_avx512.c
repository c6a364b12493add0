/* The limits of AVX-512 without its extensions: see peak.h. */
#include "kernels/peak.h"
#include "kernels/x86/vec_avx512.h"

enum { F32_CHAINS = 12, I8_CHAINS = 6, I4_CHAINS = 4, I4_STEPS = 8, STREAMS = 2 };

#include "kernels/x86/peak.inc"

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

const skv_peak_loop skv_peak_f32_avx512 = {run_f32, 16 * F32_CHAINS, 16, "FMA on 512 bits"};
const skv_peak_loop skv_peak_i8_avx512 = {run_i8, 32 * I8_CHAINS, 32,
                                          "VPMADDWD and VPADDD on 512 bits"};
const skv_peak_loop skv_peak_i4_avx512 = {run_i4, 64 * I4_STEPS *I4_CHAINS, 64,
                                          "VPMADDUBSW and VPADDW on 512 bits"};
