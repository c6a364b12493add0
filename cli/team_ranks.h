/** Commands that several processes of one mpirun run together, with a part of the model each. */
#ifndef SKV_CLI_TEAM_RANKS_H
#define SKV_CLI_TEAM_RANKS_H

#include "options.h"

/** Runs the command: on the first process, while the others follow it, or on this one alone. */
CLI_CHECKED int cli_ranks_run(cli_options *options);

#endif
