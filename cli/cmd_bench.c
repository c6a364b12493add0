/*
 * swiftkv bench: how fast a model, or a published shape with random weights, reads prompts and
 * generates; the unmodified model beside its SwiftKV forms; the machine's peak rates.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "report.h"

enum { WARM_UP_TOKENS = 4, PAGE_TOKENS = 64 /* of KV memory: skv/tools.h */ };

typedef struct bench {
    const cli_options *options;
    bench_variant variants[BENCH_VARIANTS_MAX];
    size_t n_variants;
    bench_result *results; /* [n_prompts][n_variants], owned */
    bool has_peak;
    skv_peak peak;
    cli_ids replay; /* owned, of --replay: pairs */
    cli_progress progress;
} bench;

/* Pairs of --replay, each a draft's length and how many of its tokens are right. */
static int read_replay(bench *b)
{
    const char *path = b->options->replay;
    if (!path) return CLI_DONE;
    if (b->options->speculation.source == SKV_DRAFT_NONE) {
        return cli_usage("--replay: goes with --speculate");
    }
    if (b->options->speculation.source == SKV_DRAFT_AUTO) {
        return cli_usage(
            "--replay: does not go with --speculate auto, which chooses its drafts itself");
    }
    const int status = cli_read_ids(path, SKV_DRAFT_MAX + 1, &b->replay);
    if (status != CLI_DONE) return status;
    bool good = b->replay.n >= 2 && b->replay.n % 2 == 0;
    for (size_t i = 0; good && i < b->replay.n; i += 2) {
        good = b->replay.at[i + 1] <= b->replay.at[i];
    }
    return good ? CLI_DONE
                : cli_fail("%s: not pairs of a draft's length and its accepted tokens", path);
}

static size_t shortest(const cli_sizes *sizes)
{
    size_t best = sizes->at[0];
    for (size_t i = 1; i < sizes->n; i++) best = sizes->at[i] < best ? sizes->at[i] : best;
    return best;
}

static size_t longest(const cli_sizes *sizes)
{
    size_t best = sizes->at[0];
    for (size_t i = 1; i < sizes->n; i++) best = sizes->at[i] > best ? sizes->at[i] : best;
    return best;
}

/* ---- opening ---- */

static skv_status open_variant(const bench *b, bench_variant *v, skv_error *err)
{
    const cli_options *o = b->options;
    const size_t tokens = longest(&o->prompt_lengths) + o->gen_tokens;
    skv_engine_options options = cli_engine_options(&v->options);
    if (options.context == 0) options.context = tokens;
    /* A sequence takes whole pages, whatever its context. */
    options.kv_tokens = (tokens + PAGE_TOKENS - 1) / PAGE_TOKENS * PAGE_TOKENS * o->batch;
    options.kv_sequences = o->batch;
    const skv_status status = cli_model_try(&v->model, &options, err);
    if (status != SKV_OK) return status;
    skv_engine_get_stats(v->model.engine, &v->limits);
    if (v == b->variants) cli_note_length(&v->model, "--ctx", o->context);
    return SKV_OK;
}

static void close_variant(bench_variant *v)
{
    skv_engine_close(v->model.engine);
    v->model.engine = NULL;
}

/* Opens variants from `first` on, all of them if memory allows, else at least one; *end is the
 * first that is not open. */
static int open_variants(bench *b, size_t first, size_t *end)
{
    skv_error err = {0};
    skv_status status = SKV_OK;
    size_t i = first;
    while (i < b->n_variants && status == SKV_OK) {
        status = open_variant(b, &b->variants[i], &err);
        if (status == SKV_OK) i++;
    }
    *end = i;
    if (status == SKV_OK || (status == SKV_MEMORY && i > first)) return CLI_DONE;
    for (size_t k = first; k < i; k++) close_variant(&b->variants[k]);
    return cli_check(status, &err);
}

/* ---- measuring ---- */

/* Returns the peak rate of the kernels for these weights, in 10^9 operations a second. */
static double peak_of(const bench_variant *v, const skv_peak *peak)
{
    switch (v->limits.weights) {
    case SKV_WEIGHTS_INT8: return peak->int8_gops;
    case SKV_WEIGHTS_INT4:
    case SKV_WEIGHTS_FILE: return peak->int4_gops; /* some matrices may have 8 bits */
    case SKV_WEIGHTS_F32: return peak->f32_gflops;
    default: return peak->bf16_gflops;
    }
}

