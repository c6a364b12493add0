/*
 * Seeds of properties. SKV_TEST_SEED draws other cases than those that every run has;
 * tools/checks/check_properties.py sets it.
 */
#ifndef SKV_TESTS_PROPERTY_SEED_H
#define SKV_TESTS_PROPERTY_SEED_H

#include <stdint.h>
#include <stdlib.h>

#include "base/rng.h"

static inline uint64_t property_seed(uint64_t usual)
{
    const char *text = getenv("SKV_TEST_SEED");
    return text ? skv_mix64(usual ^ skv_mix64(strtoull(text, NULL, 10))) : usual;
}

#endif
