/* Random numbers: see rng.h. */
#include "base/rng.h"

#include <math.h>

static uint64_t rotate_left(uint64_t x, int k)
{
    return x << k | x >> (64 - k);
}

void skv_rng_init(skv_rng *rng, uint64_t seed)
{
    for (uint64_t i = 0; i < 4; i++) rng->state[i] = skv_mix64(seed + i * 0x9e3779b97f4a7c15u);
}

uint64_t skv_rng_next(skv_rng *rng)
{
    uint64_t *s = rng->state;
    uint64_t result = rotate_left(s[1] * 5, 7) * 9;
    uint64_t t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate_left(s[3], 45);
    return result;
}

double skv_rng_uniform(skv_rng *rng)
{
    return (double)(skv_rng_next(rng) >> 11) * 0x1p-53;
}

uint64_t skv_rng_below(skv_rng *rng, uint64_t n)
{
    uint64_t reject = (0 - n) % n; /* 2^64 mod n: the first values would be drawn too often */
    uint64_t x;
    do {
        x = skv_rng_next(rng);
    } while (x < reject);
    return x % n;
}

double skv_rng_normal(skv_rng *rng)
{
    double u = 1.0 - skv_rng_uniform(rng); /* in (0, 1] */
    double v = skv_rng_uniform(rng);
    return sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v);
}
