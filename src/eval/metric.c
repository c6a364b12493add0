/* Estimates and intervals: see metric.h. */
#include "eval/metric.h"

#include <math.h>
#include <string.h>

/* The 97.5 % point of the normal distribution. */
static const double z_95 = 1.959963984540054;

typedef struct metric_row {
    const char *name;
    skv_metric_kind kind;
} metric_row;

static const metric_row rows[SKV_METRIC_COUNT] = {
#define SKV_METRIC_ROW(code, name, kind) [SKV_METRIC_##code] = {name, SKV_METRIC_##kind},
    SKV_METRIC_LIST(SKV_METRIC_ROW)
#undef SKV_METRIC_ROW
};

const char *skv_metric_name(skv_metric metric)
{
    return (unsigned)metric < SKV_METRIC_COUNT ? rows[metric].name : "unknown";
}

skv_metric skv_metric_find(const char *name)
{
    size_t i = 0;
    while (i < SKV_METRIC_COUNT && strcmp(rows[i].name, name) != 0) i++;
    return (skv_metric)i;
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

skv_eval_estimate skv_metric_estimate(skv_metric metric, const skv_metric_value *values, size_t n)
{
    const metric_row *row = &rows[metric];
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
    if (e.is_share || row->kind == SKV_METRIC_PART) { /* what is nowhere else ends there */
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
