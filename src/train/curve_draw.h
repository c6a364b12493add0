/* The chart of a run's log, drawn in memory: the public side is skv/curve.h. */
#ifndef SKV_TRAIN_CURVE_DRAW_H
#define SKV_TRAIN_CURVE_DRAW_H

#include <stddef.h>

#include "base/buf.h"
#include "base/fail.h"

/** From a log in memory to a buffer; `name` is for errors. */
SKV_MUST_CHECK skv_status skv_curve_draw(const char *log, size_t n, const char *name,
                                         const char *title, skv_buf *out, skv_error *err);

#endif
