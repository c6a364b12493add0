/* The levels whose kernels for rows are held against the reference. */
#ifndef SKV_TESTS_CHECK_LEVELS_H
#define SKV_TESTS_CHECK_LEVELS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/system.h"
#include "kernels/kernels.h"

static const struct {
    const char *name;
    skv_cpu_level level;
    unsigned needed;
} LEVELS[] = {
    {"ref", SKV_CPU_LEVEL_REF, 0},
    {"avx2", SKV_CPU_LEVEL_AVX2, SKV_CPU_AVX2},
    {"avx512", SKV_CPU_LEVEL_AVX512, SKV_CPU_AVX512},
    {"neon", SKV_CPU_LEVEL_NEON, SKV_CPU_NEON},
};
enum { N_LEVELS = sizeof LEVELS / sizeof LEVELS[0] };

/* Fills the table; false when this processor cannot. */
static bool level_init(size_t i, skv_kernels *k)
{
    const unsigned features = skv_cpu_detect();
    if ((features & LEVELS[i].needed) != LEVELS[i].needed) return false;
    skv_kernels_init(k, LEVELS[i].level, features);
    return true;
}

static double elapsed_ns(uint64_t begin, int n)
{
    return (double)(skv_clock_ns() - begin) / n;
}

#endif
