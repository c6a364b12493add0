/* Memory plans as the user reads them: see memory_plan.h. The library counts. */
#include "memory_plan.h"

#include <stdarg.h>
#include <string.h>

#include "runtime.h"

static double mib(size_t n_bytes)
{
    return (double)n_bytes / 1048576;
}

static skv_engine_options engine_options(const char *path, const cli_options *o)
{
    skv_engine_options out = cli_engine_options(o);
    out.context = o->cost_context;
    out.team = NULL;
    if (!cli_preset_of(path)) out.preset_kv_layers = out.preset_group = 0;
    return out;
}

/* ---- the rows ---- */

/* A row of these types; one that the model cannot have is left out. */
static void add_row(const char *path, const cli_options *o, skv_engine_options engine,
                    skv_weights weights, skv_kv kv, cli_memory *out)
{
    engine.weights = weights;
    engine.kv = kv;
    skv_memory_plan *row = &out->rows[out->n];
    if (out->n == CLI_MEMORY_ROWS) return;
    if (skv_memory_plan_make(path, &engine, o->available, row, NULL) == SKV_OK) out->n++;
}

static size_t choose(const cli_memory *m)
{
    for (size_t i = m->i_own; i < m->n; i++) {
        if (m->rows[i].fits) return i;
    }
    return SIZE_MAX;
}

/* Counts the teacher's weights that serve and compare load beside a student that has them. */
static size_t count_teacher(const char *path, const skv_engine_options *engine,
                            const skv_model_info *info, const skv_memory_plan *own)
{
    skv_memory_plan both;
    skv_engine_options options = *engine;
    options.with_teacher = true;
    if (!info->swiftkv || info->kv_prediction) return 0;
    if (skv_memory_plan_make(path, &options, own->available, &both, NULL) != SKV_OK) return 0;
    return both.weight_bytes > own->weight_bytes ? both.weight_bytes - own->weight_bytes : 0;
}

/* Of the answers of a hybrid model, and of what the prefix cache keeps. */
static size_t count_states(const char *path, const skv_engine_options *engine,
                           const skv_model_info *info)
{
    skv_memory_plan plan;
    skv_engine_options options = *engine;
    options.kv_sequences = CLI_SERVE_STATES;
    options.kv_checkpoints = CLI_SERVE_CHECKPOINTS * CLI_SERVE_STATES;
    if (info->state_layers == 0) return 0;
    return skv_memory_plan_make(path, &options, 0, &plan, NULL) == SKV_OK ? plan.state_bytes : 0;
}

skv_status cli_memory_plan(const char *path, const cli_options *options, const skv_model_info *info,
                           cli_memory *out, skv_error *err)
{
    static const skv_weights types[] = {SKV_WEIGHTS_F32, SKV_WEIGHTS_FILE, SKV_WEIGHTS_BF16,
                                        SKV_WEIGHTS_FP8, SKV_WEIGHTS_INT8, SKV_WEIGHTS_INT4};
    const skv_engine_options engine = engine_options(path, options);
    skv_memory_plan own;
    *out = (cli_memory){.i_own = SIZE_MAX, .context = info->context};
    const skv_status status = skv_memory_plan_make(path, &engine, options->available, &own, err);
    if (status != SKV_OK) return status;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        const bool is_own = types[i] == own.weights;
        if (types[i] == SKV_WEIGHTS_FILE && !is_own) continue; /* it has no codes */
        const size_t i_first = out->n;
        add_row(path, options, engine, types[i], options->kv, out);
        if (is_own && out->n > i_first) out->i_own = i_first;
        if (out->n == i_first || options->kv != SKV_KV_AUTO) continue;
        if (out->rows[i_first].kv == SKV_KV_INT8) continue;
        add_row(path, options, engine, types[i], SKV_KV_INT8, out);
    }
    if (out->i_own == SIZE_MAX) return skv_memory_plan_make(path, &engine, 0, &own, err);
    out->i_chosen = choose(out);
    out->teacher_bytes = count_teacher(path, &engine, info, &own);
    out->states_bytes = count_states(path, &engine, info);
    return SKV_OK;
}

/* ---- text ---- */

/* The longest sequence that fits and that the model takes. */
static size_t longest(const cli_memory *m, const skv_memory_plan *row)
{
    return row->context_max < m->context ? row->context_max : m->context;
}

