/* Loss and learning rate over the steps: see skv/curve.h. */
#include "skv/curve.h"

#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/size.h"
#include "train/curve_draw.h"

enum {
    WIDTH = 760,
    HEIGHT = 520,
    LEFT = 88,
    RIGHT = 24,
    POINTS_MAX = 1 << 24,
    DRAWN_MAX = 600, /* points of a line: more cannot be told apart */
    LOG_MAX = 1 << 30,
    SMOOTH_SHARE = 50 /* the smooth line averages over this share of the run's steps */
};

#define SVG_MAX ((size_t)1 << 24)

typedef struct point {
    double step, loss, rate;
} point;

typedef struct points {
    point *at; /* owned; steps rise */
    size_t n, capacity;
} points;

typedef struct panel {
    const char *label;
    double top, bottom; /* of its area, in pixels */
    double low, high, tick;
} panel;

/* ---- the log ---- */

static bool add_point(points *p, point x)
{
    while (p->n > 0 && p->at[p->n - 1].step >= x.step) p->n--; /* taken again after a restart */
    if (p->n == p->capacity) {
        const size_t capacity = p->capacity ? p->capacity * 2 : 1024;
        point *at = capacity <= POINTS_MAX ? skv_realloc(p->at, capacity, sizeof *at) : NULL;
        if (!at) return false;
        p->at = at;
        p->capacity = capacity;
    }
    p->at[p->n++] = x;
    return true;
}

static bool read_line(points *p, const char *line, size_t n)
{
    json_t *object = json_loadb(line, n, 0, NULL);
    const json_t *step = json_object_get(object, "step"), *loss = json_object_get(object, "loss");
    const json_t *rate = json_object_get(object, "lr");
    bool added = true;
    if (json_is_number(step) && json_is_number(loss) && json_is_number(rate)) {
        added = add_point(
            p, (point){json_number_value(step), json_number_value(loss), json_number_value(rate)});
    }
    json_decref(object);
    return added;
}

static skv_status read_log(points *p, const char *log, size_t n, const char *name, skv_error *err)
{
    for (size_t at = 0; at < n;) {
        const char *end = memchr(log + at, '\n', n - at);
        const size_t length = end ? (size_t)(end - (log + at)) : n - at;
        SKV_REQUIRE(read_line(p, log + at, length), err, SKV_MEMORY, "%s: no memory", name);
        at += length + 1;
    }
    SKV_REQUIRE(p->n > 0, err, SKV_FORMAT, "%s: no line with step, loss and lr", name);
    return SKV_OK;
}

/* ---- axes ---- */

/* A step of 1, 2 or 5 times a power of ten that makes at most `most` intervals. */
static double round_step(double span, double most)
{
    const double rough = span / most, power = pow(10, floor(log10(rough)));
    const double share = rough / power;
    return power * (share <= 1 ? 1 : share <= 2 ? 2 : share <= 5 ? 5 : 10);
}

static void fit(panel *a, double low, double high, double most)
{
    if (!(high > low)) high = low + fmax(fabs(low) * 0.1, 1e-9);
    a->tick = round_step(high - low, most);
    a->low = floor(low / a->tick) * a->tick;
    a->high = ceil(high / a->tick) * a->tick;
}

static double x_of(const points *p, double step)
{
    const double first = p->at[0].step, last = p->at[p->n - 1].step;
    const double share = last > first ? (step - first) / (last - first) : 0.5;
    return LEFT + share * (WIDTH - LEFT - RIGHT);
}

static double y_of(const panel *a, double value)
{
    const double share = (fmin(fmax(value, a->low), a->high) - a->low) / (a->high - a->low);
    return a->bottom - share * (a->bottom - a->top);
}

/* ---- drawing ---- */

static void put_escaped(skv_buf *out, const char *text)
{
    for (; *text; text++) {
        switch (*text) {
        case '<': (void)skv_buf_text(out, "&lt;"); break;
        case '>': (void)skv_buf_text(out, "&gt;"); break;
        case '&': (void)skv_buf_text(out, "&amp;"); break;
        default: (void)skv_buf_byte(out, (unsigned char)*text < 0x20 ? '?' : *text); break;
        }
    }
}

