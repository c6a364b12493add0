/*
 * Random numbers: xoshiro256** (Blackman and Vigna, 2018), seeded through splitmix64. The state
 * is plain data, so a checkpoint can hold it.
 */
#ifndef SKV_BASE_RNG_H
#define SKV_BASE_RNG_H

#include <stdint.h>

typedef struct skv_rng {
    uint64_t state[4];
} skv_rng;

void skv_rng_init(skv_rng *rng, uint64_t seed);
/** 64 uniform bits. */
uint64_t skv_rng_next(skv_rng *rng);
/** Uniform in [0, 1), 53 bits. */
double skv_rng_uniform(skv_rng *rng);
/** Uniform in [0, n), n > 0, without bias. */
uint64_t skv_rng_below(skv_rng *rng, uint64_t n);
/** Normal with mean 0 and variance 1 (Box-Muller, one of the pair). */
double skv_rng_normal(skv_rng *rng);

/** A counter-based mix (splitmix64's finaliser): the same bits for the same x, in any order. */
static inline uint64_t skv_mix64(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

#endif
