/* Drawings: see chart.h. Charts have axes with round numbers, lines with a dot for each value, and
 * a legend where lines have names. */
#include "common/chart.h"

#include <math.h>
#include <stdio.h>

#include "base/file.h"

/* ---- any drawing ---- */

enum { SVG_MAX = 1 << 24 };

static void add_escaped(skv_buf *svg, const char *text)
{
    for (; *text; text++) {
        switch (*text) {
        case '<': (void)skv_buf_text(svg, "&lt;"); break;
        case '>': (void)skv_buf_text(svg, "&gt;"); break;
        case '&': (void)skv_buf_text(svg, "&amp;"); break;
        default: (void)skv_buf_byte(svg, (unsigned char)*text < 0x20 ? '?' : *text); break;
        }
    }
}

void skv_svg_text(skv_buf *svg, double x, double y, const char *attributes, const char *text)
{
    (void)skv_buf_printf(svg, "<text x=\"%.1f\" y=\"%.1f\" %s>", x, y, attributes);
    add_escaped(svg, text);
    (void)skv_buf_text(svg, "</text>\n");
}

void skv_svg_begin(skv_buf *svg, const skv_svg_head *head)
{
    skv_buf_init(svg, SVG_MAX);
    (void)skv_buf_printf(svg,
                         "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" "
                         "width=\"%d\" height=\"%d\" role=\"img\">\n<title>",
                         head->width, head->height, head->width, head->height);
    add_escaped(svg, head->title);
    (void)skv_buf_text(
        svg, "</title>\n<style>\n"
             "svg { --paper: #ffffff; --ink: #1f2933; --soft: #66727f; --grid: #e3e7eb; "
             "--line: #1668b8; }\n"
             "@media (prefers-color-scheme: dark) { svg { --paper: #14181d; --ink: #e6eaee; "
             "--soft: #9aa5b1; --grid: #2b333c; --line: #6cb2ff; } }\n"
             ".paper { fill: #ffffff; fill: var(--paper); }\n"
             "text { font: 13px system-ui, sans-serif; fill: #1f2933; fill: var(--ink); }\n"
             ".title { font-size: 17px; font-weight: 600; }\n"
             ".soft { fill: #66727f; fill: var(--soft); }\n"
             ".grid { stroke: #e3e7eb; stroke: var(--grid); }\n"
             ".axis { stroke: #66727f; stroke: var(--soft); }\n"
             ".line { fill: none; stroke: #1668b8; stroke: var(--line); stroke-width: 2; "
             "stroke-linejoin: round; }\n"
             ".dot { fill: #1668b8; fill: var(--line); }\n"
             "</style>\n");
    (void)skv_buf_printf(svg, "<rect class=\"paper\" width=\"%d\" height=\"%d\"/>\n", head->width,
                         head->height);
    skv_svg_text(svg, head->left, 30, "class=\"title\"", head->title);
    skv_svg_text(svg, head->left, 52, "class=\"soft\"", head->subtitle);
}

skv_status skv_svg_end(skv_buf *svg, const char *path, skv_error *err)
{
    (void)skv_buf_text(svg, "</svg>\n");
    skv_status status = svg->failed ? skv_fail(err, SKV_MEMORY, "%s: no memory for a chart", path)
                                    : skv_file_write(path, svg->data, svg->size, err);
    skv_buf_release(svg);
    return status;
}

/* ---- line charts ---- */

enum {
    WIDTH = 760,
    LEFT = 88,
    LEGEND = 172,
    BOTTOM = 58,
    PANEL = 284, /* height of the only panel */
    PANEL_OF_MANY = 210,
    GAP = 26,
    TICK = 42,  /* pixels between two lines of the grid, at least */
    INSET = 12, /* between an axis and a dot */
    X_TICKS = 14,
    X_TICKS_DENSE = 8 /* with room for large numbers */
};

typedef struct axis {
    double low, high, tick; /* of the value, or of its logarithm to base 10 or, for x, 2 */
    bool log;
    double from, to; /* pixels of low and high */
} axis;

typedef struct drawing {
    skv_buf *svg;
    const skv_chart *chart;
    axis x;
    int right; /* where panels end */
} drawing;

/* Hues that differ for most eyes. The first one follows the page's colours. */
static const char *const colours[SKV_CHART_COLOURS] = {
    "var(--line)", "#d1495b", "#2e8b57", "#b8860b", "#7b5ea7", "#00868b", "#8b5a2b", "#808890"};

static const char *colour_of(const skv_series *s)
{
    return colours[s->colour % SKV_CHART_COLOURS];
}

static double x_at(const skv_series *s, size_t i)
{
    return s->x ? s->x[i] : (double)i;
}

/* ---- axes ---- */

/* A step of 1, 2 or 5 times a power of ten that makes at most `most` intervals. */
static double round_step(double span, double most)
{
    const double rough = span / most;
    const double power = pow(10, floor(log10(rough)));
    const double share = rough / power;
    return power * (share <= 1 ? 1 : share <= 2 ? 2 : share <= 5 ? 5 : 10);
}

