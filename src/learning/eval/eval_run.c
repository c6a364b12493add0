/* A run over all tasks: see skv/eval.h. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "eval/eval_log.h"
#include "eval/metric.h"
#include "eval/runner.h"
#include "eval/task_source.h"

enum {
    TASKS_MAX = 256,
    BINS_MAX = 100,
    BINS_DEFAULT = 10,
    CONTEXT_MIN = 8,
    /* Examples between two reports to the log: the most that a killed run has to repeat. */
    AGREE_BATCH = 8
};

typedef struct run {
    skv_engine *engine;
    const skv_eval_options *options;
    const char *model;
    skv_eval_prompter prompter;
    skv_eval_runner runner;
    skv_eval_maker maker;
    skv_eval_log log;
    uint64_t settings; /* hash of the settings that all examples share */
    size_t context;
} run;

/* A task under way. */
typedef struct task_run {
    run *all;
    const skv_task_source *source;
    skv_eval_task *task;
    skv_eval_points points;
    size_t done;
    /* The batch that is being filled. */
    skv_eval_example batch[SKV_EVAL_BATCH_MAX];
    uint64_t keys[SKV_EVAL_BATCH_MAX];
    size_t n_batch, n_blocks;
} task_run;

skv_eval_options skv_eval_options_default(void)
{
    return (skv_eval_options){.depth_bins = BINS_DEFAULT};
}

/* ---- one batch ---- */

static skv_status keep_point(task_run *t, const skv_eval_point *point, bool skipped, skv_error *err)
{
    t->done++;
    if (skipped) {
        t->task->n_skipped++;
        return SKV_OK;
    }
    t->task->n++;
    return skv_eval_points_add(&t->points, point, err);
}

static skv_status finish_example(task_run *t, skv_eval_example *e, uint64_t key, skv_error *err)
{
    run *all = t->all;
    if (!e->skipped) SKV_TRY(skv_eval_judge(&all->prompter, e, err));
    if (!e->skipped && all->options->reference) {
        SKV_TRY(skv_eval_agree(all->engine, all->options->reference, e, err));
    }
    skv_eval_point point = {.index = e->index, .length = e->length, .depth = e->depth};
    memcpy(point.values, e->values, sizeof point.values);
    SKV_TRY(keep_point(t, &point, e->skipped, err));
    return skv_eval_log_add(&all->log, key, t->source->name, e, err);
}

static void clear_batch(task_run *t)
{
    for (size_t i = 0; i < t->n_batch; i++) skv_eval_example_release(&t->batch[i]);
    t->n_batch = t->n_blocks = 0;
}

static skv_status run_batch(task_run *t, skv_error *err)
{
    skv_eval_example *asked[SKV_EVAL_BATCH_MAX];
    size_t n = 0;
    for (size_t i = 0; i < t->n_batch; i++) {
        if (!t->batch[i].skipped) asked[n++] = &t->batch[i];
    }
    SKV_TRY(skv_eval_runner_run(&t->all->runner, asked, n, err));
    for (size_t i = 0; i < t->n_batch; i++) {
        SKV_TRY(finish_example(t, &t->batch[i], t->keys[i], err));
    }
    clear_batch(t);
    const skv_eval_options *o = t->all->options;
    if (o->progress) o->progress(o->user, t->source->name, t->done, t->source->n);
    return SKV_OK;
}

/* ---- one task ---- */

/* Takes the results that are already in the log; *found tells whether there are any. */
static skv_status take_logged(task_run *t, size_t i, uint64_t key, bool *found, skv_error *err)
{
    const skv_eval_entry *entry = skv_eval_log_find(&t->all->log, key);
    *found = entry;
    if (!entry) return SKV_OK;
    skv_eval_point point = {.index = i, .length = entry->length, .depth = entry->depth};
    memcpy(point.values, entry->values, sizeof point.values);
    if (!entry->skipped) t->task->n_resumed++;
    return keep_point(t, &point, entry->skipped, err);
}

static skv_status add_example(task_run *t, size_t i, skv_error *err)
{
    run *all = t->all;
    skv_eval_example *e = &t->batch[t->n_batch];
    skv_eval_example_init(e, i);
    skv_status status = t->source->make(t->source, &all->maker, i, e, err);
    skv_eval_hash hash = {all->settings};
    if (status == SKV_OK) {
        skv_eval_hash_text(&hash, t->source->name);
        skv_eval_hash_example(&hash, e);
    }
    bool found = false;
    if (status == SKV_OK) status = take_logged(t, i, hash.value, &found, err);
    if (status != SKV_OK || found) {
        skv_eval_example_release(e);
        return status;
    }
    const size_t n_right = e->right.n; /* a reference reads all of it */
    e->skipped = skv_max_size(skv_eval_tokens(e), n_right) > all->context;
    t->keys[t->n_batch++] = hash.value;
    t->n_blocks += e->skipped ? 0 : skv_eval_blocks(&all->runner, e);
    const size_t most = all->options->reference ? AGREE_BATCH : SKV_EVAL_BATCH_MAX;
    const size_t room = skv_eval_runner_blocks(&all->runner);
    return t->n_batch == most || t->n_blocks > room / 2 ? run_batch(t, err) : SKV_OK;
}

