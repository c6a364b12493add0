/* Cholesky's factorisation by blocks of columns, left-looking, and substitution: see ridge.h. */
#include "train/ridge.h"

#include <assert.h>
#include <math.h>

#include "base/size.h"

enum {
    BLOCK = 32, /* columns that are finished together */
    ROWS = 16,  /* rows of a task */
    LANES = 8   /* sums that a product of two rows is held in, so that they can be a vector */
};

typedef struct factor_job {
    double *a;
    size_t n;
    size_t j0, j1; /* the block's columns */
} factor_job;

/* sum_k x[k] y[k] */
static double dot(const double *x, const double *y, size_t n)
{
    double sums[LANES] = {0}, sum = 0;
    size_t k = 0;
    for (; k + LANES <= n; k += LANES) {
        for (size_t i = 0; i < LANES; i++) sums[i] += x[k + i] * y[k + i];
    }
    for (; k < n; k++) sum += x[k] * y[k];
    for (size_t i = 0; i < LANES; i++) sum += sums[i];
    return sum;
}

/* Subtracts the contributions of earlier columns from rows of the block. */
static void subtract_rows(void *arg, size_t i_task, size_t i_thread)
{
    const factor_job *job = arg;
    size_t first = job->j0 + i_task * ROWS, end = skv_min_size(job->n, first + ROWS);
    (void)i_thread;
    for (size_t i = first; i < end; i++) {
        double *row = job->a + i * job->n;
        for (size_t j = job->j0; j < job->j1 && j <= i; j++) {
            row[j] -= dot(row, job->a + j * job->n, job->j0);
        }
    }
}

/* The block's own triangle. */
static bool factor_triangle(const factor_job *job)
{
    for (size_t j = job->j0; j < job->j1; j++) {
        double *row = job->a + j * job->n;
        for (size_t k = job->j0; k < j; k++) {
            const double *other = job->a + k * job->n;
            row[k] = (row[k] - dot(row + job->j0, other + job->j0, k - job->j0)) / other[k];
        }
        double pivot = row[j] - dot(row + job->j0, row + job->j0, j - job->j0);
        if (!(pivot > 0) || !isfinite(pivot)) return false;
        row[j] = sqrt(pivot);
    }
    return true;
}

/* The rows below the triangle. */
static void divide_rows(void *arg, size_t i_task, size_t i_thread)
{
    const factor_job *job = arg;
    size_t first = job->j1 + i_task * ROWS, end = skv_min_size(job->n, first + ROWS);
    (void)i_thread;
    for (size_t i = first; i < end; i++) {
        double *row = job->a + i * job->n;
        for (size_t j = job->j0; j < job->j1; j++) {
            const double *other = job->a + j * job->n;
            row[j] = (row[j] - dot(row + job->j0, other + job->j0, j - job->j0)) / other[j];
        }
    }
}

bool skv_cholesky_factor(skv_pool *pool, double *a, size_t n)
{
    for (size_t j0 = 0; j0 < n; j0 += BLOCK) {
        factor_job job = {a, n, j0, skv_min_size(n, j0 + BLOCK)};
        if (j0 > 0) skv_pool_run(pool, skv_ceil_div(n - j0, ROWS), subtract_rows, &job);
        if (!factor_triangle(&job)) return false;
        skv_pool_run(pool, skv_ceil_div(n - job.j1, ROWS), divide_rows, &job);
    }
    return true;
}

void skv_cholesky_solve(const double *l, size_t n, double *b)
{
    assert(l && b);
    for (size_t i = 0; i < n; i++) { /* L y = b */
        double *row = b + i * SKV_CHOLESKY_STRIP;
        for (size_t k = 0; k < i; k++) {
            const double factor = l[i * n + k], *other = b + k * SKV_CHOLESKY_STRIP;
            for (size_t c = 0; c < SKV_CHOLESKY_STRIP; c++) row[c] -= factor * other[c];
        }
        for (size_t c = 0; c < SKV_CHOLESKY_STRIP; c++) row[c] /= l[i * n + i];
    }
    for (size_t i = n; i-- > 0;) { /* L^T x = y: row i of L is done with, and taken from the rest */
        double *row = b + i * SKV_CHOLESKY_STRIP;
        for (size_t c = 0; c < SKV_CHOLESKY_STRIP; c++) row[c] /= l[i * n + i];
        for (size_t k = 0; k < i; k++) {
            const double factor = l[i * n + k];
            double *other = b + k * SKV_CHOLESKY_STRIP;
            for (size_t c = 0; c < SKV_CHOLESKY_STRIP; c++) other[c] -= factor * row[c];
        }
    }
}
