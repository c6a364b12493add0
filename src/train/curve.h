/*
 * Curves of a training run as SVG: the loss and, below it, the learning rate, from the run's log.
 * Readable on light and dark pages.
 */
#ifndef SKV_TRAIN_CURVE_H
#define SKV_TRAIN_CURVE_H

#include <stddef.h>

#include "base/buf.h"
#include "base/fail.h"

/**
 * Reads a log of JSON lines with "step", "loss" and "rate" (lines without them are passed over,
 * and so are steps that a continued run took again: the last time counts) and writes the chart.
 */
SKV_MUST_CHECK skv_status skv_curve_write(const char *log_path, const char *svg_path,
                                          const char *title, skv_error *err);

/** The same from a log in memory to a buffer; `name` is for errors. */
SKV_MUST_CHECK skv_status skv_curve_draw(const char *log, size_t n, const char *name,
                                         const char *title, skv_buf *out, skv_error *err);

#endif
