/* The model as asked for, or with --compare the unmodified one beside its SwiftKV forms. */
#include "bench.h"

#include <stdio.h>

static int init_variant(const cli_options *o, bench_variant *v)
{
    *v = (bench_variant){.options = *o};
    if (o->replay) v->options.speculation.sure = 0; /* the record determines where drafts end */
    const char *prefix = o->preset ? "preset:" : "";
    const char *name = o->preset ? o->preset : o->operands[0];
    const int n = snprintf(v->path, sizeof v->path, "%s%s", prefix, name);
    if (n < 0 || (size_t)n >= sizeof v->path) {
        return cli_fail("MODEL: a path of more than %zu bytes", sizeof v->path - 1);
    }
    v->model.path = v->path;
    skv_error err = {0};
    return cli_check(skv_model_info_read(v->path, &v->model.info, &err), &err);
}

static void name_variant(const cli_options *o, bench_variant *v)
{
    if (v->model.info.kv_prediction && v->options.prefill != SKV_PREFILL_FULL) {
        snprintf(v->name, sizeof v->name, "KV Prediction");
        return;
    }
    if (v->kv_layers == v->model.info.layers) {
        snprintf(v->name, sizeof v->name, "unmodified");
        return;
    }
    int n = snprintf(v->name, sizeof v->name, "SwiftKV l=%zu", v->kv_layers);
    if (v->group > 1) {
        n += snprintf(v->name + n, sizeof v->name - (size_t)n, " g=%zu", v->group);
    }
    if (v->options.kv != o->kv) {
        snprintf(v->name + n, sizeof v->name - (size_t)n, " %s", skv_kv_name(v->options.kv));
    }
}

/* Sets the fields that the name and the counting need. Only presets take their form from the
 * options. */
static int settle_variant(const cli_options *o, bench_variant *v)
{
    if (v->options.kv_layers == 0 && v->options.exit_words != 0) {
        return cli_usage("--exit-words: needs --kv-layers");
    }
    const int status = cli_shape_preset(v->path, &v->options, &v->model.info);
    if (status != CLI_DONE) return status;
    const skv_model_info *info = &v->model.info;
    const bool as_teacher = !info->swiftkv || v->options.prefill == SKV_PREFILL_TEACHER;
    v->kv_layers = as_teacher ? info->layers : info->swiftkv_layers;
    v->group = as_teacher ? 1 : info->group;
    name_variant(o, v);
    return cli_check_methods(v->path, info, &v->options);
}

/* A SwiftKV file against its own teacher; a base against itself with an auxiliary. */
static int compare_model(const cli_options *o, bench_variant *variants, size_t *n)
{
    const bool predicts = variants[0].model.info.kv_prediction;
    if (!variants[0].model.info.swiftkv && !predicts) {
        return cli_usage("--compare: %s holds no SwiftKV weights: transform makes them, --preset "
                         "needs none",
                         variants[0].path);
    }
    if (o->prefill != SKV_PREFILL_AUTO) {
        return cli_usage("--compare: chooses --prefill itself, given '%s'",
                         skv_prefill_name(o->prefill));
    }
    variants[1] = variants[0];
    variants[1].model.path = variants[1].path;
    variants[0].options.prefill = predicts ? SKV_PREFILL_FULL : SKV_PREFILL_TEACHER;
    *n = 2;
    return CLI_DONE;
}

/* l defaults to L / 2. Without --group and --kv the last variant has half the slots, in 8 bits. */
static void compare_preset(const cli_options *o, bench_variant *variants, size_t *n)
{
    const size_t L = variants[0].model.info.layers;
    const size_t l = o->kv_layers != 0 ? o->kv_layers : (L + 1) / 2;
    for (size_t i = 1; i < BENCH_VARIANTS_MAX; i++) {
        variants[i] = variants[0];
        variants[i].model.path = variants[i].path;
        variants[i].options.kv_layers = l;
        variants[i].options.group = o->group != 0 ? o->group : i;
    }
    variants[0].options.kv_layers = 0;
    variants[0].options.group = 0;
    const bool small = o->group == 0 && o->kv == SKV_KV_AUTO && (L - l) % 2 == 0 && l < L;
    if (small) variants[2].options.kv = SKV_KV_INT8;
    *n = small ? 3 : 2;
}

int bench_plan(const cli_options *options, bench_variant *variants, size_t *n)
{
    *n = 1;
    int status = init_variant(options, &variants[0]);
    const bool own = !options->preset || variants[0].model.info.kv_prediction;
    if (status == CLI_DONE && options->compare && own) {
        status = compare_model(options, variants, n);
    } else if (status == CLI_DONE && options->compare) {
        compare_preset(options, variants, n);
    }
    for (size_t i = 0; i < *n && status == CLI_DONE; i++) {
        status = settle_variant(options, &variants[i]);
    }
    return status;
}
