/** The measurements of bench: forms of a model under loads, and the printing of the results. */
#ifndef SKV_CLI_BENCH_H
#define SKV_CLI_BENCH_H

#include "input.h"
#include "runtime.h"

/* A model as it is measured. */
typedef struct bench_variant {
    char name[48]; /* "unmodified", "SwiftKV l=8 g=2" */
    char path[256];
    cli_options options; /* the command's, with this variant's changes */
    cli_model model;     /* the engine is open while it is measured */
    skv_engine_stats limits;
    size_t kv_layers, group; /* as it runs: kv_layers = layers for the unmodified model */
} bench_variant;

typedef struct bench_load {
    size_t prompt, gen, batch;
    bool measure_read;     /* measure the read bandwidth before and after decoding */
    const cli_ids *replay; /* pairs: tokens of a draft, and how many are right; NULL: as they are */
    cli_progress *progress; /* borrowed; NULL: no progress is shown */
    size_t i_run, n_runs;   /* of which this one is a part */
} bench_load;

typedef struct bench_times {
    double ttft_s;   /* until every sequence has its first token */
    double decode_s; /* of the gen - 1 tokens after it, */
    size_t n_steps;  /* taking this many steps of each sequence */
    double read_gbs; /* the machine's at best, around decoding; NaN when not measured */
    size_t kv_bytes; /* of all sequences at the end */
    skv_work work;   /* of the prompts */
    skv_draft_counts drafts[SKV_DRAFT_SOURCES]; /* by source */
} bench_times;

/** Runs the load once. */
CLI_CHECKED int bench_run(bench_variant *variant, const bench_load *load, bench_times *out);

/** Of n >= 1 values, which it sorts. */
double bench_median(double *values, size_t n);

/* ---- bench_costs.c ---- */

enum { BENCH_COSTS_CHUNK = 128 }; /* prompt rows that are measured after the context */

/** Returns the tokens and sequences that measuring steps after `context` tokens keeps. */
size_t bench_costs_tokens(size_t context);
size_t bench_costs_sequences(void);
/** Measures and prints them as JSON; the engine is open. */
CLI_CHECKED int bench_costs(bench_variant *variant, size_t context);

enum { BENCH_VARIANTS_MAX = 3 };

/** The variants of a command line: one, or those of --compare. */
CLI_CHECKED int bench_plan(const cli_options *options, bench_variant *variants, size_t *n);

/* Medians of one variant under one load. */
typedef struct bench_result {
    bench_load load;
    double ttft_ms, prefill_tok_s, decode_tok_s;
    double prefill_gflops, model_gflops; /* 10^9 operations a second */
    double decode_gbs;                   /* weights and cache read a second, in 10^9 bytes */
    double prefill_share, decode_share;  /* of the machine's peak; NaN: not measured */
    size_t kv_bytes, peak_rss_bytes;
    skv_work work;                              /* of the prompts */
    skv_draft_counts drafts[SKV_DRAFT_SOURCES]; /* of a run */
} bench_result;

/** One line of JSON. */
void bench_print_json(const bench_variant *variant, const bench_result *result);
void bench_print_header(const bench_variant *variant);
void bench_print_row(const bench_variant *variant, const bench_result *result);
/** Prints n variants under the same load; the first is the baseline. */
void bench_print_comparison(const bench_variant *variants, const bench_result *results, size_t n);

void bench_print_peak(const skv_peak *peak, bool json);

#endif
