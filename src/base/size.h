/* Checked size arithmetic: every size that comes from a file or a request goes through here. */
#ifndef SKV_BASE_SIZE_H
#define SKV_BASE_SIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SKV_ALIGN = 64 }; /* one cache line, one AVX-512 register */

/** *out = a + b; false (and *out untouched) when it does not fit. */
static inline bool skv_size_add(size_t a, size_t b, size_t *out)
{
    size_t sum;
    if (__builtin_add_overflow(a, b, &sum)) return false;
    *out = sum;
    return true;
}

/** *out = a * b; false (and *out untouched) when it does not fit. */
static inline bool skv_size_mul(size_t a, size_t b, size_t *out)
{
    size_t product;
    if (__builtin_mul_overflow(a, b, &product)) return false;
    *out = product;
    return true;
}

/** ceil(a / b) without overflow; b > 0. */
static inline size_t skv_ceil_div(size_t a, size_t b)
{
    return a / b + (a % b != 0);
}

/** The smallest multiple of b that is >= a; the caller knows that it fits. */
static inline size_t skv_round_up(size_t a, size_t b)
{
    return skv_ceil_div(a, b) * b;
}

static inline size_t skv_min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

static inline size_t skv_max_size(size_t a, size_t b)
{
    return a > b ? a : b;
}

#endif
