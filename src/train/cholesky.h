/*
 * Systems of linear equations with a symmetric positive definite matrix, in f64 (Cholesky):
 * A = L L^T, then A X = B. Every sum has a fixed order, so results do not depend on the number of
 * threads.
 */
#ifndef SKV_TRAIN_CHOLESKY_H
#define SKV_TRAIN_CHOLESKY_H

#include <stdbool.h>
#include <stddef.h>

#include "base/fail.h"
#include "base/pool.h"

/**
 * The lower triangle of a [n, n] becomes L; what stands above it is left as it was. False when a
 * pivot is not positive (or not finite): A is not positive definite as far as f64 can tell.
 */
SKV_MUST_CHECK bool skv_cholesky_factor(skv_pool *pool, double *a, size_t n);

enum { SKV_CHOLESKY_STRIP = 32 /* columns of B that are solved together */ };

/** b [n, SKV_CHOLESKY_STRIP] becomes the solution of L L^T x = b. On the caller's thread. */
void skv_cholesky_solve(const double *l, size_t n, double *b);

#endif
