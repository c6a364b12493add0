/* Every level's kernels of linear attention against the reference, to the bit, and a block at once
 * against the same block in two parts. Returns the number of failures, each told in one line on
 * `out`. check_backend_states.c holds the reference against recurrences in double. */
#ifndef SKV_TESTS_CHECK_SCAN_H
#define SKV_TESTS_CHECK_SCAN_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

int skv_check_scan(uint64_t seed, bool bench, FILE *out);

#endif
