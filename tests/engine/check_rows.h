/* Every level's activation rows against the reference, and the reference against the C library.
 * Returns the number of failures, each told in one line on `out`. */
#ifndef SKV_TESTS_CHECK_ROWS_H
#define SKV_TESTS_CHECK_ROWS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

int skv_check_rows(uint64_t seed, bool bench, FILE *out);

#endif
