/** Curves of a training run as SVG: the loss and, below it, the learning rate. */
#ifndef SKV_CURVE_H
#define SKV_CURVE_H

#include "skv/api.h"
#include "skv/error.h"

SKV_BEGIN

/**
 * Reads a log of JSON lines with "step", "loss" and "lr" (lines without them are passed over, and
 * so are steps that a continued run took again: the last time counts) and writes the chart.
 */
SKV_CHECKED skv_status skv_curve_write(const char *log_path, const char *svg_path,
                                       const char *title, skv_error *err);

SKV_END

#endif
