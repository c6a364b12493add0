/** Which forms of a model a bench measures. */
#ifndef SKV_CLI_BENCH_PLAN_H
#define SKV_CLI_BENCH_PLAN_H

#include "bench_run.h"

enum { BENCH_VARIANTS_MAX = 3 };

/** The variants of a command line: one, or those of --compare. */
CLI_CHECKED int bench_plan(const cli_options *options, bench_variant *variants, size_t *n);

#endif
