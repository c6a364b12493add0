/** Draws the loss and the learning rate of a training run as SVG. */
#ifndef SKV_CURVE_H
#define SKV_CURVE_H

#include "skv/api.h"
#include "skv/error.h"

SKV_BEGIN

/**
 * Reads a log of JSON lines with "step", "loss" and "lr" and writes the chart. Lines without these
 * fields are ignored. If a resumed run repeated a step, its last occurrence counts.
 */
SKV_CHECKED skv_status skv_curve_write(const char *log_path, const char *svg_path,
                                       const char *title, skv_error *err);

SKV_END

#endif
