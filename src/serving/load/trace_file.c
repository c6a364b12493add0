/* Traces: see trace_file.h. A file is untrusted: lines, rows and numbers are bounded. */
#include "trace_file.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "load.h"

enum { LINE_BYTES = 1 << 20, ROWS_MAX = 1 << 22, BLOCKS_MAX = 1 << 26, TOKENS_MAX = 1 << 24 };

typedef struct reader {
    const char *path;
    size_t line;
    double start_s; /* time of the first row, as the file counts */
    load_trace *trace;
    char *error;
} reader;

static bool fail(const reader *r, const char *what)
{
    (void)snprintf(r->error, LOAD_ERROR_MAX, "%.300s: line %zu: %s", r->path, r->line, what);
    return false;
}

static bool add_row(reader *r, double time_s, double n_prompt, double n_output)
{
    load_trace *t = r->trace;
    const bool counts = n_prompt >= 0 && n_prompt <= TOKENS_MAX && n_output >= 0 &&
                        n_output <= TOKENS_MAX && isfinite(time_s);
    if (!counts) return fail(r, "a time or a number of tokens is out of range");
    if (t->n == 0) r->start_s = time_s;
    const double at_s = time_s - r->start_s;
    if (t->n > 0 && at_s < t->rows[t->n - 1].at_s) return fail(r, "the time goes backwards");
    if (t->n == t->room) {
        const size_t room = t->room > 0 ? 2 * t->room : 1024;
        load_trace_row *rows = t->n < ROWS_MAX ? realloc(t->rows, room * sizeof *rows) : NULL;
        if (!rows) return fail(r, "no memory for so many rows");
        t->rows = rows;
        t->room = room;
    }
    t->rows[t->n++] = (load_trace_row){.at_s = at_s,
                                       .n_prompt = n_prompt >= 1 ? (uint32_t)n_prompt : 1,
                                       .n_output = n_output >= 1 ? (uint32_t)n_output : 1,
                                       .first_block = t->n_blocks};
    return true;
}

/* ---- Azure ---- */

/* Exactly n digits; -1 where there are none. */
static int digits(const char *text, size_t n)
{
    int value = 0;
    for (size_t i = 0; i < n; i++) {
        if (text[i] < '0' || text[i] > '9') return -1;
        value = 10 * value + (text[i] - '0');
    }
    return value;
}

/* Days since 1970-01-01 in the Gregorian calendar; years begin with March, so that the leap day is
 * their last. */
static long days_of(int year, int month, int day)
{
    const int y = month <= 2 ? year - 1 : year, m = month <= 2 ? month + 9 : month - 3;
    return 365L * y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 719469L;
}

/* "2023-11-16 18:15:46.6805900" in seconds; NaN where it is something else. */
static double seconds_of(const char *text)
{
    if (strlen(text) < 19 || text[4] != '-' || text[7] != '-' || text[13] != ':' ||
        text[16] != ':') {
        return (double)NAN;
    }
    const int year = digits(text, 4), month = digits(text + 5, 2), day = digits(text + 8, 2);
    const int hour = digits(text + 11, 2), minute = digits(text + 14, 2);
    if (year < 1 || month < 1 || month > 12 || day < 1 || hour < 0 || minute < 0)
        return (double)NAN;
    if (digits(text + 17, 2) < 0) return (double)NAN;
    return (double)days_of(year, month, day) * 86400 + hour * 3600 + minute * 60 +
           strtod(text + 17, NULL);
}

static bool read_csv_row(reader *r, char *line)
{
    char *first = strchr(line, ','), *end = NULL;
    if (!first) return fail(r, "not TIMESTAMP,ContextTokens,GeneratedTokens");
    *first = 0;
    const double time_s = seconds_of(line);
    const double n_prompt = strtod(first + 1, &end);
    if (end == first + 1 || *end != ',') return fail(r, "expected a number of tokens");
    char *last = end + 1;
    const double n_output = strtod(last, &end);
    if (end == last || (*end != 0 && *end != '\r' && *end != ',')) {
        return fail(r, "expected a number of tokens");
    }
    return add_row(r, time_s, n_prompt, n_output);
}

