/* Whether the worker goes on: see server_impl.h. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/system.h"
#include "base/system_sockets.h"
#include "state/server_impl.h"

enum {
    THREADS_MAX = 40, /* threads whose stacks are written: the worker's and the engine's come
                       * early */
    STACK_MS = 20,    /* for each of them to write it */
    NOTIFY_MS = 1000,
    MOMENT_MS = 400 /* the most that counts between two looks */
};

/* ---- where threads stand ---- */

/* Takes no memory and waits for no lock. */
static void write_stack(int which)
{
    (void)which;
    skv_stack_write(STDERR_FILENO);
}

static void prepare_stacks(void)
{
    struct sigaction action = {.sa_handler = write_stack, .sa_flags = SA_RESTART};
    skv_stack_prepare();
    sigemptyset(&action.sa_mask);
    (void)sigaction(skv_thread_signal_number(), &action, NULL);
}

static void write_stacks(void)
{
    long ids[THREADS_MAX];
    const size_t n = skv_threads_list(ids, THREADS_MAX);
    const struct timespec pause = {.tv_nsec = STACK_MS * 1000000L};
    if (n == 0) fprintf(stderr, "swiftkv: this system does not tell\n");
    for (size_t i = 0; i < n; i++) {
        fprintf(stderr, "swiftkv: thread %ld\n", ids[i]);
        skv_thread_signal(ids[i], skv_thread_signal_number());
        (void)nanosleep(&pause, NULL);
    }
}

/* ---- systemd ---- */

static int open_notify(void)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const size_t n = path ? strlen(path) : 0;
    if (n == 0 || n >= sizeof address.sun_path) return -1;
    memcpy(address.sun_path, path, n);
    if (path[0] == '@') address.sun_path[0] = 0; /* a name that is in no folder */
    const int fd = skv_socket_open(AF_UNIX, SOCK_DGRAM, true);
    const socklen_t n_address = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n);
    if (fd >= 0 && connect(fd, (const struct sockaddr *)&address, n_address) == 0) return fd;
    if (fd >= 0) close(fd);
    return -1;
}

static void notify(watchdog *dog, uint64_t now)
{
    static const char alive[] = "WATCHDOG=1";
    if (dog->notify_fd < 0 || now - dog->told_ns < NOTIFY_MS * UINT64_C(1000000)) return;
    dog->told_ns = now;
    (void)skv_socket_send(dog->notify_fd, alive, sizeof alive - 1);
}

/* ---- looking ---- */

void watchdog_open(watchdog *dog)
{
    *dog = (watchdog){.notify_fd = open_notify(), .looked_ns = skv_now_ns()};
    prepare_stacks();
}

void watchdog_close(watchdog *dog)
{
    if (dog->notify_fd >= 0) close(dog->notify_fd);
    dog->notify_fd = -1;
}

/* Of the model with the worker that has stood still longest. */
static uint64_t stalled_ms(http_server *server)
{
    uint64_t most = 0;
    pthread_mutex_lock(&server->lock);
    const bool serves = server->state == SERVER_READY || server->state == SERVER_DRAINING;
    for (size_t i = 0; serves && i < server->n_models; i++) {
        const server_model *model = &server->models[i];
        const uint64_t ms = model_is_loaded(model) ? skv_scheduler_stalled_ms(model->scheduler) : 0;
        if (ms > most) most = ms;
    }
    pthread_mutex_unlock(&server->lock);
    return most;
}

static void count_quiet(watchdog *dog, http_server *server, uint64_t now)
{
    const uint64_t ms = stalled_ms(server);
    const uint64_t moment = MOMENT_MS * UINT64_C(1000000);
    const uint64_t quiet = ms * UINT64_C(1000000), passed = now - dog->looked_ns;
    const bool went_on = quiet < passed; /* since the last look */
    const uint64_t part = went_on ? quiet : passed;
    dog->quiet_ns = (went_on ? 0 : dog->quiet_ns) + (part < moment ? part : moment);
    dog->looked_ns = now;
}

void watchdog_look(watchdog *dog, http_server *server)
{
    const uint64_t now = skv_now_ns();
    const double seconds = server->options.watchdog_seconds;
    count_quiet(dog, server, now);
    const bool stalled = (double)dog->quiet_ns > seconds * 1e9, before = atomic_load(&dog->stalled);
    if (stalled && !before) {
        fprintf(stderr,
                "swiftkv: stalled: there is work, and no step for %g s; where threads stand:\n",
                seconds);
        write_stacks();
    } else if (!stalled && before) {
        fprintf(stderr, "swiftkv: no longer stalled\n");
    }
    atomic_store(&dog->stalled, stalled);
    if (!stalled) notify(dog, now);
}
