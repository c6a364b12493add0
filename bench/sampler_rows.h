/*
 * The rows of logits that measurements of sampling share. "flat" is a normal distribution of
 * deviation 0.5, as random weights have it; "peaked" has twenty tokens far above the others.
 */
#ifndef SKV_BENCH_SAMPLER_ROWS_H
#define SKV_BENCH_SAMPLER_ROWS_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

static inline double now_ms(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* Roughly normal, of deviation 1. */
static inline float noise(uint64_t *state)
{
    double sum = 0;
    for (int i = 0; i < 12; i++) {
        *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        sum += (double)(*state >> 40) / (1 << 24);
    }
    return (float)(sum - 6);
}

/* x [n_rows, vocab]. */
static inline void make_rows(float *x, size_t vocab, size_t n_rows, int peaked)
{
    uint64_t state = 1;
    for (size_t i = 0; i < n_rows * vocab; i++) {
        const float z = noise(&state);
        const int high = i % vocab % (vocab / 20 + 1) == 7;
        x[i] = peaked ? 2.5f * z + (high ? 16.0f : 0.0f) : 0.5f * z;
    }
}

#endif
