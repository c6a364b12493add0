/* Charts of an evaluation: a grid a task, and curves over the length. */
#include "evaluation.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "common/chart.h"

enum { LEFT = 96, CELL_HEIGHT = 40, GRID_WIDTH = 640, FOOT = 64, SERIES_MAX = 24 };

/* ---- the grid of a task ---- */

/* One cell: as opaque as its share is high, with the share in per cent. */
static void put_cell(skv_buf *svg, const skv_eval_row *row, size_t bin, double x, double y,
                     double width)
{
    const double value = row->cell_value[bin];
    char label[32];
    if (!isfinite(value)) return;
    (void)skv_buf_printf(
        svg,
        "<rect class=\"dot\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%d\" "
        "fill-opacity=\"%.3f\"><title>%zu tokens, %zu examples: %.1f %%</title></rect>\n",
        x + 1, y + 1, width - 2, CELL_HEIGHT - 2, 0.06 + 0.94 * fmin(fmax(value, 0), 1),
        row->length, row->cell_n[bin], 100 * value);
    snprintf(label, sizeof label, "%.0f", 100 * value);
    skv_svg_text(svg, x + width / 2, y + CELL_HEIGHT / 2.0 + 4.5,
                 value > 0.55 ? "style=\"fill: var(--paper)\" text-anchor=\"middle\""
                              : "text-anchor=\"middle\"",
                 label);
}

static void put_depths(skv_buf *svg, size_t n_bins, double y)
{
    char label[32];
    for (size_t b = 0; b <= n_bins; b += (n_bins + 9) / 10) {
        snprintf(label, sizeof label, "%.0f", 100.0 * (double)b / (double)n_bins);
        skv_svg_text(svg, LEFT + GRID_WIDTH * (double)b / (double)n_bins, y + 18,
                     "class=\"soft\" text-anchor=\"middle\"", label);
    }
    skv_svg_text(svg, LEFT + GRID_WIDTH / 2.0, y + 44, "text-anchor=\"middle\"",
                 "place of the answer in the context, per cent");
}

static int draw_grid(const skv_eval_task *task, size_t n_bins, const char *path, const char *model)
{
    char title[160], subtitle[320], label[32];
    const double bottom = SKV_SVG_TOP + (double)CELL_HEIGHT * (double)task->n_rows;
    const double width = (double)GRID_WIDTH / (double)n_bins;
    snprintf(title, sizeof title, "%s: %s by length and depth", task->name,
             task->estimates[0].name);
    snprintf(subtitle, sizeof subtitle, "%s, %zu examples, per cent", model, task->n);
    const skv_svg_head head = {title, subtitle, LEFT + GRID_WIDTH + SKV_SVG_RIGHT,
                               (int)bottom + FOOT, LEFT};
    skv_buf svg;
    skv_svg_begin(&svg, &head);
    for (size_t i = 0; i < task->n_rows; i++) {
        const double y = SKV_SVG_TOP + (double)CELL_HEIGHT * (double)i;
        snprintf(label, sizeof label, "%zu", task->rows[i].length);
        skv_svg_text(&svg, LEFT - 10, y + CELL_HEIGHT / 2.0 + 4.5,
                     "class=\"soft\" text-anchor=\"end\"", label);
        for (size_t b = 0; b < n_bins; b++) {
            put_cell(&svg, &task->rows[i], b, LEFT + width * (double)b, y, width);
        }
    }
    put_depths(&svg, n_bins, bottom);
    skv_svg_text(&svg, LEFT - 10, SKV_SVG_TOP - 8, "class=\"soft\" text-anchor=\"end\"", "tokens");
    skv_error err = {0};
    return cli_check(skv_svg_end(&svg, path, &err), &err);
}

/* ---- curves over the length ---- */

static bool has_curve(const skv_eval_task *task)
{
    return task->n_rows > 1 && task->n_estimates > 0 && task->estimates[0].is_share;
}

/* The line of a task; a second round of the colours is dashed. `x` has room for both coordinates of
 * its points, and is to be freed. */
static skv_series curve_of(const skv_eval_task *task, size_t i, double *x)
{
    double *y = x + task->n_rows;
    for (size_t j = 0; j < task->n_rows; j++) {
        x[j] = (double)task->rows[j].length;
        y[j] = 100 * task->rows[j].estimate.value;
    }
    return (skv_series){.name = task->name,
                        .x = x,
                        .y = y,
                        .n = task->n_rows,
                        .colour = i,
                        .dashed = i >= SKV_CHART_COLOURS};
}

static int draw_curves(const skv_eval_report *report, const char *path, const char *model)
{
    skv_series curves[SERIES_MAX];
    double *points[SERIES_MAX];
    size_t n = 0;
    for (size_t i = 0; i < report->n_tasks && n < SERIES_MAX; i++) {
        const skv_eval_task *task = &report->tasks[i];
        if (!has_curve(task)) continue;
        points[n] = cli_alloc(2 * task->n_rows, sizeof(double));
        curves[n] = curve_of(task, n, points[n]);
        n++;
    }
    if (n == 0) return CLI_DONE;
    const skv_panel panel = {
        .y_label = "per cent", .series = curves, .n_series = n, .low = 0, .high = 100};
    const skv_chart chart = {.title = "Right answers by length",
                             .subtitle = model,
                             .x_label = "tokens",
                             .panels = &panel,
                             .n_panels = 1,
                             .log_x = true};
    skv_error err = {0};
    const int status = cli_check(skv_chart_write(path, &chart, &err), &err);
    for (size_t i = 0; i < n; i++) free(points[i]);
    return status;
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
    if (!folder || mkdir(folder, 0777) == 0 || errno == EEXIST) return CLI_DONE;
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
