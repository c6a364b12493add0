/* The chart: axes with round numbers, a line with a dot for each value. */
#include "svg.h"

#include <math.h>
#include <stdio.h>

#include "svg_file.h"

enum { WIDTH = 720, HEIGHT = 420, LEFT = 72, RIGHT = 24, TOP = 76, BOTTOM = 60 };

typedef struct axis {
    double low, high, tick;
} axis;

/* A step of 1, 2 or 5 times a power of ten that makes at most `most` intervals. */
static double round_step(double span, double most)
{
    const double rough = span / most;
    const double power = pow(10, floor(log10(rough)));
    const double share = rough / power;
    return power * (share <= 1 ? 1 : share <= 2 ? 2 : share <= 5 ? 5 : 10);
}

static axis fit_axis(const cli_chart *chart)
{
    double low = 1, high = -1;
    for (size_t i = 0; i < chart->n; i++) {
        low = fmin(low, chart->y[i]);
        high = fmax(high, chart->y[i]);
    }
    if (!(low < high)) low = high - 0.1;
    const double tick = round_step(high - low, 6);
    return (axis){floor(low / tick) * tick, ceil(high / tick) * tick, tick};
}

static double x_of(const cli_chart *chart, size_t i)
{
    const double last = chart->n > 1 ? (double)(chart->n - 1) : 1;
    return LEFT + 12 + (double)(WIDTH - LEFT - RIGHT - 24) * (double)i / last;
}

static double y_of(axis y, double value)
{
    return HEIGHT - BOTTOM - (double)(HEIGHT - TOP - BOTTOM) * (value - y.low) / (y.high - y.low);
}

static void put_axes(FILE *stream, const cli_chart *chart, axis y)
{
    char label[32];
    const int steps = (int)lround((y.high - y.low) / y.tick);
    const int digits = y.tick < 1 ? (int)ceil(-log10(y.tick) - 1e-9) : 0;
    for (int i = 0; i <= steps; i++) {
        const double value = y.low + i * y.tick, at = y_of(y, value);
        fprintf(stream, "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>\n",
                LEFT, WIDTH - RIGHT, at, at);
        snprintf(label, sizeof label, "%.*f", digits, value);
        cli_svg_text(stream, LEFT - 10, at + 4.5, "class=\"soft\" text-anchor=\"end\"", label);
    }
    const double step = fmax(1, round_step((double)chart->n, 16));
    for (size_t i = 0; i < chart->n; i += (size_t)step) {
        snprintf(label, sizeof label, "%zu", i);
        cli_svg_text(stream, x_of(chart, i), HEIGHT - BOTTOM + 20,
                     "class=\"soft\" text-anchor=\"middle\"", label);
    }
    fprintf(stream, "<line class=\"axis\" x1=\"%d\" x2=\"%d\" y1=\"%d\" y2=\"%d\"/>\n", LEFT,
            WIDTH - RIGHT, HEIGHT - BOTTOM, HEIGHT - BOTTOM);
    cli_svg_text(stream, (LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 16, "text-anchor=\"middle\"",
                 chart->x_label);
    char turn[96];
    const double middle = (TOP + HEIGHT - BOTTOM) / 2.0;
    snprintf(turn, sizeof turn, "text-anchor=\"middle\" transform=\"rotate(-90 20 %.1f)\"", middle);
    cli_svg_text(stream, 20, middle, turn, chart->y_label);
}

static void put_line(FILE *stream, const cli_chart *chart, axis y)
{
    fputs("<polyline class=\"line\" points=\"", stream);
    for (size_t i = 0; i < chart->n; i++) {
        fprintf(stream, "%s%.1f,%.1f", i > 0 ? " " : "", x_of(chart, i), y_of(y, chart->y[i]));
    }
    fputs("\"/>\n", stream);
    for (size_t i = 0; i < chart->n; i++) {
        fprintf(stream,
                "<circle class=\"dot\" cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\"><title>%s %zu: %.4f"
                "</title></circle>\n",
                x_of(chart, i), y_of(y, chart->y[i]), chart->x_label, i, chart->y[i]);
    }
}

int cli_svg_write(const char *path, const cli_chart *chart)
{
    const cli_svg_head head = {chart->title, chart->subtitle, WIDTH, HEIGHT, LEFT};
    cli_svg_file file;
    const int status = cli_svg_open(&file, path, &head);
    if (status != CLI_DONE) return status;
    const axis y = fit_axis(chart);
    put_axes(file.stream, chart, y);
    put_line(file.stream, chart, y);
    return cli_svg_close(&file);
}
