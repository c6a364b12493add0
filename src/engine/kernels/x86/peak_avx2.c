/* The limits of AVX2: see peak.h. */
#include <immintrin.h>

#include "kernels/peak.h"

enum { F32_CHAINS = 12, I8_CHAINS = 6, I4_CHAINS = 4, I4_STEPS = 8, STREAMS = 2 };

static inline __m256i load(const void *bytes)
{
    return _mm256_loadu_si256((const __m256i *)bytes);
}

/* Zeros that the compiler does not know for equal, or it might keep one sum for all. */
static inline __m256 zeros_f32(void)
{
    __m256 zeros = _mm256_setzero_ps();
    __asm__ volatile("" : "+x"(zeros));
    return zeros;
}

static inline __m256i zeros_i32(void)
{
    return _mm256_castps_si256(zeros_f32());
}

static double total(const __m256i *sum, size_t n)
{
    int32_t sums[8 * I8_CHAINS];
    for (size_t i = 0; i < n; i++) _mm256_storeu_si256((__m256i *)(void *)(sums + 8 * i), sum[i]);
    return skv_peak_total_i32(sums, 8 * n);
}

static double run_f32(const void *a, const void *b, size_t n_rounds)
{
    __m256 sum[F32_CHAINS], x = _mm256_loadu_ps(a), y = _mm256_loadu_ps(b);
    for (size_t i = 0; i < F32_CHAINS; i++) sum[i] = zeros_f32();
    for (size_t r = 0; r < n_rounds; r++) {
        for (size_t i = 0; i < F32_CHAINS; i++) sum[i] = _mm256_fmadd_ps(x, y, sum[i]);
    }
    float sums[8 * F32_CHAINS];
    for (size_t i = 0; i < F32_CHAINS; i++) _mm256_storeu_ps(sums + 8 * i, sum[i]);
    return skv_peak_total_f32(sums, 8 * F32_CHAINS);
}

/* One product of constant operands; in assembly and volatile, or the compiler would compute all of
 * them once. */
static inline __m256i multiply_words(__m256i x, __m256i y)
{
    __m256i pairs;
    __asm__ volatile("vpmaddwd %2, %1, %0" : "=x"(pairs) : "x"(x), "x"(y));
    return pairs;
}

static inline __m256i multiply_bytes(__m256i x, __m256i y)
{
    __m256i pairs;
    __asm__ volatile("vpmaddubsw %2, %1, %0" : "=x"(pairs) : "x"(x), "x"(y));
    return pairs;
}

/* The addition stays behind the products before it, or gcc 12 moves them all up and spills. */
static inline __m256i add_ints(__m256i sum, __m256i pairs)
{
    __asm__ volatile("vpaddd %1, %0, %0" : "+x"(sum) : "x"(pairs));
    return sum;
}

static inline __m256i add_words(__m256i sum, __m256i pairs)
{
    __asm__ volatile("vpaddw %1, %0, %0" : "+x"(sum) : "x"(pairs));
    return sum;
}

/* Codes widened to 16 bits: two products to an int32. The other exact way, |x| times a weight with
 * the sign of x, takes as many instructions, three of which multiply or shuffle. */
static double run_i8(const void *a, const void *b, size_t n_rounds)
{
    __m256i x = _mm256_cvtepi8_epi16(_mm_loadu_si128(a)), sum[I8_CHAINS], pairs[I8_CHAINS];
    __m256i y = _mm256_cvtepi8_epi16(_mm_loadu_si128(b));
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
    const __m256i x = load(a), y = load(b), ones = _mm256_set1_epi16(1);
    __m256i sum[I4_CHAINS], pairs[I4_CHAINS];
    for (size_t i = 0; i < I4_CHAINS; i++) sum[i] = zeros_i32();
    for (size_t r = 0; r < n_rounds; r++) {
        for (size_t i = 0; i < I4_CHAINS; i++) pairs[i] = multiply_bytes(x, y);
        for (size_t k = 1; k < I4_STEPS; k++) {
            for (size_t i = 0; i < I4_CHAINS; i++) {
                pairs[i] = add_words(pairs[i], multiply_bytes(x, y));
            }
        }
        for (size_t i = 0; i < I4_CHAINS; i++) {
            sum[i] = add_ints(sum[i], _mm256_madd_epi16(pairs[i], ones));
        }
    }
    return total(sum, I4_CHAINS);
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

const skv_peak_loop skv_peak_f32_avx2 = {run_f32, 8 * F32_CHAINS, 8, "FMA on 256 bits"};
const skv_peak_loop skv_peak_i8_avx2 = {run_i8, 16 * I8_CHAINS, 16,
                                        "VPMADDWD and VPADDD on 256 bits"};
const skv_peak_loop skv_peak_i4_avx2 = {run_i4, 32 * I4_STEPS *I4_CHAINS, 32,
                                        "VPMADDUBSW and VPADDW on 256 bits"};
