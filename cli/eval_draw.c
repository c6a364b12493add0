/* Charts of an evaluation: a grid a task, and curves over the length. */
#include "eval_draw.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "svg_file.h"

enum {
    LEFT = 96,
    TOP = 76,
    CELL_HEIGHT = 40,
    GRID_WIDTH = 640,
    FOOT = 64,
    RIGHT = 24,
    CURVES_WIDTH = 820,
    CURVES_HEIGHT = 460,
    LEGEND = 180,
    SERIES_MAX = 24
};

/* ---- the grid of a task ---- */

/* One cell: as opaque as its share is high, with the share in per cent. */
static void put_cell(FILE *stream, const skv_eval_row *row, size_t bin, double x, double y,
                     double width)
{
    const double value = row->cell_value[bin];
    char label[32];
    if (!isfinite(value)) return;
    fprintf(stream,
            "<rect class=\"dot\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%d\" "
            "fill-opacity=\"%.3f\"><title>%zu tokens, %zu examples: %.1f %%</title></rect>\n",
            x + 1, y + 1, width - 2, CELL_HEIGHT - 2, 0.06 + 0.94 * fmin(fmax(value, 0), 1),
            row->length, row->cell_n[bin], 100 * value);
    snprintf(label, sizeof label, "%.0f", 100 * value);
    cli_svg_text(stream, x + width / 2, y + CELL_HEIGHT / 2.0 + 4.5,
                 value > 0.55 ? "style=\"fill: var(--paper)\" text-anchor=\"middle\""
                              : "text-anchor=\"middle\"",
                 label);
}

static void put_depths(FILE *stream, size_t n_bins, double y)
{
    char label[32];
    for (size_t b = 0; b <= n_bins; b += (n_bins + 9) / 10) {
        snprintf(label, sizeof label, "%.0f", 100.0 * (double)b / (double)n_bins);
        cli_svg_text(stream, LEFT + GRID_WIDTH * (double)b / (double)n_bins, y + 18,
                     "class=\"soft\" text-anchor=\"middle\"", label);
    }
    cli_svg_text(stream, LEFT + GRID_WIDTH / 2.0, y + 44, "text-anchor=\"middle\"",
                 "place of the answer in the context, per cent");
}

static int draw_grid(const skv_eval_task *task, size_t n_bins, const char *path, const char *model)
{
    char title[160], subtitle[320], label[32];
    const double bottom = TOP + (double)CELL_HEIGHT * (double)task->n_rows;
    const double width = (double)GRID_WIDTH / (double)n_bins;
    snprintf(title, sizeof title, "%s: %s by length and depth", task->name,
             task->estimates[0].name);
    snprintf(subtitle, sizeof subtitle, "%s, %zu examples, per cent", model, task->n);
    const cli_svg_head head = {title, subtitle, LEFT + GRID_WIDTH + RIGHT, (int)bottom + FOOT,
                               LEFT};
    cli_svg_file file;
    const int status = cli_svg_open(&file, path, &head);
    if (status != CLI_DONE) return status;
    for (size_t i = 0; i < task->n_rows; i++) {
        const double y = TOP + (double)CELL_HEIGHT * (double)i;
        snprintf(label, sizeof label, "%zu", task->rows[i].length);
        cli_svg_text(file.stream, LEFT - 10, y + CELL_HEIGHT / 2.0 + 4.5,
                     "class=\"soft\" text-anchor=\"end\"", label);
        for (size_t b = 0; b < n_bins; b++) {
            put_cell(file.stream, &task->rows[i], b, LEFT + width * (double)b, y, width);
        }
    }
    put_depths(file.stream, n_bins, bottom);
    cli_svg_text(file.stream, LEFT - 10, TOP - 8, "class=\"soft\" text-anchor=\"end\"", "tokens");
    return cli_svg_close(&file);
}

/* ---- curves over the length ---- */

/* Hues that differ for most eyes; a second round of them is dashed. */
static const char *const colours[] = {"#1668b8", "#d1495b", "#2e8b57", "#b8860b",
                                      "#7b5ea7", "#00868b", "#8b5a2b", "#808890"};
enum { N_COLOURS = sizeof colours / sizeof colours[0] };

static bool has_curve(const skv_eval_task *task)
{
    return task->n_rows > 1 && task->n_estimates > 0 && task->estimates[0].is_share;
}

static double x_of(double length, const double range[2])
{
    const double share = log2(length / range[0]) / log2(range[1] / range[0]);
    return LEFT + 12 + share * (CURVES_WIDTH - LEFT - LEGEND - 24);
}

static double y_of(double value)
{
    return CURVES_HEIGHT - FOOT - value * (CURVES_HEIGHT - FOOT - TOP);
}

