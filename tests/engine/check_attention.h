/* Every level's attention and KV pages against the reference, and the reference against a plain
 * double-precision softmax. Returns the number of failures, each told in one line on `out`. */
#ifndef SKV_TESTS_CHECK_ATTENTION_H
#define SKV_TESTS_CHECK_ATTENTION_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

int skv_check_attention(uint64_t seed, bool bench, FILE *out);

#endif
