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

/* *left_out: it cannot be followed, and need not be. */
static skv_status parse_pattern(skv_schema *s, const char *pattern, skv_regex_options options,
                                bool *left_out, skv_expr *out)
{
    char name[128];
    (void)snprintf(name, sizeof name, "json schema: %.80s: pattern",
                   s->path.size > 0 ? s->path.data : "/");
    options.name = name;
    *out = SKV_EXPR_NEVER;
    const skv_status status =
        skv_regex_parse(s->exprs, pattern, strlen(pattern), &options, out, s->err);
    *left_out = s->loose && (status == SKV_UNSUPPORTED || status == SKV_FORMAT);
    return *left_out ? SKV_OK : status;
}

static skv_status compile_pattern(skv_schema *s, const char *pattern, bool search, skv_expr *out)
{
    const skv_regex_options options = {.spell = skv_json_char, .search = search};
    bool any;
    SKV_TRY(parse_pattern(s, pattern, options, &any, out));
    *out = any ? skv_json_string(&s->rules) : in_quotes(s, *out);
    return SKV_OK;
}

/* Names a rule after the place of its first use. */
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

/* Reads the format of a string; UNKNOWN: none, or one without constraints. */
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

/* The constraints of a string; each is optional. */
typedef struct string_rules {
    const char *pattern;
    int format;
    uint32_t min, max;
} string_rules;

static bool is_bounded(const string_rules *r)
{
    return r->min > 0 || r->max != SKV_REPEAT_MANY;
}

static skv_status read_string(skv_schema *s, const json_t *node, string_rules *out)
{
    const json_t *pattern = json_object_get(node, "pattern");
    SKV_TRY(read_format(s, node, &out->format));
    SKV_TRY(skv_schema_integer(s, node, "minLength", 0, &out->min));
    SKV_TRY(skv_schema_integer(s, node, "maxLength", SKV_REPEAT_MANY, &out->max));
    out->pattern = json_string_value(pattern);
    if (!pattern || out->pattern) return SKV_OK;
    return skv_schema_fail(s, SKV_FORMAT, "\"pattern\" is no text");
}

/* Several rules at once. *done false: that takes more than there is room for. */
static skv_status compile_together(skv_schema *s, const string_rules *r, bool *done, skv_expr *out)
{
    char text[SKV_FORMAT_PATTERN_MAX];
    skv_expr of[2] = {SKV_EXPR_NEVER};
    skv_product product = {.of = of, .min = r->min, .max = r->max};
    skv_regex_options options = {.spell = skv_expr_set, .search = true};
    bool left_out = true;
    if (r->pattern) {
        SKV_TRY(parse_pattern(s, skv_schema_plain_pattern(r->pattern, text), options, &left_out,
                              &of[0]));
        product.n += !left_out;
    }
    if (r->format != SKV_FORMAT_UNKNOWN) {
        skv_schema_format_pattern(r->format, SKV_REPEAT_MANY, text);
        options.search = false;
        SKV_TRY(parse_pattern(s, text, options, &left_out, &of[product.n++]));
    }
    product.n_states = LENGTHS_MAX - s->n_lengths;
    *done = product.n > 0 && skv_schema_product(s->exprs, &product, out);
    SKV_TRY(skv_exprs_check(s->exprs, s->err));
    if (*done) s->n_lengths += product.n_states;
    return SKV_OK;
}

/* Compiles the constraint of a string. Of several, only the pattern or else the format counts. */
static skv_status compile_string(skv_schema *s, const string_rules *r, bool holds, skv_expr *out)
{
    char plain[SKV_FORMAT_PATTERN_MAX];
    if (r->pattern)
        return compile_pattern(s, skv_schema_plain_pattern(r->pattern, plain), true, out);
    if (r->format == SKV_FORMAT_UNKNOWN) return compile_length(s, r->min, r->max, out);
    return share_string(s, r->format, 0, holds ? r->max : SKV_REPEAT_MANY, out);
}

skv_status skv_schema_string(skv_schema *s, const json_t *node, skv_expr *out)
{
    string_rules r;
    SKV_TRY(read_string(s, node, &r));
    const bool has_format = r.format != SKV_FORMAT_UNKNOWN;
    const bool holds = has_format && skv_schema_format_holds(r.format, r.min, r.max);
    const bool bounded = is_bounded(&r) && !holds;
    const bool several = r.pattern ? bounded || has_format : bounded && has_format;
    bool done = false;
    const uint32_t rule = r.pattern || several ? declare_here(s, "pattern") : 0;
    if (several) SKV_TRY(compile_together(s, &r, &done, out));
    if (done) *out = in_quotes(s, *out);
    if (several && !done && !s->loose) {
        return skv_schema_fail(s, SKV_RANGE,
                               "\"%s\" beside \"%s\" takes more than %d states: a pattern, format "
                               "and length together may have as many in all of a schema",
                               !bounded    ? "pattern"
                               : r.min > 0 ? "minLength"
                                           : "maxLength",
                               bounded && r.pattern ? "pattern" : "format", LENGTHS_MAX);
    }
    if (!done) SKV_TRY(compile_string(s, &r, holds, out));
    if (!r.pattern && !several) return SKV_OK;
    skv_rule_define(s->exprs, rule, *out);
    *out = skv_expr_call(s->exprs, rule);
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

/* Reads the "multipleOf" of a number; *given false: none that has to be followed. */
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
