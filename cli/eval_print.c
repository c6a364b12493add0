/* Results of an evaluation on standard output. */
#include "eval_print.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "work_out.h"

/* ---- the table ---- */

/* Shares in per cent, all others as they are. */
static void print_estimate(const char *task, const skv_eval_estimate *e)
{
    const double scale = e->is_share ? 100 : 1;
    const int digits = e->is_share ? 1 : 4;
    printf("%-28s %-14s %9.*f%s", task, e->name, digits, scale * e->value,
           e->is_share ? " %" : "  ");
    if (isfinite(e->low)) {
        printf("  [%.*f, %.*f]", digits, scale * e->low, digits, scale * e->high);
    }
    printf("  n=%zu\n", e->n);
}

static void print_rows(const skv_eval_task *task)
{
    for (size_t i = 0; i < task->n_rows && task->n_rows > 1; i++) {
        char name[64];
        snprintf(name, sizeof name, "  %zu tokens", task->rows[i].length);
        print_estimate(name, &task->rows[i].estimate);
    }
}

void cli_eval_print_table(const skv_eval_report *report)
{
    printf("%-28s %-14s %9s    %s\n", "task", "metric", "value", "95 % interval");
    for (size_t i = 0; i < report->n_tasks; i++) {
        const skv_eval_task *task = &report->tasks[i];
        for (size_t j = 0; j < task->n_estimates; j++) {
            print_estimate(j == 0 ? task->name : "", &task->estimates[j]);
        }
        if (task->n_estimates == 0) printf("%-28s no example was asked\n", task->name);
        print_rows(task);
        if (task->n_skipped > 0) {
            printf("  %zu skipped: longer than the context\n", task->n_skipped);
        }
    }
    if (report->n_averaged > 1) {
        printf("%-28s %-14s %9.1f %%  %zu tasks\n", "average", "", 100 * report->average,
               report->n_averaged);
    }
}

/* ---- JSON ---- */

static void put_estimate(cli_json *json, const skv_eval_estimate *e)
{
    cli_json_put_number(json, "value", e->value);
    cli_json_put_number(json, "low", e->low);
    cli_json_put_number(json, "high", e->high);
    cli_json_put_integer(json, "n", e->n);
}

static void put_cells(cli_json *json, const skv_eval_row *row, size_t depth_bins)
{
    cli_json_key(json, "depths");
    cli_json_open(json, '[');
    for (size_t b = 0; b < depth_bins; b++) {
        cli_json_open(json, '{');
        cli_json_put_number(json, "from", (double)b / (double)depth_bins);
        cli_json_put_number(json, "value", row->cell_value[b]);
        cli_json_put_integer(json, "n", row->cell_n[b]);
        cli_json_close(json, '}');
    }
    cli_json_close(json, ']');
}

static void put_rows(cli_json *json, const skv_eval_task *task, size_t depth_bins)
{
    cli_json_key(json, "lengths");
    cli_json_open(json, '[');
    for (size_t i = 0; i < task->n_rows; i++) {
        const skv_eval_row *row = &task->rows[i];
        cli_json_open(json, '{');
        cli_json_put_integer(json, "length", row->length);
        put_estimate(json, &row->estimate);
        if (task->has_depths) put_cells(json, row, depth_bins);
        cli_json_close(json, '}');
    }
    cli_json_close(json, ']');
}

static void put_task(cli_json *json, const skv_eval_task *task, size_t depth_bins)
{
    cli_json_open(json, '{');
    cli_json_put_text(json, "task", task->name);
    cli_json_put_text(json, "format", task->format);
    cli_json_put_integer(json, "n", task->n);
    cli_json_put_integer(json, "skipped", task->n_skipped);
    cli_json_put_integer(json, "resumed", task->n_resumed);
    cli_json_put_text(json, "metric", task->n_estimates > 0 ? task->estimates[0].name : NULL);
    cli_json_key(json, "metrics");
    cli_json_open(json, '{');
    for (size_t i = 0; i < task->n_estimates; i++) {
        cli_json_key(json, task->estimates[i].name);
        cli_json_open(json, '{');
        put_estimate(json, &task->estimates[i]);
        cli_json_close(json, '}');
    }
    cli_json_close(json, '}');
    put_rows(json, task, depth_bins);
    cli_json_close(json, '}');
}

void cli_eval_print_json(const cli_model *model, const cli_options *options,
                         const skv_eval_report *report)
{
    skv_engine_stats stats;
    skv_engine_get_stats(model->engine, &stats);
    cli_json json = {.stream = stdout};
    cli_json_open(&json, '{');
    cli_json_put_text(&json, "model", model->path);
    cli_json_put_text(&json, "reference", options->reference);
    cli_json_put_text(&json, "prefill", skv_prefill_name(stats.prefill));
    cli_json_put_text(&json, "weights", skv_weights_name(stats.weights));
    cli_json_put_text(&json, "kv", skv_kv_name(stats.kv));
    char how[SKV_EVICTION_TEXT];
    skv_eviction_print(&stats.eviction, how);
    cli_json_put_text(&json, "evict", how);
    char skip[SKV_FFN_SKIP_TEXT];
    skv_ffn_skip_print(&stats.ffn_skip, skip);
    cli_json_put_text(&json, "ffn_skip", skip);
    cli_json_put_number(&json, "early_exit", stats.early_exit);
    const skv_work work = skv_engine_get_work(model->engine);
    cli_json_put_work(&json, "work", &work);
    cli_json_put_integer(&json, "context", stats.context);
    cli_json_put_integer(&json, "seed", options->sampling.seed);
    cli_json_put_number(&json, "average", report->average);
    cli_json_put_integer(&json, "averaged", report->n_averaged);
    cli_json_key(&json, "tasks");
    cli_json_open(&json, '[');
    for (size_t i = 0; i < report->n_tasks; i++) {
        put_task(&json, &report->tasks[i], report->depth_bins);
    }
    cli_json_close(&json, ']');
    cli_json_close(&json, '}');
    putchar('\n');
}