static double place(axis a, double value)
{
    const double share = (value - a.low) / (a.high - a.low);
    return a.from + share * (a.to - a.from);
}

static double y_of(axis a, double value)
{
    return place(a, a.log ? log10(value) : value);
}

static double x_of(axis a, double value)
{
    return place(a, a.log ? log2(value) : value);
}

static void widen(double range[2], double value)
{
    if (!isfinite(value)) return;
    range[0] = fmin(range[0], value);
    range[1] = fmax(range[1], value);
}

static axis fit_y(const skv_panel *panel, double from, double to)
{
    double range[2] = {HUGE_VAL, -HUGE_VAL};
    for (size_t i = 0; i < panel->n_series; i++) {
        for (size_t j = 0; j < panel->series[i].n; j++) {
            const double y = panel->series[i].y[j];
            widen(range, panel->log ? log10(y) : y);
        }
    }
    if (panel->low < panel->high) {
        range[0] = panel->low;
        range[1] = panel->high;
    }
    if (range[0] > range[1]) range[0] = range[1] = 0;
    if (!(range[0] < range[1])) range[0] = range[1] - fmax(0.1, fabs(range[1]) * 0.1);
    const double tick = panel->log ? 1 : round_step(range[1] - range[0], floor((from - to) / TICK));
    const double grain = panel->log ? 0.25 : tick; /* of where a logarithmic axis may end */
    return (axis){floor(range[0] / grain) * grain,
                  ceil(range[1] / grain) * grain,
                  tick,
                  panel->log,
                  from,
                  to};
}

static axis fit_x(const skv_chart *chart, double from, double to)
{
    double range[2] = {HUGE_VAL, -HUGE_VAL};
    for (size_t p = 0; p < chart->n_panels; p++) {
        for (size_t i = 0; i < chart->panels[p].n_series; i++) {
            const skv_series *s = &chart->panels[p].series[i];
            for (size_t j = 0; j < s->n; j++) widen(range, x_at(s, j));
        }
    }
    if (range[0] > range[1]) range[0] = range[1] = 1;
    if (chart->log_x) range[0] = log2(range[0]);
    if (chart->log_x) range[1] = log2(range[1]);
    if (!(range[0] < range[1])) range[1] = range[0] + 1;
    const double most = chart->dense ? X_TICKS_DENSE : X_TICKS;
    double tick = chart->log_x ? 1 : round_step(range[1] - range[0], most);
    if (chart->dense) tick = fmax(tick, 1);
    return (axis){range[0], range[1], tick, chart->log_x, from, to};
}

static void put_y_tick(const drawing *d, axis y, double value)
{
    char label[32];
    const double at = y_of(y, value);
    (void)skv_buf_printf(d->svg,
                         "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>\n",
                         LEFT, d->right, at, at);
    (void)snprintf(label, sizeof label, "%.6g", fabs(value) < y.tick * 1e-6 && !y.log ? 0 : value);
    skv_svg_text(d->svg, LEFT - 10, at + 4.5, "class=\"soft\" text-anchor=\"end\"", label);
}

static void put_y_ticks(const drawing *d, axis y)
{
    static const double steps[] = {1, 2, 5};
    if (!y.log) {
        const int n = (int)lround((y.high - y.low) / y.tick);
        for (int i = 0; i <= n; i++) put_y_tick(d, y, y.low + i * y.tick);
        return;
    }
    for (int power = (int)floor(y.low); power <= (int)ceil(y.high); power++) {
        for (size_t i = 0; i < 3; i++) {
            const double value = steps[i] * pow(10, power), at = log10(value);
            const bool crowded = y.high - y.low > 3 && i > 0;
            if (at > y.low - 1e-9 && at < y.high + 1e-9 && !crowded) put_y_tick(d, y, value);
        }
    }
}

/* 1500, 20K, 3M. */
static void name_x(char label[32], axis x, double value)
{
    const double unit = x.log ? 1 : value >= 1e6 ? 1e6 : value >= 1e4 ? 1e3 : 1;
    (void)snprintf(label, 32, "%.6g%s", (x.log ? exp2(value) : value) / unit,
                   unit > 1e5 ? "M"
                   : unit > 1 ? "K"
                              : "");
}

/* Numbers below the lowest panel. */
static void put_x_axis(const drawing *d, double bottom)
{
    char label[32];
    const axis x = d->x;
    (void)skv_buf_printf(d->svg,
                         "<line class=\"axis\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>\n",
                         LEFT, d->right, bottom, bottom);
    const double first = x.log ? x.low : ceil(x.low / x.tick - 1e-9) * x.tick;
    const int n = (int)floor((x.high - first) / x.tick + 1e-9);
    for (int i = 0; i <= n; i++) {
        const double value = first + i * x.tick;
        name_x(label, x, value);
        skv_svg_text(d->svg, place(x, value), bottom + 20, "class=\"soft\" text-anchor=\"middle\"",
                     label);
    }
    skv_svg_text(d->svg, (LEFT + d->right) / 2.0, bottom + 44, "text-anchor=\"middle\"",
                 d->chart->x_label);
}

