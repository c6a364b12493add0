/** Printing what bench measured. */
#ifndef SKV_CLI_BENCH_TABLE_H
#define SKV_CLI_BENCH_TABLE_H

#include "bench_run.h"

/* Medians of one variant under one load. */
typedef struct bench_result {
    bench_load load;
    double ttft_ms, prefill_tok_s, decode_tok_s;
    double prefill_gflops, model_gflops; /* 10^9 operations a second */
    double decode_gbs;                   /* weights and cache read a second, in 10^9 bytes */
    double prefill_share, decode_share;  /* of the machine's peak; NaN: not measured */
    size_t kv_bytes, peak_rss_bytes;
    skv_work work; /* of the prompts */
} bench_result;

/** One line of JSON. */
void bench_print_json(const bench_variant *variant, const bench_result *result);
void bench_print_header(const bench_variant *variant);
void bench_print_row(const bench_variant *variant, const bench_result *result);
/** The same load under n variants; the first is what the others are compared with. */
void bench_print_comparison(const bench_variant *variants, const bench_result *results, size_t n);

void bench_print_peak(const skv_peak *peak, bool json);

#endif
