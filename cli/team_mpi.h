/** The processes that mpirun started beside this one, as the library's team. */
#ifndef SKV_CLI_TEAM_MPI_H
#define SKV_CLI_TEAM_MPI_H

#include <stdbool.h>

#include "report.h"
#include "skv/team.h"

typedef struct cli_team cli_team;

/**
 * Joins the others if a launcher of MPI (mpirun, srun) started this process, and makes *out NULL
 * if none did: MPI is not touched then.
 */
CLI_CHECKED int cli_team_join(cli_team **out);
/** Waits for the others to leave as well, and frees it. */
void cli_team_leave(cli_team *team);
/** What the library takes; NULL without a team. */
const skv_team *cli_team_table(const cli_team *team);
/** Whether this process tells what happens: the first of a team, or one without. */
bool cli_team_speaks(const cli_team *team);

#endif
