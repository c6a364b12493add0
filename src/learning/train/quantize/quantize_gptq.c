/*
 * Rounding with error compensation: GPTQ, arXiv:2210.17323, in the form of arXiv:2307.13304 (LDLQ),
 * which has the same result and needs no inverse.
 *
 * A row w of a matrix whose inputs have the second moments H = sum x x^T becomes codes q with
 *
 *     |(w - q) R|^2 = (w - q) H (w - q)^T     as small as may be,     H = R R^T, R upper
 * triangular.
 *
 * Element k of (w - q) R only depends on columns up to k. Columns are therefore rounded in order,
 * column k to the code nearest to the value that makes its element zero:
 *
 *     q_k = round(w_k + sum_{j < k} (w_j - q_j) R_jk / R_kk)
 *
 * Columns are ordered by descending H_kk, so that the most important ones receive no errors from
 * others.
 */
#include <stdlib.h>

#include "base/mem.h"
#include "train/quantize/quantizer.h"
#include "train/ridge.h"

/* Added to the diagonal, in units of its mean. */
#define DAMPING 0.01

typedef struct ranked_column {
    float moment;
    uint32_t column;
} ranked_column;

static int by_moment(const void *a, const void *b)
{
    const ranked_column *x = a, *y = b;
    if (x->moment != y->moment) return x->moment < y->moment ? 1 : -1;
    return x->column < y->column ? -1 : 1;
}

/* order and moments of a gram [K, K]. */
static skv_status rank_columns(skv_compensation *c, const float *gram, skv_error *err)
{
    const size_t K = c->K;
    ranked_column *ranked = skv_alloc(K, sizeof *ranked);
    SKV_REQUIRE(ranked, err, SKV_MEMORY, "quantize: no memory for %zu columns", K);
    for (size_t k = 0; k < K; k++) {
        c->moments[k] = gram[k * K + k];
        ranked[k] = (ranked_column){gram[k * K + k], (uint32_t)k};
    }
    qsort(ranked, K, sizeof *ranked, by_moment);
    for (size_t k = 0; k < K; k++) c->order[k] = ranked[k].column;
    skv_free(ranked);
    return SKV_OK;
}

/* a [K, K]: H with its damping, rows and columns in the reverse of the order, so that the lower
 * factor that Cholesky finds is R read backwards. */
static void arrange(const skv_compensation *c, const float *gram, double *a)
{
    const size_t K = c->K;
    double mean = 0;
    for (size_t k = 0; k < K; k++) mean += (double)c->moments[k] / (double)K;
    const double damping = mean > 0 ? DAMPING * mean : 1;
    for (size_t i = 0; i < K; i++) {
        const size_t row = c->order[K - 1 - i];
        for (size_t j = 0; j <= i; j++) {
            a[i * K + j] = (double)gram[row * K + c->order[K - 1 - j]];
        }
        a[i * K + i] += damping;
    }
}

skv_status skv_compensation_init(skv_compensation *c, skv_pool *pool, float *gram, size_t K,
                                 skv_error *err)
{
    *c = (skv_compensation){.K = K, .factors = gram};
    c->order = skv_alloc(K, sizeof *c->order);
    c->moments = skv_alloc(K, sizeof *c->moments);
    c->weights = skv_alloc(K, sizeof *c->weights);
    double *a = skv_alloc(K * K, sizeof *a); /* K is bounded by skv_config_check */
    skv_status status = SKV_OK;
    if (!c->order || !c->moments || !c->weights || !a) {
        status = skv_fail(err, SKV_MEMORY, "quantize: no memory for moments of %zu columns", K);
    }
    if (status == SKV_OK) status = rank_columns(c, gram, err);
    if (status == SKV_OK) {
        arrange(c, gram, a);
        if (!skv_cholesky_factor(pool, a, K)) {
            status = skv_fail(err, SKV_RANGE,
                              "calibration: the inputs of %zu columns are not finite", K);
        }
    }
    for (size_t k = 0; status == SKV_OK && k < K; k++) {
        const double pivot = a[(K - 1 - k) * K + (K - 1 - k)];
        c->weights[k] = (float)(pivot * pivot);
        for (size_t j = 0; j < k; j++) {
            gram[k * K + j] = (float)(a[(K - 1 - j) * K + (K - 1 - k)] / pivot);
        }
    }
    skv_free(a);
    if (status != SKV_OK) skv_compensation_release(c);
    return status;
}

void skv_compensation_release(skv_compensation *c)
{
    skv_free(c->order);
    skv_free(c->moments);
    skv_free(c->weights);
    *c = (skv_compensation){0};
}

/* sum_k x[k] y[k] */
static float dot(const float *x, const float *y, size_t n)
{
    enum { LANES = 16 };
    float sums[LANES] = {0}, sum = 0;
    size_t k = 0;
    for (; k + LANES <= n; k += LANES) {
        for (size_t i = 0; i < LANES; i++) sums[i] += x[k + i] * y[k + i];
    }
    for (; k < n; k++) sum += x[k] * y[k];
    for (size_t i = 0; i < LANES; i++) sum += sums[i];
    return sum;
}

typedef struct scale_job {
    skv_compensation *c;
    const float *s; /* [K] */
} scale_job;

static void scale_step(void *arg, size_t k, size_t i_thread)
{
    const scale_job *job = arg;
    const skv_compensation *c = job->c;
    const float own = job->s[c->order[k]];
    (void)i_thread;
    for (size_t j = 0; j < k; j++) c->factors[k * c->K + j] *= own / job->s[c->order[j]];
    c->weights[k] /= own * own;
    c->moments[c->order[k]] /= own * own;
}

void skv_compensation_scale(skv_compensation *c, skv_pool *pool, const float *s)
{
    skv_pool_run(pool, c->K, scale_step, &(scale_job){c, s});
}

double skv_round_compensated(const skv_rounding *r, const skv_compensation *c, const float *x,
                             const float *scales, size_t n, float *errors, int8_t *codes)
{
    const size_t K = c->K, n_groups = K / r->group;
    double loss = 0;
    for (size_t k = 0; k < K; k++) {
        const size_t column = c->order[k];
        double squares = 0;
        for (size_t i = 0; i < n; i++) {
            const float scale = scales[i * n_groups + column / r->group];
            float *missed = errors + i * K;
            const float own = x[i * K + column], others = dot(missed, c->factors + k * K, k);
            const int code = skv_round_code(r, c->nearest ? own : own + others, scale);
            codes[i * K + column] = (int8_t)code;
            missed[k] = own - (float)code * scale;
            squares += (double)(missed[k] + others) * (double)(missed[k] + others);
        }
        loss += squares * (double)c->weights[k];
    }
    return loss;
}
