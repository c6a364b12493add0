/** Asking a model as the command line says. */
#ifndef SKV_CLI_EVALUATION_H
#define SKV_CLI_EVALUATION_H

#include "runtime.h"
#include "skv/eval.h"

/** Opens the engine of a described model with room for many examples at once. */
CLI_CHECKED int cli_eval_start(const cli_options *options, cli_model *model);
/** How the examples are asked; `reference` and `progress` are the caller's. */
skv_eval_options cli_eval_how(const cli_options *options);

#endif
