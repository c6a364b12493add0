/*
 * Metrics and their confidence intervals. Every example gives a metric a sum and a weight; the
 * estimate is the ratio of the two over all examples. Exact matches have weight 1, the perplexity
 * of a text has its tokens, so one mechanism serves both.
 */
#ifndef SKV_EVAL_METRIC_H
#define SKV_EVAL_METRIC_H

#include <stdbool.h>
#include <stddef.h>

#include "base/fail.h"
#include "skv/eval.h"

typedef enum skv_metric_kind {
    SKV_METRIC_SHARE,     /* 0 or 1 an example: Wilson's interval */
    SKV_METRIC_MEAN,      /* a real in 0..1 */
    SKV_METRIC_PART,      /* a sum over a weight that it cannot pass */
    SKV_METRIC_RATIO,     /* a sum over a weight */
    SKV_METRIC_EXP_RATIO, /* the exponential of that */
} skv_metric_kind;

/* One list makes the metrics, their names and their kinds. */
#define SKV_METRIC_LIST(X)                                                                         \
    X(EXACT_MATCH, "exact_match", SHARE)                                                           \
    X(ACC, "acc", SHARE)                                                                           \
    X(ACC_NORM, "acc_norm", SHARE)                                                                 \
    X(MC2, "mc2", MEAN)                                                                            \
    X(MC1, "mc1", SHARE)                                                                           \
    X(PERPLEXITY, "perplexity", EXP_RATIO)                                                         \
    X(BITS_PER_BYTE, "bits_per_byte", RATIO)                                                       \
    X(AGREEMENT, "agreement", PART) /* positions with the reference's most likely token */         \
    X(KL, "kl", RATIO)              /* KL(reference || model) a position, in nats */

typedef enum skv_metric {
#define SKV_METRIC_ENUM(code, name, kind) SKV_METRIC_##code,
    SKV_METRIC_LIST(SKV_METRIC_ENUM)
#undef SKV_METRIC_ENUM
        SKV_METRIC_COUNT
} skv_metric;

/* An example's contribution to a metric; weight 0: none. */
typedef struct skv_metric_value {
    double sum, weight;
} skv_metric_value;

const char *skv_metric_name(skv_metric metric);

/** KL(p || q) in nats of two distributions by their logits [n]; *same: both have the same most
 * likely token. */
double skv_metric_kl(const float *p, const float *q, size_t n, bool *same);

/* ---- from the examples of a task to its estimates, by length and depth too ---- */

/* The result of an example. */
typedef struct skv_eval_point {
    size_t index;  /* of the example in its task */
    size_t length; /* 0: none */
    double depth;  /* NaN: not known */
    skv_metric_value values[SKV_METRIC_COUNT];
} skv_eval_point;

typedef struct skv_eval_points {
    skv_eval_point *at; /* owned */
    size_t n, capacity;
} skv_eval_points;

SKV_MUST_CHECK skv_status skv_eval_points_add(skv_eval_points *points, const skv_eval_point *point,
                                              skv_error *err);

/** Fills the estimates of a task, and its rows where `by_length`; exact lengths are kept as they
 * are, all others rounded to powers of two. */
SKV_MUST_CHECK skv_status skv_eval_report_fill(skv_eval_task *task, const skv_eval_points *points,
                                               size_t depth_bins, bool exact_lengths,
                                               skv_error *err);
/** The mean over the tasks whose main metric is a share. */
void skv_eval_report_average(skv_eval_report *report);

#endif
