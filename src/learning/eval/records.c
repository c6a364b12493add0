/* Reading records and their fields: see records.h. */
#include "eval/records.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"

enum {
    FILE_MAX = 1 << 30, /* bytes */
    LINE_MAX = 1 << 26, /* bytes */
    RECORDS_MAX = 1 << 24,
    COLUMNS_MAX = 64,
    CHOICES_MAX = 1000 /* texts of a field */
};

typedef struct reader {
    skv_records *out;
    const char *path;
    size_t max;
    skv_error *err;
} reader;

/* Takes the object over, whatever happens. */
static skv_status add(reader *r, json_t *object, size_t line)
{
    skv_records *out = r->out;
    skv_status status = SKV_OK;
    if (!json_is_object(object)) {
        status = skv_fail(r->err, SKV_FORMAT, "%s:%zu: not a JSON object", r->path, line);
    } else if (out->n == out->capacity) {
        const size_t capacity = out->capacity ? out->capacity * 2 : 256;
        skv_record *at =
            capacity <= RECORDS_MAX ? skv_realloc(out->at, capacity, sizeof *at) : NULL;
        if (!at) status = skv_fail(r->err, SKV_MEMORY, "%s:%zu: no memory", r->path, line);
        if (at) out->at = at;
        if (at) out->capacity = capacity;
    }
    if (status != SKV_OK) {
        json_decref(object);
        return status;
    }
    out->at[out->n++] = (skv_record){object, line};
    return SKV_OK;
}

static bool is_full(const reader *r)
{
    return r->max > 0 && r->out->n >= r->max;
}

/* ---- lines of JSON ---- */

static bool is_blank(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!strchr(" \t\r", text[i])) return false;
    }
    return true;
}

static skv_status read_lines(reader *r, const char *data, size_t n)
{
    size_t line = 1;
    for (size_t at = 0; at < n && !is_full(r); line++) {
        const char *end = memchr(data + at, '\n', n - at);
        const size_t length = end ? (size_t)(end - (data + at)) : n - at;
        if (!is_blank(data + at, length)) {
            char where[512];
            snprintf(where, sizeof where, "%s:%zu", r->path, line);
            json_t *object;
            SKV_TRY(skv_json_load(data + at, length, LINE_MAX, where, &object, r->err));
            SKV_TRY(add(r, object, line));
        }
        at += length + 1;
    }
    return SKV_OK;
}

/* ---- one array ---- */

static skv_status read_array(reader *r, const char *data, size_t n)
{
    json_t *list;
    SKV_TRY(skv_json_load(data, n, FILE_MAX, r->path, &list, r->err));
    skv_status status = SKV_OK;
    if (!json_is_array(list)) {
        status = skv_fail(r->err, SKV_FORMAT, "%s: not an array of objects", r->path);
    }
    for (size_t i = 0; i < json_array_size(list) && status == SKV_OK && !is_full(r); i++) {
        status = add(r, json_incref(json_array_get(list, i)), i + 1);
    }
    json_decref(list);
    return status;
}

/* ---- CSV (RFC 4180) ---- */

typedef struct csv {
    const char *data;
    size_t n, at;
    size_t line;
    skv_buf field; /* of the last read */
} csv;

/* Reads a field; *last is set if the line ends with it. Returns false if a quote is not closed. */
static bool read_field(csv *c, bool *last)
{
    skv_buf_clear(&c->field);
    (void)skv_buf_text(&c->field, "");
    const bool quoted = c->at < c->n && c->data[c->at] == '"';
    bool inside = quoted;
    if (quoted) c->at++;
    *last = false;
    while (c->at < c->n) {
        const char byte = c->data[c->at++];
        if (inside && byte == '"') {
            inside = c->at < c->n && c->data[c->at] == '"';
            if (inside) (void)skv_buf_byte(&c->field, c->data[c->at++]);
            continue;
        }
        if (byte == '\n') c->line++;
        if (!inside && byte == ',') return true;
        if (!inside && byte == '\n') {
            *last = true;
            return true;
        }
        if (inside || byte != '\r') (void)skv_buf_byte(&c->field, byte);
    }
    *last = true;
    return !inside;
}

static skv_status take_field(const reader *r, csv *c, bool *last)
{
    const size_t line = c->line;
    SKV_REQUIRE(read_field(c, last), r->err, SKV_FORMAT, "%s:%zu: a quote is not closed", r->path,
                line);
    SKV_REQUIRE(!c->field.failed, r->err, SKV_MEMORY, "%s:%zu: a field is too long", r->path, line);
    return SKV_OK;
}

static bool has_name(const json_t *names, const char *name)
{
    for (size_t i = 0; i < json_array_size(names); i++) {
        if (strcmp(json_string_value(json_array_get(names, i)), name) == 0) return true;
    }
    return false;
}

/* Reads the header's names into `names`, which the caller releases. */
static skv_status read_header(const reader *r, csv *c, json_t *names)
{
    bool last = false;
    while (!last) {
        SKV_TRY(take_field(r, c, &last));
        SKV_REQUIRE(!has_name(names, c->field.data), r->err, SKV_FORMAT, "%s:1: two columns \"%s\"",
                    r->path, c->field.data);
        json_t *name = json_stringn(c->field.data, c->field.size);
        SKV_REQUIRE(name && json_array_append_new(names, name) == 0, r->err, SKV_FORMAT,
                    "%s:1: not UTF-8", r->path);
        SKV_REQUIRE(json_array_size(names) <= COLUMNS_MAX, r->err, SKV_FORMAT,
                    "%s:1: more than %d columns", r->path, COLUMNS_MAX);
    }
    return SKV_OK;
}

