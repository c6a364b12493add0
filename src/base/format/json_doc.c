/* JSON from untrusted files: see json_doc.h. */
#include "format/json_doc.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

/* jansson recurses once a level and its own limit is high: count before it starts. */
static bool depth_within(const char *text, size_t n, size_t max)
{
    size_t depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        if (in_string) {
            if (c == '\\') i++;
            if (c == '"') in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '[' || c == '{') {
            if (++depth > max) return false;
        } else if ((c == ']' || c == '}') && depth) {
            depth--;
        }
    }
    return true;
}

bool skv_json_has_room(const char *text, size_t n)
{
    enum { WORD_MIN = 64 };
    size_t begun = 0, longest = 0;
    bool in_string = false;
    for (size_t i = 0; i < n; i++) {
        longest = i - begun > longest ? i - begun : longest;
        if (in_string) {
            if (text[i] == '\\')
                i++;
            else
                in_string = text[i] != '"';
        } else if (strchr(" \t\r\n\",:[]{}", text[i])) {
            begun = i;
            in_string = text[i] == '"';
        }
    }
    void *block = skv_alloc(longest + WORD_MIN, 4);
    skv_free(block);
    return block;
}

/* For a repeated key, jansson only reports where it ends. */
static skv_status bad_json(const char *text, size_t n, const char *name, const json_error_t *why,
                           skv_error *err)
{
    enum { SHOWN = 100 };
    size_t end = why->position > 0 ? (size_t)why->position : 0, begin;
    if (json_error_code(why) == json_error_duplicate_key && end > 1 && end <= n) {
        for (begin = --end; begin > 0 && text[begin - 1] != '"';) begin--;
        int shown = end - begin < SHOWN ? (int)(end - begin) : SHOWN;
        return skv_fail(err, SKV_FORMAT, "%s: line %d, column %d: duplicate object key \"%.*s\"",
                        name, why->line, why->column, shown, text + begin);
    }
    return skv_fail(err, SKV_FORMAT, "%s: line %d, column %d: %s", name, why->line, why->column,
                    why->text);
}

static skv_status load(const char *text, size_t n, const char *name, json_t **out, skv_error *err)
{
    SKV_REQUIRE(depth_within(text, n, SKV_JSON_DEPTH_MAX), err, SKV_FORMAT,
                "%s: JSON nested deeper than %d", name, SKV_JSON_DEPTH_MAX);
    SKV_REQUIRE(skv_json_has_room(text, n), err, SKV_MEMORY, "%s: no memory", name);
    json_error_t why;
    json_t *json = json_loadb(n ? text : "", n, JSON_REJECT_DUPLICATES, &why);
    if (!json) return bad_json(text, n, name, &why, err);
    *out = json;
    return SKV_OK;
}

skv_status skv_json_load(const char *text, size_t n, size_t max_bytes, const char *name,
                         json_t **out, skv_error *err)
{
    SKV_REQUIRE(n <= max_bytes, err, SKV_RANGE, "%s: %zu bytes of JSON, at most %zu", name, n,
                max_bytes);
    return load(text, n, name, out, err);
}

const json_t *skv_json_get(const skv_json_reader *r, const char *key)
{
    const json_t *value = r->object ? json_object_get(r->object, key) : NULL;
    return json_is_null(value) ? NULL : value;
}

bool skv_json_has(const skv_json_reader *r, const char *key)
{
    return r->object && json_object_get(r->object, key);
}

void skv_json_show(const json_t *value, char out[SKV_JSON_SHOWN])
{
    enum { SHOWN = 40 };
    const char *text = json_is_string(value) ? json_string_value(value) : "";
    size_t n = strlen(text);
    if (n > SHOWN) n = SHOWN;
    while (n == SHOWN && n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80)
        n--; /* whole characters */
    if (!value) {
        (void)snprintf(out, SKV_JSON_SHOWN, "missing");
    } else if (json_is_string(value)) {
        (void)snprintf(out, SKV_JSON_SHOWN, "\"%.*s\"", (int)n, text);
    } else if (json_is_integer(value)) {
        (void)snprintf(out, SKV_JSON_SHOWN, "%lld", (long long)json_integer_value(value));
    } else if (json_is_real(value)) {
        (void)snprintf(out, SKV_JSON_SHOWN, "%#.6g", json_real_value(value));
    } else if (json_is_array(value)) {
        (void)snprintf(out, SKV_JSON_SHOWN, "an array of %zu", json_array_size(value));
    } else if (json_is_object(value)) {
        (void)snprintf(out, SKV_JSON_SHOWN, "an object of %zu", json_object_size(value));
    } else {
        (void)snprintf(out, SKV_JSON_SHOWN, "%s",
                       json_is_null(value)   ? "null"
                       : json_is_true(value) ? "true"
                                             : "false");
    }
}

void skv_json_fail(skv_json_reader *r, skv_status status, const char *format, ...)
{
    char text[SKV_ERROR_TEXT_MAX];
    va_list args;
    if (r->status != SKV_OK) return;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    r->status = skv_fail(r->err, status, "%s: %s", r->name, text);
}

