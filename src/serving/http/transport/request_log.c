/*
 * The request log: a line for every request that has ended, JSON in a file, or words on a terminal.
 * docs/guides/serve.md explains its fields. It never holds a prompt, an answer or a key, but for
 * the part of prompts that --log-prompt-text shows, and no control character of a client.
 */
#define _GNU_SOURCE /* clock_gettime, gmtime_r */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/system.h"
#include "base/utf8.h"
#include "transport/exchange.h"

typedef struct request_log {
    char *path;           /* owned; NULL: words on the terminal */
    pthread_mutex_t lock; /* guards fd */
    int fd;
} request_log;

static bool fail(char *error, const char *path, const char *what)
{
    (void)snprintf(error, SKV_ERROR_TEXT_MAX, "%s: %s", path ? path : "the request log", what);
    return false;
}

/* A terminal that was stopped (Ctrl-S) loses lines; it does not stop the server. The shell's own
 * descriptor stays as it is. */
static int open_terminal(void)
{
    const int fd = skv_file_open_again(STDERR_FILENO);
    return fd >= 0 ? fd : fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
}

static int open_path(const char *path)
{
    if (!path) return open_terminal();
    if (strcmp(path, "-") == 0) return fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    return open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0640);
}

bool request_log_open(const char *path, request_log **out, char *error)
{
    request_log *log = calloc(1, sizeof *log);
    if (log && path) log->path = strdup(path);
    if (!log || (path && !log->path)) {
        free(log);
        return fail(error, path, "no memory");
    }
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

/* A path as clients have to write it anyway: other characters than plain ASCII become %XX. */
static void add_path(skv_buf *out, const char *path)
{
    for (const char *at = path; *at; at++) {
        const bool plain = *at > ' ' && *at < 0x7f && *at != '"' && *at != '\\';
        if (plain) {
            skv_buf_byte(out, *at);
        } else {
            skv_buf_printf(out, "%%%02X", (unsigned)(unsigned char)*at);
        }
    }
}

static double ms_of(uint64_t ns)
{
    return (double)ns * 1e-6;
}

/* A client's fault is named by its code alone, since the message may quote it; other failures
 * have their reason. NULL: neither. */
static const char *error_name(const exchange *ex)
{
    const api_error *error = &ex->refusal;
    if (error->status == 0 || error->status == LIMIT_STATUS_CLIENT_LEFT) return NULL;
    return error->code ? error->code : error->type;
}

static const char *reason_of(const exchange *ex)
{
    const int status = ex->refusal.status;
    const bool ours = status == 408 || status == 429 || status == 500 || status == 503;
    return ours ? ex->refusal.message : "";
}

/* ---- JSON ---- */

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

static void add_trace(skv_buf *out, const exchange *ex)
{
    add_text(out, "id", ex->id);
    add_text(out, "request_id", ex->trace.request_id);
    if (ex->trace.trace_id[0] == 0) return;
    add_text(out, "trace_id", ex->trace.trace_id);
    add_text(out, "parent_id", ex->trace.parent_id);
    add_text(out, "span_id", ex->id);
    skv_buf_printf(out, ",\"sampled\":%s", ex->trace.sampled ? "true" : "false");
    add_text(out, "tracestate", ex->trace.state);
}

/* Of phases that may take long, but seldom do. */
static void add_ms(skv_buf *out, const char *name, uint64_t ns)
{
    if (ns > 0) skv_buf_printf(out, ",\"%s\":%.3f", name, ms_of(ns));
}

/* Why no more of the prompt was cached; its text where the operator has asked for it. */
static void add_miss(skv_buf *out, const skv_cache_miss *miss)
{
    skv_buf_printf(out, ",\"cache_miss\":\"%s\"", skv_miss_name(miss->reason));
    if (miss->reason == SKV_MISS_NONE) return;
    skv_buf_printf(out, ",\"cache_miss_token\":%zu,\"cache_lost_tokens\":%zu", miss->token,
                   miss->lost_tokens);
    add_text(out, "cache_sent_text", miss->sent);
    add_text(out, "cache_known_text", miss->known);
}

static void add_used(skv_buf *out, const exchange *ex)
{
    const skv_job_stats *used = &ex->used;
    add_ms(out, "load_ms", ex->load_ns);
    add_ms(out, "memory_ms", ex->memory_ns);
    if (used->prompt_tokens == 0) return;
    skv_buf_printf(out,
                   ",\"prompt_tokens\":%zu,\"cached_tokens\":%zu,\"completion_tokens\":%zu,"
                   "\"preemptions\":%zu,\"read_ms\":%.3f,\"queue_ms\":%.3f,\"wait_ms\":%.3f,"
                   "\"prompt_ms\":%.3f,\"predicted_ms\":%.3f",
                   used->prompt_tokens, used->cached_tokens, used->completion_tokens,
                   used->preemptions, ms_of(ex->read_ns), ms_of(used->queue_ns),
                   ms_of(used->wait_ns), ms_of(used->prefill_ns), ms_of(used->decode_ns));
    if (used->shifted_tokens > 0) {
        skv_buf_printf(out, ",\"shifted_tokens\":%zu", used->shifted_tokens);
    }
    add_miss(out, &used->miss);
    skv_buf changes = {.max = LIMIT_TEXT_BYTES};
    prompt_report_tell(&ex->changed, &changes);
    if (changes.size > 0) add_text(out, "prompt_changes", changes.data);
    skv_buf_release(&changes);
}

static void write_json(skv_buf *out, const exchange *ex)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    add_time(out, &now);
    add_trace(out, ex);
    add_text(out, "method", ex->method);
    skv_buf_text(out, ",\"path\":\"");
    add_path(out, ex->path);
    skv_buf_printf(out, "\",\"status\":%d,\"whole\":%s,\"duration_ms\":%.3f,\"key\":%llu",
                   ex->status, ex->whole ? "true" : "false", ms_of(skv_now_ns() - ex->begun_ns),
                   (unsigned long long)ex->tenant);
    if (ex->model) add_text(out, "model", ex->model->name);
    add_used(out, ex);
    const char *error = error_name(ex);
    if (error) add_text(out, "error", error);
    add_text(out, "reason", reason_of(ex));
    skv_buf_text(out, "}\n");
}

