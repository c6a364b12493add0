/*
 * swiftkv: the program. It reads the command line, runs the command, and turns the result into an
 * exit status: 0 done, 1 the work failed, 2 the command line is wrong.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/system.h"
#include "hub.h"
#include "interrupt.h"
#include "options.h"
#include "suggest.h"
#include "team_ranks.h"

/* Output that could not be written is a failure, however well the work went. */
static int finish_output(int status)
{
    const bool failed = fflush(stdout) != 0 || ferror(stdout) != 0;
    if (!failed || status != CLI_DONE) return status;
    return cli_fail("standard output: %s", strerror(errno));
}

/* A model by its name becomes the path that it has in the cache of this machine, where
 * --download fetches it to. */
static int find_model(const char **model, bool download, char path[CLI_HUB_PATH_MAX])
{
    if (!*model) return CLI_DONE;
    if (!cli_hub_is_name(*model)) return cli_suggest_folder(model, path);
    const int status = cli_hub_open(*model, download, path);
    *model = path;
    return status;
}

/* serve's NAME=MODEL, unless that is a path. */
static void split_names(cli_options *o)
{
    for (size_t i = 0; i < o->n_operands && o->command == CLI_SERVE; i++) {
        const char *given = o->operands[i], *equals = strchr(given, '=');
        if (!equals || equals == given || access(given, F_OK) == 0) continue;
        o->operand_names[i] = given;
        o->operands[i] = equals + 1;
    }
}

static int find_models(cli_options *o)
{
    split_names(o);
    const char *operands = cli_command_at(o->command)->operands;
    const size_t n_before = strcspn(operands, "M"); /* "[MODEL OUT]" */
    const size_t i = n_before > 1;                  /* "explain MODEL": preceded by a word */
    o->model_name = o->operands[i];
    int status = CLI_DONE;
    if (strncmp(operands + n_before, "MODEL", 5) == 0) {
        status = find_model(&o->operands[i], o->download, o->model_path);
    }
    if (status != CLI_DONE) return status;
    return find_model(&o->reference, o->download, o->reference_path);
}

int main(int argc, char **argv)
{
    (void)signal(SIGXFSZ, SIG_IGN); /* ulimit -f: an error of the write, as on a full disk */
    cli_options options;
    int status = cli_options_parse(argc, argv, &options);
    if (status != CLI_DONE) return status;
    if (options.help) {
        if (options.command == CLI_HELP) {
            cli_help_overview(stdout);
        } else {
            cli_help_command(options.command);
        }
        return finish_output(CLI_DONE);
    }
    status = find_models(&options);
    if (status != CLI_DONE) return status;
    skv_thread_computes();
    status = cli_interrupt_start(&options.interrupt);
    if (status != CLI_DONE) return status;
    status = cli_ranks_run(&options);
    cli_interrupt_stop(options.interrupt);
    return finish_output(status);
}
