/* SwiftKV projections in closed form: see ridge.h. */
#include "train/ridge.h"

#include <math.h>
#include <string.h>

#include "backend/cpu/verify.h"
#include "base/mem.h"
#include "base/size.h"
#include "base/system.h"
#include "kernels/matmul.h"

enum { STRIP = SKV_CHOLESKY_STRIP };

/* Where none is given; both measured on held-out text. A short text needs more, or the fit to it is
 * worse than the copies. */
#define RIDGE_BASE 0.1
#define RIDGE_SHORT 4.0

static double choose_ridge(double given, const skv_moments *m)
{
    if (given >= 0) return given;
    return RIDGE_BASE + RIDGE_SHORT * (double)m->D / (double)m->n_rows;
}

/* ---- from sums to the normal equations ---- */

/* Takes the means out of a sum of products: a [D, D] -= s t^T / n. */
static void centre(double *a, const double *s, const double *t, size_t D, size_t n_rows)
{
    for (size_t i = 0; i < D; i++) {
        for (size_t k = 0; k < D; k++) a[i * D + k] -= s[i] * t[k] / (double)n_rows;
    }
}

static double trace(const double *a, size_t D)
{
    double sum = 0;
    for (size_t i = 0; i < D; i++) sum += a[i * D + i];
    return sum;
}

/* Sum over tokens of |n_j|^2, about the mean where biases take it up. */
static double norm_of_target(const skv_moments *m, size_t i, bool centred)
{
    double sum = 0;
    for (size_t c = 0; c < m->D; c++) {
        double s = m->sums[i * m->D + c];
        sum += m->squares[i * m->D + c] - (centred ? s * s / (double)m->n_rows : 0);
    }
    return sum;
}

/* ---- solving ---- */

typedef struct solve_job {
    const skv_moments *m;
    const double *l;    /* [D, D]: the factor of sum x x^T + lambda I */
    const double *gram; /* [D, D]: sum x x^T */
    const double *cross;
    float *delta;         /* [D, D] */
    double *strips;       /* [n_threads, 2, D, STRIP] */
    double *fits, *sizes; /* [n strips]: tr Delta B, and lambda's factor: |Delta|^2, or tr Delta (I
                           * + Delta)^T with a ridge towards zero */
    bool toward_zero;
} solve_job;

/* Columns [c0, c0 + STRIP) of the right-hand side and, in place, of the solution. */
static void solve_strip(void *arg, size_t i_task, size_t i_thread)
{
    const solve_job *j = arg;
    size_t D = j->m->D, c0 = i_task * STRIP, n = skv_min_size(STRIP, D - c0);
    double *b = j->strips + i_thread * 2 * D * STRIP, *x = b + D * STRIP, fit = 0, size = 0;
    for (size_t i = 0; i < D; i++) {
        for (size_t c = 0; c < STRIP; c++) {
            size_t at = i * D + c0 + c;
            b[i * STRIP + c] = c < n ? j->cross[at] - j->gram[at] : 0;
            x[i * STRIP + c] = c < n && j->toward_zero ? j->cross[at] : b[i * STRIP + c];
        }
    }
    skv_cholesky_solve(j->l, D, x);
    for (size_t i = 0; i < D; i++) {
        for (size_t c = 0; c < n; c++) {
            double value = x[i * STRIP + c];
            bool less_one = j->toward_zero && i == c0 + c;
            if (less_one) value -= 1;
            fit += value * b[i * STRIP + c];
            size += value * (less_one ? value + 1 : value);
            j->delta[(c0 + c) * D + i] = (float)value;
        }
    }
    j->fits[i_task] = fit;
    j->sizes[i_task] = size;
}

static double sum_of(const double *x, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += x[i];
    return sum;
}

/* shift_j = mean(n_j) - (I + Delta_j) mean(x); delta [D, D] has a row for each element of n_j. */
static void find_shift(const skv_moments *m, size_t i, const float *delta, float *shift)
{
    const double *x = m->sums, *n = m->sums + i * m->D;
    for (size_t c = 0; c < m->D; c++) {
        double sum = n[c] - x[c];
        for (size_t k = 0; k < m->D; k++) sum -= (double)delta[c * m->D + k] * x[k];
        shift[c] = (float)(sum / (double)m->n_rows);
    }
}

