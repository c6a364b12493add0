/* Every loop that measures a limit does the products that it is credited with: its total is that
 * of plain C. Returns the number of failures, each told in one line on `out`. Whether a loop is
 * as fast as the processor allows is not checked: that takes a quiet machine. */
#ifndef SKV_TESTS_CHECK_PEAK_H
#define SKV_TESTS_CHECK_PEAK_H

#include <stdint.h>
#include <stdio.h>

int skv_check_peak(uint64_t seed, FILE *out);

#endif
