/* JSON as rules: see json_rules.h. */
#include "grammar/json_rules.h"

#include <string.h>

#include "grammar/grammar_front.h"

enum { SPACES_MAX = 32, TABS_MAX = 8 };

static uint32_t declare(skv_json_rules *r, const char *name)
{
    return skv_rule_declare(r->exprs, name, strlen(name)) + 1;
}

static skv_expr digits(skv_exprs *exprs, uint32_t min, uint32_t max)
{
    return skv_expr_repeat(exprs, skv_expr_range(exprs, '0', '9'), min, max);
}

static skv_expr blank_rule(skv_json_rules *r)
{
    skv_exprs *exprs = r->exprs;
    if (r->blank == 0) {
        r->blank = declare(r, "blank");
        skv_expr spaces = skv_expr_repeat(exprs, skv_expr_text(exprs, " "), 0, SPACES_MAX);
        skv_expr tabs = skv_expr_repeat(exprs, skv_expr_text(exprs, "\t"), 0, TABS_MAX);
        skv_expr line =
            skv_expr_seq2(exprs, skv_expr_text(exprs, "\n"), skv_expr_alt2(exprs, spaces, tabs));
        skv_expr blank = skv_expr_alt2(exprs, skv_expr_text(exprs, " "), line);
        skv_rule_define(exprs, r->blank - 1, skv_expr_optional(exprs, blank));
    }
    return skv_expr_call(exprs, r->blank - 1);
}

/* ---- strings ---- */

static skv_expr one_of(skv_exprs *exprs, const char *chars)
{
    skv_code_set set = {0};
    for (; *chars != '\0'; chars++) skv_code_set_add(&set, (uint32_t)*chars, (uint32_t)*chars);
    skv_code_set_tidy(&set);
    skv_expr out = skv_expr_set(exprs, &set);
    skv_code_set_release(&set);
    return out;
}

/* \u and four digits: no surrogate, or two that make a pair. */
static skv_expr escaped_code(skv_exprs *exprs)
{
    static const char *const members[] = {"0123456789abcdefABCDEF", "0123456789abcefABCEF",
                                          "01234567", "89abAB", "cdefCDEF"};
    skv_expr e[5];
    for (size_t i = 0; i < 5; i++) e[i] = one_of(exprs, members[i]);
    skv_expr d = skv_expr_alt2(exprs, skv_expr_text(exprs, "d"), skv_expr_text(exprs, "D"));
    skv_expr two = skv_expr_seq2(exprs, e[0], e[0]);
    skv_expr plain = skv_expr_alt2(exprs, skv_expr_seq3(exprs, e[1], e[0], two),
                                   skv_expr_seq3(exprs, d, e[2], two));
    skv_expr high = skv_expr_seq3(exprs, d, e[3], two);
    skv_expr low = skv_expr_seq3(exprs, d, e[4], two);
    skv_expr pair = skv_expr_seq3(exprs, high, skv_expr_text(exprs, "\\u"), low);
    return skv_expr_seq2(exprs, skv_expr_text(exprs, "\\u"), skv_expr_alt2(exprs, plain, pair));
}

void skv_json_add_escaped(skv_code_set *set)
{
    skv_code_set_add(set, 0, SKV_JSON_CONTROL_MAX);
    skv_code_set_add(set, '"', '"');
    skv_code_set_add(set, '\\', '\\');
}

void skv_json_cut_escaped(const skv_code_set *set, skv_code_set *out)
{
    skv_code_set_cut(set, 0, SKV_JSON_CONTROL_MAX, out);
    skv_code_set_cut(set, '"', '"', out);
    skv_code_set_cut(set, '\\', '\\', out);
}

static skv_expr plain_char(skv_exprs *exprs)
{
    skv_code_set set = {0};
    skv_json_add_escaped(&set);
    skv_code_set_tidy(&set);
    skv_code_set_invert(&set);
    skv_expr out = skv_expr_set(exprs, &set);
    skv_code_set_release(&set);
    return out;
}