/* Writes "--weights int8 --kv int8", leaving out defaults. */
static void types_text(const cli_memory *m, const skv_memory_plan *row, char *out, size_t size)
{
    const skv_memory_plan *own = &m->rows[m->i_own];
    size_t i_plain = 0; /* the first row with these weights has their own type of KV */
    while (m->rows[i_plain].weights != row->weights) i_plain++;
    const bool weights = row->weights != own->weights, kv = row->kv != m->rows[i_plain].kv;
    (void)snprintf(out, size, "%s%s%s%s%s", weights ? "--weights " : "",
                   weights ? skv_weights_name(row->weights) : "", weights && kv ? " " : "",
                   kv ? "--kv " : "", kv ? skv_kv_name(row->kv) : "");
}

static void print_row(const cli_memory *m, size_t i)
{
    const skv_memory_plan *row = &m->rows[i];
    const bool is_own = row->weights == m->rows[m->i_own].weights;
    printf("  %-4s%s %10.1f   %-4s %10.1f %10.1f %11.1f  %-4s", skv_weights_name(row->weights),
           is_own ? "*" : " ", mib(row->weight_bytes), skv_kv_name(row->kv), mib(row->kv_bytes),
           mib(row->workspace_bytes), mib(row->needed), row->fits ? "yes" : "no");
    if (row->context_max > 0) {
        printf(" %10zu %10zu\n", longest(m, row), row->kv_tokens_max);
    } else {
        printf(" %10s %10s\n", "-", "-");
    }
}

static void print_refusal(const cli_memory *m)
{
    const skv_memory_plan *least = &m->rows[m->n - 1];
    char types[64];
    types_text(m, least, types, sizeof types);
    if (least->context_max == 0) {
        printf("nothing fits: the least, %s, needs %.0f MiB of weights and workspace\n", types,
               mib(least->weight_bytes + least->workspace_bytes));
    } else {
        printf("%zu tokens do not fit; choose %s%s--ctx %zu\n", least->context, types,
               types[0] ? " " : "", longest(m, least));
    }
}

static void print_choice(const cli_memory *m)
{
    char types[64];
    if (m->i_chosen == SIZE_MAX) {
        print_refusal(m);
        return;
    }
    const skv_memory_plan *row = &m->rows[m->i_chosen];
    types_text(m, row, types, sizeof types);
    if (types[0]) {
        printf("choose %s: the most exact that fits\n", types);
    } else {
        printf("* fits: no option is needed\n");
    }
    const bool floats = row->weights == SKV_WEIGHTS_BF16 || row->weights == SKV_WEIGHTS_F32;
    if (floats) printf("--weights int8 takes less and reads prompts faster\n");
    printf("serve keeps 4 contexts unless --kv-tokens says how many tokens, at most %zu\n",
           row->kv_tokens_max);
    if (m->teacher_bytes > 0) {
        printf("serve and compare hold the teacher too, %.1f MiB more (serve --no-teacher: not)\n",
               mib(m->teacher_bytes));
    }
    if (m->states_bytes > 0) {
        printf("serve holds states of %d answers, and %d for its prefix cache, %.1f MiB together "
               "(--max-running, --state-checkpoints)\n",
               CLI_SERVE_STATES, CLI_SERVE_CHECKPOINTS * CLI_SERVE_STATES, mib(m->states_bytes));
    }
}

void cli_memory_print(const cli_memory *m)
{
    const skv_memory_plan *own = &m->rows[m->i_own];
    printf("\nMemory in MiB to run it with %zu tokens on %zu thread%s: %.0f are available (*: "
           "without options)\n",
           own->context, own->threads, own->threads == 1 ? "" : "s", mib(own->available));
    printf("  %-16s   %-15s %10s %11s  %-4s %10s %10s\n", "weights", "keys and values", "workspace",
           "sum", "fits", "longest", "KV tokens");
    for (size_t i = 0; i < m->n; i++) print_row(m, i);
    print_choice(m);
    if (own->device_layers_max > 0) {
        printf("--gpu-layers %zu fits without another option\n", own->device_layers_max);
    }
}

void cli_memory_line(const cli_memory *m, char *out, size_t size)
{
    char types[64];
    const skv_memory_plan *row = &m->rows[m->i_chosen != SIZE_MAX ? m->i_chosen : m->n - 1];
    types_text(m, row, types, sizeof types);
    const char *weights = types[0] ? types : "as it is";
    if (m->i_chosen != SIZE_MAX) {
        (void)snprintf(out, size, "%s, contexts to %zu tokens", weights, longest(m, row));
    } else if (row->context_max > 0) {
        (void)snprintf(out, size, "%s --ctx %zu", weights, longest(m, row));
    } else {
        (void)snprintf(out, size, "does not fit: %.0f MiB with %s", mib(row->needed), weights);
    }
}

/* ---- JSON ---- */

