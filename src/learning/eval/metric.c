/* Estimates and intervals, and reports of them: see metric.h. */
#include "eval/metric.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/size.h"

static_assert((int)SKV_METRIC_COUNT - 1 < (int)SKV_EVAL_ESTIMATES_MAX, "every metric has a place");

enum { POINTS_MAX = 1 << 26, ROWS_MAX = 64 };

/* The 97.5 % point of the normal distribution. */
static const double z_95 = 1.959963984540054;

typedef struct metric_row {
    const char *name;
    skv_metric_kind kind;
} metric_row;

static const metric_row metrics[SKV_METRIC_COUNT] = {
#define SKV_METRIC_ROW(code, name, kind) [SKV_METRIC_##code] = {name, SKV_METRIC_##kind},
    SKV_METRIC_LIST(SKV_METRIC_ROW)
#undef SKV_METRIC_ROW
};

const char *skv_metric_name(skv_metric metric)
{
    return (unsigned)metric < SKV_METRIC_COUNT ? metrics[metric].name : "unknown";
}

/* Wilson (1927): the shares p whose distance from the observed one is z standard errors of p. */
static void wilson(skv_eval_estimate *e)
{
    const double n = (double)e->n, p = e->value, z2 = z_95 * z_95;
    const double middle = (p + z2 / (2 * n)) / (1 + z2 / n);
    const double reach = z_95 / (1 + z2 / n) * sqrt(p * (1 - p) / n + z2 / (4 * n * n));
    e->low = fmax(0, middle - reach);
    e->high = fmin(1, middle + reach);
}

/* The variance of a ratio of sums, linearised: that of sum_i - R weight_i. */
static double ratio_error(double ratio, double weight, const skv_metric_value *values, size_t n)
{
    double squares = 0;
    size_t n_used = 0;
    for (size_t i = 0; i < n; i++) {
        const skv_metric_value *v = &values[i];
        if (v->weight == 0) continue;
        const double off = v->sum - ratio * v->weight;
        squares += off * off;
        n_used++;
    }
    if (n_used < 2) return (double)NAN;
    return sqrt(squares * (double)n_used / (double)(n_used - 1)) / weight;
}

/* The estimate from the values of n examples; those with weight 0 are left out. */
static skv_eval_estimate estimate_of(skv_metric metric, const skv_metric_value *values, size_t n)
{
    const metric_row *row = &metrics[metric];
    skv_eval_estimate e = {.name = row->name, .value = (double)NAN, .low = (double)NAN};
    e.is_share = row->kind == SKV_METRIC_SHARE || row->kind == SKV_METRIC_MEAN;
    e.high = (double)NAN;
    double sum = 0, weight = 0;
    for (size_t i = 0; i < n; i++) {
        const skv_metric_value *v = &values[i];
        if (v->weight == 0) continue;
        sum += v->sum;
        weight += v->weight;
        e.n++;
    }
    if (e.n == 0) return e;
    e.value = sum / weight;
    if (row->kind == SKV_METRIC_SHARE) {
        wilson(&e);
        return e;
    }
    const double reach = z_95 * ratio_error(e.value, weight, values, n);
    e.low = e.value - reach;
    e.high = e.value + reach;
    if (e.is_share || row->kind == SKV_METRIC_PART) { /* cannot lie outside [0, 1] */
        if (e.low < 0) e.low = 0;
        if (e.high > 1) e.high = 1;
    }
    if (row->kind == SKV_METRIC_EXP_RATIO) {
        e.value = exp(e.value);
        e.low = exp(e.low);
        e.high = exp(e.high);
    }
    return e;
}

/* log(sum of exp(x)); *best: the most likely of x [n], the first of equals. */
static double log_sum(const float *x, size_t n, size_t *best)
{
    double sum = 0;
    *best = 0;
    for (size_t i = 1; i < n; i++) {
        if (x[i] > x[*best]) *best = i;
    }
    for (size_t i = 0; i < n; i++) sum += exp((double)x[i] - (double)x[*best]);
    return (double)x[*best] + log(sum);
}

