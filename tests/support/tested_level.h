/*
 * The levels of kernels that a test of every level runs. Under ThreadSanitizer that is the best
 * alone: threads divide the work in the same way on each.
 */
#ifndef SKV_TESTS_TESTED_LEVEL_H
#define SKV_TESTS_TESTED_LEVEL_H

#include <stdbool.h>

#include "kernels/cpu.h"
#include "property_seed.h"

/* Whether this machine runs a level, and a test should. */
static inline bool tested_level(skv_cpu_level level)
{
    const unsigned features = skv_cpu_detect();
    if (THREADS_ONLY) return level == skv_cpu_level_clamp(SKV_CPU_LEVEL_BEST, features);
    return skv_cpu_level_runs(level, features);
}

#endif
