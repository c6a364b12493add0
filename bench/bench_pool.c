/*
 * bench_pool [PRESET [THREADS [CONTEXT]]]: the runs of the pool in one step of decoding, for
 * tools/simulate_pool.py. A line is a run: "list" or "stretches", its tasks, the median
 * microseconds. With `taskset -c 0` one thread does all the tasks that THREADS would share.
 *
 * The linker sends the pool's runs through this file (--wrap), so these are the runs that the
 * engine makes, whatever they will be. Between them the caller works alone: "alone", 0 tasks.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/pool.h"
#include "base/system.h"
#include "kernels/cpu.h"
#include "skv/skv.h"

enum { RUNS_MAX = 4096, STEPS = 9 };

typedef struct pool_run {
    const char *kind;
    size_t n_tasks;
    double us[STEPS];
} pool_run;

/* What the wrappers write to: they get no pointer of ours. */
static struct {
    pool_run runs[RUNS_MAX];
    size_t n, i_step;
    uint64_t ended_ns;
    bool on;
} record;

static void note(const char *kind, size_t n_tasks, uint64_t start_ns, uint64_t end_ns)
{
    if (record.n == RUNS_MAX) return;
    pool_run *r = &record.runs[record.n++];
    r->kind = kind;
    r->n_tasks = n_tasks;
    r->us[record.i_step] = (double)(end_ns - start_ns) * 1e-3;
}

typedef void run_fn(skv_pool *pool, size_t n_tasks, skv_task_fn *fn, void *arg);
run_fn __real_skv_pool_run, __real_skv_pool_run_stretches;
run_fn __wrap_skv_pool_run, __wrap_skv_pool_run_stretches;

static void run_noted(const char *kind, run_fn *run, skv_pool *pool, size_t n_tasks,
                      skv_task_fn *fn, void *arg)
{
    const uint64_t start = skv_clock_ns();
    run(pool, n_tasks, fn, arg);
    if (!record.on) return;
    const uint64_t end = skv_clock_ns();
    note("alone", 0, record.ended_ns, start);
    note(kind, n_tasks, start, end);
    record.ended_ns = skv_clock_ns();
}

void __wrap_skv_pool_run(skv_pool *pool, size_t n_tasks, skv_task_fn *fn, void *arg)
{
    run_noted("list", __real_skv_pool_run, pool, n_tasks, fn, arg);
}

void __wrap_skv_pool_run_stretches(skv_pool *pool, size_t n_tasks, skv_task_fn *fn, void *arg)
{
    run_noted("stretches", __real_skv_pool_run_stretches, pool, n_tasks, fn, arg);
}

static int compare_doubles(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static void ignore(void *user, size_t i_span, size_t i_token, const float *logits)
{
    (void)user;
    (void)i_span;
    (void)i_token;
    (void)logits;
}

/* A context, then one token to a step, which is measured. */
static skv_status decode(skv_engine *engine, size_t context, skv_error *err)
{
    skv_sequence *sequence = NULL;
    skv_engine_stats stats;
    skv_engine_get_stats(engine, &stats);
    int32_t *ids = calloc(stats.step_tokens, sizeof *ids);
    skv_status status = ids ? skv_sequence_create(engine, 0, &sequence, err) : SKV_MEMORY;
    for (size_t at = 0, n; at < context && status == SKV_OK; at += n) {
        n = context - at < stats.step_tokens ? context - at : stats.step_tokens;
        const skv_span span = {sequence, ids, n, SKV_WANT_NONE};
        status = skv_step(engine, &span, 1, ignore, NULL, err);
    }
    record.on = true;
    for (size_t i = 0; i < STEPS && status == SKV_OK; i++) {
        const skv_span span = {sequence, ids, 1, SKV_WANT_LAST};
        record.n = 0;
        record.i_step = i;
        record.ended_ns = skv_clock_ns();
        status = skv_step(engine, &span, 1, ignore, NULL, err);
        note("alone", 0, record.ended_ns, skv_clock_ns());
    }
    record.on = false;
    skv_sequence_free(sequence);
    free(ids);
    return status;
}

int main(int argc, char **argv)
{
    const char *preset = argc > 1 ? argv[1] : "llama-3.2-1b";
    const size_t context = argc > 3 ? strtoul(argv[3], NULL, 10) : 128;
    skv_engine_options options = skv_engine_options_default();
    options.threads = argc > 2 ? strtoul(argv[2], NULL, 10) : 1;
    options.weights = SKV_WEIGHTS_INT8;
    options.context = context + STEPS;
    skv_engine *engine = NULL;
    skv_error err = {0};
    skv_engine_stats stats;
    skv_status status = skv_engine_open_preset(preset, &options, &engine, &err);
    if (status == SKV_OK) status = decode(engine, context, &err);
    if (status != SKV_OK) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    skv_engine_get_stats(engine, &stats);
    char name[128];
    skv_cpu_name(name, sizeof name);
    printf("# %s, int8, behind %zu tokens, %zu threads of %s\n# weight_bytes %zu\n", preset,
           context, stats.threads, name, stats.weight_bytes);
    for (size_t i = 0; i < record.n; i++) {
        pool_run *r = &record.runs[i];
        qsort(r->us, STEPS, sizeof *r->us, compare_doubles);
        printf("%s %zu %.2f\n", r->kind, r->n_tasks, r->us[STEPS / 2]);
    }
    skv_engine_close(engine);
    return 0;
}
