/** Text that a teacher writes for its own recovery, before a run. */
#ifndef SKV_CLI_SELF_DATA_H
#define SKV_CLI_SELF_DATA_H

#include "options.h"
#include "skv/train.h"

typedef struct cli_self_data {
    char *paths[SKV_TRAIN_STAGES_MAX * SKV_TRAIN_DATA_MAX]; /* owned */
    size_t n;
} cli_self_data;

/** Has every source with self_tokens written to a file in train->out, by the first process of a
 * team, and names the file in it. */
CLI_CHECKED int cli_self_data_write(const cli_options *options, skv_train_options *train,
                                    cli_self_data *out);
void cli_self_data_release(cli_self_data *data);

#endif