/* ---- Mooncake ---- */

static bool add_blocks(reader *r, const json_t *ids)
{
    load_trace *t = r->trace;
    const size_t n = json_array_size(ids);
    if (n > BLOCKS_MAX - t->n_blocks) return fail(r, "too many hash_ids");
    if (t->n_blocks + n > t->blocks_room) {
        size_t room = t->blocks_room > 0 ? t->blocks_room : 4096;
        while (room < t->n_blocks + n) room *= 2;
        uint64_t *blocks = realloc(t->blocks, room * sizeof *blocks);
        if (!blocks) return fail(r, "no memory for its hash_ids");
        t->blocks = blocks;
        t->blocks_room = room;
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_array_get(ids, i);
        if (!json_is_integer(id)) return fail(r, "hash_ids: expected integers");
        t->blocks[t->n_blocks++] = (uint64_t)json_integer_value(id);
    }
    t->rows[t->n - 1].n_blocks = (uint32_t)n;
    return true;
}

static bool read_json_row(reader *r, const char *line)
{
    json_t *row = json_loads(line, 0, NULL);
    const json_t *time = json_object_get(row, "timestamp");
    const json_t *n_prompt = json_object_get(row, "input_length");
    const json_t *n_output = json_object_get(row, "output_length");
    bool ok = json_is_number(time) && json_is_integer(n_prompt) && json_is_integer(n_output);
    if (!ok) {
        (void)fail(r, "expected an object with timestamp, input_length and output_length");
    } else {
        ok = add_row(r, json_number_value(time) * 1e-3, json_number_value(n_prompt),
                     json_number_value(n_output)) &&
             add_blocks(r, json_object_get(row, "hash_ids"));
    }
    json_decref(row);
    return ok;
}

/* ---- files ---- */

static bool read_rows(reader *r, FILE *file, char *line, size_t rows_max)
{
    bool is_json = false, has_any = false;
    while (r->trace->n < rows_max && fgets(line, LINE_BYTES, file)) {
        r->line++;
        const size_t n = strlen(line);
        const bool is_whole = n > 0 && line[n - 1] == '\n';
        if (!is_whole && !feof(file)) return fail(r, "too long, or it contains a zero byte");
        if (is_whole) line[n - 1] = 0;
        if (line[strspn(line, " \t\r")] == 0) continue;
        if (!has_any) {
            has_any = true;
            is_json = line[0] == '{';
            if (!is_json && strncmp(line, "TIMESTAMP,", 10) == 0) continue;
        }
        if (is_json ? !read_json_row(r, line) : !read_csv_row(r, line)) return false;
    }
    if (ferror(file)) return fail(r, strerror(errno));
    return r->trace->n > 0 || fail(r, "no requests");
}

bool load_trace_read_stream(FILE *file, const char *name, size_t rows_max, load_trace *out,
                            char *error)
{
    load_trace trace = {0};
    reader r = {.path = name, .trace = &trace, .error = error};
    char *line = malloc(LINE_BYTES);
    const bool ok = line ? read_rows(&r, file, line, rows_max) : fail(&r, "no memory");
    free(line);
    if (ok) {
        *out = trace;
    } else {
        load_trace_release(&trace);
    }
    return ok;
}

bool load_trace_read(const char *path, size_t rows_max, load_trace *out, char *error)
{
    FILE *file = fopen(path, "r");
    if (!file) {
        (void)snprintf(error, LOAD_ERROR_MAX, "%.300s: %s", path, strerror(errno));
        return false;
    }
    const bool ok = load_trace_read_stream(file, path, rows_max, out, error);
    (void)fclose(file);
    return ok;
}

void load_trace_release(load_trace *trace)
{
    free(trace->rows);
    free(trace->blocks);
    *trace = (load_trace){0};
}
