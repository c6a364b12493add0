/** Runs the evaluation of the command line, and prints the results as a table, JSON and charts. */
#ifndef SKV_CLI_EVALUATION_H
#define SKV_CLI_EVALUATION_H

#include "report.h"
#include "runtime.h"
#include "skv/eval.h"

/** Opens the engine of a described model with room for many examples at once. */
CLI_CHECKED int cli_eval_start(const cli_options *options, cli_model *model);
/** How the examples are asked; `reference` and `progress` are the caller's. */
skv_eval_options cli_eval_how(const cli_options *options);

void cli_eval_print_table(const skv_eval_report *report);
void cli_eval_print_json(const cli_model *model, const cli_options *options,
                         const skv_eval_report *report);

/** Creates the folder for the charts if it does not exist; NULL: no charts. */
CLI_CHECKED int cli_eval_draw_folder(const char *folder);
/**
 * Writes to the folder TASK.svg, a grid of length and depth, for every task that
 * knows depths, and lengths.svg, the main metric over the length for all that know lengths.
 */
CLI_CHECKED int cli_eval_draw(const skv_eval_report *report, const char *folder, const char *model);

#endif
