/** One measurement of bench: prompts read and continued, with the arithmetic that it took. */
#ifndef SKV_CLI_BENCH_RUN_H
#define SKV_CLI_BENCH_RUN_H

#include "runtime.h"

/* A model as it is measured. */
typedef struct bench_variant {
    char name[48]; /* "unmodified", "SwiftKV l=8 g=2" */
    char path[256];
    cli_options options; /* the command's, with what makes this variant */
    cli_model model;     /* the engine is open while it is measured */
    skv_engine_stats limits;
    size_t kv_layers, group; /* as it runs: kv_layers = layers for the unmodified model */
} bench_variant;

typedef struct bench_load {
    size_t prompt, gen, batch;
    bool measure_read; /* measure the read bandwidth before and after decoding */
} bench_load;

typedef struct bench_times {
    double ttft_s;   /* until every sequence has its first token */
    double decode_s; /* of the gen - 1 tokens after it */
    double read_gbs; /* the machine's, around decoding; NaN when not measured */
    size_t kv_bytes; /* of all sequences at the end */
    skv_work work;   /* of the prompts */
} bench_times;

/** Runs the load once. */
CLI_CHECKED int bench_run(bench_variant *variant, const bench_load *load, bench_times *out);

/** Of n >= 1 values, which it sorts. */
double bench_median(double *values, size_t n);

#endif
