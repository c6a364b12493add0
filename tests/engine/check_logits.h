/* Every level's kernels for rows of logits against the reference, to the bit, and the reference
 * against the C library. Returns the number of failures, each told in one line on `out`. */
#ifndef SKV_TESTS_CHECK_LOGITS_H
#define SKV_TESTS_CHECK_LOGITS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

int skv_check_logits(uint64_t seed, bool bench, FILE *out);

#endif
