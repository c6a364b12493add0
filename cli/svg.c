/* The charts: axes with round numbers, lines with a dot for each value, a legend where lines have
 * names. */
#include "svg.h"

#include <math.h>
#include <stdio.h>

#include "svg_file.h"

enum {
    WIDTH = 720,
    LEFT = 84,
    LEGEND = 172,
    BOTTOM = 60,
    PANEL = 284, /* height of the only panel */
    PANEL_OF_MANY = 210,
    GAP = 34
};

typedef struct axis {
    double low, high, tick; /* of the value, or of its logarithm to base 10 or, for x, 2 */
    bool log;
    double from, to; /* pixels of low and high */
} axis;

typedef struct drawing {
    FILE *stream;
    const cli_chart *chart;
    axis x;
    int right; /* where panels end */
    int panel_height;
} drawing;

/* Hues that differ for most eyes. The first one follows the page's colours. */
static const char *const colours[CLI_SVG_COLOURS] = {
    "var(--line)", "#d1495b", "#2e8b57", "#b8860b", "#7b5ea7", "#00868b", "#8b5a2b", "#808890"};

static const char *colour_of(const cli_series *s)
{
    return colours[s->colour % CLI_SVG_COLOURS];
}

static double x_at(const cli_series *s, size_t i)
{
    return s->x != NULL ? s->x[i] : (double)i;
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

static axis fit_y(const cli_panel *panel, double from, double to)
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
    const double tick = panel->log ? 1 : round_step(range[1] - range[0], 6);
    const double grain = panel->log ? 0.25 : tick; /* of where a logarithmic axis may end */
    return (axis){floor(range[0] / grain) * grain,
                  ceil(range[1] / grain) * grain,
                  tick,
                  panel->log,
                  from,
                  to};
}

static axis fit_x(const cli_chart *chart, double from, double to)
{
    double range[2] = {HUGE_VAL, -HUGE_VAL};
    for (size_t p = 0; p < chart->n_panels; p++) {
        for (size_t i = 0; i < chart->panels[p].n_series; i++) {
            const cli_series *s = &chart->panels[p].series[i];
            for (size_t j = 0; j < s->n; j++) widen(range, x_at(s, j));
        }
    }
    if (range[0] > range[1]) range[0] = range[1] = 1;
    if (chart->log_x) range[0] = log2(range[0]);
    if (chart->log_x) range[1] = log2(range[1]);
    if (!(range[0] < range[1])) range[1] = range[0] + 1;
    const double tick = chart->log_x ? 1 : round_step(range[1] - range[0], 14);
    return (axis){range[0], range[1], tick, chart->log_x, from, to};
}

