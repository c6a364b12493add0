/* One setting of tune: its quality by the machinery of eval, its times by that of bench. */
#include <math.h>
#include <stdlib.h>

#include "bench.h"
#include "evaluation.h"
#include "report.h"
#include "tune.h"

/* A quarter of a window is scored, at most 256 tokens; the part before is a prompt. */
enum { WARM_UP_TOKENS = 2, LENGTH_DEFAULT = 512, SCORED_MAX = 256, SCORED_PART = 4 };
static const double CONFIDENCE = 1.959963984540054; /* of the normal distribution, 95 % */

/* Drafts do not change scores, and every model has this source. */
static const skv_speculation usual_drafts = {.source = SKV_DRAFT_TEXT, .most = 4};

cli_options tune_options_of(const tune *t, const tune_setting *how)
{
    cli_options out = *t->options;
    out.command = CLI_EVAL;
    out.operands[0] = how->path;
    out.prefill = how->prefill;
    out.weights = how->weights;
    out.kv = how->kv;
    out.eviction = how->eviction;
    if (out.speculation.source == SKV_DRAFT_NONE) out.speculation = usual_drafts;
    if (!out.text_file) return out;
    out.tasks = out.text_file;
    if (out.context == 0) out.context = t->context;
    const size_t part = out.context / SCORED_PART;
    if (out.scored == 0) out.scored = part < SCORED_MAX ? part : SCORED_MAX;
    return out;
}

/* ---- quality ---- */

/* Sums over the examples of a report and the plain model's, one by one. */
typedef struct paired {
    double own, plain; /* means of the tasks */
    double variance;   /* of own - quality * plain, for shares; of the difference, for nats */
    size_t n;
    bool fits; /* both have the same examples */
} paired;

static bool same_examples(const skv_eval_task *a, const skv_eval_task *b)
{
    if (a->n_values != b->n_values || a->n_values == 0) return false;
    for (size_t i = 0; i < a->n_values; i++) {
        if (a->values[i].index != b->values[i].index) return false;
    }
    return true;
}

static double mean_of(const skv_eval_task *task)
{
    double sum = 0, weight = 0;
    for (size_t i = 0; i < task->n_values; i++) {
        sum += task->values[i].sum;
        weight += task->values[i].weight;
    }
    return weight > 0 ? sum / weight : 0;
}

static double weight_of(const skv_eval_task *task)
{
    double weight = 0;
    for (size_t i = 0; i < task->n_values; i++) weight += task->values[i].weight;
    return weight;
}

/* Whether a task counts for the quality: shares or, if there are none, perplexities. */
static bool counts(const tune *t, const skv_eval_task *task)
{
    return task->n_estimates > 0 && task->estimates[0].is_share != t->less_is_better;
}

static paired add_up(const tune *t, const skv_eval_report *report)
{
    paired out = {.fits = report->n_tasks == t->plain->n_tasks};
    size_t n_tasks = 0;
    for (size_t i = 0; i < report->n_tasks && out.fits; i++) {
        const skv_eval_task *own = &report->tasks[i], *plain = &t->plain->tasks[i];
        if (!counts(t, plain)) continue;
        out.fits = same_examples(own, plain);
        out.own += mean_of(own);
        out.plain += mean_of(plain);
        out.n += own->n_values;
        n_tasks++;
    }
    out.own /= (double)n_tasks;
    out.plain /= (double)n_tasks;
    return out;
}

/* Adds the error of a ratio of sums, from each example's deviation (the delta method). */
static void add_variance(const tune *t, const skv_eval_report *report, paired *p)
{
    size_t n_tasks = 0;
    for (size_t i = 0; i < report->n_tasks; i++) n_tasks += counts(t, &t->plain->tasks[i]);
    for (size_t i = 0; i < report->n_tasks; i++) {
        const skv_eval_task *own = &report->tasks[i], *plain = &t->plain->tasks[i];
        if (!counts(t, plain)) continue;
        const double weight = weight_of(plain) * (double)n_tasks;
        const double shift = t->less_is_better ? mean_of(own) - mean_of(plain) : 0;
        const double ratio = t->less_is_better ? 1 : p->own / p->plain;
        for (size_t k = 0; k < own->n_values; k++) {
            const double off =
                own->values[k].sum - ratio * plain->values[k].sum - shift * plain->values[k].weight;
            p->variance += off * off / (weight * weight);
        }
    }
}

