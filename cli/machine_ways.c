/* The ways of this system (base/system.h), tried one by one, each a line of the report. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/system.h"
#include "base/system_sockets.h"
#include "machine_report.h"

enum { WAIT_MS = 20, PATIENCE_MS = 5000, TRIED_BYTES = 4 << 20, THREADS_MAX = 64 };
#define NS_A_MS 1000000u

static const char *works(bool ok)
{
    return ok ? "works" : "FAILS";
}

static bool is_readable(int fd)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    return poll(&poll_fd, 1, 0) == 1 && (poll_fd.revents & POLLIN);
}

static void try_wake(void)
{
    skv_wake wake;
    bool ok = skv_wake_open(&wake);
    if (ok) {
        ok = !is_readable(wake.fd);
        skv_wake_ring(&wake);
        skv_wake_ring(&wake);
        ok = ok && is_readable(wake.fd);
        skv_wake_clear(&wake);
        ok = ok && !is_readable(wake.fd);
    }
    skv_wake_close(&wake);
    machine_say("wake-ups", "%s, descriptors: %zu", works(ok), skv_wake_files());
}

static void try_wait(void)
{
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t cond;
    skv_cond_init(&cond);
    const uint64_t start = skv_clock_ns();
    const struct timespec end = skv_clock_in(WAIT_MS * NS_A_MS);
    int code = 0;
    (void)pthread_mutex_lock(&mutex);
    while (code == 0) code = skv_cond_wait_until(&cond, &mutex, &end);
    (void)pthread_mutex_unlock(&mutex);
    const uint64_t passed = skv_clock_ns() - start;
    (void)pthread_cond_destroy(&cond);
    machine_say("timed waits", "%s, %d ms took %.1f",
                works(code == ETIMEDOUT && passed >= WAIT_MS * NS_A_MS), WAIT_MS,
                (double)passed / NS_A_MS);
}

/* ---- sockets ---- */

typedef struct connection {
    int listener, client, server; /* -1: not open */
} connection;

/* Over loopback, at a port of the system's choice. */
static bool open_connection(connection *c)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_storage other;
    socklen_t n = sizeof address;
    c->listener = skv_socket_open(AF_INET, SOCK_STREAM, true);
    if (c->listener < 0 || bind(c->listener, (struct sockaddr *)&address, n) != 0 ||
        listen(c->listener, 1) != 0 ||
        getsockname(c->listener, (struct sockaddr *)&address, &n) != 0) {
        return false;
    }
    c->client = skv_socket_open(AF_INET, SOCK_STREAM, true);
    if (c->client < 0 || connect(c->client, (struct sockaddr *)&address, n) != 0) return false;
    c->server = skv_socket_accept(c->listener, &other);
    return c->server >= 0;
}

static void close_socket(int *fd)
{
    if (*fd >= 0) (void)close(*fd);
    *fd = -1;
}

static void try_sockets(void)
{
    connection c = {-1, -1, -1};
    char bytes[8] = "hello";
    size_t queued = SIZE_MAX;
    bool sent = false, stays = false, left = false, told = false, read_all = false;
    const bool connected = open_connection(&c);
    if (connected) {
        sent = skv_socket_send(c.server, bytes, sizeof bytes) == (ssize_t)sizeof bytes;
        read_all =
            sent && recv(c.client, bytes, sizeof bytes, MSG_WAITALL) == (ssize_t)sizeof bytes;
        told = skv_socket_queued(c.server, &queued);
        stays = !skv_socket_has_left(c.server, NULL, 0);
        close_socket(&c.client);
        left = skv_socket_has_left(c.server, NULL, PATIENCE_MS);
    }
    close_socket(&c.client);
    close_socket(&c.server);
    close_socket(&c.listener);
    machine_say("sockets", "connecting %s, sending %s", works(connected), works(sent && read_all));
    machine_say("", "noticing that the other side leaves %s", works(stays && left));
    if (told) machine_say("", "%zu bytes unsent after all were read", queued);
    if (!told) machine_say("", "unsent bytes are not told");
}

/* ---- files, memory, threads ---- */

static void try_files(void)
{
    struct stat info;
    FILE *file = tmpfile(); /* without a name */
    const int fd = file ? fileno(file) : -1;
    const bool written = file && fputs("text", file) >= 0 && fflush(file) == 0;
    const uint64_t start = skv_clock_ns();
    const bool synced = written && skv_file_sync(fd) == 0;
    const double sync_ms = (double)(skv_clock_ns() - start) / NS_A_MS;
    const bool locked = written && skv_file_lock(fd);
    const bool timed = written && fstat(fd, &info) == 0 && skv_file_modified(&info).tv_sec > 0;
    const size_t n_open = skv_files_open();
    if (file) (void)fclose(file);
    machine_say("files", "syncing %s in %.1f ms, locking %s, times %s, %zu open", works(synced),
                sync_ms, works(locked), works(timed), n_open);
    unsigned char first[16] = {0}, second[16] = {0};
    const bool drawn = skv_random_fill(first, sizeof first) &&
                       skv_random_fill(second, sizeof second) &&
                       memcmp(first, second, sizeof first) != 0;
    machine_say("random bytes", "%s", works(drawn));
}

static void try_pages(void)
{
    unsigned char *block = skv_pages_map(TRIED_BYTES);
    bool ok = block;
    for (size_t i = 0; ok && i < TRIED_BYTES; i += 1024) {
        ok = block[i] == 0;
        block[i] = 1;
    }
    if (block) (void)munmap(block, TRIED_BYTES);
    machine_say("mapped pages", "%s", works(ok));
}

/* The text itself has the names of files. */
static void try_threads(void)
{
    long ids[THREADS_MAX];
    char text[512];
    int ends[2];
    size_t n_bytes = 0;
    ssize_t n;
    skv_thread_computes();
    const size_t n_threads = skv_threads_list(ids, THREADS_MAX);
    if (pipe(ends) == 0) {
        skv_stack_prepare();
        skv_stack_write(ends[1]);
        (void)close(ends[1]);
        while ((n = read(ends[0], text, sizeof text)) > 0) n_bytes += (size_t)n;
        (void)close(ends[0]);
    }
    if (n_threads == 0) {
        machine_say("stacks", "are not told");
    } else {
        machine_say("stacks", "%s: %zu threads, the caller's has %zu bytes of text",
                    works(n_bytes > 0), n_threads, n_bytes);
    }
}

void machine_try_ways(void)
{
    machine_say("ways", "%s", skv_system_ways());
    try_wake();
    try_wait();
    try_sockets();
    try_files();
    try_pages();
    try_threads();
}
