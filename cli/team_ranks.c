/* Ranks of one model: see team_ranks.h. The first process runs the command, the others follow it.
 */
#include "team_ranks.h"

#include "interrupt.h"
#include "skv/ranks.h"
#include "training.h"

static bool divides_models(cli_command command)
{
    switch (command) {
    case CLI_GENERATE:
    case CLI_CHAT:
    case CLI_SCORE:
    case CLI_SERVE:
    case CLI_BENCH:
    case CLI_COMPARE:
    case CLI_EVAL:
    case CLI_SIMILARITY: return true;
    default: return false;
    }
}

static int run(const cli_options *options)
{
    static int (*const runs[])(const cli_options *) = {
#define RUN(id, name) [CLI_##id] = cli_run_##name,
        CLI_COMMAND_LIST(RUN)
#undef RUN
    };
    return runs[options->command](options);
}

/* Signals are the first process's business: it ends the others. */
static bool stay(void *user, int which)
{
    (void)user;
    (void)which;
    return true;
}

static int follow(const cli_options *options, const skv_team *team)
{
    skv_error err = {0};
    const int status = cli_interrupt_handle(options->interrupt, stay, NULL);
    if (status != CLI_DONE) return status;
    if (skv_ranks_follow(team, &err) == SKV_OK) return CLI_DONE;
    return cli_fail("process %zu of %zu: %s", team->rank, team->size, err.text);
}

static int lead(cli_options *options, const skv_team *team)
{
    skv_error err = {0};
    if (team->size > 1) options->team = team;
    const int status = run(options);
    const skv_status ended = skv_ranks_end(team, &err);
    options->team = NULL;
    return ended == SKV_OK || status != CLI_DONE ? status : cli_check(ended, &err);
}

/* A GPU each, in threads of this process. */
static int run_on_gpus(cli_options *options)
{
    skv_error err = {0};
    skv_ranks_threads *threads = NULL;
    int status = cli_check(skv_ranks_threads_start(options->gpus, &threads, &err), &err);
    if (status != CLI_DONE) return status;
    options->team = skv_ranks_threads_team(threads);
    status = run(options);
    options->team = NULL;
    const skv_status ended = skv_ranks_threads_end(threads, &err);
    return ended == SKV_OK || status != CLI_DONE ? status : cli_check(ended, &err);
}

int cli_ranks_run(cli_options *options)
{
    cli_team *joined = NULL;
    if (!divides_models(options->command)) return run(options);
    int status = cli_team_join(&joined);
    if (status != CLI_DONE) return status;
    if (!joined) return options->gpus > 1 ? run_on_gpus(options) : run(options);
    const skv_team *team = cli_team_table(joined);
    const bool leads = cli_team_speaks(joined);
    if (options->gpus > 1) {
        status = leads ? cli_usage("--gpus %zu: under mpirun each process has a GPU", options->gpus)
                       : CLI_DONE;
    } else {
        status = leads ? lead(options, team) : follow(options, team);
    }
    if (!leads && status != CLI_DONE) cli_team_abort(joined);
    cli_team_leave(joined);
    return status;
}