static void put_axes(FILE *stream, const double range[2])
{
    char label[32];
    for (int i = 0; i <= 5; i++) {
        const double y = y_of(0.2 * i);
        fprintf(stream, "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>\n",
                LEFT, CURVES_WIDTH - LEGEND, y, y);
        snprintf(label, sizeof label, "%d", 20 * i);
        cli_svg_text(stream, LEFT - 10, y + 4.5, "class=\"soft\" text-anchor=\"end\"", label);
    }
    const int n_doublings = (int)floor(log2(range[1] / range[0]) + 1e-9);
    for (int i = 0; i <= n_doublings; i++) {
        const double length = range[0] * exp2(i);
        snprintf(label, sizeof label, "%.0f", length);
        cli_svg_text(stream, x_of(length, range), CURVES_HEIGHT - FOOT + 20,
                     "class=\"soft\" text-anchor=\"middle\"", label);
    }
    cli_svg_text(stream, (LEFT + CURVES_WIDTH - LEGEND) / 2.0, CURVES_HEIGHT - 16,
                 "text-anchor=\"middle\"", "tokens");
}

static void put_curve(FILE *stream, const skv_eval_task *task, size_t i, const double range[2])
{
    const char *colour = colours[i % N_COLOURS];
    const char *dash = i >= N_COLOURS ? " stroke-dasharray=\"6 4\"" : "";
    const double y_name = TOP + 8 + 20.0 * (double)i;
    fprintf(stream, "<polyline fill=\"none\" stroke-width=\"2\" stroke=\"%s\"%s points=\"", colour,
            dash);
    for (size_t j = 0; j < task->n_rows; j++) {
        const skv_eval_row *row = &task->rows[j];
        fprintf(stream, "%s%.1f,%.1f", j > 0 ? " " : "", x_of((double)row->length, range),
                y_of(row->estimate.value));
    }
    fputs("\"/>\n", stream);
    for (size_t j = 0; j < task->n_rows; j++) {
        const skv_eval_row *row = &task->rows[j];
        fprintf(stream, "<circle fill=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\"><title>", colour,
                x_of((double)row->length, range), y_of(row->estimate.value));
        cli_svg_escaped(stream, task->name);
        fprintf(stream, ", %zu tokens: %.1f %%</title></circle>\n", row->length,
                100 * row->estimate.value);
    }
    fprintf(stream,
            "<line stroke-width=\"2\" stroke=\"%s\"%s x1=\"%d\" x2=\"%d\" y1=\"%.1f\" "
            "y2=\"%.1f\"/>\n",
            colour, dash, CURVES_WIDTH - LEGEND + 16, CURVES_WIDTH - LEGEND + 40, y_name, y_name);
    cli_svg_text(stream, CURVES_WIDTH - LEGEND + 48, y_name + 4.5, "", task->name);
}

static int draw_curves(const skv_eval_report *report, const char *path, const char *model)
{
    const skv_eval_task *shown[SERIES_MAX];
    double range[2] = {HUGE_VAL, 0};
    size_t n = 0;
    for (size_t i = 0; i < report->n_tasks && n < SERIES_MAX; i++) {
        const skv_eval_task *task = &report->tasks[i];
        if (!has_curve(task)) continue;
        shown[n++] = task;
        range[0] = fmin(range[0], (double)task->rows[0].length);
        range[1] = fmax(range[1], (double)task->rows[task->n_rows - 1].length);
    }
    if (n == 0) return CLI_DONE;
    const cli_svg_head head = {"Right answers by length", model, CURVES_WIDTH, CURVES_HEIGHT, LEFT};
    cli_svg_file file;
    const int status = cli_svg_open(&file, path, &head);
    if (status != CLI_DONE) return status;
    put_axes(file.stream, range);
    for (size_t i = 0; i < n; i++) put_curve(file.stream, shown[i], i, range);
    return cli_svg_close(&file);
}

/* ---- the folder ---- */

/* "FOLDER/NAME.svg", to be freed. */
static char *path_of(const char *folder, const char *name)
{
    const size_t n = strlen(folder) + strlen(name) + sizeof "/.svg";
    char *path = cli_alloc(n, 1);
    snprintf(path, n, "%s/%s.svg", folder, name);
    return path;
}

int cli_eval_draw_folder(const char *folder)
{
    if (folder == NULL || mkdir(folder, 0777) == 0 || errno == EEXIST) return CLI_DONE;
    return cli_fail("%s: %s", folder, strerror(errno));
}

int cli_eval_draw(const skv_eval_report *report, const char *folder, const char *model)
{
    char *path = path_of(folder, "lengths");
    int status = draw_curves(report, path, model);
    free(path);
    for (size_t i = 0; i < report->n_tasks && status == CLI_DONE; i++) {
        const skv_eval_task *task = &report->tasks[i];
        if (!task->has_depths || task->n_rows == 0) continue;
        path = path_of(folder, task->name);
        status = draw_grid(task, report->depth_bins, path, model);
        free(path);
    }
    return status;
}
