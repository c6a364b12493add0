/* Prints the result of tune: a row a setting, and the command lines of the best. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/json_out.h"
#include "skv/combine.h"
#include "tune.h"

enum { LINE_MAX_BYTES = 4096 };

static const char *const cost_names[] = {"ttft", "kv-bytes", "total"};

/* ---- command lines ---- */

typedef struct line {
    char text[LINE_MAX_BYTES];
    size_t n;
} line;

static void put(line *l, const char *text)
{
    const int n = snprintf(l->text + l->n, sizeof l->text - l->n, "%s", text);
    if (n > 0 && (size_t)n < sizeof l->text - l->n) l->n += (size_t)n;
}

/* A word as a shell reads it back. */
static void put_word(line *l, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "/._-,:+=@%";
    if (l->n > 0) put(l, " ");
    if (word[0] != 0 && strspn(word, plain) == strlen(word)) {
        put(l, word);
        return;
    }
    put(l, "'");
    for (; *word != 0; word++) {
        const char one[] = {*word, 0};
        put(l, *word == '\'' ? "'\\''" : one);
    }
    put(l, "'");
}

static void put_option(line *l, const char *name, const char *value)
{
    if (!value) return;
    put_word(l, name);
    put_word(l, value);
}

static void put_size(line *l, const char *name, size_t value)
{
    char text[24];
    if (value == 0) return;
    snprintf(text, sizeof text, "%zu", value);
    put_option(l, name, text);
}

static void put_methods(line *l, const cli_options *o)
{
    if (o->prefill != SKV_PREFILL_AUTO) put_option(l, "--prefill", skv_prefill_name(o->prefill));
    if (o->weights != SKV_WEIGHTS_AUTO) put_option(l, "--weights", skv_weights_name(o->weights));
    if (o->kv != SKV_KV_AUTO) put_option(l, "--kv", skv_kv_name(o->kv));
    if (o->eviction.method != SKV_EVICT_NONE) {
        char how[SKV_EVICTION_TEXT];
        skv_eviction_print(&o->eviction, how);
        put_option(l, "--evict", how);
    }
    put_size(l, "--threads", o->threads);
    if (o->device) put_option(l, "--device", o->device);
    if (o->gpu_layers != CLI_NOT_GIVEN) {
        char text[24];
        snprintf(text, sizeof text, "%zu", o->gpu_layers);
        put_option(l, "--gpu-layers", text);
    }
    if (strcmp(o->cpu, "best") != 0) put_option(l, "--cpu", o->cpu);
    put_size(l, "--chunk", o->step_tokens);
}

/* Of drafts; fewer are not worth a word. */
static const double WORTH_DRAFTING = 0.1;

/* The setting as any command takes it, here with a prompt to be replaced. */
static void print_run(const tune *t, const tune_point *p, line *l)
{
    const tune_setting *how = &p->how;
    const cli_options o = tune_options_of(t, how);
    put_word(l, "swiftkv");
    put_word(l, "generate");
    put_word(l, how->path);
    put_methods(l, &o);
    if (p->drafted > WORTH_DRAFTING) put_option(l, "--speculate", "auto");
    put_option(l, "-p", "TEXT");
}

/* The setting as a server; false: a server cannot run it. */
static bool print_serve(const tune *t, const tune_point *p, line *l)
{
    const tune_setting *how = &p->how;
    const cli_options o = tune_options_of(t, how);
    const skv_engine_options engine = cli_engine_options(&o);
    skv_error err = {0};
    skv_model_info info;
    if (skv_model_info_read(how->path, &info, &err) != SKV_OK) return false;
    const skv_combination c = skv_combination_of(&info.traits, &engine, SKV_WHERE_SERVE);
    if (skv_combination_refused(&c) != SIZE_MAX) return false;
    put_word(l, "swiftkv");
    put_word(l, "serve");
    put_word(l, how->path);
    put_size(l, "--ctx", t->options->context);
    put_methods(l, &o);
    if (p->drafted > WORTH_DRAFTING) put_option(l, "--speculate", "auto");
    return true;
}