static skv_status run_task(run *all, const skv_task_source *source, skv_eval_task *task,
                           skv_error *err)
{
    task_run *t = skv_alloc_zero(1, sizeof *t);
    SKV_REQUIRE(t, err, SKV_MEMORY, "%s: no memory", source->name);
    t->all = all;
    t->source = source;
    t->task = task;
    skv_status status = SKV_OK;
    if (all->options->progress) {
        all->options->progress(all->options->user, source->name, 0, source->n);
    }
    for (size_t i = 0; i < source->n && status == SKV_OK; i++) status = add_example(t, i, err);
    if (status == SKV_OK) status = run_batch(t, err);
    clear_batch(t);
    task->format = source->format;
    task->name = skv_strndup(source->name, strlen(source->name));
    if (status == SKV_OK && !task->name) status = skv_fail(err, SKV_MEMORY, "no memory");
    if (status == SKV_OK) {
        status = skv_eval_report_fill(task, &t->points, all->options->depth_bins,
                                      source->n_lengths > 0, err);
    }
    skv_free(t->points.at);
    skv_free(t);
    return status;
}

/* ---- the list of tasks ---- */

typedef struct task_names {
    char *at[TASKS_MAX]; /* owned */
    size_t n;
} task_names;

static skv_status add_name(task_names *names, const char *text, size_t n, skv_error *err)
{
    SKV_REQUIRE(n > 0, err, SKV_ARGUMENT, "task: an empty name in the list");
    SKV_REQUIRE(names->n < TASKS_MAX, err, SKV_RANGE, "task: more than %d", TASKS_MAX);
    char *name = skv_strndup(text, n);
    SKV_REQUIRE(name, err, SKV_MEMORY, "task: no memory");
    names->at[names->n++] = name;
    return SKV_OK;
}

static skv_status split_names(task_names *names, const char *text, skv_error *err)
{
    for (const char *item = text;; item++) {
        const size_t n = strcspn(item, ",");
        const bool all = n == 3 && memcmp(item, "all", 3) == 0;
        for (size_t i = 0; all && skv_task_source_own(i); i++) {
            const char *own = skv_task_source_own(i);
            SKV_TRY(add_name(names, own, strlen(own), err));
        }
        if (!all) SKV_TRY(add_name(names, item, n, err));
        item += n;
        if (*item == 0) return SKV_OK;
    }
}

/* ---- a run ---- */

/* Tokens, blocks and layers that are left out, where any are. */
static void hash_left_out(skv_eval_hash *hash, const skv_engine_stats *stats)
{
    if (stats->pruning.kind != SKV_PRUNE_NONE) {
        skv_eval_hash_add(hash, &stats->pruning.kind, sizeof stats->pruning.kind);
        skv_eval_hash_add(hash, &stats->pruning.keep, sizeof stats->pruning.keep);
        skv_eval_hash_add(hash, &stats->pruning.end, sizeof stats->pruning.end);
    }
    if (stats->ffn_skip.on) {
        char how[SKV_FFN_SKIP_TEXT];
        skv_ffn_skip_print(&stats->ffn_skip, how);
        skv_eval_hash_text(hash, how);
    }
    if (stats->early_exit > 0) {
        skv_eval_hash_add(hash, &stats->early_exit, sizeof stats->early_exit);
    }
}

static uint64_t hash_settings(const run *r)
{
    skv_engine_stats stats;
    skv_engine_get_stats(r->engine, &stats);
    skv_eval_hash hash = skv_eval_hash_begin();
    skv_eval_hash_text(&hash, r->model);
    skv_eval_hash_files(&hash, r->model);
    skv_eval_hash_text(&hash, skv_weights_name(stats.weights));
    skv_eval_hash_text(&hash, skv_kv_name(stats.kv));
    skv_eval_hash_text(&hash, skv_prefill_name(stats.prefill));
    if (stats.eviction.method != SKV_EVICT_NONE) {
        char how[SKV_EVICTION_TEXT];
        skv_eviction_print(&stats.eviction, how);
        skv_eval_hash_text(&hash, how);
    }
    hash_left_out(&hash, &stats);
    skv_eval_hash_text(&hash, stats.cpu);
    skv_eval_hash_add(&hash, &stats.context, sizeof stats.context);
    const skv_eval_options *o = r->options;
    skv_eval_hash_text(&hash, o->reference_path);
    if (!o->reference) return hash.value;
    skv_eval_hash_files(&hash, o->reference_path);
    skv_engine_get_stats(o->reference, &stats);
    skv_eval_hash_text(&hash, skv_weights_name(stats.weights));
    skv_eval_hash_text(&hash, skv_kv_name(stats.kv));
    skv_eval_hash_text(&hash, skv_prefill_name(stats.prefill));
    return hash.value;
}