/* ---- words ---- */

/* Our own text, but the names in it may come from anywhere: nothing in it drives the terminal. */
static void add_words(skv_buf *out, const char *text)
{
    for (size_t n = strlen(text), step; n > 0; text += step, n -= step) {
        uint32_t code;
        step = skv_utf8_decode(text, n, &code);
        const bool control = code < 0x20 || (code >= 0x7f && code < 0xa0);
        if (code == SKV_UTF8_BAD || control) {
            skv_buf_byte(out, '?');
        } else {
            skv_buf_append(out, text, step);
        }
    }
}

/* The parts of a request's time, in their order. */
static void add_parts(skv_buf *out, const exchange *ex)
{
    const skv_job_stats *used = &ex->used;
    const struct {
        const char *name;
        uint64_t ns;
    } parts[] = {{"reading", ex->read_ns},   {"loading", ex->load_ns}, {"memory", ex->memory_ns},
                 {"queue", used->queue_ns},  {"turns", used->wait_ns}, {"prompt", used->prefill_ns},
                 {"answer", used->decode_ns}};
    const char *comma = ": ";
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (ms_of(parts[i].ns) < 0.5) continue;
        skv_buf_printf(out, "%s%s %.0f", comma, parts[i].name, ms_of(parts[i].ns));
        comma = ", ";
    }
}

static void write_words(skv_buf *out, const exchange *ex)
{
    const time_t now = time(NULL);
    struct tm parts;
    char clock[16] = "";
    if (localtime_r(&now, &parts)) (void)strftime(clock, sizeof clock, "%H:%M:%S", &parts);
    /* In place of a line that tells progress. */
    skv_buf_printf(out, "\r\x1b[K%s %d %s", clock, ex->status,
                   ex->method[0] ? ex->method : "(no request)");
    if (ex->path[0]) skv_buf_text(out, " ");
    add_path(out, ex->path);
    if (ex->model) {
        skv_buf_text(out, " ");
        add_words(out, ex->model->name);
    }
    if (ex->used.prompt_tokens > 0) {
        skv_buf_printf(out, ", %zu prompt tokens (%zu cached), %zu generated",
                       ex->used.prompt_tokens, ex->used.cached_tokens, ex->used.completion_tokens);
    }
    if (ex->used.preemptions > 0) skv_buf_printf(out, ", preempted %zu x", ex->used.preemptions);
    skv_buf_printf(out, ", %.0f ms", ms_of(skv_now_ns() - ex->begun_ns));
    add_parts(out, ex);
    const char *error = error_name(ex), *reason = reason_of(ex);
    if (error) {
        skv_buf_text(out, "; ");
        add_words(out, reason[0] ? reason : error);
    } else if (!ex->whole || ex->status == LIMIT_STATUS_CLIENT_LEFT) {
        skv_buf_text(out, "; the client left");
    }
    skv_buf_text(out, "\n");
}

/* ---- lines ---- */

void request_log_add(request_log *log, const exchange *ex)
{
    skv_buf out = {.max = LIMIT_TEXT_BYTES};
    if (log->path) {
        write_json(&out, ex);
    } else {
        write_words(&out, ex);
    }
    if (!out.failed) {
        /* One write a line: lines of several threads, or processes, do not mix. */
        pthread_mutex_lock(&log->lock);
        const ssize_t n = write(log->fd, out.data, out.size);
        pthread_mutex_unlock(&log->lock);
        (void)n;
    }
    skv_buf_release(&out);
}
