/** Ctrl-C: it stops the work of an engine where a command asked for that, and the program
 * elsewhere. A thread waits for the signal, so nothing here runs in a signal handler. */
#ifndef SKV_CLI_INTERRUPT_H
#define SKV_CLI_INTERRUPT_H

#include <stdbool.h>

#include "report.h"
#include "skv/skv.h"

typedef struct cli_interrupt cli_interrupt;

/** Before any other thread is made: they inherit that SIGINT and SIGTERM are blocked. */
CLI_CHECKED int cli_interrupt_start(cli_interrupt **out);
void cli_interrupt_stop(cli_interrupt *interrupt);

/** From here on Ctrl-C cancels the running step of `engine`. Without an engine, Ctrl-C and SIGTERM
 * only set cli_interrupted, and end the program when they come again. */
void cli_interrupt_watch(cli_interrupt *interrupt, skv_engine *engine);
/** Changes the engine that Ctrl-C cancels while it is watched, possibly to none. Earlier signals
 * count. */
void cli_interrupt_attach(cli_interrupt *interrupt, skv_engine *engine);
/** Returns the exit status of a command whose work was interrupted: SKV_CANCELLED's message
 * describes the engine's position, which means nothing to a user. `what_stays` tells how to
 * continue. */
CLI_CHECKED int cli_interrupt_check(skv_status status, const skv_error *err,
                                    const char *what_stays);
/** From here on Ctrl-C ends the program again. */
void cli_interrupt_unwatch(cli_interrupt *interrupt);
/** Whether Ctrl-C came since the last cli_interrupt_watch. */
bool cli_interrupted(cli_interrupt *interrupt);

/** Handles SIGINT, SIGTERM and SIGHUP in a server; false: the program is to end. */
typedef bool cli_signal_fn(void *user, int signal);
/** From here on these signals go to `handle`, in the waiting thread. Call it before any other
 * thread is made. */
CLI_CHECKED int cli_interrupt_handle(cli_interrupt *interrupt, cli_signal_fn *handle, void *user);
/** And no longer. */
void cli_interrupt_unhandle(cli_interrupt *interrupt);

#endif