static void add_shares(const bench *b, const bench_variant *v, bench_result *result)
{
    result->prefill_share = (double)NAN;
    if (b->has_peak) result->prefill_share = result->prefill_gflops / peak_of(v, &b->peak);
}

static void summarise(const bench_variant *v, const bench_load *load, const bench_times *times,
                      size_t n_times, bench_result *out)
{
    const skv_work *work = &times[0].work;
    double *values = cli_alloc(n_times, sizeof *values);
    for (size_t i = 0; i < n_times; i++) values[i] = times[i].ttft_s;
    const double ttft_s = bench_median(values, n_times);
    for (size_t i = 0; i < n_times; i++) values[i] = times[i].decode_s;
    const double decode_s = bench_median(values, n_times);
    const double n_tokens = load->gen > 1 ? (double)(load->gen - 1) : (double)NAN;
    const double steps = load->gen > 1 ? (double)times[0].n_steps : (double)NAN;
    const double bytes = (double)v->limits.weight_bytes + (double)times[0].kv_bytes;
    for (size_t i = 0; i < n_times; i++) {
        values[i] = bytes * steps / times[i].decode_s * 1e-9 / times[i].read_gbs;
    }
    const double decode_share = load->measure_read ? bench_median(values, n_times) : (double)NAN;
    free(values);
    const double batch = (double)load->batch;
    *out = (bench_result){.load = *load,
                          .ttft_ms = ttft_s * 1e3,
                          .prefill_tok_s = (double)load->prompt * batch / ttft_s,
                          .decode_tok_s = n_tokens * batch / decode_s,
                          .prefill_gflops = work->total / ttft_s * 1e-9,
                          .model_gflops = work->model / ttft_s * 1e-9,
                          .work = *work,
                          .kv_bytes = times[0].kv_bytes,
                          .peak_rss_bytes = skv_peak_rss()};
    memcpy(out->drafts, times[0].drafts, sizeof out->drafts);
    out->decode_gbs = bytes * steps / decode_s * 1e-9;
    /* Above 1 the caches were read and not memory, which then is not the limit. */
    out->decode_share = decode_share > 1 ? (double)NAN : decode_share;
}

/* Measures variants first..end under one load, interleaved, so that other work on the machine
 * affects all of them. */
static int measure_load(bench *b, size_t first, size_t end, size_t i_prompt)
{
    const cli_options *o = b->options;
    bench_load load = {.prompt = o->prompt_lengths.at[i_prompt],
                       .gen = o->gen_tokens,
                       .batch = o->batch,
                       .measure_read = b->has_peak,
                       .replay = b->replay.n > 0 ? &b->replay : NULL,
                       .progress = &b->progress};
    const size_t n = end - first;
    load.n_runs = n * o->repeat;
    bench_times *times = cli_alloc(n * o->repeat, sizeof *times);
    int status = CLI_DONE;
    for (size_t r = 0; r < o->repeat && status == CLI_DONE; r++) {
        for (size_t i = 0; i < n && status == CLI_DONE; i++) {
            load.i_run = r * n + i;
            status = bench_run(&b->variants[first + i], &load, &times[i * o->repeat + r]);
        }
    }
    for (size_t i = 0; i < n && status == CLI_DONE; i++) {
        bench_result *result = &b->results[i_prompt * b->n_variants + first + i];
        summarise(&b->variants[first + i], &load, times + i * o->repeat, o->repeat, result);
        add_shares(b, &b->variants[first + i], result);
    }
    free(times);
    return status;
}

static int warm_up(bench *b, size_t first, size_t end)
{
    const cli_options *o = b->options;
    bench_load load = {.prompt = shortest(&o->prompt_lengths),
                       .gen = o->gen_tokens < WARM_UP_TOKENS ? o->gen_tokens : WARM_UP_TOKENS,
                       .batch = o->batch,
                       .progress = &b->progress,
                       .n_runs = end - first};
    int status = CLI_DONE;
    for (size_t i = first; i < end && status == CLI_DONE; i++) {
        bench_times unused;
        load.i_run = i - first;
        status = bench_run(&b->variants[i], &load, &unused);
    }
    return status;
}

