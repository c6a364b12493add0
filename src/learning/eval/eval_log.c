/* The log of a run: see eval_log.h. */
#include "eval/eval_log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/system.h"
#include "eval/format.h"
#include "format/json_doc.h"

enum { LOG_MAX = 1 << 30, LINE_MAX = 1 << 26, ENTRIES_MAX = 1 << 26, KEY_DIGITS = 16 };

/* ---- keys ---- */

skv_eval_hash skv_eval_hash_begin(void)
{
    return (skv_eval_hash){0xcbf29ce484222325u};
}

void skv_eval_hash_add(skv_eval_hash *hash, const void *data, size_t n)
{
    const unsigned char *bytes = data;
    for (size_t i = 0; i < n; i++) hash->value = (hash->value ^ bytes[i]) * 0x100000001b3u;
}

void skv_eval_hash_text(skv_eval_hash *hash, const char *text)
{
    if (text) skv_eval_hash_add(hash, text, strlen(text));
    skv_eval_hash_add(hash, text ? "\1" : "\2", 1);
}

static uint64_t hash_of_file(const char *path, const char *name)
{
    skv_eval_hash hash = skv_eval_hash_begin();
    struct stat info;
    skv_eval_hash_text(&hash, name);
    if (stat(path, &info) == 0 && S_ISREG(info.st_mode)) {
        const struct timespec at = skv_file_modified(&info);
        const int64_t what[] = {(int64_t)info.st_size, (int64_t)at.tv_sec, (int64_t)at.tv_nsec};
        skv_eval_hash_add(&hash, what, sizeof what);
    }
    return hash.value;
}

void skv_eval_hash_files(skv_eval_hash *hash, const char *path)
{
    uint64_t sum = 0; /* whatever the order of a folder's entries */
    DIR *folder = path ? opendir(path) : NULL;
    if (path && !folder) sum = hash_of_file(path, "");
    if (folder) {
        for (const struct dirent *entry = readdir(folder); entry; entry = readdir(folder)) {
            char *file = skv_path_join(path, entry->d_name);
            if (file && entry->d_name[0] != '.') sum += hash_of_file(file, entry->d_name);
            skv_free(file);
        }
        (void)closedir(folder);
    }
    skv_eval_hash_add(hash, &sum, sizeof sum);
}

static void add_ids(skv_eval_hash *hash, const skv_ids *ids)
{
    skv_eval_hash_add(hash, &ids->n, sizeof ids->n);
    if (ids->n) skv_eval_hash_add(hash, ids->data, ids->n * sizeof *ids->data);
}

void skv_eval_hash_example(skv_eval_hash *hash, const skv_eval_example *e)
{
    skv_eval_hash_text(hash, e->format->name);
    skv_eval_hash_add(hash, &e->index, sizeof e->index);
    for (size_t i = 0; i < e->n_requests; i++) {
        const skv_eval_request *q = &e->requests[i];
        const size_t what[] = {q->n_context, q->max_new, q->is_true};
        skv_eval_hash_add(hash, what, sizeof what);
        skv_eval_hash_text(hash, q->stop_text);
        add_ids(hash, &q->ids);
    }
    for (size_t i = 0; i < e->n_answers; i++) skv_eval_hash_text(hash, e->answers[i]);
    add_ids(hash, &e->right);
}

/* ---- reading ---- */

static void read_values(const json_t *metrics, skv_eval_entry *entry)
{
    for (size_t i = 0; i < SKV_METRIC_COUNT; i++) {
        const json_t *pair = json_object_get(metrics, skv_metric_name((skv_metric)i));
        if (json_array_size(pair) != 2) continue;
        entry->values[i] = (skv_metric_value){json_number_value(json_array_get(pair, 0)),
                                              json_number_value(json_array_get(pair, 1))};
    }
}

