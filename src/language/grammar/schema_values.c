/* Strings, numbers and single values of JSON schemas. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/budget_mem.h"
#include "grammar/grammar_front.h"
#include "grammar/schema_impl.h"

/* ---- strings ---- */

enum {
    LENGTHS_MAX = 20000, /* characters of all strings with a length together, as states allow */
    STRINGS_A_UNIT = 8   /* looked at for one unit of work */
};

static skv_expr in_quotes(skv_schema *s, skv_expr content)
{
    skv_expr quote = skv_expr_text(s->exprs, "\"");
    return skv_expr_seq3(s->exprs, quote, content, quote);
}

static skv_status compile_pattern(skv_schema *s, const char *pattern, bool search, skv_expr *out)
{
    char name[128];
    skv_expr content = SKV_EXPR_NEVER;
    (void)snprintf(name, sizeof name, "json schema: %.80s: pattern",
                   s->path.size > 0 ? s->path.data : "/");
    const skv_regex_options options = {.name = name, .spell = skv_json_char, .search = search};
    const skv_status status =
        skv_regex_parse(s->exprs, pattern, strlen(pattern), &options, &content, s->err);
    const bool any = s->loose && (status == SKV_UNSUPPORTED || status == SKV_FORMAT);
    *out = any ? skv_json_string(&s->rules) : in_quotes(s, content);
    return any ? SKV_OK : status;
}

/* Names a rule by the place where it is asked for first. */
static uint32_t declare_here(skv_schema *s, const char *what)
{
    char name[SKV_RULE_NAME_MAX];
    const char *path = s->path.size > 0 ? s->path.data : "/";
    const int n = snprintf(name, sizeof name, "%s %.48s", what, path);
    return skv_rule_declare(s->exprs, name, (size_t)n);
}

/* Characters that a string with these bounds is made of. */
static uint32_t count_chars(uint32_t min, uint32_t max)
{
    return max == SKV_REPEAT_MANY ? min : max;
}

static skv_status define_string(skv_schema *s, const skv_shared_string *string)
{
    char pattern[SKV_FORMAT_PATTERN_MAX];
    skv_expr expr = SKV_EXPR_NEVER;
    if (string->format != SKV_FORMAT_UNKNOWN) {
        skv_schema_format_pattern(string->format, string->max, pattern);
        SKV_TRY(compile_pattern(s, pattern, false, &expr));
    } else {
        skv_expr any = skv_json_any_char(s->exprs);
        expr = in_quotes(s, skv_expr_repeat(s->exprs, any, string->min, string->max));
    }
    skv_rule_define(s->exprs, string->rule, expr);
    return SKV_OK;
}

/* The rule of strings of a format or a length; all places that ask for the same share it. */
static skv_status share_string(skv_schema *s, int format, uint32_t min, uint32_t max, skv_expr *out)
{
    skv_shared_string string = {.format = format, .min = min, .max = max};
    (void)skv_expr_work(s->exprs, 1 + s->n_strings / STRINGS_A_UNIT);
    for (size_t i = 0; i < s->n_strings; i++) {
        const skv_shared_string *have = &s->strings[i];
        if (have->format != format || have->min != min || have->max != max) continue;
        *out = skv_expr_call(s->exprs, have->rule);
        return SKV_OK;
    }
    if (!skv_budget_grow(s->exprs->budget, &s->strings, &s->strings_capacity, s->n_strings + 1,
                         sizeof *s->strings, SKV_RULES_MAX + 1)) {
        return skv_schema_no_memory(s);
    }
    string.rule = declare_here(s, "string");
    SKV_TRY(skv_exprs_check(s->exprs, s->err));
    s->strings[s->n_strings++] = string;
    if (format == SKV_FORMAT_UNKNOWN) s->n_lengths += count_chars(min, max);
    *out = skv_expr_call(s->exprs, string.rule);
    return define_string(s, &string);
}

static skv_status compile_length(skv_schema *s, uint32_t min, uint32_t max, skv_expr *out)
{
    const bool bounded = min > 0 || max != SKV_REPEAT_MANY;
    const bool fits = s->n_lengths + count_chars(min, max) <= LENGTHS_MAX;
    *out = min > max ? SKV_EXPR_NEVER : skv_json_string(&s->rules);
    if (!bounded || min > max || (!fits && s->loose)) return SKV_OK;
    if (fits) return share_string(s, SKV_FORMAT_UNKNOWN, min, max, out);
    return skv_schema_fail(s, SKV_RANGE,
                           "\"%s\" is %u: strings of a length may have %d characters in all of a "
                           "schema",
                           max == SKV_REPEAT_MANY ? "minLength" : "maxLength",
                           (unsigned)count_chars(min, max), LENGTHS_MAX);
}

