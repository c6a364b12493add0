/*
 * The limits of a level: loops that do nothing but its fastest multiply-add instructions on
 * registers, and one that reads memory. A measurement runs them on every thread.
 *
 * A loop has enough independent sums that it waits for the units, not for a result. Operands are
 * in the form the instructions want: unpacking, widening and scales are not part of a limit.
 */
#ifndef SKV_KERNELS_PEAK_H
#define SKV_KERNELS_PEAK_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/cpu.h"

enum { SKV_PEAK_BYTES = 64 }; /* of an operand */

/*
 * Adds, n_rounds times, products of a[k] and b[k] to sums that begin at 0, and returns the total
 * of all sums: n_rounds * n_products / n_operands * (sum over k < n_operands of a[k] * b[k]).
 * a and b [n_operands] take SKV_PEAK_BYTES each; any bytes are allowed, but the result is right
 * only for those named here, and until an int32 sum overflows.
 *     f32    float
 *     bf16   bfloat16, or float where the processor has no bfloat16 arithmetic
 *     i8     a 0..127, b -127..127
 *     i4     a 0..15, b -127..127
 * skv_peak_f32_ref multiplies its sums by a and adds b, which is the same where a is 1.
 */
typedef double skv_peak_fn(const void *a, const void *b, size_t n_rounds);
/* Reads n_bytes once and returns a value that depends on all of them. A multiple of 4096 is
 * best. */
typedef uint64_t skv_peak_read_fn(const void *buffer, size_t n_bytes);

typedef struct skv_peak_loop {
    skv_peak_fn *run;
    size_t n_products; /* multiply-adds of a round */
    size_t n_operands;
    const char *instructions; /* for people */
} skv_peak_loop;

typedef struct skv_peak_loops {
    skv_peak_loop f32, bf16, i8;
    skv_peak_loop i4; /* int4 weights times int8 activations */
    skv_peak_read_fn *read;
} skv_peak_loops;

/** Fills the table with the limits of the kernels that skv_kernels_init takes for this level. */
void skv_peak_init(skv_peak_loops *peak, skv_cpu_level level, unsigned features);

/** Operations of a round; a multiply-add is two. */
static inline double skv_peak_ops(const skv_peak_loop *loop)
{
    return 2.0 * (double)loop->n_products;
}

/* The value that a loop returns of its sums [n]. */
static inline double skv_peak_total_f32(const float *sums, size_t n)
{
    double total = 0.0;
    for (size_t i = 0; i < n; i++) total += (double)sums[i];
    return total;
}

static inline double skv_peak_total_i32(const int32_t *sums, size_t n)
{
    double total = 0.0;
    for (size_t i = 0; i < n; i++) total += (double)sums[i];
    return total;
}

extern const skv_peak_loop skv_peak_f32_ref, skv_peak_i8_ref;
skv_peak_read_fn skv_peak_read_ref;
/* x86-64 builds only. */
extern const skv_peak_loop skv_peak_f32_avx2, skv_peak_i8_avx2, skv_peak_i4_avx2;
extern const skv_peak_loop skv_peak_i8_avxvnni;
extern const skv_peak_loop skv_peak_f32_avx512, skv_peak_i8_avx512, skv_peak_i4_avx512;
extern const skv_peak_loop skv_peak_bf16_avx512bf16, skv_peak_i8_avx512vnni;
extern const skv_peak_loop skv_peak_bf16_amx, skv_peak_i8_amx;
skv_peak_read_fn skv_peak_read_avx2, skv_peak_read_avx512;
/* AArch64 builds only. */
extern const skv_peak_loop skv_peak_f32_neon, skv_peak_i8_neon, skv_peak_i4_neon;
extern const skv_peak_loop skv_peak_i8_neondot;
extern const skv_peak_loop skv_peak_i8_neoni8mm, skv_peak_bf16_neonbf16;
skv_peak_read_fn skv_peak_read_neon;

#endif
