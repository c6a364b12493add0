/* The code that eval and tune share: opening a model, running the evaluation, and printing results
 * as a table and JSON. */
#include "evaluation.h"

#include <math.h>
#include <stdio.h>

#include "runtime.h"

/* Tokens of KV memory beyond two contexts, for short examples that run together. */
enum { BATCH_TOKENS = 12288, CONTEXT_DEFAULT = 8192, ANSWER_ROOM = 512 };
#define BATCH_BYTES ((size_t)256 << 20)

static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* The context that the generated documents need, limited to the model's. */
static size_t context_of(const cli_options *options, const cli_model *model)
{
    if (options->context != 0) return options->context;
    size_t wanted = CONTEXT_DEFAULT;
    for (size_t i = 0; i < options->lengths.n; i++) {
        if (options->lengths.at[i] + ANSWER_ROOM > wanted)
            wanted = options->lengths.at[i] + ANSWER_ROOM;
    }
    return min_size(wanted, model->info.context);
}

int cli_eval_start(const cli_options *options, cli_model *model)
{
    skv_engine_options engine = cli_engine_options(options);
    const size_t token_bytes = skv_model_kv_bytes_per_token(&model->info, options->kv);
    engine.context = context_of(options, model);
    engine.kv_tokens = 2 * engine.context + min_size(BATCH_TOKENS, BATCH_BYTES / (token_bytes + 1));
    return cli_model_start(model, &engine);
}

skv_eval_options cli_eval_how(const cli_options *options)
{
    skv_eval_options out = skv_eval_options_default();
    out.tasks = options->tasks;
    out.lengths = options->lengths.at;
    out.n_lengths = options->lengths.n;
    if (options->count != CLI_NOT_GIVEN) out.count = options->count;
    if (options->depths != 0) out.depth_bins = options->depths;
    if (options->n_tokens != CLI_NOT_GIVEN) out.max_new = options->n_tokens;
    out.scored = options->scored;
    out.seed = options->sampling.seed;
    out.prose = options->prose;
    out.primer = options->primer;
    out.no_template = options->no_template;
    out.log = options->log_file;
    out.resume = options->resume;
    return out;
}

/* ---- results ---- */

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

static void put_estimate(skv_json_out *json, const skv_eval_estimate *e)
{
    skv_json_out_put_number(json, "value", e->value);
    skv_json_out_put_number(json, "low", e->low);
    skv_json_out_put_number(json, "high", e->high);
    skv_json_out_put_integer(json, "n", e->n);
}

static void put_cells(skv_json_out *json, const skv_eval_row *row, size_t depth_bins)
{
    skv_json_out_put_open(json, "depths", '[');
    for (size_t b = 0; b < depth_bins; b++) {
        skv_json_out_open(json, '{');
        skv_json_out_put_number(json, "from", (double)b / (double)depth_bins);
        skv_json_out_put_number(json, "value", row->cell_value[b]);
        skv_json_out_put_integer(json, "n", row->cell_n[b]);
        skv_json_out_close(json, '}');
    }
    skv_json_out_close(json, ']');
}

static void put_rows(skv_json_out *json, const skv_eval_task *task, size_t depth_bins)
{
    skv_json_out_put_open(json, "lengths", '[');
    for (size_t i = 0; i < task->n_rows; i++) {
        const skv_eval_row *row = &task->rows[i];
        skv_json_out_open(json, '{');
        skv_json_out_put_integer(json, "length", row->length);
        put_estimate(json, &row->estimate);
        if (task->has_depths) put_cells(json, row, depth_bins);
        skv_json_out_close(json, '}');
    }
    skv_json_out_close(json, ']');
}

static void put_task(skv_json_out *json, const skv_eval_task *task, size_t depth_bins)
{
    skv_json_out_open(json, '{');
    skv_json_out_put_text(json, "task", task->name);
    skv_json_out_put_text(json, "format", task->format);
    skv_json_out_put_integer(json, "n", task->n);
    skv_json_out_put_integer(json, "skipped", task->n_skipped);
    skv_json_out_put_integer(json, "resumed", task->n_resumed);
    skv_json_out_put_text(json, "metric", task->n_estimates > 0 ? task->estimates[0].name : NULL);
    skv_json_out_put_open(json, "metrics", '{');
    for (size_t i = 0; i < task->n_estimates; i++) {
        skv_json_out_put_open(json, task->estimates[i].name, '{');
        put_estimate(json, &task->estimates[i]);
        skv_json_out_close(json, '}');
    }
    skv_json_out_close(json, '}');
    put_rows(json, task, depth_bins);
    skv_json_out_close(json, '}');
}

void cli_eval_print_json(const cli_model *model, const cli_options *options,
                         const skv_eval_report *report)
{
    skv_engine_stats stats;
    skv_engine_get_stats(model->engine, &stats);
    skv_json_out json = {.stream = stdout};
    skv_json_out_open(&json, '{');
    skv_json_out_put_text(&json, "model", model->path);
    skv_json_out_put_text(&json, "reference", options->reference);
    skv_json_out_put_text(&json, "prefill", skv_prefill_name(stats.prefill));
    skv_json_out_put_text(&json, "weights", skv_weights_name(stats.weights));
    skv_json_out_put_text(&json, "kv", skv_kv_name(stats.kv));
    char how[SKV_EVICTION_TEXT];
    skv_eviction_print(&stats.eviction, how);
    skv_json_out_put_text(&json, "evict", how);
    char skip[SKV_FFN_SKIP_TEXT];
    skv_ffn_skip_print(&stats.ffn_skip, skip);
    skv_json_out_put_text(&json, "ffn_skip", skip);
    skv_json_out_put_number(&json, "early_exit", stats.early_exit);
    const skv_work work = skv_engine_get_work(model->engine);
    cli_json_put_work(&json, "work", &work);
    skv_json_out_put_integer(&json, "context", stats.context);
    skv_json_out_put_integer(&json, "seed", options->sampling.seed);
    skv_json_out_put_number(&json, "average", report->average);
    skv_json_out_put_integer(&json, "averaged", report->n_averaged);
    if (report->drafts.drafted > 0) {
        skv_json_out_put_open(&json, "speculation", '{');
        skv_json_out_put_integer(&json, "generated", report->generated);
        skv_json_out_put_integer(&json, "drafted", report->drafts.drafted);
        skv_json_out_put_integer(&json, "accepted", report->drafts.accepted);
        skv_json_out_close(&json, '}');
    }
    skv_json_out_put_open(&json, "tasks", '[');
    for (size_t i = 0; i < report->n_tasks; i++) {
        put_task(&json, &report->tasks[i], report->depth_bins);
    }
    skv_json_out_close(&json, ']');
    skv_json_out_close(&json, '}');
    putchar('\n');
}
