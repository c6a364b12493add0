/*
 * Texts and JSON schemas put together. What comes one after the other is an array, the rest is
 * said by an object with one of these members:
 *
 *     "text"                                              that text
 *     [part, ...]                                         these, in order
 *     {"any": [part, ...]}                                one of these
 *     {"schema": {...}}                                   a JSON value
 *     {"repeat": part, "min": m, "max": n, "between": part}
 *     {"until": "mark"}                                   any text that ends with its first mark
 *     {"without": "mark"}                                 any text without the mark
 *     {"unlike": "text"}                                  any text that does not begin with it
 *
 * A mark is ASCII, and its first character comes in it once.
 */
#include <string.h>

#include "format/json_doc.h"
#include "grammar/grammar_impl.h"

enum { PARTS_DEPTH_MAX = 32, REPEATS_MAX = 1000, MARK_MAX = 64 };

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

/* Any character but these two. */
static skv_expr any_but(skv_expr_pool *pool, char a, char b)
{
    skv_code_set set = {0};
    skv_code_set_add(&set, (uint32_t)a, (uint32_t)a);
    skv_code_set_add(&set, (uint32_t)b, (uint32_t)b);
    skv_code_set_tidy(&set);
    skv_code_set_invert(&set);
    const skv_expr expr = skv_expr_set(pool, &set);
    skv_code_set_release(&set);
    return expr;
}

static skv_status check_mark(const parts *p, const json_t *mark)
{
    const char *text = json_string_value(mark);
    const size_t n = json_string_length(mark);
    bool ok = n > 0 && n <= MARK_MAX && memchr(text + 1, text[0], n - 1) == NULL;
    for (size_t i = 0; ok && i < n; i++) ok = (unsigned char)text[i] < 0x80;
    SKV_REQUIRE(ok, p->err, SKV_FORMAT,
                "parts: a mark that is no ASCII of 1 to %d bytes, or whose "
                "first character comes again",
                MARK_MAX);
    return SKV_OK;
}

/*
 * A search for the mark: rule i stands where its first i characters have just been read. Since the
 * first one comes once, a character that does not fit leads to rule 0 or 1.
 */
static skv_status read_search(const parts *p, const json_t *mark, bool until, skv_expr *out)
{
    uint32_t rules[MARK_MAX] = {0};
    skv_expr_pool *pool = p->pool;
    SKV_TRY(check_mark(p, mark));
    const char *text = json_string_value(mark);
    const size_t n = json_string_length(mark);
    for (size_t i = 0; i < n; i++) rules[i] = skv_rule_declare(pool, "search", 6);
    for (size_t i = 0; i < n; i++) {
        skv_expr_list ways = {.pool = pool};
        const skv_expr other = any_but(pool, text[0], text[i]);
        skv_expr_list_add(&ways, skv_expr_seq2(pool, other, skv_expr_call(pool, rules[0])));
        if (i > 0) {
            const skv_expr again = n > 1 ? skv_expr_call(pool, rules[1]) : SKV_EXPR_NEVER;
            skv_expr_list_add(&ways, skv_expr_seq2(pool, skv_expr_bytes(pool, text, 1), again));
        }
        const skv_expr next = i + 1 < n ? skv_expr_call(pool, rules[i + 1])
                              : until   ? SKV_EXPR_EMPTY
                                        : SKV_EXPR_NEVER;
        skv_expr_list_add(&ways, skv_expr_seq2(pool, skv_expr_bytes(pool, text + i, 1), next));
        if (!until) skv_expr_list_add(&ways, SKV_EXPR_EMPTY);
        skv_rule_define(pool, rules[i], skv_expr_list_alt(&ways));
    }
    *out = skv_expr_call(pool, rules[0]);
    return SKV_OK;
}

static skv_status read_unlike(const parts *p, const json_t *mark, skv_expr *out)
{
    skv_expr_pool *pool = p->pool;
    SKV_TRY(check_mark(p, mark));
    const char *text = json_string_value(mark);
    const skv_expr any =
        skv_expr_repeat(pool, skv_expr_range(pool, 0, SKV_CODE_MAX), 0, SKV_REPEAT_MANY);
    skv_expr rest = SKV_EXPR_NEVER;
    for (size_t i = json_string_length(mark); i-- > 0;) {
        const skv_expr ways[] = {SKV_EXPR_EMPTY,
                                 skv_expr_seq2(pool, any_but(pool, text[i], text[i]), any),
                                 skv_expr_seq2(pool, skv_expr_bytes(pool, text + i, 1), rest)};
        rest = skv_expr_alt(pool, ways, 3);
    }
    *out = rest;
    return SKV_OK;
}

static skv_status read_object(parts *p, const json_t *part, skv_expr *out)
{
    const json_t *any = json_object_get(part, "any"), *schema = json_object_get(part, "schema");
    if (any != NULL) return read_list(p, any, true, out);
    if (schema != NULL) return read_schema(p, schema, out);
    if (json_object_get(part, "repeat") != NULL) return read_repeat(p, part, out);
    const json_t *until = json_object_get(part, "until"), *mark = json_object_get(part, "without");
    if (until != NULL || mark != NULL) {
        return read_search(p, until != NULL ? until : mark, until != NULL, out);
    }
    const json_t *unlike = json_object_get(part, "unlike");
    if (unlike != NULL) return read_unlike(p, unlike, out);
    return skv_fail(p->err, SKV_FORMAT, "parts: an object without any, schema, repeat, ...");
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