static skv_status check(const run *r, skv_error *err)
{
    const skv_eval_options *o = r->options;
    SKV_REQUIRE(o->tasks && o->tasks[0], err, SKV_ARGUMENT, "task: expected the name of a task");
    SKV_REQUIRE(o->depth_bins >= 1 && o->depth_bins <= BINS_MAX, err, SKV_RANGE,
                "depths: %zu, expected 1 to %d", o->depth_bins, BINS_MAX);
    SKV_REQUIRE(r->context >= CONTEXT_MIN, err, SKV_RANGE,
                "context: %zu tokens, evaluation needs %d or more", r->context, CONTEXT_MIN);
    SKV_REQUIRE(!o->resume || o->log, err, SKV_ARGUMENT, "resume: needs --log");
    if (!o->reference) return SKV_OK;
    SKV_REQUIRE(skv_engine_vocab(o->reference) == skv_engine_vocab(r->engine), err, SKV_ARGUMENT,
                "reference: a vocabulary of %zu, the model has %zu", skv_engine_vocab(o->reference),
                skv_engine_vocab(r->engine));
    skv_engine_stats stats;
    skv_engine_get_stats(o->reference, &stats);
    SKV_REQUIRE(stats.context >= r->context, err, SKV_ARGUMENT,
                "reference: a context of %zu tokens, the model has %zu", stats.context, r->context);
    return SKV_OK;
}

/* Opens all tasks before the first is run: a wrong name or line shows at once. */
static skv_status run_tasks(run *r, const task_names *names, skv_eval_report *report,
                            skv_error *err)
{
    skv_task_source *sources = skv_alloc_zero(names->n, sizeof *sources);
    report->tasks = skv_alloc_zero(names->n, sizeof *report->tasks);
    skv_status status =
        sources && report->tasks ? SKV_OK : skv_fail(err, SKV_MEMORY, "tasks: no memory");
    size_t n_open = 0;
    while (n_open < names->n && status == SKV_OK) {
        status =
            skv_task_source_open(&sources[n_open], names->at[n_open], r->options, &r->maker, err);
        n_open += status == SKV_OK;
    }
    for (size_t i = 0; i < names->n && status == SKV_OK; i++) {
        status = run_task(r, &sources[i], &report->tasks[report->n_tasks++], err);
    }
    for (size_t i = 0; i < n_open; i++) skv_task_source_close(&sources[i]);
    skv_free(sources);
    return status;
}

static skv_status open_and_run(run *r, const skv_vocab *vocab, skv_eval_report *report,
                               skv_error *err)
{
    task_names names = {.n = 0};
    SKV_TRY(check(r, err));
    skv_status status = split_names(&names, r->options->tasks, err);
    if (status == SKV_OK)
        status = skv_eval_prompter_init(&r->prompter, vocab, skv_engine_vocab(r->engine),
                                        r->options, err);
    if (status == SKV_OK) status = skv_eval_runner_init(&r->runner, r->engine, vocab, err);
    if (status == SKV_OK) {
        r->maker =
            (skv_eval_maker){&r->prompter, r->options->max_new, r->context, r->options->scored, ""};
        r->settings = hash_settings(r);
        status = skv_eval_log_open(&r->log, r->options->log, r->options->resume, err);
    }
    if (status == SKV_OK) status = run_tasks(r, &names, report, err);
    report->generated = r->runner.n_generated;
    report->drafts = r->runner.drafts;
    for (size_t i = 0; i < names.n; i++) skv_free(names.at[i]);
    skv_eval_log_close(&r->log);
    skv_eval_runner_release(&r->runner);
    skv_eval_prompter_release(&r->prompter);
    return status;
}

skv_status skv_eval_run(skv_engine *engine, const skv_vocab *vocab, const char *path,
                        const skv_eval_options *options, skv_eval_report **out, skv_error *err)
{
    skv_engine_stats stats;
    skv_engine_get_stats(engine, &stats);
    run r = {.engine = engine,
             .options = options,
             .model = path,
             .log = {.file = -1},
             .context = stats.context};
    skv_eval_report *report = skv_alloc_zero(1, sizeof *report);
    SKV_REQUIRE(report, err, SKV_MEMORY, "evaluation: no memory");
    report->depth_bins = options->depth_bins;
    skv_status status = open_and_run(&r, vocab, report, err);
    if (status != SKV_OK) {
        skv_eval_report_free(report);
        return status;
    }
    skv_eval_report_average(report);
    *out = report;
    return SKV_OK;
}
