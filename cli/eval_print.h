/** The results of an evaluation: a table for people, JSON for programs. */
#ifndef SKV_CLI_EVAL_PRINT_H
#define SKV_CLI_EVAL_PRINT_H

#include "runtime.h"
#include "skv/eval.h"

void cli_eval_print_table(const skv_eval_report *report);
void cli_eval_print_json(const cli_model *model, const cli_options *options,
                         const skv_eval_report *report);

#endif
