/*
 * Combinations of texts and JSON schemas. A sequence is an array; everything else is an object with
 * one of these members:
 *
 *     "text"                                              that text
 *     {"token": "text"}                                   the special token of this text
 *     [part, ...]                                         these, in order
 *     {"any": [part, ...]}                                one of these
 *     {"schema": {...}}                                   a JSON value
 *     {"schema": {...}, "loose": true}                    the same; unsupported parts of the schema
 *                                                         are ignored, not refused
 *     {"repeat": part, "min": m, "max": n, "between": part}
 *     {"until": "mark"}                                   any text that ends with its first mark
 *     {"without": "mark"}                                 any text without the mark
 *     {"unlike": "text"}                                  any text that does not begin with it
 *
 * A mark is ASCII, and its first character occurs in it once.
 */
#include <string.h>

#include "base/budget_mem.h"
#include "grammar/grammar_front.h"
#include "grammar/json_set.h"
#include "grammar/token_table.h"

enum { REPEATS_MAX = 1000, MARK_MAX = 64, PART_WORK = 16 };

typedef struct parts {
    skv_exprs *exprs;
    skv_error *err;
} parts;

static skv_status read_part(parts *p, const json_t *part, skv_expr *out);

/* A schema has its own references, so it is compiled separately; its first rule represents it. */
static skv_status read_schema(parts *p, const json_t *schema, bool loose, skv_expr *out)
{
    const size_t rule = p->exprs->n_rules;
    SKV_TRY(skv_schema_read_json(p->exprs, schema, loose, p->err));
    *out = skv_expr_call(p->exprs, (uint32_t)rule);
    return SKV_OK;
}

