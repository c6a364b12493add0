/* From the examples of a task to its estimates, by length and depth too. */
#ifndef SKV_EVAL_EVAL_REPORT_H
#define SKV_EVAL_EVAL_REPORT_H

#include "eval/example.h"
#include "skv/eval.h"

/* What an example came to. */
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
void skv_eval_task_release(skv_eval_task *task);

#endif
