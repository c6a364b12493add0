/* swiftkv transform: a model in SwiftKV form, ready for distillation. */
#include <string.h>

#include "report.h"
#include "runtime.h"

static skv_transform_options read_options(const cli_options *options)
{
    skv_transform_options out = skv_transform_options_default();
    out.keep_layers = options->keep_layers;
    out.adapters = options->adapters;
    out.exit_words = options->exit_words;
    if (options->kv_layers != 0 || out.adapters) out.kv_layers = options->kv_layers;
    if (options->group != 0) out.group = options->group;
    if (options->init && strcmp(options->init, "ridge") == 0) {
        out.init = SKV_TRANSFORM_RIDGE;
    }
    out.data = options->data.at;
    out.n_data = options->data.n;
    out.tokens = options->text_tokens;
    out.seq = options->text_seq;
    if (options->ridge >= 0) out.ridge = options->ridge;
    out.toward_zero = options->ridge_to && strcmp(options->ridge_to, "zero") == 0;
    out.threads = options->threads;
    out.cpu = options->cpu;
    out.weights = options->weights;
    return out;
}

static void print_report(const skv_transform_report *r)
{
    printf("fitted on %zu tokens, ridge %.3g: squared error of the deep layers' inputs %.1f %%, "
           "copied %.1f %%\n",
           r->tokens, r->ridge, 100 * r->ridge_error, 100 * r->copied_error);
    if (r->tokens < r->width) {
        printf("fewer tokens than the %zu columns of the model: much of the fit is the penalty's; "
               "give more text\n",
               r->width);
    }
}

static void print_cut(const char *out, const skv_model_info *after, const skv_transform_report *r)
{
    printf("%s: an exit head of %zu tokens of %zu", out, after->exit_words, after->vocab);
    if (r->counted > 0) {
        printf(", which are %.2f %% of the text's %llu",
               100 * (double)r->covered / (double)r->counted, (unsigned long long)r->counted);
    }
    putchar('\n');
}

static void print_form(const cli_options *o, const skv_model_info *before,
                       const skv_model_info *after)
{
    const char *path = o->operands[0], *out = o->operands[1];
    if (o->keep_layers) {
        printf("%s: %zu layers of %zu, %.4g million parameters of %.4g\n", out, after->layers,
               before->layers, (double)after->parameters * 1e-6, (double)before->parameters * 1e-6);
        return;
    }
    if (o->adapters && o->kv_layers == 0) {
        printf("%s: %s with %s\n", out, path, o->adapters);
        return;
    }
    if (after->swiftkv_layers == after->layers) {
        fprintf(stderr, "swiftkv: warning: --kv-layers %zu of %zu skips no layer\n",
                after->swiftkv_layers, after->layers);
    }
    if (o->kv_layers == 0) {
        printf("chosen: --kv-layers %zu of %zu\n", after->swiftkv_layers, after->layers);
    }
    printf("%s: of layers 0 to %zu, those from %zu on take their keys and values from layer %zu's "
           "output, groups of %zu: %zu KV slots for %zu\n",
           out, after->layers - 1, after->swiftkv_layers, after->swiftkv_layers - 1, after->group,
           after->kv_slots, before->kv_slots);
}

/* Defaults to half of the layers, as distill does; more if the groups do not divide. */
static int settle_layers(const cli_options *o, size_t *kv_layers)
{
    const char *path = o->operands[0];
    const bool chooses = o->kv_layers == 0 && !o->adapters && !o->keep_layers && o->exit_words == 0;
    skv_error err = {0};
    skv_model_info model;
    *kv_layers = o->kv_layers;
    if (o->kv_layers <= 1 && !chooses) return CLI_DONE;
    const int read = cli_check(skv_model_info_read(path, &model, &err), &err);
    if (read != CLI_DONE) return read;
    if (o->kv_layers > model.layers) {
        return cli_fail("%s: --kv-layers %zu, expected 1 to %zu", path, o->kv_layers, model.layers);
    }
    if (!chooses) return CLI_DONE;
    const size_t group = o->group != 0 ? o->group : 1;
    *kv_layers = model.layers > 1 ? model.layers / 2 : 1;
    while (*kv_layers < model.layers && (model.layers - *kv_layers) % group != 0) ++*kv_layers;
    return CLI_DONE;
}

int cli_run_transform(const cli_options *options)
{
    const char *path = options->operands[0], *out = options->operands[1];
    skv_error err = {0};
    size_t kv_layers;
    const int settled = settle_layers(options, &kv_layers);
    if (settled != CLI_DONE) return settled;
    skv_transform_options transform = read_options(options);
    if (kv_layers != 0) transform.kv_layers = kv_layers;
    skv_transform_report report;
    cli_progress progress;
    cli_progress_begin(&progress,
                       transform.init == SKV_TRANSFORM_RIDGE ? "reading the text" : "writing");
    transform.progress = cli_progress_share;
    transform.user = &progress;
    const skv_status done = skv_transform_run(path, out, &transform, &report, &err);
    cli_progress_end(&progress);
    int status = cli_check(done, &err);
    if (status != CLI_DONE) return status;
    skv_model_info before, after;
    status = cli_check(skv_model_info_read(path, &before, &err), &err);
    if (status == CLI_DONE) status = cli_check(skv_model_info_read(out, &after, &err), &err);
    if (status != CLI_DONE) return status;
    if (report.tokens > 0) print_report(&report);
    if (before.codes[0]) printf("%s has %s; they are written as bf16\n", path, before.codes);
    if (options->exit_words > 0) {
        print_cut(out, &after, &report);
    } else {
        print_form(options, &before, &after);
    }
    return CLI_DONE;
}