/* Lookaheads are no part of our expressions; where a known pattern has one, what it says without.
 */
static const char *without_lookahead(const char *pattern)
{
    static const char decimal[] = "^(?!^[-+.]*$)[+-]?0*\\d*\\.?\\d*$"; /* pydantic's Decimal */
    return strcmp(pattern, decimal) == 0 ? "^[+-]?(?:\\d+\\.?\\d*|\\.\\d+)$" : pattern;
}

/* The format that a string must have; UNKNOWN: none, or one that says nothing. */
static skv_status read_format(skv_schema *s, const json_t *node, int *out)
{
    const json_t *format = json_object_get(node, "format");
    const char *name = json_string_value(format);
    *out = SKV_FORMAT_UNKNOWN;
    if (!format) return SKV_OK;
    if (!name) return skv_schema_fail(s, SKV_FORMAT, "\"format\" is no text");
    *out = skv_schema_format_find(name);
    if (*out == SKV_FORMAT_UNKNOWN && !s->loose) {
        return skv_schema_fail(s, SKV_UNSUPPORTED, "the format \"%.100s\" is not supported", name);
    }
    const bool says = *out != SKV_FORMAT_UNKNOWN && !skv_schema_format_is_free(*out);
    if (!says) *out = SKV_FORMAT_UNKNOWN;
    return SKV_OK;
}

/* Two of a pattern, a format and a length at once would take the product of automata, but where the
 * format's values keep the length anyway. Where one of them is enough, that is the pattern, else
 * the format. */
skv_status skv_schema_string(skv_schema *s, const json_t *node, skv_expr *out)
{
    const json_t *pattern = json_object_get(node, "pattern");
    int format;
    uint32_t min, max;
    SKV_TRY(read_format(s, node, &format));
    SKV_TRY(skv_schema_integer(s, node, "minLength", 0, &min));
    SKV_TRY(skv_schema_integer(s, node, "maxLength", SKV_REPEAT_MANY, &max));
    const bool bounded = min > 0 || max != SKV_REPEAT_MANY, has_format = format >= 0;
    const bool holds = has_format && skv_schema_format_holds(format, min, max);
    if (bounded && (pattern || has_format) && (pattern || !holds) && !s->loose) {
        return skv_schema_fail(s, SKV_UNSUPPORTED, "\"%s\" beside \"%s\" is not supported",
                               min > 0 ? "minLength" : "maxLength", pattern ? "pattern" : "format");
    }
    if (pattern && has_format && !s->loose) {
        return skv_schema_fail(s, SKV_UNSUPPORTED,
                               "\"pattern\" beside \"format\" is not supported");
    }
    if (pattern) {
        const char *text = json_string_value(pattern);
        if (!text) return skv_schema_fail(s, SKV_FORMAT, "\"pattern\" is no text");
        const uint32_t rule = declare_here(s, "pattern");
        SKV_TRY(compile_pattern(s, without_lookahead(text), true, out));
        skv_rule_define(s->exprs, rule, *out);
        *out = skv_expr_call(s->exprs, rule);
        return SKV_OK;
    }
    if (!has_format) return compile_length(s, min, max, out);
    return share_string(s, format, 0, holds ? max : SKV_REPEAT_MANY, out);
}

/* ---- numbers ---- */

/* The shortest digits that make the same number again. */
static void print_number(const json_t *value, char *out, size_t size)
{
    if (json_is_integer(value)) {
        (void)snprintf(out, size, "%lld", (long long)json_integer_value(value));
        return;
    }
    for (int digits = 1; digits <= 17; digits++) {
        (void)snprintf(out, size, "%.*g", digits, json_real_value(value));
        if (strtod(out, NULL) == json_real_value(value)) return;
    }
}

static skv_status read_bound(skv_schema *s, const json_t *node, const char *key, bool *given,
                             skv_decimal *out)
{
    const json_t *value = json_object_get(node, key);
    char text[64];
    *given = value;
    if (!*given) return SKV_OK;
    if (!json_is_number(value)) return skv_schema_fail(s, SKV_FORMAT, "\"%s\" is no number", key);
    print_number(value, text, sizeof text);
    *given = skv_decimal_parse(text, out);
    if (*given || s->loose) return SKV_OK;
    return skv_schema_fail(s, SKV_RANGE, "\"%s\" is %s: more than %d digits", key, text,
                           (int)SKV_BOUND_DIGITS_MAX);
}

