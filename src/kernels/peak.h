/*
 * The limits of the machine: loops that do nothing but the best multiply-add instruction of each
 * kind on registers, and one that reads memory. Whoever measures runs them on every thread.
 */
#ifndef SKV_KERNELS_PEAK_H
#define SKV_KERNELS_PEAK_H

#include <stddef.h>
#include <stdint.h>

enum { SKV_PEAK_FLOATS = 64 }; /* length of the operands and results */

/* Does n_rounds rounds on data[SKV_PEAK_FLOATS] (any finite values) and leaves there what depends
 * on all of them. */
typedef void skv_peak_fn(float *data, size_t n_rounds);
/* Reads n_bytes once and returns what depends on all of them. A multiple of 4096 is best. */
typedef uint64_t skv_peak_read_fn(const void *buffer, size_t n_bytes);

typedef struct skv_peak_loop {
    skv_peak_fn *run;
    double ops; /* of one round; a multiply-add of two numbers is two */
} skv_peak_loop;

typedef struct skv_peak_loops {
    skv_peak_loop f32, bf16, i8;
    skv_peak_read_fn *read;
} skv_peak_loops;

/** Fills the table with the fastest loops that a processor with these features runs. */
void skv_peak_init(skv_peak_loops *peak, unsigned features);

extern const skv_peak_loop skv_peak_f32_ref, skv_peak_i8_ref;
skv_peak_read_fn skv_peak_read_ref;
/* x86-64 builds only. */
extern const skv_peak_loop skv_peak_f32_avx2, skv_peak_i8_avx2;
extern const skv_peak_loop skv_peak_f32_avx512, skv_peak_bf16_avx512bf16, skv_peak_i8_avx512vnni;
skv_peak_read_fn skv_peak_read_avx2, skv_peak_read_avx512;
/* AArch64 builds only. */
extern const skv_peak_loop skv_peak_f32_neon, skv_peak_i8_neon, skv_peak_i8_neondot;
skv_peak_read_fn skv_peak_read_neon;

#endif