/* False for an object that is none of ours. */
static bool read_entry(const json_t *object, skv_eval_entry *entry)
{
    const char *key = json_string_value(json_object_get(object, "key"));
    const json_t *metrics = json_object_get(object, "metrics");
    char *end = NULL;
    if (!key || strlen(key) != KEY_DIGITS || !json_is_object(metrics)) return false;
    const json_t *depth = json_object_get(object, "depth");
    *entry =
        (skv_eval_entry){.key = strtoull(key, &end, 16),
                         .skipped = json_is_true(json_object_get(object, "skipped")),
                         .length = (size_t)json_integer_value(json_object_get(object, "length")),
                         .depth = json_is_number(depth) ? json_number_value(depth) : (double)NAN};
    read_values(metrics, entry);
    return *end == 0;
}

static skv_status keep(skv_eval_log *log, const skv_eval_entry *entry, skv_error *err)
{
    if (log->n == log->capacity) {
        const size_t capacity = log->capacity ? log->capacity * 2 : 1024;
        skv_eval_entry *entries =
            capacity <= ENTRIES_MAX ? skv_realloc(log->entries, capacity, sizeof *entries) : NULL;
        SKV_REQUIRE(entries, err, SKV_MEMORY, "%s: no memory for %zu examples", log->path,
                    capacity);
        log->entries = entries;
        log->capacity = capacity;
    }
    log->entries[log->n] = *entry;
    log->entries[log->n].order = log->n;
    log->n++;
    return SKV_OK;
}

static skv_status read_line(skv_eval_log *log, const char *line, size_t n, size_t number,
                            skv_error *err)
{
    char where[512];
    (void)snprintf(where, sizeof where, "%s:%zu", log->path, number);
    json_t *object;
    SKV_TRY(skv_json_load(line, n, LINE_MAX, where, &object, err));
    skv_eval_entry entry;
    skv_status status = read_entry(object, &entry) ? keep(log, &entry, err) : SKV_OK;
    json_decref(object);
    return status;
}

/* Reads whole lines; *n_whole is where they end. */
static skv_status read_lines(skv_eval_log *log, const char *data, size_t n, size_t *n_whole,
                             skv_error *err)
{
    size_t at = 0;
    for (size_t number = 1; at < n; number++) {
        const char *end = memchr(data + at, '\n', n - at);
        if (!end) break;
        const size_t length = (size_t)(end - (data + at));
        if (length > 0) SKV_TRY(read_line(log, data + at, length, number, err));
        at += length + 1;
    }
    *n_whole = at;
    return SKV_OK;
}

