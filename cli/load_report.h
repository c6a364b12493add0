/** The report of a load: a table, JSON, a chart. */
#ifndef SKV_CLI_LOAD_REPORT_H
#define SKV_CLI_LOAD_REPORT_H

#include <stdio.h>

#include "load.h"
#include "report.h"

/* One run with its options. */
typedef struct cli_load_run {
    load_options options; /* its pointers are borrowed */
    load_result result;
    char date[24]; /* when it began, UTC */
} cli_load_run;

void cli_load_print(const cli_load_run *run);
/** One run as an object, several as an array. */
void cli_load_json(FILE *stream, const cli_load_run *runs, size_t n);
/** Median (and, dashed, 99th percentile) of TTFT and TPOT against the rate, a colour a method. */
CLI_CHECKED int cli_load_draw(const char *path, const cli_load_run *runs, size_t n,
                              size_t n_methods);

#endif
