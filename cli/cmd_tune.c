/* swiftkv tune: the cheapest setting of the methods that keeps a share of a model's quality. */
#include <stdlib.h>
#include <string.h>

#include "tune.h"

static tune_cost cost_of(const char *name)
{
    if (name != NULL && strcmp(name, "ttft") == 0) return TUNE_COST_TTFT;
    if (name != NULL && strcmp(name, "kv-bytes") == 0) return TUNE_COST_KV_BYTES;
    return TUNE_COST_TOTAL;
}

int cli_run_tune(const cli_options *options)
{
    tune *t = cli_alloc(1, sizeof *t);
    t->options = options;
    t->cost = cost_of(options->cost);
    cli_interrupt_watch(options->interrupt, NULL);
    int status = tune_search(t);
    if (status == CLI_DONE) status = tune_time_again(t);
    cli_interrupt_unwatch(options->interrupt);
    /* A search that was stopped tells what it has. */
    if (t->n_points > 0 && options->json) {
        tune_print_json(t);
    } else if (t->n_points > 0) {
        tune_print_result(t);
    }
    skv_eval_report_free(t->plain);
    free(t);
    return status;
}