/* ---- lines ---- */

static bool is_shown(const skv_series *s, size_t i)
{
    return isfinite(s->y[i]) && isfinite(x_at(s, i));
}

static void put_series(const drawing *d, const skv_series *s, axis y)
{
    bool any = false;
    (void)skv_buf_printf(d->svg, "<polyline class=\"line\" style=\"stroke: %s%s\"%s points=\"",
                         colour_of(s), s->thin ? "; stroke-width: 1; stroke-opacity: 0.3" : "",
                         s->dashed ? " stroke-dasharray=\"6 4\"" : "");
    for (size_t i = 0; i < s->n; i++) {
        if (!is_shown(s, i)) continue;
        (void)skv_buf_printf(d->svg, "%s%.1f,%.1f", any ? " " : "", x_of(d->x, x_at(s, i)),
                             y_of(y, s->y[i]));
        any = true;
    }
    (void)skv_buf_text(d->svg, "\"/>\n");
    for (size_t i = 0; i < s->n && !d->chart->dense; i++) {
        if (!is_shown(s, i)) continue;
        (void)skv_buf_printf(
            d->svg,
            "<circle class=\"dot\" style=\"fill: %s\" cx=\"%.1f\" cy=\"%.1f\" r=\"%s\"><title>",
            colour_of(s), x_of(d->x, x_at(s, i)), y_of(y, s->y[i]), s->dashed ? "2.5" : "3.5");
        if (s->name) {
            add_escaped(d->svg, s->name);
            (void)skv_buf_text(d->svg, ", ");
        }
        add_escaped(d->svg, d->chart->x_label);
        (void)skv_buf_printf(d->svg, " %.6g: %.6g</title></circle>\n", x_at(s, i), s->y[i]);
    }
}

static void put_legend(const drawing *d, const skv_panel *panel, double top)
{
    size_t n = 0;
    for (size_t i = 0; i < panel->n_series; i++) {
        const skv_series *s = &panel->series[i];
        if (!s->name) continue;
        const double y = top + 8 + 20.0 * (double)n++;
        (void)skv_buf_printf(
            d->svg,
            "<line class=\"line\" style=\"stroke: %s\"%s x1=\"%d\" x2=\"%d\" y1=\"%.1f\" "
            "y2=\"%.1f\"/>\n",
            colour_of(s), s->dashed ? " stroke-dasharray=\"6 4\"" : "", d->right + 16,
            d->right + 40, y, y);
        skv_svg_text(d->svg, d->right + 48, y + 4.5, "", s->name);
    }
}

static int panel_height(const skv_chart *chart, const skv_panel *panel)
{
    if (panel->height > 0) return panel->height;
    return chart->n_panels > 1 ? PANEL_OF_MANY : PANEL;
}

static void put_panel(const drawing *d, const skv_panel *panel, double top)
{
    const double bottom = top + panel_height(d->chart, panel), middle = (top + bottom) / 2;
    const axis y = fit_y(panel, bottom, top);
    put_y_ticks(d, y);
    if (panel->y_label) {
        char rotated[96];
        (void)snprintf(rotated, sizeof rotated,
                       "text-anchor=\"middle\" transform=\"rotate(-90 20 %.1f)\"", middle);
        skv_svg_text(d->svg, 20, middle, rotated, panel->y_label);
    }
    for (size_t i = 0; i < panel->n_series; i++) put_series(d, &panel->series[i], y);
}

static bool has_legend(const skv_chart *chart)
{
    for (size_t p = 0; p < chart->n_panels; p++) {
        for (size_t i = 0; i < chart->panels[p].n_series; i++) {
            if (chart->panels[p].series[i].name) return true;
        }
    }
    return false;
}

skv_status skv_chart_write(const char *path, const skv_chart *chart, skv_error *err)
{
    const bool legend = has_legend(chart);
    const int width = legend ? WIDTH + LEGEND - SKV_SVG_RIGHT : WIDTH;
    const double inset = chart->dense ? 0 : INSET;
    int bottom = SKV_SVG_TOP - GAP;
    for (size_t i = 0; i < chart->n_panels; i++) {
        bottom += GAP + panel_height(chart, &chart->panels[i]);
    }
    skv_buf svg;
    skv_svg_begin(&svg,
                  &(skv_svg_head){chart->title, chart->subtitle, width, bottom + BOTTOM, LEFT});
    drawing d = {.svg = &svg, .chart = chart};
    d.right = legend ? width - LEGEND : width - SKV_SVG_RIGHT;
    d.x = fit_x(chart, LEFT + inset, d.right - inset);
    double top = SKV_SVG_TOP;
    for (size_t i = 0; i < chart->n_panels; i++) {
        put_panel(&d, &chart->panels[i], top);
        top += panel_height(chart, &chart->panels[i]) + GAP;
    }
    if (legend) put_legend(&d, &chart->panels[0], SKV_SVG_TOP);
    put_x_axis(&d, bottom);
    return skv_svg_end(&svg, path, err);
}
