/*
 * Metrics and their confidence intervals. Every example gives a metric a sum and a weight; the
 * estimate is the ratio of the two over all examples. Exact matches have weight 1, the perplexity
 * of a text has its tokens, so one mechanism serves both.
 */
#ifndef SKV_EVAL_METRIC_H
#define SKV_EVAL_METRIC_H

#include <stdbool.h>
#include <stddef.h>

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

/* What one example gives a metric; weight 0: nothing. */
typedef struct skv_metric_value {
    double sum, weight;
} skv_metric_value;

const char *skv_metric_name(skv_metric metric);
/** The metric of that name, SKV_METRIC_COUNT for any other. */
skv_metric skv_metric_find(const char *name);

/** The estimate from the values of n examples; those with weight 0 are left out. */
skv_eval_estimate skv_metric_estimate(skv_metric metric, const skv_metric_value *values, size_t n);

#endif