static void put_head(skv_buf *out, const points *p, const char *title)
{
    (void)skv_buf_printf(out,
                         "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" "
                         "width=\"%d\" height=\"%d\" role=\"img\">\n<title>",
                         WIDTH, HEIGHT, WIDTH, HEIGHT);
    put_escaped(out, title);
    (void)skv_buf_text(
        out, "</title>\n<style>\n"
             "svg { --paper: #ffffff; --ink: #1f2933; --soft: #66727f; --grid: #e3e7eb; "
             "--line: #1668b8; --rate: #b0561a; }\n"
             "@media (prefers-color-scheme: dark) { svg { --paper: #14181d; --ink: #e6eaee; "
             "--soft: #9aa5b1; --grid: #2b333c; --line: #6cb2ff; --rate: #f0a060; } }\n"
             ".paper { fill: #ffffff; fill: var(--paper); }\n"
             "text { font: 13px system-ui, sans-serif; fill: #1f2933; fill: var(--ink); }\n"
             ".title { font-size: 17px; font-weight: 600; }\n"
             ".soft { fill: #66727f; fill: var(--soft); }\n"
             ".grid { stroke: #e3e7eb; stroke: var(--grid); }\n"
             ".line { fill: none; stroke: #1668b8; stroke: var(--line); stroke-width: 2; "
             "stroke-linejoin: round; }\n"
             ".raw { stroke-width: 1; stroke-opacity: 0.3; }\n"
             ".rate { fill: none; stroke: #b0561a; stroke: var(--rate); stroke-width: 2; }\n"
             "</style>\n");
    (void)skv_buf_printf(out, "<rect class=\"paper\" width=\"%d\" height=\"%d\"/>\n", WIDTH,
                         HEIGHT);
    (void)skv_buf_printf(out, "<text class=\"title\" x=\"%d\" y=\"30\">", LEFT);
    put_escaped(out, title);
    const point *last = &p->at[p->n - 1];
    (void)skv_buf_printf(out,
                         "</text>\n<text class=\"soft\" x=\"%d\" y=\"52\">step %.0f: loss %.4f, "
                         "learning rate %.3g</text>\n",
                         LEFT, last->step, last->loss, last->rate);
}

static void put_panel(skv_buf *out, const panel *a)
{
    const int steps = (int)lround((a->high - a->low) / a->tick);
    for (int i = 0; i <= steps; i++) {
        const double value = a->low + i * a->tick, at = y_of(a, value);
        (void)skv_buf_printf(
            out,
            "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>\n"
            "<text class=\"soft\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.6g</text>\n",
            LEFT, WIDTH - RIGHT, at, at, LEFT - 10, at + 4.5,
            fabs(value) < a->tick * 1e-6 ? 0.0 : value);
    }
    const double middle = (a->top + a->bottom) / 2;
    (void)skv_buf_printf(out,
                         "<text x=\"20\" y=\"%.1f\" text-anchor=\"middle\" "
                         "transform=\"rotate(-90 20 %.1f)\">%s</text>\n",
                         middle, middle, a->label);
}

/* The steps below both panels, as 1500, 20K or 3M. */
static void put_steps(skv_buf *out, const points *p)
{
    const double first = p->at[0].step, last = p->at[p->n - 1].step;
    const double tick = fmax(1, round_step(fmax(last - first, 1), 8));
    const int n = (int)(floor(last / tick) - ceil(first / tick));
    for (int i = 0; i <= n; i++) {
        const double step = (ceil(first / tick) + i) * tick;
        const double unit = step >= 1e6 ? 1e6 : step >= 1e4 ? 1e3 : 1;
        (void)skv_buf_printf(out,
                             "<text class=\"soft\" x=\"%.1f\" y=\"%d\" "
                             "text-anchor=\"middle\">%.6g%s</text>\n",
                             x_of(p, step), HEIGHT - 38, step / unit,
                             unit > 1e5 ? "M"
                             : unit > 1 ? "K"
                                        : "");
    }
    (void)skv_buf_printf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">step</text>\n",
                         (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 14);
}

