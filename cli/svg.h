/** One line chart as SVG, readable on light and dark pages. */
#ifndef SKV_CLI_SVG_H
#define SKV_CLI_SVG_H

#include <stddef.h>

#include "report.h"

typedef struct cli_chart {
    const char *title, *subtitle;
    const char *x_label, *y_label;
    const double *y; /* [n], at x = 0, 1, ..., n - 1; values in 0..1 or a little below 0 */
    size_t n;
} cli_chart;

/** Writes the chart to a new file; nothing is left behind on failure. */
CLI_CHECKED int cli_svg_write(const char *path, const cli_chart *chart);

#endif
