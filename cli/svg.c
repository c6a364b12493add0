/* The chart: axes with round numbers, a line with a dot for each value. */
#include "svg.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static void put_escaped(FILE *stream, const char *text)
{
    for (; *text != 0; text++) {
        switch (*text) {
        case '<': fputs("&lt;", stream); break;
        case '>': fputs("&gt;", stream); break;
        case '&': fputs("&amp;", stream); break;
        default: putc((unsigned char)*text < 0x20 ? '?' : *text, stream); break;
        }
    }
}

static void put_text(FILE *stream, double x, double y, const char *attributes, const char *text)
{
    fprintf(stream, "<text x=\"%.1f\" y=\"%.1f\" %s>", x, y, attributes);
    put_escaped(stream, text);
    fputs("</text>\n", stream);
}

static void put_head(FILE *stream, const cli_chart *chart)
{
    fprintf(stream,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" "
            "height=\"%d\" role=\"img\">\n<title>",
            WIDTH, HEIGHT, WIDTH, HEIGHT);
    put_escaped(stream, chart->title);
    fputs("</title>\n<style>\n"
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
          ".line { fill: none; stroke: #1668b8; stroke: var(--line); stroke-width: 2; }\n"
          ".dot { fill: #1668b8; fill: var(--line); }\n"
          "</style>\n",
          stream);
    fprintf(stream, "<rect class=\"paper\" width=\"%d\" height=\"%d\"/>\n", WIDTH, HEIGHT);
    put_text(stream, LEFT, 30, "class=\"title\"", chart->title);
    put_text(stream, LEFT, 52, "class=\"soft\"", chart->subtitle);
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
        put_text(stream, LEFT - 10, at + 4.5, "class=\"soft\" text-anchor=\"end\"", label);
    }
    const double step = fmax(1, round_step((double)chart->n, 16));
    for (size_t i = 0; i < chart->n; i += (size_t)step) {
        snprintf(label, sizeof label, "%zu", i);
        put_text(stream, x_of(chart, i), HEIGHT - BOTTOM + 20,
                 "class=\"soft\" text-anchor=\"middle\"", label);
    }
    fprintf(stream, "<line class=\"axis\" x1=\"%d\" x2=\"%d\" y1=\"%d\" y2=\"%d\"/>\n", LEFT,
            WIDTH - RIGHT, HEIGHT - BOTTOM, HEIGHT - BOTTOM);
    put_text(stream, (LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 16, "text-anchor=\"middle\"",
             chart->x_label);
    char turn[96];
    const double middle = (TOP + HEIGHT - BOTTOM) / 2.0;
    snprintf(turn, sizeof turn, "text-anchor=\"middle\" transform=\"rotate(-90 20 %.1f)\"", middle);
    put_text(stream, 20, middle, turn, chart->y_label);
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

static int finish_file(FILE *stream, const char *temporary, const char *path)
{
    const bool failed = ferror(stream) != 0;
    const bool not_closed = fclose(stream) != 0;
    if (!failed && !not_closed && rename(temporary, path) == 0) return CLI_DONE;
    const int code = errno;
    remove(temporary);
    return cli_fail("%s: %s", path, strerror(code));
}

int cli_svg_write(const char *path, const cli_chart *chart)
{
    const size_t n = strlen(path) + sizeof ".tmp";
    char *temporary = cli_alloc(n, 1);
    snprintf(temporary, n, "%s.tmp", path);
    FILE *stream = fopen(temporary, "wb");
    int status = CLI_DONE;
    if (stream == NULL) {
        status = cli_fail("%s: %s", path, strerror(errno));
    } else {
        const axis y = fit_axis(chart);
        put_head(stream, chart);
        put_axes(stream, chart, y);
        put_line(stream, chart, y);
        fputs("</svg>\n", stream);
        status = finish_file(stream, temporary, path);
    }
    free(temporary);
    return status;
}
