/* JSON from untrusted files: see json_doc.h. */
#include "format/json_doc.h"

#include <math.h>
#include <string.h>

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

skv_status skv_json_load(const char *text, size_t n, size_t max_bytes, const char *name,
                         json_t **out, skv_error *err)
{
    SKV_REQUIRE(n <= max_bytes, err, SKV_RANGE, "%s: %zu bytes of JSON, at most %zu", name, n,
                max_bytes);
    SKV_REQUIRE(depth_within(text, n, SKV_JSON_DEPTH_MAX), err, SKV_FORMAT,
                "%s: JSON nested deeper than %d", name, SKV_JSON_DEPTH_MAX);
    json_error_t why;
    json_t *json = json_loadb(n ? text : "", n, JSON_REJECT_DUPLICATES, &why);
    SKV_REQUIRE(json, err, SKV_FORMAT, "%s: line %d, column %d: %s", name, why.line, why.column,
                why.text);
    *out = json;
    return SKV_OK;
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

static void wrong_type(skv_json_reader *r, const char *key, const char *expected)
{
    if (r->status != SKV_OK) return;
    r->status = skv_fail(r->err, SKV_FORMAT, "%s: %s: expected %s", r->name, key, expected);
}

skv_json_reader skv_json_child(skv_json_reader *r, const char *key)
{
    const json_t *value = skv_json_get(r, key);
    if (value && !json_is_object(value)) {
        wrong_type(r, key, "an object");
        value = NULL;
    }
    return (skv_json_reader){value, r->name, r->err, r->status};
}

size_t skv_json_size_of(skv_json_reader *r, const json_t *value, const char *key, size_t max)
{
    if (!json_is_integer(value)) {
        wrong_type(r, key, "an integer");
        return 0;
    }
    json_int_t number = json_integer_value(value);
    if (number >= 0 && (unsigned long long)number <= max) return (size_t)number;
    if (r->status == SKV_OK) {
        r->status = skv_fail(r->err, SKV_RANGE, "%s: %s: %lld, expected 0 to %zu", r->name, key,
                             (long long)number, max);
    }
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
    wrong_type(r, key, "a number");
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
    if (!json_is_boolean(value)) wrong_type(r, key, "true or false");
    return json_is_true(value);
}

const char *skv_json_text(skv_json_reader *r, const char *key, const char *fallback)
{
    const json_t *value = skv_json_get(r, key);
    if (!value) return fallback;
    const char *text = json_string_value(value);
    if (text && strlen(text) == json_string_length(value)) return text;
    wrong_type(r, key, "text");
    return fallback;
}