static double loss_of(const point *x)
{
    return x->loss;
}

static double rate_of(const point *x)
{
    return x->rate;
}

/* The mean of points[from..to), without those that are not finite; NaN when there are none. */
static double mean(const points *p, double (*value)(const point *), size_t from, size_t to)
{
    double sum = 0;
    size_t n = 0;
    for (size_t i = from; i < to; i++) {
        if (!isfinite(value(&p->at[i]))) continue;
        sum += value(&p->at[i]);
        n++;
    }
    return n > 0 ? sum / (double)n : (double)NAN;
}

static double step_of(const point *x)
{
    return x->step;
}

/* A line through the means of equal portions of the points; `reach` more on each side of a
 * portion smooth it. */
static void put_line(skv_buf *out, const points *p, const panel *a, double (*value)(const point *),
                     size_t reach, const char *style)
{
    const size_t n_drawn = skv_min_size(p->n, DRAWN_MAX);
    (void)skv_buf_printf(out, "<polyline class=\"%s\" points=\"", style);
    for (size_t i = 0; i < n_drawn; i++) {
        const size_t from = i * p->n / n_drawn, to = (i + 1) * p->n / n_drawn;
        const double y =
            mean(p, value, from - skv_min_size(reach, from), skv_min_size(to + reach, p->n));
        if (!isfinite(y)) continue;
        (void)skv_buf_printf(out, "%s%.1f,%.1f", i > 0 ? " " : "",
                             x_of(p, mean(p, step_of, from, to)), y_of(a, y));
    }
    (void)skv_buf_text(out, "\"/>\n");
}

/* Of the means that the line will show: a single high step must not flatten all others. */
static void find_range(const points *p, double (*value)(const point *), double *low, double *high)
{
    const size_t n_drawn = skv_min_size(p->n, DRAWN_MAX);
    *low = HUGE_VAL;
    *high = -HUGE_VAL;
    for (size_t i = 0; i < n_drawn; i++) {
        const double x = mean(p, value, i * p->n / n_drawn, (i + 1) * p->n / n_drawn);
        if (!isfinite(x)) continue;
        *low = fmin(*low, x);
        *high = fmax(*high, x);
    }
    if (*low > *high) *low = *high = 0;
}

static void draw(skv_buf *out, const points *p, const char *title)
{
    panel loss = {.label = "loss", .top = 72, .bottom = 340};
    panel rate = {.label = "learning rate", .top = 366, .bottom = HEIGHT - 58};
    double low, high;
    find_range(p, loss_of, &low, &high);
    fit(&loss, low, high, 6);
    find_range(p, rate_of, &low, &high);
    fit(&rate, 0, high, 3);
    put_head(out, p, title);
    put_panel(out, &loss);
    put_panel(out, &rate);
    put_steps(out, p);
    put_line(out, p, &loss, loss_of, 0, "line raw");
    put_line(out, p, &loss, loss_of, p->n / SMOOTH_SHARE / 2, "line");
    put_line(out, p, &rate, rate_of, 0, "rate");
    (void)skv_buf_text(out, "</svg>\n");
}

skv_status skv_curve_draw(const char *log, size_t n, const char *name, const char *title,
                          skv_buf *out, skv_error *err)
{
    points p = {.n = 0};
    skv_status status = read_log(&p, log, n, name, err);
    if (status == SKV_OK) draw(out, &p, title);
    if (status == SKV_OK && out->failed) {
        status = skv_fail(err, SKV_MEMORY, "%s: no memory for a chart", name);
    }
    skv_free(p.at);
    return status;
}

skv_status skv_curve_write(const char *log_path, const char *svg_path, const char *title,
                           skv_error *err)
{
    char *log;
    size_t n;
    SKV_TRY(skv_file_read(log_path, LOG_MAX, &log, &n, err));
    skv_buf svg;
    skv_buf_init(&svg, SVG_MAX);
    skv_status status = skv_curve_draw(log, n, log_path, title, &svg, err);
    if (status == SKV_OK) status = skv_file_write(svg_path, svg.data, svg.size, err);
    skv_buf_release(&svg);
    skv_free(log);
    return status;
}
