/* swiftkv eval: tasks asked of a model, with metrics, intervals and charts. */
#include <string.h>

#include "evaluation.h"
#include "report.h"
#include "runtime.h"
#include "skv/eval.h"

/* The model to agree with: another, or the file's own teacher. */
static int start_reference(const cli_options *options, const cli_model *model, cli_model *reference)
{
    if (!options->reference) return CLI_DONE;
    const bool teacher = strcmp(options->reference, "teacher") == 0;
    const bool predicts = model->info.kv_prediction;
    skv_engine_options engine = cli_engine_options(options);
    skv_engine_stats stats;
    skv_engine_get_stats(model->engine, &stats);
    engine.context = stats.context;
    engine.state = SKV_STATE_F32;
    engine.eviction = (skv_eviction){.method = SKV_EVICT_NONE};
    engine.ffn_skip.on = false;
    engine.early_exit = 0;
    engine.adapters = NULL;
    engine.speculation = (skv_speculation){.source = SKV_DRAFT_NONE};
    engine.draft_model = NULL;
    engine.mtp = false;
    engine.pruning = (skv_pruning){.kind = SKV_PRUNE_NONE};
    engine.prefill = SKV_PREFILL_AUTO;
    if (teacher) engine.prefill = predicts ? SKV_PREFILL_FULL : SKV_PREFILL_TEACHER;
    *reference = (cli_model){.path = teacher ? model->path : options->reference};
    return cli_model_start(reference, &engine);
}

/* Without the folders before it. */
static const char *short_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] != 0 ? slash + 1 : path;
}

static int run(const cli_options *options, const cli_model *model, const cli_model *reference)
{
    skv_error err = {0};
    skv_eval_report *report = NULL;
    cli_progress progress;
    cli_progress_begin(&progress, "evaluating");
    skv_eval_options how = cli_eval_how(options);
    how.reference = reference->engine;
    how.reference_path = reference->path;
    how.progress = cli_progress_items;
    how.user = &progress;
    cli_interrupt_watch(options->interrupt, model->engine);
    const skv_status status =
        skv_eval_run(model->engine, model->vocab, model->path, &how, &report, &err);
    cli_interrupt_unwatch(options->interrupt);
    cli_progress_end(&progress);
    if (status != SKV_OK) {
        return cli_interrupt_check(status, &err,
                                   options->log_file
                                       ? "run the same command with --resume to continue"
                                       : "with --log FILE, --resume could continue from here");
    }
    if (options->json) {
        cli_eval_print_json(model, options, report);
    } else {
        cli_eval_print_table(report);
    }
    const int drawn = options->svg_file
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
    if (status == CLI_DONE) status = cli_eval_start(options, &model);
    if (status == CLI_DONE) cli_note_length(&model, "--ctx", options->context);
    if (status == CLI_DONE) status = start_reference(options, &model, &reference);
    if (status == CLI_DONE) status = run(options, &model, &reference);
    cli_model_close(&reference);
    cli_model_close(&model);
    return status;
}
