/* The thread that waits for Ctrl-C and SIGTERM. */
#include "interrupt.h"

#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>

#include "skv/tools.h"

/* A Ctrl-C meant for an answer that has just ended must not end the program. */
#define GRACE_NS UINT64_C(500000000)

struct cli_interrupt {
    pthread_t thread;
    bool waits_for_all;   /* set before the thread is made: for SIGHUP too */
    pthread_mutex_t lock; /* guards the following fields */
    bool watched, raised;
    skv_engine *engine; /* borrowed; NULL: the command polls cli_interrupted */
    uint64_t watched_until_ns, raised_ns;
    cli_signal_fn *handle; /* NULL: signals are not handled */
    void *user;
};

/* Blocked signals do not kill: the default action is taken in this thread, unblocked. */
static void end_program(int which)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, which);
    signal(which, SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    raise(which);
}

/* An engine stops within moments, so that Ctrl-C may be given again; SIGTERM is meant for all of
 * the program. Without an engine either asks for an orderly end, and once more for a quick one. */
static void on_interrupt(cli_interrupt *interrupt, int which)
{
    pthread_mutex_lock(&interrupt->lock);
    bool ends;
    if (interrupt->watched && !interrupt->engine) {
        /* One key press may arrive twice: at the process and at its group. */
        ends = interrupt->raised && skv_now_ns() - interrupt->raised_ns > GRACE_NS;
        if (!interrupt->raised) interrupt->raised_ns = skv_now_ns();
        if (!interrupt->raised && cli_terminal()) {
            cli_warn("stopping: once more ends at once, with nothing written");
        }
        interrupt->raised = true;
    } else if (interrupt->watched && which == SIGINT) {
        ends = false;
        interrupt->raised = true;
        skv_cancel(interrupt->engine);
    } else if (interrupt->raised_ns != 0 && skv_now_ns() - interrupt->raised_ns < GRACE_NS) {
        ends = false; /* the second of a pair, and the work has ended already */
    } else {
        ends = which == SIGTERM || interrupt->watched_until_ns == 0 ||
               skv_now_ns() - interrupt->watched_until_ns > GRACE_NS;
    }
    pthread_mutex_unlock(&interrupt->lock);
    if (ends) end_program(which);
}

/* SIGUSR1 is how cli_interrupt_stop ends the thread. */
static void waited_signals(sigset_t *set, bool all)
{
    sigemptyset(set);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGUSR1);
    if (all) sigaddset(set, SIGHUP);
}

static void handle_signal(cli_interrupt *interrupt, int which)
{
    pthread_mutex_lock(&interrupt->lock);
    const bool handles = interrupt->handle;
    const bool ends = handles && !interrupt->handle(interrupt->user, which);
    pthread_mutex_unlock(&interrupt->lock);
    if (ends) end_program(which);
    if (!handles) on_interrupt(interrupt, which);
}

static void *wait_for_signals(void *arg)
{
    cli_interrupt *interrupt = arg;
    sigset_t set;
    waited_signals(&set, interrupt->waits_for_all);
    for (;;) {
        int which = 0;
        if (sigwait(&set, &which) != 0 || which == SIGUSR1) return NULL;
        handle_signal(interrupt, which);
    }
}

static int start_thread(cli_interrupt *interrupt)
{
    sigset_t set;
    waited_signals(&set, interrupt->waits_for_all);
    int code = pthread_sigmask(SIG_BLOCK, &set, NULL);
    if (code == 0) code = pthread_create(&interrupt->thread, NULL, wait_for_signals, interrupt);
    return code;
}

static void stop_thread(cli_interrupt *interrupt)
{
    pthread_kill(interrupt->thread, SIGUSR1);
    pthread_join(interrupt->thread, NULL);
}

int cli_interrupt_start(cli_interrupt **out)
{
    cli_interrupt *interrupt = cli_alloc(1, sizeof *interrupt);
    pthread_mutex_init(&interrupt->lock, NULL);
    const int code = start_thread(interrupt);
    if (code != 0) {
        free(interrupt);
        return cli_fail("cannot start a thread: error %d (ulimit -u, ulimit -v)", code);
    }
    *out = interrupt;
    return CLI_DONE;
}

void cli_interrupt_stop(cli_interrupt *interrupt)
{
    stop_thread(interrupt);
    pthread_mutex_destroy(&interrupt->lock);
    free(interrupt);
}

/* The thread is made anew, since it has to wait for more. */
int cli_interrupt_handle(cli_interrupt *interrupt, cli_signal_fn *handle, void *user)
{
    stop_thread(interrupt);
    interrupt->waits_for_all = true;
    interrupt->handle = handle;
    interrupt->user = user;
    const int code = start_thread(interrupt);
    if (code == 0) return CLI_DONE;
    interrupt->handle = NULL;
    return cli_fail("cannot start a thread: error %d (ulimit -u, ulimit -v)", code);
}

void cli_interrupt_unhandle(cli_interrupt *interrupt)
{
    pthread_mutex_lock(&interrupt->lock);
    interrupt->handle = NULL;
    pthread_mutex_unlock(&interrupt->lock);
}

void cli_interrupt_watch(cli_interrupt *interrupt, skv_engine *engine)
{
    pthread_mutex_lock(&interrupt->lock);
    interrupt->watched = true;
    interrupt->engine = engine;
    interrupt->raised = false;
    pthread_mutex_unlock(&interrupt->lock);
}

void cli_interrupt_attach(cli_interrupt *interrupt, skv_engine *engine)
{
    pthread_mutex_lock(&interrupt->lock);
    interrupt->engine = engine;
    if (engine && interrupt->raised) skv_cancel(engine);
    pthread_mutex_unlock(&interrupt->lock);
}

void cli_interrupt_unwatch(cli_interrupt *interrupt)
{
    pthread_mutex_lock(&interrupt->lock);
    if (interrupt->watched) interrupt->watched_until_ns = skv_now_ns();
    interrupt->watched = false;
    interrupt->engine = NULL;
    pthread_mutex_unlock(&interrupt->lock);
}

bool cli_interrupted(cli_interrupt *interrupt)
{
    pthread_mutex_lock(&interrupt->lock);
    const bool raised = interrupt->raised;
    pthread_mutex_unlock(&interrupt->lock);
    return raised;
}

int cli_interrupt_check(skv_status status, const skv_error *err, const char *what_stays)
{
    if (status != SKV_CANCELLED) return cli_check(status, err);
    return cli_fail("interrupted%s%s", what_stays[0] ? ": " : "", what_stays);
}
