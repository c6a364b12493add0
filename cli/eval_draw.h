/** The results of an evaluation as charts. */
#ifndef SKV_CLI_EVAL_DRAW_H
#define SKV_CLI_EVAL_DRAW_H

#include "report.h"
#include "skv/eval.h"

/** Makes the folder for the charts, where it is not there yet; NULL: no charts are wanted. */
CLI_CHECKED int cli_eval_draw_folder(const char *folder);
/**
 * Writes to the folder TASK.svg, a grid of length and depth, for every task that
 * knows depths, and lengths.svg, the main metric over the length for all that know lengths.
 */
CLI_CHECKED int cli_eval_draw(const skv_eval_report *report, const char *folder, const char *model);

#endif