/*
 * The same examples were asked of both models, so only those count that came out differently. Where
 * none did, n examples still leave room for 3 / n (the rule of three).
 */
static void judge(const tune *t, const skv_eval_report *report, tune_point *out)
{
    paired p = add_up(t, report);
    out->low = out->high = (double)NAN;
    out->score = t->less_is_better ? exp(p.own) : p.own;
    out->quality = t->less_is_better ? exp(p.plain - p.own) : p.own / p.plain;
    out->keeps = t->n_points == 0 || out->quality >= t->options->floor;
    if (!p.fits || p.n < 2 || t->n_points == 0) return;
    add_variance(t, report, &p);
    const double scale = t->less_is_better ? out->quality : 1 / p.plain;
    double half = CONFIDENCE * sqrt(p.variance) * scale;
    if (half == 0) half = 3 / (double)p.n * (t->less_is_better ? 0 : scale);
    out->low = out->quality - half;
    out->high = out->quality + half;
}

/* Takes the plain model's scores, which decide the metric and the examples that count. */
static int take_plain(tune *t, skv_eval_report *report)
{
    t->plain = report;
    t->less_is_better = report->n_averaged == 0;
    for (size_t i = 0; i < report->n_tasks; i++) {
        const skv_eval_task *task = &report->tasks[i];
        if (!counts(t, task)) continue;
        if (!t->metric) t->metric = task->estimates[0].name;
        t->n_examples += task->n_values;
    }
    if (t->n_examples == 0) return cli_fail("tune: no example fits the context");
    if (t->less_is_better || report->average > 0) return CLI_DONE;
    return cli_fail(
        "tune: the unmodified model answers nothing correctly, so there is no quality to keep");
}

/* Returns the mean number of tokens in the examples' prompts; 0 if there are no prompts. */
static size_t asked_length(const tune *t)
{
    double sum = 0, n = 0;
    if (t->options->text_file) {
        const cli_options o = tune_options_of(t, &t->points[0].how);
        return o.scored < o.context ? o.context - o.scored : 0;
    }
    for (size_t i = 0; i < t->plain->n_tasks; i++) {
        for (size_t k = 0; k < t->plain->tasks[i].n_rows; k++) {
            const skv_eval_row *row = &t->plain->tasks[i].rows[k];
            sum += (double)row->length * (double)row->estimate.n;
            n += (double)row->estimate.n;
        }
    }
    return n > 0 ? (size_t)(sum / n + 0.5) : 0;
}

/* The timed lengths default to those of the examples. */
static void settle_lengths(tune *t, size_t context)
{
    t->asked = asked_length(t);
    t->gen = t->options->gen_tokens < context / 2 ? t->options->gen_tokens : context / 2;
    t->prompt = t->options->timed_prompt > 0 ? t->options->timed_prompt
                : t->asked > 0               ? t->asked
                                             : LENGTH_DEFAULT;
    if (t->prompt > context - t->gen) t->prompt = context - t->gen;
}

static int ask(tune *t, const cli_options *o, const cli_model *model, skv_eval_report **out)
{
    skv_error err = {0};
    cli_progress progress;
    char what[48];
    snprintf(what, sizeof what, "setting %zu", t->n_points + 1);
    cli_progress_begin(&progress, what);
    skv_eval_options how = cli_eval_how(o);
    how.progress = cli_progress_items;
    how.user = &progress;
    /* One log serves all settings, since its keys include them. */
    how.resume = o->log_file && (o->resume || t->n_points > 0);
    const skv_status status =
        skv_eval_run(model->engine, model->vocab, model->path, &how, out, &err);
    cli_progress_end(&progress);
    return cli_interrupt_check(status, &err,
                               o->log_file ? "run the same command with --resume to continue"
                                           : "with --log FILE, --resume could continue from here");
}

/* ---- cost ---- */