static void put_y_tick(const drawing *d, axis y, double value)
{
    char label[32];
    const double at = y_of(y, value);
    fprintf(d->stream, "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>\n", LEFT,
            d->right, at, at);
    snprintf(label, sizeof label, "%.6g", fabs(value) < y.tick * 1e-6 && !y.log ? 0 : value);
    cli_svg_text(d->stream, LEFT - 10, at + 4.5, "class=\"soft\" text-anchor=\"end\"", label);
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

/* Numbers below the lowest panel. */
static void put_x_axis(const drawing *d, double bottom)
{
    char label[32];
    const axis x = d->x;
    fprintf(d->stream, "<line class=\"axis\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>\n", LEFT,
            d->right, bottom, bottom);
    const double first = x.log ? x.low : ceil(x.low / x.tick - 1e-9) * x.tick;
    const int n = (int)floor((x.high - first) / x.tick + 1e-9);
    for (int i = 0; i <= n; i++) {
        const double value = first + i * x.tick;
        snprintf(label, sizeof label, "%.6g", x.log ? exp2(value) : value);
        cli_svg_text(d->stream, place(x, value), bottom + 20,
                     "class=\"soft\" text-anchor=\"middle\"", label);
    }
    cli_svg_text(d->stream, (LEFT + d->right) / 2.0, bottom + 44, "text-anchor=\"middle\"",
                 d->chart->x_label);
}

/* ---- lines ---- */

static bool is_shown(const cli_series *s, size_t i)
{
    return isfinite(s->y[i]) && isfinite(x_at(s, i));
}

static void put_series(const drawing *d, const cli_series *s, axis y)
{
    bool any = false;
    fprintf(d->stream, "<polyline class=\"line\" style=\"stroke: %s\"%s points=\"", colour_of(s),
            s->dashed ? " stroke-dasharray=\"6 4\"" : "");
    for (size_t i = 0; i < s->n; i++) {
        if (!is_shown(s, i)) continue;
        fprintf(d->stream, "%s%.1f,%.1f", any ? " " : "", x_of(d->x, x_at(s, i)), y_of(y, s->y[i]));
        any = true;
    }
    fputs("\"/>\n", d->stream);
    for (size_t i = 0; i < s->n; i++) {
        if (!is_shown(s, i)) continue;
        fprintf(d->stream,
                "<circle class=\"dot\" style=\"fill: %s\" cx=\"%.1f\" cy=\"%.1f\" r=\"%s\"><title>",
                colour_of(s), x_of(d->x, x_at(s, i)), y_of(y, s->y[i]), s->dashed ? "2.5" : "3.5");
        if (s->name != NULL) {
            cli_svg_escaped(d->stream, s->name);
            fputs(", ", d->stream);
        }
        cli_svg_escaped(d->stream, d->chart->x_label);
        fprintf(d->stream, " %.6g: %.6g</title></circle>\n", x_at(s, i), s->y[i]);
    }
}

static void put_legend(const drawing *d, const cli_panel *panel, double top)
{
    size_t n = 0;
    for (size_t i = 0; i < panel->n_series; i++) {
        const cli_series *s = &panel->series[i];
        if (s->name == NULL) continue;
        const double y = top + 8 + 20.0 * (double)n++;
        fprintf(d->stream,
                "<line class=\"line\" style=\"stroke: %s\"%s x1=\"%d\" x2=\"%d\" y1=\"%.1f\" "
                "y2=\"%.1f\"/>\n",
                colour_of(s), s->dashed ? " stroke-dasharray=\"6 4\"" : "", d->right + 16,
                d->right + 40, y, y);
        cli_svg_text(d->stream, d->right + 48, y + 4.5, "", s->name);
    }
}

static void put_panel(const drawing *d, const cli_panel *panel, double top)
{
    const double bottom = top + d->panel_height, middle = (top + bottom) / 2;
    const axis y = fit_y(panel, bottom, top);
    put_y_ticks(d, y);
    if (panel->y_label != NULL) {
        char turn[96];
        snprintf(turn, sizeof turn, "text-anchor=\"middle\" transform=\"rotate(-90 20 %.1f)\"",
                 middle);
        cli_svg_text(d->stream, 20, middle, turn, panel->y_label);
    }
    for (size_t i = 0; i < panel->n_series; i++) put_series(d, &panel->series[i], y);
}

static bool has_legend(const cli_chart *chart)
{
    for (size_t p = 0; p < chart->n_panels; p++) {
        for (size_t i = 0; i < chart->panels[p].n_series; i++) {
            if (chart->panels[p].series[i].name != NULL) return true;
        }
    }
    return false;
}

int cli_svg_write(const char *path, const cli_chart *chart)
{
    const bool legend = has_legend(chart);
    const int n = (int)chart->n_panels, panel = n > 1 ? PANEL_OF_MANY : PANEL;
    const int width = legend ? WIDTH + LEGEND - CLI_SVG_RIGHT : WIDTH;
    const int bottom = CLI_SVG_TOP + n * panel + (n - 1) * GAP;
    const cli_svg_head head = {chart->title, chart->subtitle, width, bottom + BOTTOM, LEFT};
    cli_svg_file file;
    const int status = cli_svg_open(&file, path, &head);
    if (status != CLI_DONE) return status;
    drawing d = {.stream = file.stream, .chart = chart, .panel_height = panel};
    d.right = legend ? width - LEGEND : width - CLI_SVG_RIGHT;
    d.x = fit_x(chart, LEFT + 12, d.right - 12);
    for (int i = 0; i < n; i++) {
        put_panel(&d, &chart->panels[i], CLI_SVG_TOP + (double)i * (panel + GAP));
    }
    if (legend) put_legend(&d, &chart->panels[0], CLI_SVG_TOP);
    put_x_axis(&d, bottom);
    return cli_svg_close(&file);
}
