/* JSON as rules: see json_rules.h. */
#include "grammar/json_rules.h"

#include <string.h>

#include "grammar/grammar_impl.h"

enum { SPACES_MAX = 32, TABS_MAX = 8, CONTROL_MAX = 0x1f };

static uint32_t declare(skv_json_rules *r, const char *name)
{
    return skv_rule_declare(r->pool, name, strlen(name)) + 1;
}

static skv_expr digits(skv_expr_pool *pool, uint32_t min, uint32_t max)
{
    return skv_expr_repeat(pool, skv_expr_range(pool, '0', '9'), min, max);
}

skv_expr skv_json_blank(skv_json_rules *r)
{
    skv_expr_pool *pool = r->pool;
    if (r->blank == 0) {
        r->blank = declare(r, "blank");
        skv_expr spaces = skv_expr_repeat(pool, skv_expr_text(pool, " "), 0, SPACES_MAX);
        skv_expr tabs = skv_expr_repeat(pool, skv_expr_text(pool, "\t"), 0, TABS_MAX);
        skv_expr line =
            skv_expr_seq2(pool, skv_expr_text(pool, "\n"), skv_expr_alt2(pool, spaces, tabs));
        skv_expr blank = skv_expr_alt2(pool, skv_expr_text(pool, " "), line);
        skv_rule_define(pool, r->blank - 1, skv_expr_optional(pool, blank));
    }
    return skv_expr_call(pool, r->blank - 1);
}

/* ---- strings ---- */

/* \u and four digits: no surrogate, or two that make a pair. */
static skv_expr escaped_code(skv_expr_pool *pool)
{
    skv_code_set hex = {0}, no_d = {0}, low_d = {0}, high_half = {0}, low_half = {0};
    skv_code_set *sets[] = {&hex, &no_d, &low_d, &high_half, &low_half};
    static const char *const members[] = {"0123456789abcdefABCDEF", "0123456789abcefABCEF",
                                          "01234567", "89abAB", "cdefCDEF"};
    skv_expr e[5];
    for (size_t i = 0; i < 5; i++) {
        for (const char *c = members[i]; *c != '\0'; c++) {
            skv_code_set_add(sets[i], (uint32_t)*c, (uint32_t)*c);
        }
        skv_code_set_tidy(sets[i]);
        e[i] = skv_expr_set(pool, sets[i]);
        skv_code_set_release(sets[i]);
    }
    skv_expr d = skv_expr_alt2(pool, skv_expr_text(pool, "d"), skv_expr_text(pool, "D"));
    skv_expr two = skv_expr_seq2(pool, e[0], e[0]);
    skv_expr plain = skv_expr_alt2(pool, skv_expr_seq3(pool, e[1], e[0], two),
                                   skv_expr_seq3(pool, d, e[2], two));
    skv_expr high = skv_expr_seq3(pool, d, e[3], two);
    skv_expr low = skv_expr_seq3(pool, d, e[4], two);
    skv_expr pair = skv_expr_seq3(pool, high, skv_expr_text(pool, "\\u"), low);
    return skv_expr_seq2(pool, skv_expr_text(pool, "\\u"), skv_expr_alt2(pool, plain, pair));
}

static skv_expr plain_char(skv_expr_pool *pool)
{
    skv_code_set set = {0};
    skv_code_set_add(&set, 0, CONTROL_MAX);
    skv_code_set_add(&set, '"', '"');
    skv_code_set_add(&set, '\\', '\\');
    skv_code_set_tidy(&set);
    skv_code_set_invert(&set);
    skv_expr out = skv_expr_set(pool, &set);
    skv_code_set_release(&set);
    return out;
}

skv_expr skv_json_string(skv_json_rules *r)
{
    skv_expr_pool *pool = r->pool;
    if (r->string == 0) {
        r->string = declare(r, "string");
        skv_code_set set = {0};
        for (const char *c = "\"\\/bfnrt"; *c != '\0'; c++) {
            skv_code_set_add(&set, (uint32_t)*c, (uint32_t)*c);
        }
        skv_code_set_tidy(&set);
        skv_expr escape = skv_expr_seq2(pool, skv_expr_text(pool, "\\"), skv_expr_set(pool, &set));
        skv_code_set_release(&set);
        skv_expr one =
            skv_expr_alt(pool, (skv_expr[]){plain_char(pool), escape, escaped_code(pool)}, 3);
        skv_expr quote = skv_expr_text(pool, "\"");
        skv_expr many = skv_expr_repeat(pool, one, 0, SKV_REPEAT_MANY);
        skv_rule_define(pool, r->string - 1, skv_expr_seq3(pool, quote, many, quote));
    }
    return skv_expr_call(pool, r->string - 1);
}

