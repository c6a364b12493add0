/* The watchdog: see watchdog.h. */
#define _GNU_SOURCE /* backtrace, gettid's kin */
#include "watchdog.h"

#include <dirent.h>
#include <execinfo.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "server_impl.h"

enum {
    FRAMES_MAX = 48,
    THREADS_MAX = 40, /* whose stacks are written: the worker's and the engine's come early */
    STACK_MS = 20,    /* for each of them to write it */
    NOTIFY_MS = 1000
};

/* ---- where threads stand ---- */

static int stack_signal(void)
{
    return SIGRTMIN + 4;
}

/* Neither takes memory nor waits for locks once the unwinder is loaded. */
static void write_stack(int which)
{
    void *frames[FRAMES_MAX];
    (void)which;
    backtrace_symbols_fd(frames, backtrace(frames, FRAMES_MAX), STDERR_FILENO);
}

static void prepare_stacks(void)
{
    void *frame[1];
    struct sigaction action = {.sa_handler = write_stack, .sa_flags = SA_RESTART};
    (void)backtrace(frame, 1); /* loads the unwinder */
    sigemptyset(&action.sa_mask);
    (void)sigaction(stack_signal(), &action, NULL);
}

static void write_stacks(void)
{
    DIR *tasks = opendir("/proc/self/task");
    const struct dirent *task;
    const struct timespec pause = {.tv_nsec = STACK_MS * 1000000L};
    for (int i = 0; tasks != NULL && i < THREADS_MAX && (task = readdir(tasks)) != NULL;) {
        const long id = strtol(task->d_name, NULL, 10);
        if (id <= 0) continue;
        i++;
        fprintf(stderr, "swiftkv: thread %ld\n", id);
        (void)syscall(SYS_tgkill, (long)getpid(), id, (long)stack_signal());
        (void)nanosleep(&pause, NULL);
    }
    if (tasks != NULL) closedir(tasks);
}

/* ---- systemd ---- */

static int open_notify(void)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const size_t n = path != NULL ? strlen(path) : 0;
    if (n == 0 || n >= sizeof address.sun_path) return -1;
    memcpy(address.sun_path, path, n);
    if (path[0] == '@') address.sun_path[0] = 0; /* a name that is in no folder */
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
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
    (void)!send(dog->notify_fd, alive, sizeof alive - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* ---- looking ---- */

void watchdog_open(watchdog *dog)
{
    *dog = (watchdog){.notify_fd = open_notify()};
    prepare_stacks();
}

void watchdog_close(watchdog *dog)
{
    if (dog->notify_fd >= 0) close(dog->notify_fd);
    dog->notify_fd = -1;
}

bool watchdog_stalled(http_server *server)
{
    const server_state state = server_get_state(server);
    if (state != SERVER_READY && state != SERVER_DRAINING) return false;
    const uint64_t ms = skv_scheduler_stalled_ms(server->scheduler);
    return (double)ms > server->options.watchdog_seconds * 1e3;
}

void watchdog_look(watchdog *dog, http_server *server, bool stood_still)
{
    const uint64_t now = skv_now_ns();
    const double seconds = server->options.watchdog_seconds;
    if (stood_still) dog->patient_until_ns = now + (uint64_t)(seconds * 1e9);
    const bool stalled = now >= dog->patient_until_ns && watchdog_stalled(server);
    if (stalled && !dog->stalled) {
        fprintf(stderr,
                "swiftkv: stalled: there is work, and no step for %g s; where threads stand:\n",
                seconds);
        write_stacks();
    } else if (!stalled && dog->stalled) {
        fprintf(stderr, "swiftkv: no longer stalled\n");
    }
    dog->stalled = stalled;
    if (!stalled) notify(dog, now);
}
