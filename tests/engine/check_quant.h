/* Checks of products with quantised weights: see check_quant.c. */
#ifndef SKV_CHECK_QUANT_H
#define SKV_CHECK_QUANT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Returns the number of failures, each of which is printed to `out`. */
int skv_check_quant(uint64_t seed, bool bench, FILE *out);

#endif
