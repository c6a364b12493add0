/* Checks every matrix product that this machine runs against a double-precision oracle. */
#ifndef SKV_TESTS_CHECK_MATMUL_H
#define SKV_TESTS_CHECK_MATMUL_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/** The number of failures; each is one line on `out` that holds its seed and shape. */
int skv_check_matmul(uint64_t seed, bool bench, FILE *out);

#endif
