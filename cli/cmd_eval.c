/* swiftkv eval: tasks asked of a model, with metrics, intervals and charts. */
#include <string.h>

#include "eval_draw.h"
#include "eval_print.h"
#include "progress.h"
#include "runtime.h"
#include "skv/eval.h"

/* Tokens of KV memory beyond two contexts: what short examples that are asked together take. */
enum { BATCH_TOKENS = 12288, CONTEXT_DEFAULT = 8192, ANSWER_ROOM = 512 };
#define BATCH_BYTES ((size_t)256 << 20)

static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* As long as our own documents want it, as far as the model goes. */
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

static int start_engine(const cli_options *options, cli_model *model)
{
    skv_engine_options engine = cli_engine_options(options);
    const size_t token_bytes = skv_model_kv_bytes_per_token(&model->info, options->kv);
    engine.context = context_of(options, model);
    engine.kv_tokens = 2 * engine.context + min_size(BATCH_TOKENS, BATCH_BYTES / (token_bytes + 1));
    return cli_model_start(model, &engine);
}

/* The model to agree with: another, or the file's own teacher. */
static int start_reference(const cli_options *options, const cli_model *model, cli_model *reference)
{
    if (options->reference == NULL) return CLI_DONE;
    const bool teacher = strcmp(options->reference, "teacher") == 0;
    const bool predicts = model->info.kv_prediction;
    skv_engine_options engine = cli_engine_options(options);
    skv_engine_stats stats;
    skv_engine_get_stats(model->engine, &stats);
    engine.context = stats.context;
    engine.eviction = (skv_eviction){.method = SKV_EVICT_NONE};
    engine.ffn_skip.on = false;
    engine.early_exit = 0;
    engine.prefill = SKV_PREFILL_AUTO;
    if (teacher) engine.prefill = predicts ? SKV_PREFILL_FULL : SKV_PREFILL_TEACHER;
    *reference = (cli_model){.path = teacher ? model->path : options->reference};
    return cli_model_start(reference, &engine);
}

static skv_eval_options eval_options(const cli_options *options)
{
    skv_eval_options out = skv_eval_options_default();
    out.tasks = options->tasks;
    out.lengths = options->lengths.at;
    out.n_lengths = options->lengths.n;
    if (options->count != CLI_NOT_GIVEN) out.count = options->count;
    if (options->depths != 0) out.depth_bins = options->depths;
    if (options->n_tokens != CLI_NOT_GIVEN) out.max_new = options->n_tokens;
    out.seed = options->sampling.seed;
    out.prose = options->prose;
    out.primer = options->primer;
    out.no_template = options->no_template;
    out.log = options->log_file;
    out.resume = options->resume;
    return out;
}

/* Without the folders before it. */
static const char *short_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL && slash[1] != 0 ? slash + 1 : path;
}

static int run(const cli_options *options, const cli_model *model, const cli_model *reference)
{
    skv_error err = {0};
    skv_eval_report *report = NULL;
    cli_progress progress;
    cli_progress_begin(&progress, "evaluating");
    skv_eval_options how = eval_options(options);
    how.reference = reference->engine;
    how.reference_path = reference->path;
    how.progress = cli_progress_items;
    how.user = &progress;
    cli_interrupt_watch(options->interrupt, model->engine);
    const skv_status status =
        skv_eval_run(model->engine, model->vocab, model->path, &how, &report, &err);
    cli_interrupt_unwatch(options->interrupt);
    cli_progress_end(&progress);
    if (status != SKV_OK) return cli_check(status, &err);
    if (options->json) {
        cli_eval_print_json(model, options, report);
    } else {
        cli_eval_print_table(report);
    }
    const int drawn = options->svg_file != NULL
                          ? cli_eval_draw(report, options->svg_file, short_name(model->path))
                          : CLI_DONE;
    skv_eval_report_free(report);
    return drawn;
}

int cli_run_eval(const cli_options *options)
{
    cli_model model = {0}, reference = {0};
    int status = cli_model_describe_text(&model, options);
    if (status == CLI_DONE) status = cli_eval_draw_folder(options->svg_file);
    if (status == CLI_DONE) status = start_engine(options, &model);
    if (status == CLI_DONE) status = start_reference(options, &model, &reference);
    if (status == CLI_DONE) status = run(options, &model, &reference);
    cli_model_close(&reference);
    cli_model_close(&model);
    return status;
}
