/** What `distill` and `train` share: options, progress, the log, the dry run. */
#ifndef SKV_CLI_TRAINING_H
#define SKV_CLI_TRAINING_H

#include "options.h"
#include "skv/train.h"

/** Runs the task with what the command line says of it. */
CLI_CHECKED int cli_training_run(const cli_options *options, skv_train_task task);

#endif