double skv_metric_kl(const float *p, const float *q, size_t n, bool *same)
{
    size_t p_best, q_best;
    const double p_log = log_sum(p, n, &p_best), q_log = log_sum(q, n, &q_best);
    double kl = 0;
    for (size_t i = 0; i < n; i++) {
        const double log_p = (double)p[i] - p_log, log_q = (double)q[i] - q_log;
        const double share = exp(log_p);
        if (share > 0) kl += share * (log_p - log_q);
    }
    *same = p_best == q_best;
    return kl;
}

/* ---- reports ---- */

skv_status skv_eval_points_add(skv_eval_points *points, const skv_eval_point *point, skv_error *err)
{
    if (points->n == points->capacity) {
        const size_t capacity = points->capacity ? points->capacity * 2 : 256;
        skv_eval_point *at =
            capacity <= POINTS_MAX ? skv_realloc(points->at, capacity, sizeof *at) : NULL;
        SKV_REQUIRE(at, err, SKV_MEMORY, "evaluation: no memory for %zu examples", capacity);
        points->at = at;
        points->capacity = capacity;
    }
    points->at[points->n++] = *point;
    return SKV_OK;
}

static size_t length_class(size_t length, bool exact)
{
    if (exact || length == 0) return length;
    return (size_t)1 << lround(log2((double)length));
}

/* ---- rows ---- */

/* The distinct lengths, ascending; more than ROWS_MAX are left out. */
static size_t find_lengths(const skv_eval_points *points, bool exact, size_t lengths[ROWS_MAX])
{
    size_t n = 0;
    for (size_t i = 0; i < points->n; i++) {
        const size_t length = length_class(points->at[i].length, exact);
        size_t place = 0;
        while (place < n && lengths[place] < length) place++;
        if (length == 0 || n == ROWS_MAX || (place < n && lengths[place] == length)) continue;
        for (size_t j = n++; j > place; j--) lengths[j] = lengths[j - 1];
        lengths[place] = length;
    }
    return n;
}

static size_t depth_bin(double depth, size_t n_bins)
{
    const double place = floor(fmin(fmax(depth, 0), 1) * (double)n_bins);
    return skv_min_size((size_t)place, n_bins - 1);
}

/* values: room for [points->n]. */
static void fill_row(skv_eval_row *row, const skv_eval_points *points, size_t depth_bins,
                     bool exact, skv_metric_value *values, skv_metric metric)
{
    size_t n = 0;
    for (size_t b = 0; b < depth_bins; b++) row->cell_value[b] = 0;
    for (size_t i = 0; i < points->n; i++) {
        const skv_eval_point *p = &points->at[i];
        const skv_metric_value v = p->values[metric];
        if (length_class(p->length, exact) != row->length || v.weight == 0) continue;
        values[n++] = v;
        if (!isfinite(p->depth)) continue;
        const size_t bin = depth_bin(p->depth, depth_bins);
        row->cell_n[bin]++;
        row->cell_value[bin] += v.sum / v.weight;
    }
    row->estimate = estimate_of(metric, values, n);
    for (size_t b = 0; b < depth_bins; b++) {
        row->cell_value[b] /= (double)row->cell_n[b]; /* 0/0: no example */
    }
}

static skv_status fill_rows(skv_eval_task *task, const skv_eval_points *points, size_t depth_bins,
                            bool exact, skv_metric metric, skv_error *err)
{
    size_t lengths[ROWS_MAX];
    const size_t n = find_lengths(points, exact, lengths);
    if (n == 0) return SKV_OK;
    task->rows = skv_alloc_zero(n, sizeof *task->rows);
    skv_metric_value *values = skv_alloc(points->n, sizeof *values);
    bool good = task->rows && values;
    for (size_t i = 0; i < n && good; i++) {
        skv_eval_row *row = &task->rows[task->n_rows++];
        row->length = lengths[i];
        row->cell_n = skv_alloc_zero(depth_bins, sizeof *row->cell_n);
        row->cell_value = skv_alloc_zero(depth_bins, sizeof *row->cell_value);
        good = row->cell_n && row->cell_value;
        if (good) fill_row(row, points, depth_bins, exact, values, metric);
    }
    skv_free(values);
    SKV_REQUIRE(good, err, SKV_MEMORY, "%s: no memory", task->name);
    for (size_t i = 0; i < points->n; i++) task->has_depths |= isfinite(points->at[i].depth);
    return SKV_OK;
}

