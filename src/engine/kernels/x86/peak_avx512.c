/* The limits of AVX-512 without its extensions: see peak.h. */
#include <immintrin.h>

#include "kernels/peak.h"

enum { F32_CHAINS = 12, I8_CHAINS = 6, I4_CHAINS = 4, I4_STEPS = 8, STREAMS = 2 };

/* Zeros that the compiler does not know for equal, or it might keep one sum for all. */
static inline __m512 zeros_f32(void)
{
    __m512 zeros = _mm512_setzero_ps();
    __asm__ volatile("" : "+v"(zeros));
    return zeros;
}

static inline __m512i zeros_i32(void)
{
    return _mm512_castps_si512(zeros_f32());
}

static double total(const __m512i *sum, size_t n)
{
    int32_t sums[16 * I8_CHAINS];
    for (size_t i = 0; i < n; i++) _mm512_storeu_si512(sums + 16 * i, sum[i]);
    return skv_peak_total_i32(sums, 16 * n);
}

static double run_f32(const void *a, const void *b, size_t n_rounds)
{
    __m512 sum[F32_CHAINS], x = _mm512_loadu_ps(a), y = _mm512_loadu_ps(b);
    for (size_t i = 0; i < F32_CHAINS; i++) sum[i] = zeros_f32();
    for (size_t r = 0; r < n_rounds; r++) {
        for (size_t i = 0; i < F32_CHAINS; i++) sum[i] = _mm512_fmadd_ps(x, y, sum[i]);
    }
    float sums[16 * F32_CHAINS];
    for (size_t i = 0; i < F32_CHAINS; i++) _mm512_storeu_ps(sums + 16 * i, sum[i]);
    return skv_peak_total_f32(sums, 16 * F32_CHAINS);
}

/* One product of constant operands; in assembly and volatile, or the compiler would compute all of
 * them once. */
static inline __m512i multiply_words(__m512i x, __m512i y)
{
    __m512i pairs;
    __asm__ volatile("vpmaddwd %2, %1, %0" : "=v"(pairs) : "v"(x), "v"(y));
    return pairs;
}

static inline __m512i multiply_bytes(__m512i x, __m512i y)
{
    __m512i pairs;
    __asm__ volatile("vpmaddubsw %2, %1, %0" : "=v"(pairs) : "v"(x), "v"(y));
    return pairs;
}

/* The addition stays behind the products before it, or gcc 12 moves them all up and spills. */
static inline __m512i add_ints(__m512i sum, __m512i pairs)
{
    __asm__ volatile("vpaddd %1, %0, %0" : "+v"(sum) : "v"(pairs));
    return sum;
}

static inline __m512i add_words(__m512i sum, __m512i pairs)
{
    __asm__ volatile("vpaddw %1, %0, %0" : "+v"(sum) : "v"(pairs));
    return sum;
}

/* Codes widened to 16 bits: two products to an int32. There is no VPSIGNB of this width. */
static double run_i8(const void *a, const void *b, size_t n_rounds)
{
    __m512i x = _mm512_cvtepi8_epi16(_mm256_loadu_si256(a)), sum[I8_CHAINS], pairs[I8_CHAINS];
    __m512i y = _mm512_cvtepi8_epi16(_mm256_loadu_si256(b));
    for (size_t i = 0; i < I8_CHAINS; i++) sum[i] = zeros_i32();
    for (size_t r = 0; r < n_rounds; r++) {
        for (size_t i = 0; i < I8_CHAINS; i++) pairs[i] = multiply_words(x, y);
        for (size_t i = 0; i < I8_CHAINS; i++) sum[i] = add_ints(sum[i], pairs[i]);
    }
    return total(sum, I8_CHAINS);
}

/* Eight products of bytes are added as int16, which 8 * 2 * 15 * 127 fits, before they are widened
 * to an int32. */
static double run_i4(const void *a, const void *b, size_t n_rounds)
{
    const __m512i x = _mm512_loadu_si512(a), y = _mm512_loadu_si512(b), ones = _mm512_set1_epi16(1);
    __m512i sum[I4_CHAINS], pairs[I4_CHAINS];
    for (size_t i = 0; i < I4_CHAINS; i++) sum[i] = zeros_i32();
    for (size_t r = 0; r < n_rounds; r++) {
        for (size_t i = 0; i < I4_CHAINS; i++) pairs[i] = multiply_bytes(x, y);
        for (size_t k = 1; k < I4_STEPS; k++) {
            for (size_t i = 0; i < I4_CHAINS; i++) {
                pairs[i] = add_words(pairs[i], multiply_bytes(x, y));
            }
        }
        for (size_t i = 0; i < I4_CHAINS; i++) {
            sum[i] = add_ints(sum[i], _mm512_madd_epi16(pairs[i], ones));
        }
    }
    return total(sum, I4_CHAINS);
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

const skv_peak_loop skv_peak_f32_avx512 = {run_f32, 16 * F32_CHAINS, 16, "FMA on 512 bits"};
const skv_peak_loop skv_peak_i8_avx512 = {run_i8, 32 * I8_CHAINS, 32,
                                          "VPMADDWD and VPADDD on 512 bits"};
const skv_peak_loop skv_peak_i4_avx512 = {run_i4, 64 * I4_STEPS *I4_CHAINS, 64,
                                          "VPMADDUBSW and VPADDW on 512 bits"};
