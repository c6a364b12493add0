/*
 * The request log: a line of JSON for every request that has ended. docs/guides/serve.md tells its
 * fields. A prompt or an answer is never in it.
 */
#define _GNU_SOURCE /* clock_gettime, gmtime_r */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "exchange.h"

typedef struct request_log {
    char *path;           /* owned */
    pthread_mutex_t lock; /* guards fd */
    int fd;
} request_log;

static bool fail(char *error, const char *path, const char *what)
{
    (void)snprintf(error, SKV_ERROR_TEXT_MAX, "%s: %s", path, what);
    return false;
}

static int open_path(const char *path)
{
    if (strcmp(path, "-") == 0) return fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    return open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0640);
}

bool request_log_open(const char *path, request_log **out, char *error)
{
    request_log *log = calloc(1, sizeof *log);
    const size_t n = strlen(path) + 1;
    if (log) log->path = malloc(n);
    if (!log || !log->path) {
        free(log);
        return fail(error, path, "no memory");
    }
    memcpy(log->path, path, n);
    pthread_mutex_init(&log->lock, NULL);
    log->fd = open_path(path);
    if (log->fd < 0) {
        (void)fail(error, path, strerror(errno));
        request_log_close(log);
        return false;
    }
    *out = log;
    return true;
}

void request_log_close(request_log *log)
{
    if (!log) return;
    if (log->fd >= 0) close(log->fd);
    pthread_mutex_destroy(&log->lock);
    free(log->path);
    free(log);
}

bool request_log_reopen(request_log *log, char *error)
{
    const int fd = open_path(log->path);
    if (fd < 0) return fail(error, log->path, strerror(errno));
    pthread_mutex_lock(&log->lock);
    const int before = log->fd;
    log->fd = fd;
    pthread_mutex_unlock(&log->lock);
    close(before);
    return true;
}

/* ,"name":"text" where there is one */
static void add_text(skv_buf *out, const char *name, const char *text)
{
    if (text[0] == 0) return;
    skv_buf_printf(out, ",\"%s\":", name);
    out_json_str(out, text);
}

/* RFC 3339, UTC, milliseconds. */
static void add_time(skv_buf *out, const struct timespec *now)
{
    struct tm parts;
    char text[32];
    if (!gmtime_r(&now->tv_sec, &parts) ||
        strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts) == 0) {
        text[0] = 0;
    }
    skv_buf_printf(out, "{\"time\":\"%s.%03ldZ\"", text, now->tv_nsec / 1000000);
}

static void write_line(skv_buf *out, const exchange *ex)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    add_time(out, &now);
    add_text(out, "id", ex->id);
    add_text(out, "request_id", ex->trace.request_id);
    if (ex->trace.trace_id[0] != 0) {
        add_text(out, "trace_id", ex->trace.trace_id);
        add_text(out, "parent_id", ex->trace.parent_id);
        add_text(out, "span_id", ex->id);
        skv_buf_printf(out, ",\"sampled\":%s", ex->trace.sampled ? "true" : "false");
        add_text(out, "tracestate", ex->trace.state);
    }
    add_text(out, "method", ex->method);
    add_text(out, "path", ex->path);
    skv_buf_printf(out, ",\"status\":%d,\"whole\":%s,\"duration_ms\":%.3f,\"key\":%llu", ex->status,
                   ex->whole ? "true" : "false", (double)(skv_now_ns() - ex->begun_ns) * 1e-6,
                   (unsigned long long)ex->tenant);
    if (ex->used.prompt_tokens > 0) {
        skv_buf_printf(out,
                       ",\"prompt_tokens\":%zu,\"cached_tokens\":%zu,\"completion_tokens\":%zu,"
                       "\"queue_ms\":%.3f,\"prompt_ms\":%.3f,\"predicted_ms\":%.3f",
                       ex->used.prompt_tokens, ex->used.cached_tokens, ex->used.completion_tokens,
                       (double)ex->used.queue_ns * 1e-6, (double)ex->used.prefill_ns * 1e-6,
                       (double)ex->used.decode_ns * 1e-6);
    }
    skv_buf_text(out, "}\n");
}

void request_log_add(request_log *log, const exchange *ex)
{
    skv_buf out = {.max = LIMIT_TEXT_BYTES};
    write_line(&out, ex);
    if (!out.failed) {
        /* One write a line: lines of several threads, or processes, do not mix. */
        pthread_mutex_lock(&log->lock);
        const ssize_t n = write(log->fd, out.data, out.size);
        pthread_mutex_unlock(&log->lock);
        (void)n;
    }
    skv_buf_release(&out);
}