static int time_it(const tune *t, const cli_model *model, tune_point *out)
{
    bench_variant *v = cli_alloc(1, sizeof *v);
    v->model = *model;
    skv_engine_get_stats(model->engine, &v->limits);
    const bench_load load = {.prompt = t->prompt, .gen = t->gen, .batch = 1};
    bench_load warm = load;
    if (warm.gen > WARM_UP_TOKENS) warm.gen = WARM_UP_TOKENS;
    const size_t n = t->options->repeat;
    double *ttft = cli_alloc(n, sizeof *ttft), *decode = cli_alloc(n, sizeof *decode);
    bench_times times = {0};
    int status = bench_run(v, &warm, &times);
    for (size_t i = 0; i < n && status == CLI_DONE; i++) {
        status = bench_run(v, &load, &times);
        ttft[i] = times.ttft_s;
        decode[i] = times.decode_s;
    }
    out->ttft_ms = bench_median(ttft, n) * 1e3;
    out->token_ms = t->gen > 1 ? bench_median(decode, n) * 1e3 / (double)(t->gen - 1) : 0;
    out->kv_bytes = times.kv_bytes;
    switch (t->cost) {
    case TUNE_COST_TTFT: out->cost = out->ttft_ms; break;
    case TUNE_COST_KV_BYTES: out->cost = (double)out->kv_bytes; break;
    case TUNE_COST_TOTAL: out->cost = out->ttft_ms + (double)(t->gen - 1) * out->token_ms; break;
    }
    free(ttft);
    free(decode);
    free(v);
    return status;
}

static int measure_open(tune *t, const cli_options *o, const cli_model *model, tune_point *out)
{
    skv_eval_report *report = NULL;
    skv_engine_stats stats;
    const bool first = !t->plain;
    skv_engine_get_stats(model->engine, &stats);
    cli_interrupt_attach(o->interrupt, model->engine);
    int status = ask(t, o, model, &report);
    if (status == CLI_DONE && first) status = take_plain(t, report);
    if (status == CLI_DONE && first) settle_lengths(t, stats.context);
    if (status == CLI_DONE) {
        judge(t, report, out);
        const uint64_t n = report->generated;
        out->drafted = n > 0 ? (double)report->drafts.accepted / (double)n : (double)NAN;
        status = time_it(t, model, out);
    }
    cli_interrupt_attach(o->interrupt, NULL);
    if (status == CLI_DONE && cli_interrupted(o->interrupt)) status = cli_fail("interrupted");
    if (report != t->plain) skv_eval_report_free(report);
    return status;
}

int tune_time_again(tune *t)
{
    cli_model model = {0};
    const cli_options o = tune_options_of(t, &t->points[0].how);
    if (t->cost == TUNE_COST_KV_BYTES || cli_interrupted(o.interrupt)) return CLI_DONE;
    int status = cli_model_describe_text(&model, &o);
    if (status == CLI_DONE) status = cli_eval_start(&o, &model);
    if (status == CLI_DONE) {
        cli_interrupt_attach(o.interrupt, model.engine);
        status = time_it(t, &model, &t->again);
        cli_interrupt_attach(o.interrupt, NULL);
    }
    cli_model_close(&model);
    return status;
}

int tune_measure(tune *t, const tune_setting *how)
{
    cli_model model = {0};
    cli_options o = tune_options_of(t, how);
    tune_point point = {.how = *how};
    if (cli_interrupted(o.interrupt)) return cli_fail("interrupted");
    int status = cli_model_describe_text(&model, &o);
    if (status == CLI_DONE) status = cli_eval_start(&o, &model);
    if (status == CLI_DONE) status = measure_open(t, &o, &model, &point);
    if (status == CLI_DONE) t->points[t->n_points++] = point;
    cli_model_close(&model);
    return status;
}

/* ---- which costs least ---- */

/* The minimum gain, since times vary from run to run. */
static const double GAIN = 0.99;

bool tune_is_cheaper(const tune_point *a, const tune_point *b)
{
    return a->cost < GAIN * b->cost;
}

const tune_point *tune_best(const tune *t)
{
    const tune_point *best = &t->points[0];
    for (size_t i = 1; i < t->n_points; i++) {
        const tune_point *p = &t->points[i];
        if (p->keeps && tune_is_cheaper(p, best)) best = p;
    }
    return best;
}
