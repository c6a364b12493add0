/*
 * Seeds of properties, and how many cases there are. SKV_TEST_SEED draws other cases than those
 * that every run has; tools/checks/check_properties.py sets it. SKV_TEST_ALL (script/test --all)
 * asks for all cases where a test takes a part of them; AddressSanitizer sees the same accesses in
 * the part. Under ThreadSanitizer, THREADS_ONLY, tests of many values take fewer: threads do the
 * same in all of them. On an emulated GPU (SKV_TEST_FEW) a test takes one case of many, since the
 * processor has tried the others.
 */
#ifndef SKV_TESTS_PROPERTY_SEED_H
#define SKV_TESTS_PROPERTY_SEED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/rng.h"

#if defined(__SANITIZE_THREAD__)
enum { THREADS_ONLY = 1 };
#else
enum { THREADS_ONLY = 0 };
#endif

static inline uint64_t property_seed(uint64_t usual)
{
    const char *text = getenv("SKV_TEST_SEED");
    return text ? skv_mix64(usual ^ skv_mix64(strtoull(text, NULL, 10))) : usual;
}

static inline bool every_case(void)
{
#if defined(__SANITIZE_ADDRESS__)
    return false;
#else
    return getenv("SKV_TEST_ALL");
#endif
}

static inline bool few_cases(void)
{
    return getenv("SKV_TEST_FEW");
}

/** How many of n cases are tried: `few` on a device that is emulated. */
static inline size_t cases_of(size_t n, size_t few)
{
    return few_cases() && few < n ? few : n;
}

/** Each case is tried, and one of n on a device that is emulated. */
static inline size_t one_case_of(size_t n)
{
    return few_cases() ? n : 1;
}

#endif