/* A solver's needs besides the moments. */
typedef struct solver {
    skv_ridge *ridge;
    skv_moments *m;
    double lambda; /* absolute: added to the diagonal of the sums */
    bool centred, toward_zero;
    double *factor;       /* [D, D], owned */
    double *strips;       /* owned */
    double *fits, *sizes; /* [n_strips], owned */
    double copied, solved, whole;
} solver;

static skv_status solve_layer(solver *s, size_t i, skv_error *err)
{
    skv_moments *m = s->m;
    skv_ridge *r = s->ridge;
    size_t D = m->D, n_strips = skv_ceil_div(D, STRIP);
    r->delta[i] = skv_alloc(D * D, sizeof **r->delta);
    if (s->centred) r->shift[i] = skv_alloc(D, sizeof **r->shift);
    SKV_REQUIRE(r->delta[i] && (r->shift[i] || !s->centred), err, SKV_MEMORY,
                "ridge: no memory for layer %zu", m->first + i);
    if (s->centred) centre(m->cross[i], m->sums, m->sums + i * D, D, m->n_rows);
    double whole = norm_of_target(m, i, s->centred);
    double copied = whole - 2 * trace(m->cross[i], D) + trace(m->gram, D);
    solve_job job = {.m = m,
                     .l = s->factor,
                     .gram = m->gram,
                     .cross = m->cross[i],
                     .delta = r->delta[i],
                     .strips = s->strips,
                     .fits = s->fits,
                     .sizes = s->sizes,
                     .toward_zero = s->toward_zero};
    skv_pool_run(r->pool, n_strips, solve_strip, &job);
    if (s->centred) find_shift(m, i, r->delta[i], r->shift[i]);
    /* |n - x - Delta x|^2 = |n - x|^2 - 2 tr Delta B + tr Delta G Delta^T, and of the solution
     * G Delta^T = B - lambda Delta^T, or B - lambda (I + Delta)^T. */
    s->whole += whole;
    s->copied += copied;
    s->solved += copied - sum_of(s->fits, n_strips) - s->lambda * sum_of(s->sizes, n_strips);
    skv_unmap(m->cross[i], D * D * sizeof(double)); /* the next layer's result can have it */
    m->cross[i] = NULL;
    return SKV_OK;
}

static skv_status factor_gram(solver *s, double ridge, skv_error *err)
{
    skv_moments *m = s->m;
    size_t D = m->D;
    if (s->centred) centre(m->gram, m->sums, m->sums, D, m->n_rows);
    s->lambda = ridge * trace(m->gram, D) / (double)D;
    memcpy(s->factor, m->gram, D * D * sizeof *s->factor);
    for (size_t i = 0; i < D; i++) s->factor[i * D + i] += s->lambda;
    SKV_REQUIRE(skv_cholesky_factor(s->ridge->pool, s->factor, D), err, SKV_RANGE,
                "ridge %g: the normal equations of %zu tokens in %zu columns are singular: more "
                "text or a larger ridge",
                ridge, m->n_rows, D);
    return SKV_OK;
}

static skv_status take_memory(solver *s, skv_error *err)
{
    const double MIB = 1048576.0;
    size_t D = s->m->D, n_threads = skv_pool_threads(s->ridge->pool);
    size_t n_strips = skv_ceil_div(D, STRIP), n_strip_floats = n_threads * 2 * D * STRIP;
    size_t total = D * D * (sizeof(double) + sizeof(float)) + n_strip_floats * sizeof(double);
    size_t available = skv_memory_available();
    SKV_REQUIRE(total <= available, err, SKV_MEMORY,
                "memory: the solution of width %zu takes %.0f MiB, %.0f MiB are available", D,
                (double)total / MIB, (double)available / MIB);
    s->factor = skv_alloc(D * D, sizeof *s->factor);
    s->strips = skv_alloc(n_strip_floats, sizeof *s->strips);
    s->fits = skv_alloc(n_strips, sizeof *s->fits);
    s->sizes = skv_alloc(n_strips, sizeof *s->sizes);
    SKV_REQUIRE(s->factor && s->strips && s->fits && s->sizes, err, SKV_MEMORY,
                "ridge: no memory for a system of width %zu", D);
    return SKV_OK;
}

static skv_status solve_all(solver *s, double ridge, skv_error *err)
{
    SKV_TRY(take_memory(s, err));
    SKV_TRY(factor_gram(s, ridge, err));
    for (size_t i = 1; i < s->m->n_deep; i++) SKV_TRY(solve_layer(s, i, err));
    return SKV_OK;
}

