/* The limits of AVX2: see peak.h. */
#include "kernels/peak.h"
#include "kernels/x86/vec_avx2.h"

enum { F32_CHAINS = 12, I8_CHAINS = 6, I4_CHAINS = 4, I4_STEPS = 8, STREAMS = 2 };

#include "kernels/x86/peak.inc"

uint64_t skv_peak_read_avx2(const void *buffer, size_t n_bytes)
{
    const unsigned char *bytes = buffer;
    size_t stream = n_bytes / STREAMS / 64 * 64;
    __m256i sum[STREAMS];
    for (size_t s = 0; s < STREAMS; s++) sum[s] = _mm256_setzero_si256();
    for (size_t i = 0; i < stream; i += 64) {
        for (size_t s = 0; s < STREAMS; s++) {
            const unsigned char *line = bytes + s * stream + i;
            sum[s] = _mm256_add_epi64(sum[s], LOAD_BITS(line));
            sum[s] = _mm256_add_epi64(sum[s], LOAD_BITS(line + 32));
        }
    }
    for (size_t i = STREAMS * stream; i + 32 <= n_bytes; i += 32) {
        sum[0] = _mm256_add_epi64(sum[0], LOAD_BITS(bytes + i));
    }
    for (size_t s = 1; s < STREAMS; s++) sum[0] = _mm256_add_epi64(sum[0], sum[s]);
    uint64_t parts[4];
    _mm256_storeu_si256((__m256i *)(void *)parts, sum[0]);
    return parts[0] + parts[1] + parts[2] + parts[3];
}

const skv_peak_loop skv_peak_f32_avx2 = {run_f32, 8 * F32_CHAINS, 8, "FMA on 256 bits"};
const skv_peak_loop skv_peak_i8_avx2 = {run_i8, 16 * I8_CHAINS, 16,
                                        "VPMADDWD and VPADDD on 256 bits"};
const skv_peak_loop skv_peak_i4_avx2 = {run_i4, 32 * I4_STEPS *I4_CHAINS, 32,
                                        "VPMADDUBSW and VPADDW on 256 bits"};
