/** Drawings as SVG, readable on light and dark pages. A line chart is panels one above the other
 * over one x axis, each with any number of lines. */
#ifndef SKV_COMMON_CHART_H
#define SKV_COMMON_CHART_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/fail.h"

enum { SKV_CHART_COLOURS = 8 };

/* One line. Points that are not finite are left out. */
typedef struct skv_series {
    const char *name;    /* in the legend; NULL: not there */
    const double *x, *y; /* [n], borrowed; x NULL: 0, 1, ..., n - 1 */
    size_t n;
    size_t colour; /* lines of one colour belong together */
    bool dashed, thin;
} skv_series;

typedef struct skv_panel {
    const char *y_label; /* NULL: none */
    const skv_series *series;
    size_t n_series;
    double low, high; /* of the axis; equal: chosen to fit the lines */
    bool log;         /* logarithmic; values are above 0 */
    int height;       /* in pixels; 0: derived from the number of panels */
} skv_panel;

typedef struct skv_chart {
    const char *title, *subtitle, *x_label;
    const skv_panel *panels;
    size_t n_panels;
    bool log_x; /* logarithmic, ticks at doublings of the first x */
    bool dense; /* x counts steps, too many for a dot each */
} skv_chart;

/** Writes the chart to a new file; on failure no file remains. */
SKV_MUST_CHECK skv_status skv_chart_write(const char *path, const skv_chart *chart, skv_error *err);

/* ---- beginning and end of any drawing ---- */

/* In pixels. */
enum {
    SKV_SVG_TOP = 72,  /* where the drawing begins, below the titles */
    SKV_SVG_RIGHT = 24 /* the margin */
};

typedef struct skv_svg_head {
    const char *title, *subtitle;
    int width, height, left; /* left: where the titles begin */
} skv_svg_head;

/** Begins a drawing in an empty buffer. Classes: title, soft, grid, axis, line, dot. */
void skv_svg_begin(skv_buf *svg, const skv_svg_head *head);
void skv_svg_text(skv_buf *svg, double x, double y, const char *attributes, const char *text);
/** Ends it, writes the file, which is whole or not there, and releases the buffer. */
SKV_MUST_CHECK skv_status skv_svg_end(skv_buf *svg, const char *path, skv_error *err);

#endif