static skv_status fill_row(const reader *r, csv *c, const json_t *names, json_t *object)
{
    const size_t line = c->line;
    bool last = false;
    size_t i = 0;
    for (; !last; i++) {
        SKV_TRY(take_field(r, c, &last));
        const char *name = json_string_value(json_array_get(names, i));
        SKV_REQUIRE(name, r->err, SKV_FORMAT, "%s:%zu: more fields than the %zu of the header",
                    r->path, line, json_array_size(names));
        json_t *value = json_stringn(c->field.data, c->field.size);
        SKV_REQUIRE(value, r->err, SKV_FORMAT, "%s:%zu: %s: not UTF-8", r->path, line, name);
        SKV_REQUIRE(json_object_set_new(object, name, value) == 0, r->err, SKV_MEMORY,
                    "%s:%zu: no memory", r->path, line);
    }
    SKV_REQUIRE(i == json_array_size(names), r->err, SKV_FORMAT,
                "%s:%zu: %zu fields, the header has %zu", r->path, line, i, json_array_size(names));
    return SKV_OK;
}

static skv_status read_rows(reader *r, csv *c, json_t *names)
{
    SKV_REQUIRE(names, r->err, SKV_MEMORY, "%s: no memory", r->path);
    SKV_TRY(read_header(r, c, names));
    while (c->at < c->n && !is_full(r)) {
        const size_t line = c->line;
        json_t *object = json_object();
        skv_status status = object ? fill_row(r, c, names, object)
                                   : skv_fail(r->err, SKV_MEMORY, "%s: no memory", r->path);
        if (status != SKV_OK) {
            json_decref(object);
            return status;
        }
        SKV_TRY(add(r, object, line));
    }
    return SKV_OK;
}

static skv_status read_csv(reader *r, const char *data, size_t n)
{
    csv c = {.data = data, .n = n, .line = 1};
    skv_buf_init(&c.field, LINE_MAX);
    json_t *names = json_array();
    skv_status status = read_rows(r, &c, names);
    json_decref(names);
    skv_buf_release(&c.field);
    return status;
}

/* ---- by name ---- */

typedef struct reader_row {
    const char *ending;
    skv_status (*read)(reader *r, const char *data, size_t n);
} reader_row;

static const reader_row readers[] = {
    {".jsonl", read_lines},
    {".json", read_array},
    {".csv", read_csv},
};

static const reader_row *reader_of(const char *path)
{
    const size_t n = strlen(path);
    for (size_t i = 0; i < sizeof readers / sizeof readers[0]; i++) {
        const size_t n_ending = strlen(readers[i].ending);
        if (n > n_ending && strcmp(path + n - n_ending, readers[i].ending) == 0) return &readers[i];
    }
    return NULL;
}

bool skv_records_are(const char *path)
{
    return reader_of(path);
}

skv_status skv_records_parse(skv_records *records, const char *data, size_t n, const char *path,
                             size_t max, skv_error *err)
{
    const reader_row *row = reader_of(path);
    assert(row);
    reader r = {records, path, max, err};
    return row->read(&r, data, n);
}

skv_status skv_records_read(skv_records *records, const char *path, size_t max, skv_error *err)
{
    char *data;
    size_t n;
    SKV_TRY(skv_file_read(path, FILE_MAX, &data, &n, err));
    skv_status status = skv_records_parse(records, data, n, path, max, err);
    skv_free(data);
    return status;
}

void skv_records_release(skv_records *records)
{
    for (size_t i = 0; i < records->n; i++) json_decref(records->at[i].object);
    skv_free(records->at);
    *records = (skv_records){.n = 0};
}

/* ---- fields ---- */

void skv_record_wrong(skv_json_reader *r, const char *key, const char *expected)
{
    if (r->status != SKV_OK) return;
    r->status = skv_fail(r->err, SKV_FORMAT, "%s: %s: expected %s", r->name, key, expected);
}

void skv_record_note(skv_json_reader *r, skv_status status)
{
    if (r->status != SKV_OK || status == SKV_OK) return;
    r->status = skv_fail_within(r->err, status, r->name);
}

const char *skv_record_text(skv_json_reader *r, const char *key)
{
    const char *text = skv_json_text(r, key, NULL);
    if (!text) skv_record_wrong(r, key, "text");
    return text ? text : "";
}

/* An array of 1 to CHOICES_MAX texts; 0 after a failure. */
size_t skv_record_texts(skv_json_reader *r, const char *key)
{
    const json_t *list = skv_json_get(r, key);
    const size_t n = json_array_size(list);
    bool good = json_is_array(list) && n >= 1 && n <= CHOICES_MAX;
    for (size_t i = 0; i < n && good; i++) good = json_is_string(json_array_get(list, i));
    if (!good) skv_record_wrong(r, key, "1 to 1000 texts");
    return good && r->status == SKV_OK ? n : 0;
}

skv_eval_text skv_record_nth(const skv_json_reader *r, const char *key, size_t i)
{
    const json_t *text = json_array_get(skv_json_get(r, key), i);
    return (skv_eval_text){json_string_value(text), json_string_length(text)};
}