static void print_results(const bench *b, size_t first, size_t end, size_t i_prompt)
{
    for (size_t i = first; i < end; i++) {
        const bench_result *result = &b->results[i_prompt * b->n_variants + i];
        if (b->options->json) {
            bench_print_json(&b->variants[i], result);
        } else if (!b->options->compare) {
            if (i_prompt == 0) bench_print_header(&b->variants[i]);
            bench_print_row(&b->variants[i], result);
        }
    }
}

static int measure_open(bench *b, size_t first, size_t end)
{
    cli_progress_begin(&b->progress, "warming up");
    int status = warm_up(b, first, end);
    for (size_t p = 0; p < b->options->prompt_lengths.n && status == CLI_DONE; p++) {
        cli_progress_end(&b->progress);
        cli_progress_begin(&b->progress, "measuring");
        status = measure_load(b, first, end, p);
        cli_progress_end(&b->progress);
        if (status == CLI_DONE) print_results(b, first, end, p);
    }
    return status;
}

/* --costs: steps of the one variant instead of loads. */
static int measure_costs(bench *b)
{
    bench_variant *v = &b->variants[0];
    const size_t context = longest(&b->options->prompt_lengths);
    skv_error err = {0};
    int status = bench_plan(b->options, b->variants, &b->n_variants);
    if (status != CLI_DONE) return status;
    skv_engine_options options = cli_engine_options(&v->options);
    if (context + BENCH_COSTS_CHUNK > SKV_CONTEXT_DEFAULT) {
        options.context = context + BENCH_COSTS_CHUNK;
    }
    options.kv_tokens = bench_costs_tokens(context);
    options.kv_sequences = bench_costs_sequences();
    status = cli_check(cli_model_try(&v->model, &options, &err), &err);
    if (status != CLI_DONE) return status;
    skv_engine_get_stats(v->model.engine, &v->limits);
    status = bench_costs(v, context);
    close_variant(v);
    return status;
}

static int measure_variants(bench *b)
{
    int status = bench_plan(b->options, b->variants, &b->n_variants);
    if (status != CLI_DONE) return status;
    const size_t n_prompts = b->options->prompt_lengths.n;
    b->results = cli_alloc(n_prompts * b->n_variants, sizeof *b->results);
    for (size_t first = 0, end = 0; first < b->n_variants && status == CLI_DONE; first = end) {
        status = open_variants(b, first, &end);
        if (status != CLI_DONE) break;
        status = measure_open(b, first, end);
        for (size_t i = first; i < end; i++) close_variant(&b->variants[i]);
    }
    if (status == CLI_DONE && b->options->compare && !b->options->json) {
        for (size_t p = 0; p < n_prompts; p++) {
            bench_print_comparison(b->variants, b->results + p * b->n_variants, b->n_variants);
        }
    }
    free(b->results);
    return status;
}

static int measure_peak(bench *b)
{
    const cli_options *o = b->options;
    skv_error err = {0};
    cli_progress_begin(&b->progress, "measuring the machine");
    const skv_status measured =
        skv_peak_measure(o->threads, o->cpu, cli_progress_share, &b->progress, &b->peak, &err);
    cli_progress_end(&b->progress);
    if (measured == SKV_OK) bench_print_peak(&b->peak, o->json);
    return cli_check(measured, &err);
}

static int list_presets(void)
{
    for (size_t i = 0; skv_preset_name(i); i++) printf("%s\n", skv_preset_name(i));
    return CLI_DONE;
}

int cli_run_bench(const cli_options *options)
{
    if (options->preset && strcmp(options->preset, "list") == 0) return list_presets();
    bench b = {.options = options, .has_peak = options->peak};
    if (options->peak) {
        const int status = measure_peak(&b);
        if (status != CLI_DONE) return status;
    }
    const bool has_model = options->preset || options->n_operands > 0;
    if (!has_model) return CLI_DONE;
    if (options->peak && !options->json) putchar('\n');
    int status = read_replay(&b);
    if (status == CLI_DONE) status = options->costs ? measure_costs(&b) : measure_variants(&b);
    cli_ids_release(&b.replay);
    return status;
}