/* ---- from a text to the maps ---- */

static skv_status solve_moments(skv_ridge *r, skv_moments *m, const skv_source *source,
                                const skv_transform_options *o, skv_transform_report *report,
                                skv_error *err)
{
    solver s = {.ridge = r,
                .m = m,
                .centred = skv_source_config(source)->qkv_bias,
                .toward_zero = o->toward_zero};
    double ridge = choose_ridge(o->ridge, m);
    skv_status status = solve_all(&s, ridge, err);
    skv_free(s.factor);
    skv_free(s.strips);
    skv_free(s.fits);
    skv_free(s.sizes);
    if (status != SKV_OK) return status;
    *report = (skv_transform_report){.tokens = m->n_rows, .width = m->D, .ridge = ridge};
    if (s.whole > 0) {
        report->copied_error = s.copied / s.whole;
        report->ridge_error = s.solved / s.whole;
    }
    return SKV_OK;
}

static skv_status prepare(skv_ridge *r, const skv_source *source, const skv_transform_options *o,
                          skv_error *err)
{
    const skv_config *c = skv_source_config(source);
    skv_cpu_level level = SKV_CPU_LEVEL_BEST;
    SKV_REQUIRE(isfinite(o->ridge), err, SKV_RANGE, "ridge: %g, expected a number", o->ridge);
    SKV_REQUIRE(!o->cpu || skv_matmul_form_parse(o->cpu, &level, NULL), err, SKV_ARGUMENT,
                "cpu: unknown name \"%s\"", o->cpu);
    *r = (skv_ridge){.D = c->hidden, .first = o->kv_layers, .n_deep = c->n_layers - o->kv_layers};
    skv_kernels_init(&r->kernels, level, skv_cpu_verified());
    SKV_TRY(skv_pool_create(o->threads, &r->pool, err));
    SKV_TRY(skv_gemm_create(r->pool, &r->kernels.f32, &r->gemm, err));
    r->delta = skv_alloc_zero(r->n_deep + 1, sizeof *r->delta);
    r->shift = skv_alloc_zero(r->n_deep + 1, sizeof *r->shift);
    SKV_REQUIRE(r->delta && r->shift, err, SKV_MEMORY, "ridge: no memory");
    return SKV_OK;
}

skv_status skv_ridge_solve(const char *path, const skv_source *source,
                           const skv_transform_options *options, skv_ridge *out,
                           skv_transform_report *report, skv_error *err)
{
    skv_moments moments = {0};
    *out = (skv_ridge){0};
    skv_status status = prepare(out, source, options, err);
    if (status == SKV_OK) {
        const skv_moments_tools tools = {out->pool, out->gemm, &out->kernels};
        status = skv_moments_gather(path, source, options, &tools, &moments, err);
    }
    if (status == SKV_OK) status = solve_moments(out, &moments, source, options, report, err);
    skv_moments_release(&moments);
    if (status != SKV_OK) skv_ridge_release(out);
    return status;
}

void skv_ridge_release(skv_ridge *r)
{
    for (size_t i = 0; i < r->n_deep; i++) {
        if (r->delta) skv_free(r->delta[i]);
        if (r->shift) skv_free(r->shift[i]);
    }
    skv_free(r->delta);
    skv_free(r->shift);
    skv_gemm_free(r->gemm);
    skv_pool_free(r->pool);
    *r = (skv_ridge){0};
}

/* ---- using them ---- */

void skv_ridge_add(const skv_ridge *r, size_t j, const float *w, size_t n, float *out)
{
    const float *delta = r->delta[j - r->first];
    if (!delta) return;
    skv_gemm_run(r->gemm, &(skv_gemm_args){.c = out,
                                           .ldc = r->D,
                                           .a = w,
                                           .lda = r->D,
                                           .b = delta,
                                           .ldb = r->D,
                                           .M = n,
                                           .N = r->D,
                                           .K = r->D,
                                           .add = true});
}

void skv_ridge_add_bias(const skv_ridge *r, size_t j, const float *w, size_t n, float scale,
                        float *out)
{
    const float *shift = r->shift[j - r->first];
    for (size_t i = 0; shift && i < n; i++) {
        double sum = 0;
        for (size_t k = 0; k < r->D; k++) sum += (double)w[i * r->D + k] * (double)shift[k];
        out[i] += scale * (float)sum;
    }
}