skv_expr skv_json_string(skv_json_rules *r)
{
    skv_exprs *exprs = r->exprs;
    if (r->string == 0) {
        r->string = declare(r, "string");
        skv_expr letter = one_of(exprs, "\"\\/bfnrt");
        skv_expr escape = skv_expr_seq2(exprs, skv_expr_text(exprs, "\\"), letter);
        skv_expr one =
            skv_expr_alt(exprs, (skv_expr[]){plain_char(exprs), escape, escaped_code(exprs)}, 3);
        skv_expr quote = skv_expr_text(exprs, "\"");
        skv_expr many = skv_expr_repeat(exprs, one, 0, SKV_REPEAT_MANY);
        skv_rule_define(exprs, r->string - 1, skv_expr_seq3(exprs, quote, many, quote));
    }
    return skv_expr_call(exprs, r->string - 1);
}

/* Returns the letter of the short escape, 0 if there is none. */
static char short_escape(uint32_t code)
{
    static const char codes[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    const char *found = code != 0 && code < 128 ? strchr(codes, (int)code) : NULL;
    return found ? letters[found - codes] : '\0';
}

static skv_expr escaped_char(skv_exprs *exprs, uint32_t code)
{
    char text[3] = {'\\', short_escape(code), '\0'};
    if (text[1] != '\0') return skv_expr_text(exprs, text);
    char digit = (char)((code & 15) < 10 ? '0' + (code & 15) : 'a' + (code & 15) - 10);
    char head[] = {'\\', 'u', '0', '0', (char)('0' + (code >> 4)), digit, '\0'};
    if (digit <= '9') return skv_expr_text(exprs, head);
    skv_expr lower = skv_expr_bytes(exprs, &digit, 1);
    digit = (char)(digit - 'a' + 'A');
    skv_expr upper = skv_expr_bytes(exprs, &digit, 1);
    return skv_expr_seq2(exprs, skv_expr_bytes(exprs, head, 5), skv_expr_alt2(exprs, lower, upper));
}

/* One character of a set, which is released. */
static skv_expr take_set(skv_exprs *exprs, skv_code_set *set)
{
    skv_code_set_tidy(set);
    skv_expr out = skv_expr_set(exprs, set);
    skv_code_set_release(set);
    return out;
}

/* Escaped characters of a tidy set: common prefixes are shared, since long strings consist of
 * copies of this. */
static skv_expr escaped_chars(skv_exprs *exprs, const skv_code_set *special)
{
    skv_code_set letters = {0}, digits_of[2] = {{0}, {0}};
    for (size_t i = 0; i < special->n; i++) {
        for (uint32_t c = special->at[i].lo; c <= special->at[i].hi; c++) {
            const uint32_t letter = (uint32_t)short_escape(c), low = c & 15;
            skv_code_set *to = letter ? &letters : &digits_of[c >> 4];
            const uint32_t code = letter ? letter : low < 10 ? '0' + low : 'a' + low - 10;
            skv_code_set_add(to, code, code);
            if (!letter && low >= 10) skv_code_set_add(to, 'A' + low - 10, 'A' + low - 10);
        }
    }
    skv_expr low = skv_expr_seq2(exprs, skv_expr_text(exprs, "0"), take_set(exprs, &digits_of[0]));
    skv_expr high = skv_expr_seq2(exprs, skv_expr_text(exprs, "1"), take_set(exprs, &digits_of[1]));
    skv_expr coded =
        skv_expr_seq2(exprs, skv_expr_text(exprs, "u00"), skv_expr_alt2(exprs, low, high));
    return skv_expr_seq2(exprs, skv_expr_text(exprs, "\\"),
                         skv_expr_alt2(exprs, take_set(exprs, &letters), coded));
}

skv_expr skv_json_char(skv_exprs *exprs, const skv_code_set *set)
{
    skv_code_set plain = {.failed = set->failed}, special = {0};
    skv_code_set_cut(set, SKV_JSON_CONTROL_MAX + 1, '"' - 1, &plain);
    skv_code_set_cut(set, '"' + 1, '\\' - 1, &plain);
    skv_code_set_cut(set, '\\' + 1, SKV_CODE_MAX, &plain);
    skv_code_set_tidy(&plain);
    skv_json_cut_escaped(set, &special);
    skv_code_set_tidy(&special);
    const skv_expr spelled = skv_expr_set(exprs, &plain);
    const skv_expr escaped = special.n > 0 ? escaped_chars(exprs, &special) : SKV_EXPR_NEVER;
    skv_code_set_release(&plain);
    skv_code_set_release(&special);
    return skv_expr_alt2(exprs, spelled, escaped);
}

skv_expr skv_json_any_char(skv_exprs *exprs)
{
    skv_code_range all = {0, SKV_CODE_MAX};
    skv_code_set set = {0};
    skv_code_set_add_all(&set, &all, 1);
    skv_code_set_tidy(&set);
    skv_expr out = skv_json_char(exprs, &set);
    skv_code_set_release(&set);
    return out;
}

skv_expr skv_json_string_rest(skv_json_rules *r)
{
    skv_exprs *exprs = r->exprs;
    if (r->key_rest == 0) {
        r->key_rest = declare(r, "key");
        skv_expr many = skv_expr_repeat(exprs, skv_json_any_char(exprs), 0, SKV_REPEAT_MANY);
        skv_rule_define(exprs, r->key_rest - 1,
                        skv_expr_seq2(exprs, many, skv_expr_text(exprs, "\"")));
    }
    return skv_expr_call(exprs, r->key_rest - 1);
}

skv_expr skv_json_quoted(skv_exprs *exprs, const char *text, size_t n)
{
    skv_expr_list list = {.exprs = exprs};
    size_t done = 0;
    skv_expr_list_add(&list, skv_expr_text(exprs, "\""));
    for (size_t i = 0; i < n; i++) {
        uint8_t c = (uint8_t)text[i];
        if (c > SKV_JSON_CONTROL_MAX && c != '"' && c != '\\') continue;
        skv_expr_list_add(&list, skv_expr_bytes(exprs, text + done, i - done));
        skv_expr_list_add(&list, escaped_char(exprs, c));
        done = i + 1;
    }
    skv_expr_list_add(&list, skv_expr_bytes(exprs, text + done, n - done));
    skv_expr_list_add(&list, skv_expr_text(exprs, "\""));
    return skv_expr_list_seq(&list);
}

/* ---- numbers ---- */

skv_expr skv_json_integer(skv_json_rules *r)
{
    skv_exprs *exprs = r->exprs;
    skv_expr many = skv_expr_seq2(exprs, skv_expr_range(exprs, '1', '9'),
                                  digits(exprs, 0, SKV_JSON_DIGITS_MAX - 1));
    skv_expr magnitude = skv_expr_alt2(exprs, skv_expr_text(exprs, "0"), many);
    return skv_expr_seq2(exprs, skv_expr_optional(exprs, skv_expr_text(exprs, "-")), magnitude);
}

skv_expr skv_json_number(skv_json_rules *r)
{
    skv_exprs *exprs = r->exprs;
    if (r->number == 0) {
        r->number = declare(r, "number");
        skv_expr fraction = skv_expr_seq2(exprs, skv_expr_text(exprs, "."),
                                          digits(exprs, 1, SKV_JSON_FRACTION_MAX));
        skv_expr e = skv_expr_alt2(exprs, skv_expr_text(exprs, "e"), skv_expr_text(exprs, "E"));
        skv_expr sign = skv_expr_alt2(exprs, skv_expr_text(exprs, "+"), skv_expr_text(exprs, "-"));
        skv_expr exponent = skv_expr_seq3(exprs, e, skv_expr_optional(exprs, sign),
                                          digits(exprs, 1, SKV_JSON_EXPONENT_MAX));
        skv_rule_define(exprs, r->number - 1,
                        skv_expr_seq3(exprs, skv_json_integer(r),
                                      skv_expr_optional(exprs, fraction),
                                      skv_expr_optional(exprs, exponent)));
    }
    return skv_expr_call(exprs, r->number - 1);
}

/* ---- brackets ---- */

skv_expr skv_json_after_comma(skv_json_rules *r, skv_expr item)
{
    return skv_expr_seq3(r->exprs, skv_expr_text(r->exprs, ","), blank_rule(r), item);
}

skv_expr skv_json_after_name(skv_json_rules *r, skv_expr value)
{
    return skv_expr_seq3(r->exprs, skv_expr_text(r->exprs, ":"), blank_rule(r), value);
}

skv_expr skv_json_member(skv_json_rules *r, skv_expr key, skv_expr value)
{
    return skv_expr_seq2(r->exprs, key, skv_json_after_name(r, value));
}

skv_expr skv_json_list(skv_json_rules *r, skv_expr item, uint32_t min, uint32_t max)
{
    uint32_t most = max == SKV_REPEAT_MANY ? max : max - 1;
    skv_expr more =
        skv_expr_repeat(r->exprs, skv_json_after_comma(r, item), min > 1 ? min - 1 : 0, most);
    return skv_expr_seq2(r->exprs, item, more);
}

skv_expr skv_json_bracket(skv_json_rules *r, const char *open, skv_expr items, bool may_be_empty,
                          const char *close)
{
    skv_expr blank = blank_rule(r);
    skv_expr inside = skv_expr_seq2(r->exprs, items, blank);
    if (may_be_empty) inside = skv_expr_optional(r->exprs, inside);
    return skv_expr_seq(
        r->exprs,
        (skv_expr[]){skv_expr_text(r->exprs, open), blank, inside, skv_expr_text(r->exprs, close)},
        4);
}

/* ---- values ---- */

static skv_expr object_rule(skv_json_rules *r)
{
    if (r->object == 0) {
        r->object = declare(r, "object");
        skv_expr member = skv_json_member(r, skv_json_string(r), skv_json_value(r));
        skv_expr members = skv_json_list(r, member, 0, SKV_REPEAT_MANY);
        skv_rule_define(r->exprs, r->object - 1, skv_json_bracket(r, "{", members, true, "}"));
        if (r->exprs->n_rules >= r->object) r->exprs->rules[r->object - 1].nests = true;
    }
    return skv_expr_call(r->exprs, r->object - 1);
}

static skv_expr array_rule(skv_json_rules *r)
{
    if (r->array == 0) {
        r->array = declare(r, "array");
        skv_expr items = skv_json_list(r, skv_json_value(r), 0, SKV_REPEAT_MANY);
        skv_rule_define(r->exprs, r->array - 1, skv_json_bracket(r, "[", items, true, "]"));
        if (r->exprs->n_rules >= r->array) r->exprs->rules[r->array - 1].nests = true;
    }
    return skv_expr_call(r->exprs, r->array - 1);
}

skv_expr skv_json_value(skv_json_rules *r)
{
    skv_exprs *exprs = r->exprs;
    if (r->value == 0) {
        r->value = declare(r, "value");
        skv_expr kinds[] = {object_rule(r),
                            array_rule(r),
                            skv_json_string(r),
                            skv_json_number(r),
                            skv_expr_text(exprs, "true"),
                            skv_expr_text(exprs, "false"),
                            skv_expr_text(exprs, "null")};
        skv_rule_define(exprs, r->value - 1,
                        skv_expr_alt(exprs, kinds, sizeof kinds / sizeof kinds[0]));
    }
    return skv_expr_call(exprs, r->value - 1);
}

void skv_json_object_read(skv_exprs *exprs)
{
    skv_json_rules rules = {.exprs = exprs};
    uint32_t root = skv_rule_declare(exprs, "root", 4);
    skv_rule_define(exprs, root, object_rule(&rules));
}