void skv_json_refuse(skv_json_reader *r, const char *key, const json_t *value, const char *expected)
{
    char shown[SKV_JSON_SHOWN];
    if (r->status != SKV_OK) return;
    skv_json_show(value, shown);
    skv_json_fail(r, SKV_FORMAT, "%s: %s, expected %s", key, shown, expected);
}

skv_json_reader skv_json_child(skv_json_reader *r, const char *key)
{
    const json_t *value = skv_json_get(r, key);
    if (value && !json_is_object(value)) {
        skv_json_refuse(r, key, value, "an object");
        value = NULL;
    }
    return (skv_json_reader){value, r->name, r->err, r->status};
}

size_t skv_json_size_of(skv_json_reader *r, const json_t *value, const char *key, size_t max)
{
    if (!json_is_integer(value)) {
        skv_json_refuse(r, key, value, "an integer");
        return 0;
    }
    json_int_t number = json_integer_value(value);
    if (number >= 0 && (unsigned long long)number <= max) return (size_t)number;
    skv_json_fail(r, SKV_RANGE, "%s: %lld, expected 0 to %zu", key, (long long)number, max);
    return 0;
}

size_t skv_json_size(skv_json_reader *r, const char *key, size_t fallback, size_t max)
{
    const json_t *value = skv_json_get(r, key);
    return value ? skv_json_size_of(r, value, key, max) : fallback;
}

double skv_json_double_of(skv_json_reader *r, const json_t *value, const char *key)
{
    double number = json_number_value(value);
    if (json_is_number(value) && isfinite(number)) return number;
    skv_json_refuse(r, key, value, "a number");
    return 0;
}

double skv_json_double(skv_json_reader *r, const char *key, double fallback)
{
    const json_t *value = skv_json_get(r, key);
    return value ? skv_json_double_of(r, value, key) : fallback;
}

bool skv_json_bool(skv_json_reader *r, const char *key, bool fallback)
{
    const json_t *value = skv_json_get(r, key);
    if (!value) return fallback;
    if (!json_is_boolean(value)) skv_json_refuse(r, key, value, "true or false");
    return json_is_true(value);
}

const char *skv_json_text(skv_json_reader *r, const char *key, const char *fallback)
{
    const json_t *value = skv_json_get(r, key);
    if (!value) return fallback;
    const char *text = json_string_value(value);
    if (text && strlen(text) == json_string_length(value)) return text;
    skv_json_refuse(r, key, value, "text");
    return fallback;
}

/* The shortest decimal that reads back as the same number, always with a point or an exponent. */
static void print_real(skv_buf *out, double value)
{
    char text[40];
    for (int digits = 15; digits <= 17; digits++) {
        (void)snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value) break;
    }
    skv_buf_text(out, text);
    if (!strpbrk(text, ".e")) skv_buf_text(out, ".0");
}

static void print_quoted(skv_buf *out, const char *text, size_t n)
{
    skv_buf_byte(out, '"');
    skv_buf_json_text(out, text, n);
    skv_buf_byte(out, '"');
}

static void new_line(skv_buf *out, size_t depth)
{
    skv_buf_byte(out, '\n');
    for (size_t i = 0; i < depth; i++) skv_buf_text(out, "  ");
}

static void print_value(skv_buf *out, const json_t *json, size_t depth);

static void print_members(skv_buf *out, const json_t *json, size_t depth)
{
    bool is_object = json_is_object(json);
    size_t n = is_object ? json_object_size(json) : json_array_size(json);
    json_t *object = is_object ? json_incref((json_t *)(uintptr_t)json) : NULL;
    void *member = is_object ? json_object_iter(object) : NULL;
    skv_buf_byte(out, is_object ? '{' : '[');
    for (size_t i = 0; i < n && !out->failed; i++) {
        if (i) skv_buf_byte(out, ',');
        new_line(out, depth + 1);
        if (is_object) {
            const char *key = json_object_iter_key(member);
            print_quoted(out, key, strlen(key));
            skv_buf_text(out, ": ");
            print_value(out, json_object_iter_value(member), depth + 1);
            member = json_object_iter_next(object, member);
        } else {
            print_value(out, json_array_get(json, i), depth + 1);
        }
    }
    if (n) new_line(out, depth);
    skv_buf_byte(out, is_object ? '}' : ']');
    json_decref(object);
}

static void print_value(skv_buf *out, const json_t *json, size_t depth)
{
    if (depth > SKV_JSON_DEPTH_MAX) {
        out->failed = true;
        return;
    }
    switch (json_typeof(json)) {
    case JSON_STRING: print_quoted(out, json_string_value(json), json_string_length(json)); return;
    case JSON_INTEGER: skv_buf_printf(out, "%lld", (long long)json_integer_value(json)); return;
    case JSON_REAL: print_real(out, json_real_value(json)); return;
    case JSON_TRUE: skv_buf_text(out, "true"); return;
    case JSON_FALSE: skv_buf_text(out, "false"); return;
    case JSON_NULL: skv_buf_text(out, "null"); return;
    case JSON_OBJECT:
    case JSON_ARRAY:
    default: print_members(out, json, depth); return;
    }
}

bool skv_json_print(skv_buf *out, const json_t *json)
{
    print_value(out, json, 0);
    skv_buf_byte(out, '\n');
    return !out->failed;
}
