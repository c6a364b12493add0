/* The ways of every POSIX system, for all but Linux, and for tests there: see system.h. */
#include "base/system_posix.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/size.h"
#include "base/system.h"
#include "base/system_sockets.h"

/* ---- time ---- */

static const uint64_t SLICE_NS = 500000000; /* of a wait */

void skv_cond_init(pthread_cond_t *cond)
{
    (void)pthread_cond_init(cond, NULL);
}

/* macOS has only conditions that wait by the time of day. Short waits bound the error when the
 * clock is set. */
int skv_cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *end)
{
    const uint64_t end_ns = (uint64_t)end->tv_sec * 1000000000u + (uint64_t)end->tv_nsec;
    const uint64_t now_ns = skv_clock_ns();
    if (now_ns >= end_ns) return ETIMEDOUT;
    struct timespec slice;
    (void)clock_gettime(CLOCK_REALTIME, &slice);
    const uint64_t left_ns = end_ns - now_ns < SLICE_NS ? end_ns - now_ns : SLICE_NS;
    const uint64_t sum_ns = (uint64_t)slice.tv_nsec + left_ns;
    slice.tv_sec += (time_t)(sum_ns / 1000000000u);
    slice.tv_nsec = (long)(sum_ns % 1000000000u);
    const int code = pthread_cond_timedwait(cond, mutex, &slice);
    if (code != ETIMEDOUT) return code;
    return skv_clock_ns() >= end_ns ? ETIMEDOUT : 0;
}

/* ---- descriptors ---- */

/* False: the descriptor is closed again. */
static bool set_flags(int *fd, bool waits)
{
    const int flags = fcntl(*fd, F_GETFL);
    const int wanted = waits ? flags & ~O_NONBLOCK : flags | O_NONBLOCK;
    if (flags >= 0 && fcntl(*fd, F_SETFD, FD_CLOEXEC) == 0 && fcntl(*fd, F_SETFL, wanted) == 0) {
        return true;
    }
    (void)close(*fd);
    *fd = -1;
    return false;
}

size_t skv_wake_files(void)
{
    return 2;
}

bool skv_wake_open(skv_wake *wake)
{
    int ends[2];
    *wake = (skv_wake){-1, -1};
    if (pipe(ends) != 0) return false;
    const bool first = set_flags(&ends[0], false), second = set_flags(&ends[1], false);
    *wake = (skv_wake){ends[0], ends[1]};
    if (first && second) return true;
    skv_wake_close(wake);
    return false;
}

/* A pipe that is full has been rung. */
void skv_wake_ring(const skv_wake *wake)
{
    (void)!write(wake->ringer, "", 1);
}

void skv_wake_clear(const skv_wake *wake)
{
    char bytes[64];
    while (read(wake->fd, bytes, sizeof bytes) == (ssize_t)sizeof bytes) continue;
}

void skv_wake_close(skv_wake *wake)
{
    if (wake->fd >= 0) (void)close(wake->fd);
    if (wake->ringer >= 0) (void)close(wake->ringer);
    *wake = (skv_wake){-1, -1};
}

/* ---- sockets ---- */

int skv_socket_open(int family, int type, bool waits)
{
    int fd = socket(family, type, 0);
    if (fd >= 0 && set_flags(&fd, waits)) skv_system_quiet_socket(fd);
    return fd;
}

/* Some systems hand on the flags of the listening socket. */
int skv_socket_accept(int fd, struct sockaddr_storage *address)
{
    socklen_t n = sizeof *address;
    int connection = accept(fd, (struct sockaddr *)address, &n);
    if (connection >= 0 && set_flags(&connection, true)) skv_system_quiet_socket(connection);
    return connection;
}

ssize_t skv_socket_send(int fd, const void *data, size_t n)
{
    return send(fd, data, n, skv_system_send_flags());
}

ssize_t skv_socket_send_parts(int fd, struct iovec *parts, size_t n_parts)
{
    /* The length is an int here and a size there; there are few parts. */
    const struct msghdr message = {.msg_iov = parts, .msg_iovlen = (unsigned short)n_parts};
    return sendmsg(fd, &message, skv_system_send_flags());
}

/* 0: the peer has closed its end; above 0: unread bytes; below 0: neither. */
static ssize_t peek(int fd)
{
    char byte;
    const ssize_t n = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    const bool quiet = n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
    return n < 0 && !quiet ? 0 : n;
}

/* Unread bytes would end every wait at once: while there are any, only a broken connection
 * counts. */
bool skv_socket_has_left(int fd, const skv_wake *wake, int wait_ms)
{
    const ssize_t before = peek(fd);
    struct pollfd fds[2] = {{.fd = fd, .events = before > 0 ? 0 : POLLIN},
                            {.fd = wake ? wake->fd : -1, .events = POLLIN}};
    if (before == 0) return true;
    (void)poll(fds, wake ? 2 : 1, wait_ms);
    if (fds[0].revents & (POLLERR | POLLHUP | POLLNVAL)) return true;
    return fds[0].revents != 0 && peek(fd) == 0;
}

/* ---- files ---- */

bool skv_file_lock(int fd)
{
    return flock(fd, LOCK_EX | LOCK_NB) == 0;
}

int skv_file_open_again(int fd)
{
    char path[256];
    if (ttyname_r(fd, path, sizeof path) != 0) return -1;
    return open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
}

/* Numbers are given out from 0 on: looking at the first ones is enough. */
size_t skv_files_open(void)
{
    size_t n = 0;
    for (int fd = 0; fd < 1024; fd++) n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

/* ---- processors ---- */

size_t skv_processors_affinity(pthread_t thread)
{
    (void)thread; /* no thread is bound to a processor */
    const long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 1 ? (size_t)n : 1;
}

bool skv_thread_processors(pthread_t thread, skv_processor_set *out)
{
    (void)thread;
    skv_processors_get(out);
    return true;
}

bool skv_thread_bind(pthread_t thread, const skv_processor_set *processors)
{
    (void)thread;
    (void)processors;
    return false;
}

bool skv_memory_has_policy(void)
{
    return false;
}

bool skv_pages_place(void *at, size_t n_bytes, unsigned node)
{
    (void)at;
    (void)n_bytes;
    (void)node;
    return false;
}

void skv_processors_get(skv_processor_set *out)
{
    *out = (skv_processor_set){0};
    const size_t n = skv_min_size(skv_processors_affinity(pthread_self()), SKV_PROCESSORS_MAX);
    for (size_t i = 0; i < n; i++) out->bits[i / 64] |= UINT64_C(1) << i % 64;
}