static void put_row(skv_json_out *json, const cli_memory *m, const skv_memory_plan *row)
{
    skv_json_out_open(json, '{');
    skv_json_out_put_text(json, "weights", skv_weights_name(row->weights));
    skv_json_out_put_text(json, "kv", skv_kv_name(row->kv));
    skv_json_out_put_integer(json, "weight_bytes", row->weight_bytes);
    skv_json_out_put_integer(json, "kv_bytes", row->kv_bytes);
    skv_json_out_put_integer(json, "workspace_bytes", row->workspace_bytes);
    skv_json_out_put_integer(json, "bytes", row->needed);
    skv_json_out_put_bool(json, "fits", row->fits);
    skv_json_out_put_integer(json, "context_max", longest(m, row));
    skv_json_out_put_integer(json, "kv_tokens_max", row->kv_tokens_max);
    skv_json_out_close(json, '}');
}

void cli_memory_put(skv_json_out *json, const cli_memory *m)
{
    const skv_memory_plan *own = &m->rows[m->i_own];
    skv_json_out_put_open(json, "memory", '{');
    skv_json_out_put_integer(json, "available", own->available);
    skv_json_out_put_integer(json, "context", own->context);
    skv_json_out_put_integer(json, "threads", own->threads);
    skv_json_out_put_open(json, "plans", '[');
    for (size_t i = 0; i < m->n; i++) put_row(json, m, &m->rows[i]);
    skv_json_out_close(json, ']');
    skv_json_out_put_integer(json, "own", m->i_own);
    skv_json_out_key(json, "chosen");
    if (m->i_chosen == SIZE_MAX) {
        skv_json_out_null(json);
    } else {
        skv_json_out_integer(json, (int64_t)m->i_chosen);
    }
    if (own->device_layers_max > 0) {
        skv_json_out_put_integer(json, "gpu_layers_max", own->device_layers_max);
    }
    if (m->teacher_bytes > 0) skv_json_out_put_integer(json, "teacher_bytes", m->teacher_bytes);
    if (m->states_bytes > 0) skv_json_out_put_integer(json, "states_bytes", m->states_bytes);
    skv_json_out_close(json, '}');
}

/* ---- refusals ---- */

typedef struct advice {
    char text[256];
    size_t n;
} advice;

static void CLI_PRINTF(2, 3) add(advice *a, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(a->text + a->n, sizeof a->text - a->n, format, args);
    va_end(args);
    if (n > 0 && (size_t)n < sizeof a->text - a->n) a->n += (size_t)n;
}

/* How many tokens fit by that option. */
static size_t tokens_of(const skv_memory_plan *plan, const char *option)
{
    if (!option) return 0;
    return strcmp(option, "--ctx") == 0 ? plan->context_max : plan->kv_tokens_max;
}

/* The first smaller type that fits; where none does and nothing else was advised, the one that does
 * with fewer tokens. */
static void add_weights(advice *a, const char *path, const skv_engine_options *options,
                        const char *tokens, const skv_memory_plan *plan)
{
    static const skv_weights smaller[] = {SKV_WEIGHTS_INT8, SKV_WEIGHTS_INT4};
    for (size_t i = 0; i < sizeof smaller / sizeof smaller[0]; i++) {
        skv_engine_options with = *options;
        skv_memory_plan other;
        with.weights = smaller[i];
        if (skv_memory_plan_make(path, &with, 0, &other, NULL) != SKV_OK) continue;
        if (other.weight_bytes >= plan->weight_bytes) continue;
        const size_t n = tokens_of(&other, tokens);
        const char *name = skv_weights_name(smaller[i]);
        if (other.fits) {
            add(a, "%s--weights %s", a->n > 0 ? ", or " : "", name);
            return;
        }
        if (a->n == 0 && n > 0) add(a, "--weights %s %s %zu", name, tokens, n);
    }
}

void cli_memory_advise(const char *path, const skv_engine_options *options, const char *tokens,
                       skv_error *err)
{
    skv_memory_plan plan;
    advice a = {.n = 0};
    if (options->team || skv_memory_plan_make(path, options, 0, &plan, NULL) != SKV_OK) return;
    if (plan.fits) return; /* something else was too large, or memory came back meanwhile */
    if (tokens_of(&plan, tokens) > 0) add(&a, "%s %zu", tokens, tokens_of(&plan, tokens));
    if (plan.device_layers_max > 0) {
        add(&a, "%s--gpu-layers %zu", a.n > 0 ? ", or " : "", plan.device_layers_max);
    }
    add_weights(&a, path, options, tokens, &plan);
    const size_t n = strlen(err->text);
    (void)snprintf(err->text + n, sizeof err->text - n, "%s%s",
                   a.n > 0 ? "; what fits: " : "; no smaller weights fit", a.text);
}