static int compare(const void *a, const void *b)
{
    const skv_eval_entry *x = a, *y = b;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

static skv_status read_log(skv_eval_log *log, skv_error *err)
{
    char *data;
    size_t n, n_whole;
    SKV_TRY(skv_file_read(log->path, LOG_MAX, &data, &n, err));
    skv_status status = read_lines(log, data, n, &n_whole, err);
    skv_free(data);
    SKV_TRY(status);
    if (n_whole < n) {
        SKV_REQUIRE(truncate(log->path, (off_t)n_whole) == 0, err, SKV_IO, "%s: %s", log->path,
                    strerror(errno));
    }
    if (log->n > 0) qsort(log->entries, log->n, sizeof *log->entries, compare);
    return SKV_OK;
}

skv_status skv_eval_log_open(skv_eval_log *log, const char *path, bool resume, skv_error *err)
{
    *log = (skv_eval_log){.file = -1};
    if (!path) return SKV_OK;
    log->path = skv_strndup(path, strlen(path));
    skv_status status = log->path ? SKV_OK : skv_fail(err, SKV_MEMORY, "%s: no memory", path);
    if (status == SKV_OK && resume && skv_file_exists(path)) status = read_log(log, err);
    if (status == SKV_OK) {
        log->file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
        if (log->file < 0) status = skv_fail(err, SKV_IO, "%s: %s", path, strerror(errno));
    }
    if (status != SKV_OK) skv_eval_log_close(log);
    return status;
}

void skv_eval_log_close(skv_eval_log *log)
{
    if (log->file >= 0) (void)close(log->file);
    skv_free(log->entries);
    skv_free(log->path);
    *log = (skv_eval_log){.file = -1};
}

const skv_eval_entry *skv_eval_log_find(const skv_eval_log *log, uint64_t key)
{
    size_t low = 0, high = log->n; /* the first entry beyond the key */
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (log->entries[middle].key <= key) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low > 0 && log->entries[low - 1].key == key ? &log->entries[low - 1] : NULL;
}

/* ---- writing ---- */

static void put_text(skv_buf *out, const char *key, const char *text)
{
    if (!text) return;
    (void)skv_buf_printf(out, ", \"%s\": \"", key);
    (void)skv_buf_json_text(out, text, strlen(text));
    (void)skv_buf_byte(out, '"');
}

static void put_number(skv_buf *out, double value)
{
    if (isfinite(value)) {
        (void)skv_buf_printf(out, "%.17g", value);
    } else {
        (void)skv_buf_text(out, "null");
    }
}

static void put_values(skv_buf *out, const skv_eval_example *e)
{
    const char *separator = "";
    (void)skv_buf_text(out, ", \"metrics\": {");
    for (size_t i = 0; i < SKV_METRIC_COUNT; i++) {
        if (e->values[i].weight == 0) continue;
        (void)skv_buf_printf(out, "%s\"%s\": [", separator, skv_metric_name((skv_metric)i));
        put_number(out, e->values[i].sum);
        (void)skv_buf_text(out, ", ");
        put_number(out, e->values[i].weight);
        (void)skv_buf_byte(out, ']');
        separator = ", ";
    }
    (void)skv_buf_byte(out, '}');
}

static void put_likelihoods(skv_buf *out, const skv_eval_example *e)
{
    if (e->skipped || e->n_requests == 0 || e->requests[0].max_new > 0) return;
    (void)skv_buf_text(out, ", \"logprobs\": [");
    for (size_t i = 0; i < e->n_requests; i++) {
        if (i > 0) (void)skv_buf_text(out, ", ");
        put_number(out, e->requests[i].logprob);
    }
    (void)skv_buf_byte(out, ']');
}

static void put_line(skv_buf *out, uint64_t key, const char *task, const skv_eval_example *e)
{
    (void)skv_buf_printf(out, "{\"key\": \"%016" PRIx64 "\"", key);
    put_text(out, "task", task);
    put_text(out, "format", e->format->name);
    (void)skv_buf_printf(out, ", \"index\": %zu, \"length\": %zu", e->index, e->length);
    if (isfinite(e->depth)) (void)skv_buf_printf(out, ", \"depth\": %.4f", e->depth);
    if (e->skipped) (void)skv_buf_text(out, ", \"skipped\": true");
    put_values(out, e);
    put_likelihoods(out, e);
    put_text(out, "answer", e->said);
    put_text(out, "expected", e->n_answers > 0 ? e->answers[0] : NULL);
    (void)skv_buf_text(out, "}\n");
}

skv_status skv_eval_log_add(skv_eval_log *log, uint64_t key, const char *task,
                            const skv_eval_example *e, skv_error *err)
{
    if (log->file < 0) return SKV_OK;
    skv_buf line;
    skv_buf_init(&line, LINE_MAX);
    put_line(&line, key, task, e);
    skv_status status = SKV_OK;
    if (line.failed) {
        status = skv_fail(err, SKV_MEMORY, "%s: no memory for a line", log->path);
    } else {
        const ssize_t written = write(log->file, line.data, line.size);
        if (written < 0 || (size_t)written != line.size) {
            status = skv_fail(err, SKV_IO, "%s: %s", log->path,
                              written < 0 ? strerror(errno) : "the disk is full");
        }
    }
    skv_buf_release(&line);
    return status;
}