/* The tighter one of minimum and exclusiveMinimum, or of the maxima. */
static skv_status read_bounds(skv_schema *s, const json_t *node, bool upper, bool *has, bool *open,
                              skv_decimal *out)
{
    const char *key = upper ? "maximum" : "minimum";
    const char *open_key = upper ? "exclusiveMaximum" : "exclusiveMinimum";
    skv_decimal exclusive;
    bool has_open;
    SKV_TRY(read_bound(s, node, key, has, out));
    *open = false;
    if (json_is_boolean(json_object_get(node, open_key))) { /* draft 4 */
        *open = json_is_true(json_object_get(node, open_key));
        return SKV_OK;
    }
    SKV_TRY(read_bound(s, node, open_key, &has_open, &exclusive));
    if (!has_open) return SKV_OK;
    int order = *has ? skv_decimal_compare(&exclusive, out) : 0;
    if (*has && (upper ? order > 0 : order < 0)) return SKV_OK;
    *has = *open = true;
    *out = exclusive;
    return SKV_OK;
}

/* What a number is a multiple of; *given false: nothing that has to be followed. */
static skv_status read_multiple(skv_schema *s, const json_t *node, bool *given, skv_decimal *out)
{
    SKV_TRY(read_bound(s, node, "multipleOf", given, out));
    const bool zero = *given && strcmp(out->whole, "0") == 0 && out->fraction[0] == '\0';
    if (!*given || (!zero && !out->negative)) return SKV_OK;
    return skv_schema_fail(s, SKV_FORMAT, "\"multipleOf\" is no number above 0");
}

skv_status skv_schema_number(skv_schema *s, const json_t *node, bool whole, skv_expr *out)
{
    skv_number_bounds b = {.whole = whole};
    skv_decimal step = {.whole = "0"};
    bool stepped;
    SKV_TRY(read_bounds(s, node, false, &b.has_min, &b.open_min, &b.min));
    SKV_TRY(read_bounds(s, node, true, &b.has_max, &b.open_max, &b.max));
    SKV_TRY(read_multiple(s, node, &stepped, &step));
    if (stepped && skv_json_multiples(s->exprs, &b, &step, out)) return SKV_OK;
    if (stepped && !s->loose) {
        return skv_schema_fail(s, SKV_RANGE,
                               "\"multipleOf\" with its bounds has more digits, or asks for more "
                               "states, than can be followed");
    }
    if (b.has_min || b.has_max) {
        *out = skv_json_bounded(s->exprs, &b);
    } else {
        *out = whole ? skv_json_integer(&s->rules) : skv_json_number(&s->rules);
    }
    return SKV_OK;
}

/* ---- single values ---- */

static skv_expr literal_object(skv_schema *s, const json_t *value)
{
    skv_expr_list list = {.exprs = s->exprs};
    const char *key;
    const json_t *one;
    json_object_foreach((json_t *)(uintptr_t)value, key, one)
    {
        skv_expr name = skv_json_quoted(s->exprs, key, strlen(key));
        skv_expr member = skv_json_member(&s->rules, name, skv_schema_literal(s, one));
        skv_expr_list_add(&list, list.n > 0 ? skv_json_after_comma(&s->rules, member) : member);
    }
    bool empty = list.n == 0;
    return skv_json_bracket(&s->rules, "{", skv_expr_list_seq(&list), empty, "}");
}

static skv_expr literal_array(skv_schema *s, const json_t *value)
{
    skv_expr_list list = {.exprs = s->exprs};
    const json_t *one;
    size_t i;
    json_array_foreach(value, i, one)
    {
        skv_expr item = skv_schema_literal(s, one);
        skv_expr_list_add(&list, i > 0 ? skv_json_after_comma(&s->rules, item) : item);
    }
    bool empty = list.n == 0;
    return skv_json_bracket(&s->rules, "[", skv_expr_list_seq(&list), empty, "]");
}

static skv_expr literal_number(skv_schema *s, const json_t *value)
{
    char text[64];
    print_number(value, text, sizeof text);
    return skv_expr_text(s->exprs, text);
}

/* Values inside values are levels of the budget's depth. */
static skv_expr literal_list(skv_schema *s, const json_t *value)
{
    skv_budget *budget = s->exprs->budget;
    if (!skv_budget_enter(budget)) return SKV_EXPR_NEVER;
    skv_expr list = json_is_object(value) ? literal_object(s, value) : literal_array(s, value);
    skv_budget_leave(budget);
    return list;
}

skv_expr skv_schema_literal(skv_schema *s, const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
    case JSON_ARRAY: return literal_list(s, value);
    case JSON_STRING:
        return skv_json_quoted(s->exprs, json_string_value(value), json_string_length(value));
    case JSON_INTEGER:
    case JSON_REAL: return literal_number(s, value);
    case JSON_TRUE: return skv_expr_text(s->exprs, "true");
    case JSON_FALSE: return skv_expr_text(s->exprs, "false");
    case JSON_NULL: return skv_expr_text(s->exprs, "null");
    }
    return SKV_EXPR_NEVER;
}
