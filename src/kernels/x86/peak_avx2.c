/* The limits of AVX2: see peak.h. */
#include <immintrin.h>

#include "kernels/peak.h"

enum { SUMS = 12, STREAMS = 2 };

static void run_f32(float *data, size_t n_rounds)
{
    __m256 sum[SUMS], a = _mm256_loadu_ps(data), b = _mm256_loadu_ps(data + 8);
    for (size_t i = 0; i < SUMS; i++) sum[i] = a;
    for (size_t r = 0; r < n_rounds; r++) {
        for (size_t i = 0; i < SUMS; i++) sum[i] = _mm256_fmadd_ps(a, b, sum[i]);
    }
    for (size_t i = 1; i < SUMS; i++) sum[0] = _mm256_add_ps(sum[0], sum[i]);
    _mm256_storeu_ps(data, sum[0]);
}

/* Without VNNI: bytes to pairs, pairs to fours, add. The accumulator is an operand of the first,
 * or the compiler would take the product out of the loop. */
static void run_i8(float *data, size_t n_rounds)
{
    __m256i a = _mm256_loadu_si256((const __m256i *)(const void *)data), sum[SUMS];
    const __m256i ones = _mm256_set1_epi16(1);
    for (size_t i = 0; i < SUMS; i++) sum[i] = a;
    for (size_t r = 0; r < n_rounds; r++) {
        for (size_t i = 0; i < SUMS; i++) {
            __m256i pairs = _mm256_maddubs_epi16(a, sum[i]);
            sum[i] = _mm256_add_epi32(sum[i], _mm256_madd_epi16(pairs, ones));
        }
    }
    for (size_t i = 1; i < SUMS; i++) sum[0] = _mm256_add_epi32(sum[0], sum[i]);
    _mm256_storeu_si256((__m256i *)(void *)data, sum[0]);
}

static inline __m256i load(const unsigned char *bytes)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)bytes);
}

uint64_t skv_peak_read_avx2(const void *buffer, size_t n_bytes)
{
    const unsigned char *bytes = buffer;
    size_t stream = n_bytes / STREAMS / 64 * 64;
    __m256i sum[STREAMS];
    for (size_t s = 0; s < STREAMS; s++) sum[s] = _mm256_setzero_si256();
    for (size_t i = 0; i < stream; i += 64) {
        for (size_t s = 0; s < STREAMS; s++) {
            const unsigned char *line = bytes + s * stream + i;
            sum[s] = _mm256_add_epi64(sum[s], load(line));
            sum[s] = _mm256_add_epi64(sum[s], load(line + 32));
        }
    }
    for (size_t i = STREAMS * stream; i + 32 <= n_bytes; i += 32) {
        sum[0] = _mm256_add_epi64(sum[0], load(bytes + i));
    }
    for (size_t s = 1; s < STREAMS; s++) sum[0] = _mm256_add_epi64(sum[0], sum[s]);
    uint64_t parts[4];
    _mm256_storeu_si256((__m256i *)(void *)parts, sum[0]);
    return parts[0] + parts[1] + parts[2] + parts[3];
}

const skv_peak_loop skv_peak_f32_avx2 = {run_f32, 2.0 * 8 * SUMS};
const skv_peak_loop skv_peak_i8_avx2 = {run_i8, 8.0 * 8 * SUMS};
