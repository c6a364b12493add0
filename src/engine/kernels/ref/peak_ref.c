/* The limits of plain C on this compiler's baseline: see peak.h. */
#include <string.h>

#include "kernels/peak.h"

enum { F32_CHAINS = 12, I8_CHAINS = 8 };

/* Sixteen bytes, which every baseline has registers for. */
typedef float four_floats __attribute__((vector_size(16)));
typedef uint64_t two_words __attribute__((vector_size(16)));
typedef int16_t eight_shorts __attribute__((vector_size(16)));
typedef int8_t signed_bytes __attribute__((vector_size(8)));
typedef int32_t four_ints __attribute__((vector_size(16)));

/* The sum is the factor, or the compiler would take the product out of the loop; and it does not
 * know that sums are equal, or it would keep one. */
static double run_f32(const void *a, const void *b, size_t n_rounds)
{
    four_floats sum[F32_CHAINS], x, y, zeros = {0};
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    for (size_t i = 0; i < F32_CHAINS; i++) {
        __asm__ volatile("" : "+m"(zeros));
        sum[i] = zeros;
    }
    for (size_t r = 0; r < n_rounds; r++) {
        for (size_t i = 0; i < F32_CHAINS; i++) sum[i] = sum[i] * x + y;
    }
    float sums[4 * F32_CHAINS];
    memcpy(sums, sum, sizeof sums);
    return skv_peak_total_f32(sums, 4 * F32_CHAINS);
}

/* A product of two codes fits an int16. x is read again for every product, since it might have
 * changed. */
static double run_i8(const void *a, const void *b, size_t n_rounds)
{
    signed_bytes a_codes, b_codes;
    memcpy(&a_codes, a, sizeof a_codes);
    memcpy(&b_codes, b, sizeof b_codes);
    eight_shorts x = __builtin_convertvector(a_codes, eight_shorts);
    const eight_shorts y = __builtin_convertvector(b_codes, eight_shorts);
    four_ints sum[I8_CHAINS] = {{0}};
    for (size_t r = 0; r < n_rounds; r++) {
        for (size_t i = 0; i < I8_CHAINS; i += 2) {
            __asm__ volatile("" : "+m"(x));
            const eight_shorts products = x * y, signs = products >> 15;
            sum[i] += (four_ints)__builtin_shufflevector(products, signs, 0, 8, 1, 9, 2, 10, 3, 11);
            sum[i + 1] +=
                (four_ints)__builtin_shufflevector(products, signs, 4, 12, 5, 13, 6, 14, 7, 15);
        }
    }
    int32_t sums[4 * I8_CHAINS];
    memcpy(sums, sum, sizeof sums);
    return skv_peak_total_i32(sums, 4 * I8_CHAINS);
}

uint64_t skv_peak_read_ref(const void *buffer, size_t n_bytes)
{
    const unsigned char *bytes = buffer;
    two_words sum[4] = {{0}};
    for (size_t i = 0; i + sizeof sum <= n_bytes; i += sizeof sum) {
        two_words line[4];
        memcpy(line, bytes + i, sizeof line);
        for (size_t j = 0; j < 4; j++) sum[j] += line[j];
    }
    for (size_t j = 1; j < 4; j++) sum[0] += sum[j];
    return sum[0][0] + sum[0][1];
}

const skv_peak_loop skv_peak_f32_ref = {run_f32, 4 * F32_CHAINS, 4, "what the compiler makes of C"};
const skv_peak_loop skv_peak_i8_ref = {run_i8, 4 * I8_CHAINS, 8, "what the compiler makes of C"};