/* The evaluation that gives the same score again. */
static void print_eval(const tune *t, const tune_setting *how, line *l)
{
    const cli_options o = tune_options_of(t, how);
    put_word(l, "swiftkv");
    put_word(l, "eval");
    put_word(l, how->path);
    put_option(l, "--task", o.tasks);
    char lengths[24 * CLI_LIST_MAX] = "";
    for (size_t i = 0, n = 0; i < o.lengths.n; i++) {
        n += (size_t)snprintf(lengths + n, sizeof lengths - n, "%s%zu", i > 0 ? "," : "",
                              o.lengths.at[i]);
    }
    put_option(l, "--lengths", lengths[0] != 0 ? lengths : NULL);
    if (o.count != CLI_NOT_GIVEN) put_size(l, "--count", o.count);
    if (o.n_tokens != CLI_NOT_GIVEN) put_size(l, "-n", o.n_tokens);
    put_size(l, "--seed", (size_t)o.sampling.seed);
    put_option(l, "--prose", o.prose);
    put_option(l, "--primer", o.primer);
    if (o.no_template) put_word(l, "--no-template");
    put_size(l, "--scored", o.scored);
    put_size(l, "--ctx", o.context);
    put_methods(l, &o);
    char drafts[SKV_SPECULATION_TEXT];
    skv_speculation_print(&o.speculation, drafts);
    put_option(l, "--speculate", drafts);
}

/* ---- the table ---- */

static void name_setting(const tune_setting *how, char *out, size_t room)
{
    const char *path = how->path, *slash = strrchr(path, '/');
    char evict[SKV_EVICTION_TEXT] = "";
    if (how->eviction.method != SKV_EVICT_NONE) {
        snprintf(evict, sizeof evict, ", snapkv:%zu,%zu,%zu", how->eviction.capacity,
                 how->eviction.window, how->eviction.kernel);
    }
    snprintf(out, room, "%.32s, %s%s%s%s%s%s", slash && slash[1] != 0 ? slash + 1 : path,
             how->prefill == SKV_PREFILL_AUTO ? "as it is" : skv_prefill_name(how->prefill),
             how->weights != SKV_WEIGHTS_AUTO ? ", weights " : "",
             how->weights != SKV_WEIGHTS_AUTO ? skv_weights_name(how->weights) : "",
             how->kv != SKV_KV_AUTO ? ", kv " : "",
             how->kv != SKV_KV_AUTO ? skv_kv_name(how->kv) : "", evict);
}

static void print_header(const tune *t)
{
    (void)t;
    printf("%-52s %9s %8s %8s %10s %10s %10s %9s\n", "setting", "score", "quality", "+-",
           "first, ms", "token, ms", "KV, KiB", "drafts");
}

void tune_print_point(const tune *t, const tune_point *p)
{
    char name[160];
    name_setting(&p->how, name, sizeof name);
    if (p == &t->points[0]) print_header(t);
    const double half = (p->high - p->low) / 2;
    printf("%-52s %9.4f %8.4f ", name, p->score, p->quality);
    if (isfinite(half)) {
        printf("%8.4f", half);
    } else {
        printf("%8s", "");
    }
    printf(" %10.2f %10.3f %10.0f", p->ttft_ms, p->token_ms, (double)p->kv_bytes / 1024);
    if (isfinite(p->drafted)) {
        printf(" %7.1f %%", 100 * p->drafted);
    } else {
        printf(" %9s", "");
    }
    printf("%s\n", p->keeps ? "" : "  below the floor");
    fflush(stdout);
}

/* How much is known of the quality of the best. */
static void print_certainty(const tune *t, const tune_point *best)
{
    const double half = (best->high - best->low) / 2;
    if (isnan(half)) {
        printf("Too few examples for a confidence interval: %zu (--count asks more).\n",
               t->n_examples);
        return;
    }
    printf("By %zu examples, asked of both, the quality is known to +-%.4f (95 %%)%s\n",
           t->n_examples, half,
           best->low < t->options->floor ? ": more of them (--count) would tell better." : ".");
}

/* More than this is a machine that does something else, or did. */
static const double QUIET = 1.25;

/* Prints the lengths of the examples and of the timing, and the quality of the times. */
static void print_lengths(const tune *t)
{
    const double first = t->points[0].cost, now = t->again.cost;
    if (t->asked > 0) printf("Asked: prompts of %zu tokens on average. ", t->asked);
    printf("Timed: a prompt of %zu tokens and %zu tokens after it, median of %zu.\n", t->prompt,
           t->gen, t->options->repeat);
    if (now > 0 && (now > QUIET * first || first > QUIET * now)) {
        printf("The plain model took %.2f ms at the beginning and %.2f ms at the end: the machine "
               "was not quiet,\nso another setting may be the cheapest.\n",
               first, now);
    }
}

