/** Line charts as SVG, readable on light and dark pages: panels one above the other over one x
 * axis, each with any number of lines. */
#ifndef SKV_CLI_SVG_H
#define SKV_CLI_SVG_H

#include <stdbool.h>
#include <stddef.h>

#include "report.h"

enum { CLI_SVG_COLOURS = 8 };

/* One line. Points that are not finite are left out. */
typedef struct cli_series {
    const char *name;    /* in the legend; NULL: not there */
    const double *x, *y; /* [n], borrowed; x NULL: 0, 1, ..., n - 1 */
    size_t n;
    size_t colour; /* lines of one colour belong together */
    bool dashed;
} cli_series;

typedef struct cli_panel {
    const char *y_label; /* NULL: none */
    const cli_series *series;
    size_t n_series;
    double low, high; /* of the axis; equal: what fits the lines */
    bool log;         /* logarithmic; values are above 0 */
} cli_panel;

typedef struct cli_chart {
    const char *title, *subtitle, *x_label;
    const cli_panel *panels;
    size_t n_panels;
    bool log_x; /* logarithmic, ticks at doublings of the first x */
} cli_chart;

/** Writes the chart to a new file; nothing is left behind on failure. */
CLI_CHECKED int cli_svg_write(const char *path, const cli_chart *chart);

#endif