/* The short escape's letter, 0 where there is none. */
static char short_escape(uint32_t code)
{
    static const char codes[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    const char *found = code != 0 && code < 128 ? strchr(codes, (int)code) : NULL;
    return found != NULL ? letters[found - codes] : '\0';
}

static skv_expr escaped_char(skv_expr_pool *pool, uint32_t code)
{
    char text[3] = {'\\', short_escape(code), '\0'};
    if (text[1] != '\0') return skv_expr_text(pool, text);
    char digit = (char)((code & 15) < 10 ? '0' + (code & 15) : 'a' + (code & 15) - 10);
    char head[] = {'\\', 'u', '0', '0', (char)('0' + (code >> 4)), digit, '\0'};
    if (digit <= '9') return skv_expr_text(pool, head);
    skv_expr lower = skv_expr_bytes(pool, &digit, 1);
    digit = (char)(digit - 'a' + 'A');
    skv_expr upper = skv_expr_bytes(pool, &digit, 1);
    return skv_expr_seq2(pool, skv_expr_bytes(pool, head, 5), skv_expr_alt2(pool, lower, upper));
}

skv_expr skv_json_char(skv_expr_pool *pool, const skv_code_set *set)
{
    skv_expr_list list = {.pool = pool};
    skv_code_set plain = {.failed = set->failed}, special = {0};
    skv_code_set_cut(set, CONTROL_MAX + 1, '"' - 1, &plain);
    skv_code_set_cut(set, '"' + 1, '\\' - 1, &plain);
    skv_code_set_cut(set, '\\' + 1, SKV_CODE_MAX, &plain);
    skv_code_set_tidy(&plain);
    skv_expr_list_add(&list, skv_expr_set(pool, &plain));
    skv_code_set_cut(set, 0, CONTROL_MAX, &special);
    skv_code_set_cut(set, '"', '"', &special);
    skv_code_set_cut(set, '\\', '\\', &special);
    for (size_t i = 0; i < special.n; i++) {
        for (uint32_t c = special.at[i].lo; c <= special.at[i].hi; c++) {
            skv_expr_list_add(&list, escaped_char(pool, c));
        }
    }
    skv_code_set_release(&plain);
    skv_code_set_release(&special);
    return skv_expr_list_alt(&list);
}

skv_expr skv_json_any_char(skv_expr_pool *pool)
{
    skv_code_range all = {0, SKV_CODE_MAX};
    skv_code_set set = {0};
    skv_code_set_add_all(&set, &all, 1);
    skv_code_set_tidy(&set);
    skv_expr out = skv_json_char(pool, &set);
    skv_code_set_release(&set);
    return out;
}

skv_expr skv_json_string_rest(skv_json_rules *r)
{
    skv_expr_pool *pool = r->pool;
    if (r->key_rest == 0) {
        r->key_rest = declare(r, "key");
        skv_expr many = skv_expr_repeat(pool, skv_json_any_char(pool), 0, SKV_REPEAT_MANY);
        skv_rule_define(pool, r->key_rest - 1,
                        skv_expr_seq2(pool, many, skv_expr_text(pool, "\"")));
    }
    return skv_expr_call(pool, r->key_rest - 1);
}

skv_expr skv_json_quoted(skv_expr_pool *pool, const char *text, size_t n)
{
    skv_expr_list list = {.pool = pool};
    size_t done = 0;
    skv_expr_list_add(&list, skv_expr_text(pool, "\""));
    for (size_t i = 0; i < n; i++) {
        uint8_t c = (uint8_t)text[i];
        if (c > CONTROL_MAX && c != '"' && c != '\\') continue;
        skv_expr_list_add(&list, skv_expr_bytes(pool, text + done, i - done));
        skv_expr_list_add(&list, escaped_char(pool, c));
        done = i + 1;
    }
    skv_expr_list_add(&list, skv_expr_bytes(pool, text + done, n - done));
    skv_expr_list_add(&list, skv_expr_text(pool, "\""));
    return skv_expr_list_seq(&list);
}

/* ---- numbers ---- */

skv_expr skv_json_integer(skv_json_rules *r)
{
    skv_expr_pool *pool = r->pool;
    skv_expr many = skv_expr_seq2(pool, skv_expr_range(pool, '1', '9'),
                                  digits(pool, 0, SKV_JSON_DIGITS_MAX - 1));
    skv_expr magnitude = skv_expr_alt2(pool, skv_expr_text(pool, "0"), many);
    return skv_expr_seq2(pool, skv_expr_optional(pool, skv_expr_text(pool, "-")), magnitude);
}

skv_expr skv_json_number(skv_json_rules *r)
{
    skv_expr_pool *pool = r->pool;
    if (r->number == 0) {
        r->number = declare(r, "number");
        skv_expr fraction =
            skv_expr_seq2(pool, skv_expr_text(pool, "."), digits(pool, 1, SKV_JSON_FRACTION_MAX));
        skv_expr e = skv_expr_alt2(pool, skv_expr_text(pool, "e"), skv_expr_text(pool, "E"));
        skv_expr sign = skv_expr_alt2(pool, skv_expr_text(pool, "+"), skv_expr_text(pool, "-"));
        skv_expr exponent = skv_expr_seq3(pool, e, skv_expr_optional(pool, sign),
                                          digits(pool, 1, SKV_JSON_EXPONENT_MAX));
        skv_rule_define(pool, r->number - 1,
                        skv_expr_seq3(pool, skv_json_integer(r), skv_expr_optional(pool, fraction),
                                      skv_expr_optional(pool, exponent)));
    }
    return skv_expr_call(pool, r->number - 1);
}

/* ---- brackets ---- */

skv_expr skv_json_after_comma(skv_json_rules *r, skv_expr item)
{
    return skv_expr_seq3(r->pool, skv_expr_text(r->pool, ","), skv_json_blank(r), item);
}

skv_expr skv_json_member(skv_json_rules *r, skv_expr key, skv_expr value)
{
    skv_expr colon = skv_expr_text(r->pool, ":");
    return skv_expr_seq(r->pool, (skv_expr[]){key, colon, skv_json_blank(r), value}, 4);
}

skv_expr skv_json_list(skv_json_rules *r, skv_expr item, uint32_t min, uint32_t max)
{
    uint32_t most = max == SKV_REPEAT_MANY ? max : max - 1;
    skv_expr more =
        skv_expr_repeat(r->pool, skv_json_after_comma(r, item), min > 1 ? min - 1 : 0, most);
    return skv_expr_seq2(r->pool, item, more);
}

skv_expr skv_json_bracket(skv_json_rules *r, const char *open, skv_expr items, bool may_be_empty,
                          const char *close)
{
    skv_expr blank = skv_json_blank(r);
    skv_expr inside = skv_expr_seq2(r->pool, items, blank);
    if (may_be_empty) inside = skv_expr_optional(r->pool, inside);
    return skv_expr_seq(
        r->pool,
        (skv_expr[]){skv_expr_text(r->pool, open), blank, inside, skv_expr_text(r->pool, close)},
        4);
}

/* ---- values ---- */

skv_expr skv_json_object(skv_json_rules *r)
{
    if (r->object == 0) {
        r->object = declare(r, "object");
        skv_expr member = skv_json_member(r, skv_json_string(r), skv_json_value(r));
        skv_expr members = skv_json_list(r, member, 0, SKV_REPEAT_MANY);
        skv_rule_define(r->pool, r->object - 1, skv_json_bracket(r, "{", members, true, "}"));
        if (r->pool->n_rules >= r->object) r->pool->rules[r->object - 1].nests = true;
    }
    return skv_expr_call(r->pool, r->object - 1);
}

skv_expr skv_json_array(skv_json_rules *r)
{
    if (r->array == 0) {
        r->array = declare(r, "array");
        skv_expr items = skv_json_list(r, skv_json_value(r), 0, SKV_REPEAT_MANY);
        skv_rule_define(r->pool, r->array - 1, skv_json_bracket(r, "[", items, true, "]"));
        if (r->pool->n_rules >= r->array) r->pool->rules[r->array - 1].nests = true;
    }
    return skv_expr_call(r->pool, r->array - 1);
}

skv_expr skv_json_value(skv_json_rules *r)
{
    skv_expr_pool *pool = r->pool;
    if (r->value == 0) {
        r->value = declare(r, "value");
        skv_expr kinds[] = {skv_json_object(r),          skv_json_array(r),
                            skv_json_string(r),          skv_json_number(r),
                            skv_expr_text(pool, "true"), skv_expr_text(pool, "false"),
                            skv_expr_text(pool, "null")};
        skv_rule_define(pool, r->value - 1,
                        skv_expr_alt(pool, kinds, sizeof kinds / sizeof kinds[0]));
    }
    return skv_expr_call(pool, r->value - 1);
}

void skv_json_object_read(skv_expr_pool *pool)
{
    skv_json_rules rules = {.pool = pool};
    uint32_t root = skv_rule_declare(pool, "root", 4);
    skv_rule_define(pool, root, skv_json_object(&rules));
}
