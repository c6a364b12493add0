/*
 * Any back end against plain C: every operation of backend.h on random shapes, computed once more
 * in double precision. What rounding may do is bounded by the number formats of the operands.
 *
 * Lists lie at the end of pages that nobody may touch once the operation has returned, so an
 * operation that reads beyond a list, or keeps it, ends the program.
 */
#ifndef SKV_TESTS_CHECK_BACKEND_H
#define SKV_TESTS_CHECK_BACKEND_H

#include <stdint.h>
#include <stdio.h>

#include "backend/backend.h"

/** Returns the number of results that are wrong; each is a line in `out`, and ten are enough. `be`
 * is fresh: its working memory is reserved here. SKV_CHECK_SOME names the operations that are
 * checked (" linear place "), between spaces; without it all are. */
int skv_check_backend(skv_backend *be, uint64_t seed, FILE *out);

#endif
