/*
 * Texts and JSON schemas put together. What comes one after the other is an array, the rest is
 * said by an object with one of these members:
 *
 *     "text"                                              that text
 *     [part, ...]                                         these, in order
 *     {"any": [part, ...]}                                one of these
 *     {"schema": {...}}                                   a JSON value
 *     {"repeat": part, "min": m, "max": n, "between": part}
 */
#include <string.h>

#include "format/json_doc.h"
#include "grammar/grammar_impl.h"

enum { PARTS_DEPTH_MAX = 32, REPEATS_MAX = 1000 };

typedef struct parts {
    skv_expr_pool *pool;
    size_t depth;
    skv_error *err;
} parts;

static skv_status read_part(parts *p, const json_t *part, skv_expr *out);

static int append(const char *text, size_t n, void *out)
{
    return skv_buf_append(out, text, n) ? 0 : -1;
}

/* A schema has its own references, so it is read by itself; its first rule stands for it. */
static skv_status read_schema(parts *p, const json_t *schema, skv_expr *out)
{
    skv_buf text;
    skv_buf_init(&text, SKV_GRAMMAR_TEXT_MAX);
    const size_t rule = p->pool->n_rules;
    skv_status status = SKV_OK;
    if (json_dump_callback(schema, append, &text, JSON_COMPACT | JSON_ENCODE_ANY) != 0) {
        status = skv_fail(p->err, SKV_RANGE, "parts: a schema of more than %zu bytes",
                          SKV_GRAMMAR_TEXT_MAX);
    }
    if (status == SKV_OK) status = skv_schema_read(p->pool, text.data, text.size, p->err);
    skv_buf_release(&text);
    if (status == SKV_OK) *out = skv_expr_call(p->pool, (uint32_t)rule);
    return status;
}

static skv_status read_list(parts *p, const json_t *array, bool any, skv_expr *out)
{
    skv_expr_list list = {.pool = p->pool};
    skv_status status = SKV_OK;
    const size_t n = json_array_size(array);
    if (any && n == 0) status = skv_fail(p->err, SKV_FORMAT, "parts: \"any\": no array of parts");
    for (size_t i = 0; i < n && status == SKV_OK; i++) {
        skv_expr part = SKV_EXPR_NEVER;
        status = read_part(p, json_array_get(array, i), &part);
        skv_expr_list_add(&list, part);
    }
    *out = any ? skv_expr_list_alt(&list) : skv_expr_list_seq(&list);
    return status;
}

static skv_status read_count(const parts *p, const json_t *object, const char *key, uint32_t *out)
{
    const json_t *value = json_object_get(object, key);
    const json_int_t n = json_integer_value(value);
    SKV_REQUIRE(json_is_integer(value) && n >= 0 && n <= REPEATS_MAX, p->err, SKV_FORMAT,
                "parts: \"%s\": no number from 0 to %d", key, REPEATS_MAX);
    *out = (uint32_t)n;
    return SKV_OK;
}

/* The part is a rule, so that it stands in the automaton once. */
static skv_status read_repeat(parts *p, const json_t *object, skv_expr *out)
{
    uint32_t min = 0, max = 0;
    skv_expr part = SKV_EXPR_NEVER, between = SKV_EXPR_EMPTY;
    const json_t *separator = json_object_get(object, "between");
    SKV_TRY(read_count(p, object, "min", &min));
    SKV_TRY(read_count(p, object, "max", &max));
    SKV_REQUIRE(min <= max && max > 0, p->err, SKV_FORMAT,
                "parts: \"min\" is above \"max\", or that is 0");
    const uint32_t rule = skv_rule_declare(p->pool, "repeat", 6);
    SKV_TRY(read_part(p, json_object_get(object, "repeat"), &part));
    if (separator != NULL) SKV_TRY(read_part(p, separator, &between));
    skv_rule_define(p->pool, rule, part);
    const skv_expr one = skv_expr_call(p->pool, rule);
    const skv_expr next = skv_expr_seq2(p->pool, between, one);
    const skv_expr more = skv_expr_repeat(p->pool, next, min > 0 ? min - 1 : 0, max - 1);
    const skv_expr all = skv_expr_seq2(p->pool, one, more);
    *out = min == 0 ? skv_expr_optional(p->pool, all) : all;
    return SKV_OK;
}

static skv_status read_object(parts *p, const json_t *part, skv_expr *out)
{
    const json_t *any = json_object_get(part, "any"), *schema = json_object_get(part, "schema");
    if (any != NULL) return read_list(p, any, true, out);
    if (schema != NULL) return read_schema(p, schema, out);
    if (json_object_get(part, "repeat") != NULL) return read_repeat(p, part, out);
    return skv_fail(p->err, SKV_FORMAT, "parts: an object without any, schema or repeat");
}

static skv_status read_part(parts *p, const json_t *part, skv_expr *out)
{
    if (json_is_string(part)) {
        *out = skv_expr_bytes(p->pool, json_string_value(part), json_string_length(part));
        return SKV_OK;
    }
    SKV_REQUIRE(p->depth < PARTS_DEPTH_MAX, p->err, SKV_RANGE, "parts: nested deeper than %d",
                PARTS_DEPTH_MAX);
    p->depth++;
    skv_status status = SKV_OK;
    if (json_is_array(part)) {
        status = read_list(p, part, false, out);
    } else if (json_is_object(part)) {
        status = read_object(p, part, out);
    } else {
        status = skv_fail(p->err, SKV_FORMAT, "parts: neither a text nor an array nor an object");
    }
    p->depth--;
    return status;
}

skv_status skv_parts_read(skv_expr_pool *pool, const char *text, size_t n, skv_error *err)
{
    json_t *json = NULL;
    parts p = {.pool = pool, .err = err};
    SKV_TRY(skv_json_load(text, n, SKV_GRAMMAR_TEXT_MAX, "parts", &json, err));
    const uint32_t root = skv_rule_declare(pool, "parts", 5);
    skv_expr expr = SKV_EXPR_NEVER;
    const skv_status status = read_part(&p, json, &expr);
    if (status == SKV_OK) skv_rule_define(pool, root, expr);
    json_decref(json);
    return status;
}
