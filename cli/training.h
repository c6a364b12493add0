/** Training support beside the library: the processes that mpirun started, as the library's team,
 * and text that a teacher writes. */
#ifndef SKV_CLI_TRAINING_H
#define SKV_CLI_TRAINING_H

#include <stdbool.h>

#include "options.h"
#include "report.h"
#include "skv/team.h"
#include "skv/train.h"

/* ---- team_mpi.c ---- */

typedef struct cli_team cli_team;

/**
 * Joins the others if a launcher of MPI (mpirun, srun) started this process, and makes *out NULL
 * if none did: MPI is not touched then.
 */
CLI_CHECKED int cli_team_join(cli_team **out);
/** Ends all of them: one that cannot go on would be waited for. */
void cli_team_abort(const cli_team *team);
/** Waits for the others to leave as well, and frees it. */
void cli_team_leave(cli_team *team);
/** Returns the library's table of functions; NULL without a team. */
const skv_team *cli_team_table(const cli_team *team);
/** Whether this process prints messages: the first of a team, or one without. */
bool cli_team_speaks(const cli_team *team);

/* ---- self_data.c: text that a teacher writes for its own recovery, before a run ---- */

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
