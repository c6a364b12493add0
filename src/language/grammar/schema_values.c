/* Strings, numbers and single values of JSON schemas. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/grammar_front.h"
#include "grammar/schema_impl.h"

/* ---- strings ---- */

#define YEAR_DATE "[0-9]{4}-"
#define DATE                                                                                       \
    YEAR_DATE "(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]" \
              "|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))"
#define CLOCK "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?"
#define ZONE "(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
#define BYTE "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define LABEL "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"

/* Formats as patterns. Days go to the 28th of February: leap years are not regular enough. */
static const struct {
    const char *name, *pattern;
} formats[] = {
    {"date", DATE},
    {"time", CLOCK ZONE},
    {"date-time", DATE "T" CLOCK ZONE},
    {"uuid", "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"},
    {"ipv4", BYTE "\\." BYTE "\\." BYTE "\\." BYTE},
    {"hostname", LABEL "(?:\\." LABEL "){0,7}"},
    {"email", "[A-Za-z0-9_%+-]{1,32}(?:\\.[A-Za-z0-9_%+-]{1,32}){0,3}@" LABEL "(?:\\." LABEL
              "){0,3}\\.[A-Za-z]{2,12}"},
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

static skv_status compile_format(skv_schema *s, const json_t *format, skv_expr *out)
{
    const char *name = json_string_value(format);
    if (!name) return skv_schema_fail(s, SKV_FORMAT, "\"format\" is no text");
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        if (strcmp(formats[i].name, name) != 0) continue;
        return compile_pattern(s, formats[i].pattern, false, out);
    }
    *out = skv_json_string(&s->rules);
    if (s->loose) return SKV_OK;
    return skv_schema_fail(s, SKV_UNSUPPORTED, "the format \"%.100s\" is not supported", name);
}

/* A pattern, a format, or a length: two of them at once would take the product of automata. Where
 * one of them is enough, that is the pattern, else the format. */
skv_status skv_schema_string(skv_schema *s, const json_t *node, skv_expr *out)
{
    const json_t *pattern = json_object_get(node, "pattern");
    const json_t *format = json_object_get(node, "format");
    uint32_t min, max;
    SKV_TRY(skv_schema_integer(s, node, "minLength", 0, &min));
    SKV_TRY(skv_schema_integer(s, node, "maxLength", SKV_REPEAT_MANY, &max));
    bool bounded = min > 0 || max != SKV_REPEAT_MANY;
    if (bounded && (pattern || format) && !s->loose) {
        return skv_schema_fail(s, SKV_UNSUPPORTED, "\"%s\" beside \"%s\" is not supported",
                               min > 0 ? "minLength" : "maxLength", pattern ? "pattern" : "format");
    }
    if (pattern && format && !s->loose) {
        return skv_schema_fail(s, SKV_UNSUPPORTED,
                               "\"pattern\" beside \"format\" is not supported");
    }
    if (format && !pattern) return compile_format(s, format, out);
    if (pattern) {
        const char *text = json_string_value(pattern);
        if (!text) return skv_schema_fail(s, SKV_FORMAT, "\"pattern\" is no text");
        return compile_pattern(s, text, true, out);
    }
    *out = bounded ? SKV_EXPR_NEVER : skv_json_string(&s->rules);
    if (bounded && min <= max) {
        skv_expr any = skv_json_any_char(s->exprs);
        *out = in_quotes(s, skv_expr_repeat(s->exprs, any, min, max));
    }
    return SKV_OK;
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
    if (skv_decimal_parse(text, out)) return SKV_OK;
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

skv_status skv_schema_number(skv_schema *s, const json_t *node, bool whole, skv_expr *out)
{
    skv_number_bounds b = {.whole = whole};
    SKV_TRY(read_bounds(s, node, false, &b.has_min, &b.open_min, &b.min));
    SKV_TRY(read_bounds(s, node, true, &b.has_max, &b.open_max, &b.max));
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
