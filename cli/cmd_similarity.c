/* swiftkv similarity: SimScore of every layer (arXiv:2410.03960, equation 1), as table and chart.
 */
#include <stdlib.h>

#include "common/chart.h"
#include "common/json_out.h"
#include "report.h"
#include "runtime.h"

static int measure(const cli_options *options, cli_model *model, const cli_ids *ids, double *scores)
{
    skv_engine_options engine = cli_engine_options(options);
    engine.no_skip = true;
    if (engine.context == 0 && ids->n < model->info.context) engine.context = ids->n;
    int status = cli_model_start(model, &engine);
    if (status != CLI_DONE) return status;
    cli_note_length(model, "--ctx", engine.context);
    skv_error err = {0};
    cli_progress progress;
    cli_progress_begin(&progress, "reading the text");
    const skv_similarity_text text = {
        .ids = ids->at, .n = ids->n, .progress = cli_progress_tokens, .user = &progress};
    cli_interrupt_watch(options->interrupt, model->engine);
    const skv_status done = skv_similarity(model->engine, &text, scores, &err);
    cli_interrupt_unwatch(options->interrupt);
    cli_progress_end(&progress);
    return cli_interrupt_check(done, &err, "");
}

static void print_json(const cli_model *model, const cli_ids *ids, const double *scores)
{
    const size_t n = model->info.layers - 1;
    skv_json_out json = {.stream = stdout};
    skv_json_out_open(&json, '{');
    skv_json_out_put_integer(&json, "layers", model->info.layers);
    skv_json_out_put_integer(&json, "tokens", ids->n);
    skv_json_out_put_open(&json, "simscore", '[');
    for (size_t i = 0; i < n; i++) skv_json_out_number(&json, scores[i]);
    skv_json_out_close(&json, ']');
    skv_json_out_close(&json, '}');
    putchar('\n');
}

static void print_table(const cli_model *model, const double *scores)
{
    printf("layer  SimScore\n");
    for (size_t i = 0; i + 1 < model->info.layers; i++) printf("%5zu  %8.4f\n", i, scores[i]);
}

static int draw(const cli_options *options, const cli_model *model, const cli_ids *ids,
                const double *scores)
{
    char title[192];
    snprintf(title, sizeof title, "Similarity of layer inputs to all later ones, %zu tokens",
             ids->n);
    const skv_series line = {.y = scores, .n = model->info.layers - 1};
    const skv_panel panel = {.y_label = "mean cosine similarity", .series = &line, .n_series = 1};
    const skv_chart chart = {.title = "SimScore by layer",
                             .subtitle = title,
                             .x_label = "layer",
                             .panels = &panel,
                             .n_panels = 1};
    skv_error err = {0};
    return cli_check(skv_chart_write(options->svg_file, &chart, &err), &err);
}

int cli_run_similarity(const cli_options *options)
{
    cli_model model = {0};
    cli_bytes text = {0};
    cli_ids ids = {0};
    double *scores = NULL;
    int status = cli_model_describe_text(&model, options);
    if (status == CLI_DONE) status = cli_read_file(options->text_file, &text);
    if (status == CLI_DONE) status = cli_check_text(options->text_file, &text);
    if (status == CLI_DONE) status = cli_encode(&model, &text, true, false, &ids);
    if (status == CLI_DONE && ids.n == 0) status = cli_fail("%s: empty", options->text_file);
    if (status == CLI_DONE && model.info.layers < 2) {
        status = cli_fail("%s: %zu layers are too few to compare", model.path, model.info.layers);
    }
    if (status == CLI_DONE) {
        scores = cli_alloc(model.info.layers, sizeof *scores);
        status = measure(options, &model, &ids, scores);
    }
    if (status == CLI_DONE && options->svg_file) {
        status = draw(options, &model, &ids, scores);
    }
    if (status == CLI_DONE && options->json) {
        print_json(&model, &ids, scores);
    } else if (status == CLI_DONE) {
        print_table(&model, scores);
    }
    free(scores);
    cli_ids_release(&ids);
    cli_bytes_release(&text);
    cli_model_close(&model);
    return status;
}
