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
#include "common/chart.h"

enum {
    POINTS_MAX = 1 << 24,
    DRAWN_MAX = 600, /* points of a line: more cannot be distinguished */
    LOG_MAX = 1 << 30,
    SMOOTH_SHARE = 50, /* the smooth line averages over this share of the run's steps */
    LOSS_HEIGHT = 268,
    RATE_HEIGHT = 96,
    RATE_COLOUR = 1
};

typedef struct point {
    double step, loss, rate;
} point;

typedef struct points {
    point *at; /* owned; steps rise */
    size_t n, capacity;
} points;

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

/* ---- the lines ---- */

static double loss_of(const point *x)
{
    return x->loss;
}

static double rate_of(const point *x)
{
    return x->rate;
}

static double step_of(const point *x)
{
    return x->step;
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

/* out [n_drawn]: means of equal portions of the points; `reach` more on each side of a portion
 * smooth them. */
static void average(const points *p, double (*value)(const point *), size_t reach, double *out,
                    size_t n_drawn)
{
    for (size_t i = 0; i < n_drawn; i++) {
        const size_t from = i * p->n / n_drawn, to = (i + 1) * p->n / n_drawn;
        out[i] = mean(p, value, from - skv_min_size(reach, from), skv_min_size(to + reach, p->n));
    }
}

/* The axes fit the means, not the points: a single high step must not flatten all others. */
static skv_status draw(const points *p, const char *path, const char *title, skv_error *err)
{
    const size_t n = skv_min_size(p->n, DRAWN_MAX);
    double *lines = skv_alloc(n, 4 * sizeof *lines);
    SKV_REQUIRE(lines, err, SKV_MEMORY, "%s: no memory for a chart", path);
    double *steps = lines, *raw = lines + n, *smooth = lines + 2 * n, *rates = lines + 3 * n;
    average(p, step_of, 0, steps, n);
    average(p, loss_of, 0, raw, n);
    average(p, loss_of, p->n / SMOOTH_SHARE / 2, smooth, n);
    average(p, rate_of, 0, rates, n);
    double highest = 0;
    for (size_t i = 0; i < n; i++) highest = fmax(highest, rates[i]); /* NaN is passed over */
    const skv_series losses[] = {{.x = steps, .y = raw, .n = n, .thin = true},
                                 {.x = steps, .y = smooth, .n = n}};
    const skv_series rate = {.x = steps, .y = rates, .n = n, .colour = RATE_COLOUR};
    const skv_panel panels[] = {
        {.y_label = "loss", .series = losses, .n_series = 2, .height = LOSS_HEIGHT},
        {"learning rate", &rate, 1, .high = highest, .height = RATE_HEIGHT}};
    char subtitle[128];
    const point *last = &p->at[p->n - 1];
    (void)snprintf(subtitle, sizeof subtitle, "step %.0f: loss %.4f, learning rate %.3g",
                   last->step, last->loss, last->rate);
    const skv_chart chart = {title, subtitle, "step", panels, 2, .dense = true};
    skv_status status = skv_chart_write(path, &chart, err);
    skv_free(lines);
    return status;
}

skv_status skv_curve_write(const char *log_path, const char *svg_path, const char *title,
                           skv_error *err)
{
    char *log;
    size_t n;
    points p = {.n = 0};
    SKV_TRY(skv_file_read(log_path, LOG_MAX, &log, &n, err));
    skv_status status = read_log(&p, log, n, log_path, err);
    if (status == SKV_OK) status = draw(&p, svg_path, title, err);
    skv_free(p.at);
    skv_free(log);
    return status;
}