/* ---- tasks ---- */

static skv_eval_estimate estimate(const skv_eval_points *points, skv_metric metric,
                                  skv_metric_value *values)
{
    for (size_t i = 0; i < points->n; i++) values[i] = points->at[i].values[metric];
    return estimate_of(metric, values, points->n);
}

static int by_index(const void *a, const void *b)
{
    const size_t x = ((const skv_eval_example_value *)a)->index;
    const size_t y = ((const skv_eval_example_value *)b)->index;
    return (x > y) - (x < y);
}

/* The examples one by one, so that two models can be compared on each. */
static skv_status keep_values(skv_eval_task *task, const skv_eval_points *points, skv_metric metric,
                              skv_error *err)
{
    task->values = skv_alloc(points->n, sizeof *task->values);
    SKV_REQUIRE(task->values, err, SKV_MEMORY, "%s: no memory", task->name);
    task->n_values = points->n;
    for (size_t i = 0; i < points->n; i++) {
        const skv_metric_value v = points->at[i].values[metric];
        task->values[i] = (skv_eval_example_value){points->at[i].index, v.sum, v.weight};
    }
    /* Values from a log come first. */
    qsort(task->values, task->n_values, sizeof *task->values, by_index);
    return SKV_OK;
}

skv_status skv_eval_report_fill(skv_eval_task *task, const skv_eval_points *points,
                                size_t depth_bins, bool exact_lengths, skv_error *err)
{
    if (points->n == 0) return SKV_OK;
    skv_metric main_metric = SKV_METRIC_COUNT;
    skv_metric_value *values = skv_alloc(points->n, sizeof *values);
    SKV_REQUIRE(values, err, SKV_MEMORY, "%s: no memory", task->name);
    for (size_t i = 0; i < SKV_METRIC_COUNT; i++) {
        const skv_eval_estimate e = estimate(points, (skv_metric)i, values);
        if (e.n == 0) continue;
        if (main_metric == SKV_METRIC_COUNT) main_metric = (skv_metric)i;
        task->estimates[task->n_estimates++] = e;
    }
    skv_free(values);
    if (main_metric == SKV_METRIC_COUNT) return SKV_OK;
    SKV_TRY(keep_values(task, points, main_metric, err));
    return fill_rows(task, points, depth_bins, exact_lengths, main_metric, err);
}

void skv_eval_report_average(skv_eval_report *report)
{
    double sum = 0;
    report->n_averaged = 0;
    for (size_t i = 0; i < report->n_tasks; i++) {
        const skv_eval_task *task = &report->tasks[i];
        if (task->n_estimates == 0 || !task->estimates[0].is_share) continue;
        sum += task->estimates[0].value;
        report->n_averaged++;
    }
    report->average = sum / (double)report->n_averaged; /* 0/0: NaN */
}

static void release_task(skv_eval_task *task)
{
    for (size_t i = 0; i < task->n_rows; i++) {
        skv_free(task->rows[i].cell_n);
        skv_free(task->rows[i].cell_value);
    }
    skv_free(task->rows);
    skv_free(task->values);
    skv_free(task->name);
    *task = (skv_eval_task){.name = NULL};
}

void skv_eval_report_free(skv_eval_report *report)
{
    if (!report) return;
    for (size_t i = 0; i < report->n_tasks; i++) release_task(&report->tasks[i]);
    skv_free(report->tasks);
    skv_free(report);
}