void tune_print_result(const tune *t)
{
    const tune_point *plain = &t->points[0], *best = tune_best(t);
    line run = {.n = 0}, eval = {.n = 0}, serve = {.n = 0};
    print_run(t, best, &run);
    print_eval(t, &best->how, &eval);
    const bool serves = print_serve(t, best, &serve);
    const char *of = t->cost == TUNE_COST_KV_BYTES ? "memory" : "time";
    if (best == plain) {
        printf("\nNothing cheaper keeps %g of the plain model's %s: the plain model.\n",
               t->options->floor, t->metric);
    } else {
        printf(
            "\nThe cheapest setting that keeps %g of the plain model's %s: %.4f of it, at %.0f %% "
            "of its %s.\n",
            t->options->floor, t->metric, best->quality, 100 * best->cost / plain->cost, of);
        print_certainty(t, best);
    }
    print_lengths(t);
    printf("\n");
    if (serves) printf("  %s\n", serve.text);
    printf("  %s\n  %s\n", run.text, eval.text);
}

/* ---- JSON ---- */

static void put_point(const tune *t, skv_json_out *json, const tune_point *p)
{
    char how[SKV_EVICTION_TEXT];
    line run = {.n = 0}, eval = {.n = 0}, serve = {.n = 0};
    skv_eviction_print(&p->how.eviction, how);
    const bool serves = print_serve(t, p, &serve);
    print_run(t, p, &run);
    print_eval(t, &p->how, &eval);
    skv_json_out_open(json, '{');
    skv_json_out_put_text(json, "model", p->how.path);
    skv_json_out_put_text(json, "prefill", skv_prefill_name(p->how.prefill));
    skv_json_out_put_text(json, "weights", skv_weights_name(p->how.weights));
    skv_json_out_put_text(json, "kv", skv_kv_name(p->how.kv));
    skv_json_out_put_text(json, "evict", how);
    skv_json_out_put_number(json, "score", p->score);
    skv_json_out_put_number(json, "quality", p->quality);
    skv_json_out_put_number(json, "low", p->low);
    skv_json_out_put_number(json, "high", p->high);
    skv_json_out_put_number(json, "ttft_ms", p->ttft_ms);
    skv_json_out_put_number(json, "token_ms", p->token_ms);
    skv_json_out_put_integer(json, "kv_bytes", p->kv_bytes);
    skv_json_out_put_number(json, "drafted", p->drafted);
    skv_json_out_put_number(json, "cost", p->cost);
    skv_json_out_put_bool(json, "keeps", p->keeps);
    skv_json_out_put_text(json, "serve", serves ? serve.text : NULL);
    skv_json_out_put_text(json, "run", run.text);
    skv_json_out_put_text(json, "eval", eval.text);
    skv_json_out_close(json, '}');
}

void tune_print_json(const tune *t)
{
    const tune_point *best = tune_best(t);
    skv_json_out json = {.stream = stdout};
    skv_json_out_open(&json, '{');
    skv_json_out_put_text(&json, "model", t->options->operands[0]);
    skv_json_out_put_number(&json, "floor", t->options->floor);
    skv_json_out_put_text(&json, "cost", cost_names[t->cost]);
    skv_json_out_put_text(&json, "metric", t->metric);
    skv_json_out_put_integer(&json, "n", t->n_examples);
    skv_json_out_put_integer(&json, "asked", t->asked);
    skv_json_out_put_integer(&json, "prompt", t->prompt);
    skv_json_out_put_integer(&json, "gen", t->gen);
    if (t->again.cost > 0) skv_json_out_put_number(&json, "plain_cost_again", t->again.cost);
    skv_json_out_put_bool(&json, "found", best != &t->points[0]);
    skv_json_out_key(&json, "best");
    put_point(t, &json, best);
    skv_json_out_put_open(&json, "settings", '[');
    for (size_t i = 0; i < t->n_points; i++) put_point(t, &json, &t->points[i]);
    skv_json_out_close(&json, ']');
    skv_json_out_close(&json, '}');
    putchar('\n');
}