static skv_status read_list(parts *p, const json_t *array, bool any, skv_expr *out)
{
    skv_expr_list list = {.exprs = p->exprs};
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

/* The part becomes a rule, so that the automaton contains it once. */
static skv_status read_repeat(parts *p, const json_t *object, skv_expr *out)
{
    uint32_t min = 0, max = 0;
    skv_expr part = SKV_EXPR_NEVER, between = SKV_EXPR_EMPTY;
    const json_t *separator = json_object_get(object, "between");
    SKV_TRY(read_count(p, object, "min", &min));
    SKV_TRY(read_count(p, object, "max", &max));
    SKV_REQUIRE(min <= max && max > 0, p->err, SKV_FORMAT,
                "parts: \"min\" is above \"max\", or that is 0");
    const uint32_t rule = skv_rule_declare(p->exprs, "repeat", 6);
    SKV_TRY(read_part(p, json_object_get(object, "repeat"), &part));
    if (separator) SKV_TRY(read_part(p, separator, &between));
    skv_rule_define(p->exprs, rule, part);
    const skv_expr one = skv_expr_call(p->exprs, rule);
    const skv_expr next = skv_expr_seq2(p->exprs, between, one);
    const skv_expr more = skv_expr_repeat(p->exprs, next, min > 0 ? min - 1 : 0, max - 1);
    const skv_expr all = skv_expr_seq2(p->exprs, one, more);
    *out = min == 0 ? skv_expr_optional(p->exprs, all) : all;
    return SKV_OK;
}

/* Any character but these two. */
static skv_expr any_but(skv_exprs *exprs, char a, char b)
{
    skv_code_set set = {0};
    skv_code_set_add(&set, (uint32_t)a, (uint32_t)a);
    skv_code_set_add(&set, (uint32_t)b, (uint32_t)b);
    skv_code_set_tidy(&set);
    skv_code_set_invert(&set);
    const skv_expr expr = skv_expr_set(exprs, &set);
    skv_code_set_release(&set);
    return expr;
}

static skv_status check_mark(const parts *p, const json_t *mark)
{
    const char *text = json_string_value(mark);
    const size_t n = json_string_length(mark);
    bool ok = n > 0 && n <= MARK_MAX && !memchr(text + 1, text[0], n - 1);
    for (size_t i = 0; ok && i < n; i++) ok = (unsigned char)text[i] < 0x80;
    SKV_REQUIRE(ok, p->err, SKV_FORMAT,
                "parts: a mark that is no ASCII of 1 to %d bytes, or whose "
                "first character comes again",
                MARK_MAX);
    return SKV_OK;
}

/*
 * A search for the mark: rule i applies after its first i characters. Since the first character
 * occurs only once, a mismatch leads to rule 0 or 1.
 */
static skv_status read_search(const parts *p, const json_t *mark, bool until, skv_expr *out)
{
    uint32_t rules[MARK_MAX] = {0};
    skv_exprs *exprs = p->exprs;
    SKV_TRY(check_mark(p, mark));
    const char *text = json_string_value(mark);
    const size_t n = json_string_length(mark);
    for (size_t i = 0; i < n; i++) rules[i] = skv_rule_declare(exprs, "search", 6);
    for (size_t i = 0; i < n; i++) {
        skv_expr_list ways = {.exprs = exprs};
        const skv_expr other = any_but(exprs, text[0], text[i]);
        skv_expr_list_add(&ways, skv_expr_seq2(exprs, other, skv_expr_call(exprs, rules[0])));
        if (i > 0) {
            const skv_expr again = n > 1 ? skv_expr_call(exprs, rules[1]) : SKV_EXPR_NEVER;
            skv_expr_list_add(&ways, skv_expr_seq2(exprs, skv_expr_bytes(exprs, text, 1), again));
        }
        const skv_expr next = i + 1 < n ? skv_expr_call(exprs, rules[i + 1])
                              : until   ? SKV_EXPR_EMPTY
                                        : SKV_EXPR_NEVER;
        skv_expr_list_add(&ways, skv_expr_seq2(exprs, skv_expr_bytes(exprs, text + i, 1), next));
        if (!until) skv_expr_list_add(&ways, SKV_EXPR_EMPTY);
        skv_rule_define(exprs, rules[i], skv_expr_list_alt(&ways));
    }
    *out = skv_expr_call(exprs, rules[0]);
    return SKV_OK;
}

static skv_status read_unlike(const parts *p, const json_t *mark, skv_expr *out)
{
    skv_exprs *exprs = p->exprs;
    SKV_TRY(check_mark(p, mark));
    const char *text = json_string_value(mark);
    const skv_expr any =
        skv_expr_repeat(exprs, skv_expr_range(exprs, 0, SKV_CODE_MAX), 0, SKV_REPEAT_MANY);
    skv_expr rest = SKV_EXPR_NEVER;
    for (size_t i = json_string_length(mark); i-- > 0;) {
        const skv_expr ways[] = {SKV_EXPR_EMPTY,
                                 skv_expr_seq2(exprs, any_but(exprs, text[i], text[i]), any),
                                 skv_expr_seq2(exprs, skv_expr_bytes(exprs, text + i, 1), rest)};
        rest = skv_expr_alt(exprs, ways, 3);
    }
    *out = rest;
    return SKV_OK;
}

static skv_status read_token(const parts *p, const json_t *token, skv_expr *out)
{
    char bytes[SKV_TOKEN_BYTES_MAX] = {(char)SKV_TOKEN_MARK};
    const size_t n = json_string_length(token);
    SKV_REQUIRE(n > 0 && n < sizeof bytes, p->err, SKV_FORMAT,
                "parts: \"token\": expected a text of 1 to %zu bytes", sizeof bytes - 1);
    memcpy(bytes + 1, json_string_value(token), n);
    *out = skv_expr_bytes(p->exprs, bytes, n + 1);
    return SKV_OK;
}

static skv_status read_object(parts *p, const json_t *part, skv_expr *out)
{
    const json_t *token = json_object_get(part, "token");
    if (token) return read_token(p, token, out);
    const json_t *any = json_object_get(part, "any"), *schema = json_object_get(part, "schema");
    if (any) return read_list(p, any, true, out);
    if (schema) return read_schema(p, schema, json_is_true(json_object_get(part, "loose")), out);
    if (json_object_get(part, "repeat")) return read_repeat(p, part, out);
    const json_t *until = json_object_get(part, "until"), *mark = json_object_get(part, "without");
    if (until || mark) {
        return read_search(p, until ? until : mark, until, out);
    }
    const json_t *unlike = json_object_get(part, "unlike");
    if (unlike) return read_unlike(p, unlike, out);
    return skv_fail(p->err, SKV_FORMAT, "parts: an object without any, schema, repeat, ...");
}

static skv_status read_part(parts *p, const json_t *part, skv_expr *out)
{
    if (json_is_string(part)) {
        *out = skv_expr_bytes(p->exprs, json_string_value(part), json_string_length(part));
        return SKV_OK;
    }
    skv_budget *budget = p->exprs->budget;
    if (!skv_budget_work(budget, PART_WORK) || !skv_budget_enter(budget)) {
        return skv_budget_check(budget, "parts", p->err);
    }
    skv_status status = SKV_OK;
    if (json_is_array(part)) {
        status = read_list(p, part, false, out);
    } else if (json_is_object(part)) {
        status = read_object(p, part, out);
    } else {
        status = skv_fail(p->err, SKV_FORMAT, "parts: neither a text nor an array nor an object");
    }
    skv_budget_leave(budget);
    return status;
}

skv_status skv_parts_read(skv_exprs *exprs, const char *text, size_t n, skv_error *err)
{
    skv_grammar_json json;
    parts p = {.exprs = exprs, .err = err};
    SKV_TRY(skv_grammar_json_load(exprs->budget, text, n, "parts", &json, err));
    const uint32_t root = skv_rule_declare(exprs, "parts", 5);
    skv_expr expr = SKV_EXPR_NEVER;
    const skv_status status = read_part(&p, json.json, &expr);
    if (status == SKV_OK) skv_rule_define(exprs, root, expr);
    skv_grammar_json_release(exprs->budget, &json);
    return status;
}

/* ---- choices of texts ---- */

static skv_status read_texts(const json_t *json, skv_text_ref *texts, skv_error *err)
{
    const json_t *one;
    size_t i;
    json_array_foreach(json, i, one)
    {
        SKV_REQUIRE(json_is_string(one), err, SKV_FORMAT, "choice: element %zu is no text", i);
        texts[i] = (skv_text_ref){json_string_value(one), json_string_length(one)};
    }
    return SKV_OK;
}

skv_status skv_choice_read(skv_exprs *exprs, const char *text, size_t n, skv_error *err)
{
    skv_grammar_json json;
    SKV_TRY(skv_grammar_json_load(exprs->budget, text, n, "choice", &json, err));
    size_t n_texts = json_array_size(json.json);
    skv_text_ref *texts = skv_budget_alloc_zero(exprs->budget, n_texts, sizeof *texts);
    skv_status status = SKV_OK;
    if (n_texts == 0) {
        status = skv_fail(err, SKV_FORMAT, "choice: no array of texts");
    } else if (!texts) {
        status = skv_budget_check(exprs->budget, "choice", err);
        if (status == SKV_OK) status = skv_fail(err, SKV_MEMORY, "choice: no memory");
    }
    if (status == SKV_OK) status = read_texts(json.json, texts, err);
    if (status == SKV_OK) {
        uint32_t root = skv_rule_declare(exprs, "choice", 6);
        skv_rule_define(exprs, root, skv_expr_texts(exprs, texts, n_texts));
    }
    skv_budget_free(exprs->budget, texts, n_texts, sizeof *texts);
    skv_grammar_json_release(exprs->budget, &json);
    return status;
}
