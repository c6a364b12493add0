/* Regular expressions to expressions: see grammar_front.h. */
#include <string.h>

#include "base/utf8.h"
#include "grammar/grammar_front.h"

enum {
    GROUPS_MAX = 200, /* nesting */
    BYTES_A_UNIT = 4  /* read for one unit of work */
};

typedef struct parser {
    skv_exprs *exprs;
    const skv_regex_options *options;
    const char *text;
    size_t n, at;
    skv_expr_groups groups; /* the pattern, and the groups in it */
    bool open_end;          /* the outermost alternative may go on with anything */
    skv_error *err;
} parser;

static skv_status bad(const parser *p, size_t at, const char *what)
{
    return skv_fail(p->err, SKV_FORMAT, "%s: byte %zu: %s", p->options->name, at, what);
}

static skv_status refused(const parser *p, size_t at, const char *what)
{
    return skv_fail(p->err, SKV_UNSUPPORTED, "%s: byte %zu: %s not supported", p->options->name, at,
                    what);
}

static bool at_end(const parser *p)
{
    return p->at == p->n;
}

static bool looking_at(const parser *p, const char *what)
{
    size_t n = strlen(what);
    return p->n - p->at >= n && memcmp(p->text + p->at, what, n) == 0;
}

static uint32_t take_code(parser *p)
{
    uint32_t code;
    p->at += skv_utf8_decode(p->text + p->at, p->n - p->at, &code);
    return code;
}

static skv_expr spell(const parser *p, skv_code_set *set)
{
    skv_code_set_tidy(set);
    skv_expr out = p->options->spell(p->exprs, set);
    skv_code_set_release(set);
    return out;
}

static skv_expr spell_code(const parser *p, uint32_t code)
{
    skv_code_set set = {.budget = p->exprs->budget};
    skv_code_set_add(&set, code, code);
    return spell(p, &set);
}

/* ---- escapes ---- */

bool skv_read_hex(const char *text, size_t n, size_t *at, size_t n_digits, uint32_t *code)
{
    uint32_t value = 0;
    if (n - *at < n_digits) return false;
    for (size_t i = 0; i < n_digits; i++) {
        char c = text[*at + i];
        uint32_t digit = 0;
        if (c >= '0' && c <= '9') {
            digit = (uint32_t)(c - '0');
        } else if ((c | 32) >= 'a' && (c | 32) <= 'f') {
            digit = (uint32_t)((c | 32) - 'a' + 10);
        } else {
            return false;
        }
        value = value << 4 | digit;
    }
    if (value > SKV_CODE_MAX || (value >= 0xd800 && value < 0xe000)) return false;
    *at += n_digits;
    *code = value;
    return true;
}

/* \d and its kind into `set`; false for any other letter. */
static bool take_class_letter(char letter, skv_code_set *set)
{
    skv_code_set part = {.budget = set->budget};
    switch (letter | 32) {
    case 'd': skv_code_set_add_all(&part, skv_code_digits, 1); break;
    case 'w': skv_code_set_add_all(&part, skv_code_words, 4); break;
    case 's': skv_code_set_add_all(&part, skv_code_spaces, 2); break;
    default: return false;
    }
    if (letter < 'a') skv_code_set_invert(&part);
    skv_code_set_add_all(set, part.at, part.n);
    set->failed = set->failed || part.failed;
    skv_code_set_release(&part);
    return true;
}

/* Parses an escape for one code point. */
static skv_status take_code_escape(parser *p, size_t begin, uint32_t *code)
{
    static const char letters[] = "nrtfv", codes[] = "\n\r\t\f\v";
    uint32_t c = take_code(p);
    const char *found = c < 128 && c != 0 ? strchr(letters, (int)c) : NULL;
    if (found) {
        *code = (uint32_t)codes[found - letters];
        return SKV_OK;
    }
    size_t n_digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (n_digits > 0) {
        if (skv_read_hex(p->text, p->n, &p->at, n_digits, code)) return SKV_OK;
        return bad(p, begin, "an escape that is no code point");
    }
    if (c == 'b' || c == 'B') return refused(p, begin, "the word boundary \\b is");
    if (c >= '1' && c <= '9') return refused(p, begin, "a backreference is");
    if (c == 'k') return refused(p, begin, "a named backreference is");
    if (c == 'p' || c == 'P') return refused(p, begin, "a Unicode property \\p is");
    if (c == '0') return refused(p, begin, "an octal escape is");
    bool letter = (c | 32) >= 'a' && (c | 32) <= 'z' && c < 128;
    if (letter) {
        return skv_fail(p->err, SKV_UNSUPPORTED, "%s: byte %zu: the escape \\%c is not supported",
                        p->options->name, begin, (int)c);
    }
    *code = c;
    return SKV_OK;
}

static skv_status take_escape(parser *p, skv_code_set *set, uint32_t *code, bool *is_class)
{
    size_t begin = p->at++;
    if (at_end(p)) return bad(p, begin, "a backslash at the end");
    *is_class = take_class_letter(p->text[p->at], set);
    if (*is_class) {
        p->at++;
        return SKV_OK;
    }
    return take_code_escape(p, begin, code);
}

/* ---- classes ---- */

/* One member: a code point, or a class inside the class. */
static skv_status take_member(parser *p, skv_code_set *set, uint32_t *code, bool *is_class)
{
    *is_class = false;
    if (p->text[p->at] == '\\' && p->at + 1 < p->n && p->text[p->at + 1] == 'b') {
        p->at += 2; /* here a backspace, not a boundary */
        *code = '\b';
        return SKV_OK;
    }
    if (p->text[p->at] == '\\') return take_escape(p, set, code, is_class);
    *code = take_code(p);
    return SKV_OK;
}

static skv_status take_members(parser *p, skv_code_set *set, size_t begin)
{
    size_t first = p->at;
    while (!at_end(p) && (p->text[p->at] != ']' || p->at == first)) {
        uint32_t lo = 0, hi = 0;
        bool lo_class, hi_class;
        size_t at = p->at;
        SKV_TRY(take_member(p, set, &lo, &lo_class));
        bool range = p->n - p->at >= 2 && p->text[p->at] == '-' && p->text[p->at + 1] != ']';
        if (range) {
            p->at++;
            SKV_TRY(take_member(p, set, &hi, &hi_class));
            if (lo_class || hi_class || lo > hi) return bad(p, at, "a range that is none");
            skv_code_set_add(set, lo, hi);
        } else if (!lo_class) {
            skv_code_set_add(set, lo, lo);
        }
    }
    if (at_end(p)) return bad(p, begin, "a class without its end");
    p->at++;
    return SKV_OK;
}

static skv_status take_class(parser *p, skv_expr *out)
{
    size_t begin = p->at++;
    bool negated = looking_at(p, "^");
    skv_code_set set = {.budget = p->exprs->budget};
    if (negated) p->at++;
    skv_status status = take_members(p, &set, begin);
    if (status != SKV_OK) {
        skv_code_set_release(&set);
        return status;
    }
    skv_code_set_tidy(&set);
    if (negated) skv_code_set_invert(&set);
    *out = spell(p, &set);
    return SKV_OK;
}

/* ---- pieces ---- */

static skv_status take_group_name(parser *p, size_t begin)
{
    while (!at_end(p) && p->text[p->at] != '>' && p->text[p->at] != ')') p->at++;
    if (at_end(p) || p->text[p->at] != '>') return bad(p, begin, "a group's name without its end");
    p->at++;
    return SKV_OK;
}

/* Parses the characters after "(?" . */
static skv_status take_group_kind(parser *p, size_t begin)
{
    if (looking_at(p, ":")) {
        p->at++;
        return SKV_OK;
    }
    if (looking_at(p, "=") || looking_at(p, "!")) return refused(p, begin, "lookahead is");
    if (looking_at(p, "<=") || looking_at(p, "<!")) return refused(p, begin, "lookbehind is");
    if (looking_at(p, "P=")) return refused(p, begin, "a named backreference is");
    if (looking_at(p, ">")) return refused(p, begin, "an atomic group is");
    if (looking_at(p, "(")) return refused(p, begin, "a conditional group is");
    if (looking_at(p, "#")) return refused(p, begin, "a comment is");
    if (looking_at(p, "P<")) p->at++;
    if (looking_at(p, "<")) return take_group_name(p, begin);
    return refused(p, begin, "flags inside the pattern are");
}

/* Groups around this place. */
static size_t depth(const parser *p)
{
    return p->groups.n_open - 1;
}

static skv_status open_group(parser *p)
{
    size_t begin = p->at++;
    SKV_REQUIRE(depth(p) < GROUPS_MAX, p->err, SKV_RANGE,
                "%s: byte %zu: groups nested deeper than %d", p->options->name, begin, GROUPS_MAX);
    if (looking_at(p, "?")) {
        p->at++;
        SKV_TRY(take_group_kind(p, begin));
    }
    skv_expr_groups_open(&p->groups, begin);
    return SKV_OK;
}

static skv_status take_atom(parser *p, skv_expr *out)
{
    size_t begin = p->at;
    char c = p->text[p->at];
    uint32_t code = 0, unused_min, unused_max;
    bool is_class = false;
    skv_code_set set = {.budget = p->exprs->budget};
    switch (c) {
    case '[': return take_class(p, out);
    case '.':
        p->at++;
        skv_code_set_add(&set, '\n', '\n');
        skv_code_set_invert(&set);
        *out = spell(p, &set);
        return SKV_OK;
    case '\\': {
        skv_status status = take_escape(p, &set, &code, &is_class);
        if (status == SKV_OK) *out = is_class ? spell(p, &set) : spell_code(p, code);
        skv_code_set_release(&set);
        return status;
    }
    case '*':
    case '+':
    case '?': return bad(p, begin, "nothing to repeat");
    case '^':
    case '$': return refused(p, begin, "an anchor inside the pattern is");
    case '{':
        if (skv_read_count(p->text, p->n, &p->at, &unused_min, &unused_max)) {
            return bad(p, begin, "nothing to repeat");
        }
        break;
    default: break;
    }
    *out = spell_code(p, take_code(p));
    return SKV_OK;
}

/* Reads a number, at most SKV_REPEAT_COUNT_MAX + 1; `fallback` if there are no digits. */
static uint32_t read_number(const char *text, size_t n, size_t *at, uint32_t fallback)
{
    if (*at >= n || text[*at] < '0' || text[*at] > '9') return fallback;
    uint32_t value = 0;
    for (; *at < n && text[*at] >= '0' && text[*at] <= '9'; ++*at) {
        if (value <= SKV_REPEAT_COUNT_MAX) value = value * 10 + (uint32_t)(text[*at] - '0');
    }
    return value;
}

bool skv_read_count(const char *text, size_t n, size_t *at, uint32_t *min, uint32_t *max)
{
    size_t i = *at + 1;
    if (*at >= n || text[*at] != '{') return false;
    size_t digits = i;
    uint32_t low = read_number(text, n, &i, 0), high = low;
    bool given = i > digits;
    if (i < n && text[i] == ',') {
        i++;
        high = read_number(text, n, &i, SKV_REPEAT_MANY);
        given = true;
    }
    if (!given || i >= n || text[i] != '}') return false;
    *at = i + 1;
    *min = low;
    *max = high;
    return true;
}

static bool take_quantifier(parser *p, uint32_t *min, uint32_t *max)
{
    char c = at_end(p) ? 0 : p->text[p->at];
    if (c == '{') return skv_read_count(p->text, p->n, &p->at, min, max);
    if (c != '*' && c != '+' && c != '?') return false;
    p->at++;
    *min = c == '+' ? 1 : 0;
    *max = c == '?' ? 1 : SKV_REPEAT_MANY;
    return true;
}

static skv_status take_repetition(parser *p, skv_expr *out)
{
    uint32_t min, max, again_min, again_max;
    size_t at = p->at;
    if (!take_quantifier(p, &min, &max)) return SKV_OK;
    if (min > max) return bad(p, at, "a repetition whose minimum is above its maximum");
    if (looking_at(p, "?")) {
        p->at++; /* lazy: the same texts */
    } else if (looking_at(p, "+")) {
        return refused(p, p->at, "a possessive repetition is");
    }
    if (take_quantifier(p, &again_min, &again_max)) return bad(p, at, "a repetition repeated");
    *out = skv_expr_repeat(p->exprs, *out, min, max);
    return SKV_OK;
}

/* ---- sequences and alternatives ---- */

static skv_expr anything(const parser *p)
{
    skv_code_set set = {.budget = p->exprs->budget};
    skv_code_set_add(&set, 0, SKV_CODE_MAX);
    return skv_expr_repeat(p->exprs, spell(p, &set), 0, SKV_REPEAT_MANY);
}

static bool at_sequence_end(const parser *p)
{
    return at_end(p) || p->text[p->at] == '|' || p->text[p->at] == ')';
}

/* Outside of all groups a search begins and ends with anything, unless ^ and $ hold it. */
static void begin_sequence(parser *p)
{
    if (depth(p) > 0) return;
    bool open_begin = p->open_end = p->options->search;
    if (looking_at(p, "^")) {
        p->at++;
        open_begin = false;
    }
    if (open_begin) skv_expr_groups_add(&p->groups, anything(p));
}

static bool at_last_anchor(const parser *p)
{
    return depth(p) == 0 && p->text[p->at] == '$' &&
           (p->at + 1 == p->n || p->text[p->at + 1] == '|');
}

/* Where a sequence ends: another one follows, or the group ends, and *closed gets it. */
static skv_status end_sequence(parser *p, bool *closed, skv_expr *out)
{
    size_t begin;
    if (depth(p) == 0 && p->open_end) skv_expr_groups_add(&p->groups, anything(p));
    *closed = !looking_at(p, "|");
    if (!*closed) {
        p->at++;
        skv_expr_groups_next(&p->groups);
        begin_sequence(p);
        return SKV_OK;
    }
    *out = skv_expr_groups_close(&p->groups, &begin);
    SKV_TRY(skv_exprs_check(p->exprs, p->err));
    if (p->groups.n_open == 0) return SKV_OK;
    if (at_end(p)) return bad(p, begin, "a group without its end");
    p->at++;
    return SKV_OK;
}

/* The pattern, which is the outermost group. */
static skv_status take_alternatives(parser *p, skv_expr *out)
{
    skv_expr_groups_open(&p->groups, p->at);
    if (p->exprs->status == SKV_OK) begin_sequence(p);
    while (p->exprs->status == SKV_OK) {
        bool closed = true;
        if (at_sequence_end(p)) {
            SKV_TRY(end_sequence(p, &closed, out));
            if (!closed) continue;
            if (p->groups.n_open == 0) break;
        } else if (at_last_anchor(p)) {
            p->at++;
            p->open_end = false;
            continue;
        } else if (p->text[p->at] == '(') {
            SKV_TRY(open_group(p));
            continue;
        } else {
            SKV_TRY(take_atom(p, out));
        }
        SKV_TRY(take_repetition(p, out));
        skv_expr_groups_add(&p->groups, *out);
    }
    return skv_exprs_check(p->exprs, p->err);
}

skv_status skv_regex_parse(skv_exprs *exprs, const char *text, size_t n,
                           const skv_regex_options *options, skv_expr *out, skv_error *err)
{
    size_t bad_at;
    parser p = {.exprs = exprs,
                .options = options,
                .text = text,
                .n = n,
                .groups = {.exprs = exprs},
                .err = err};
    if (!skv_utf8_valid(text, n, &bad_at)) return bad(&p, bad_at, "not UTF-8");
    (void)skv_expr_work(exprs, n / BYTES_A_UNIT); /* `exprs` keeps a failure */
    skv_status status = take_alternatives(&p, out);
    skv_expr_groups_release(&p.groups);
    if (status == SKV_OK && !at_end(&p)) status = bad(&p, p.at, "a ')' without its '('");
    return status;
}

skv_status skv_regex_read(skv_exprs *exprs, const char *text, size_t n, skv_error *err)
{
    const skv_regex_options options = {.name = "regex", .spell = skv_expr_set};
    uint32_t root = skv_rule_declare(exprs, "regex", 5);
    skv_expr expr = SKV_EXPR_NEVER;
    SKV_TRY(skv_regex_parse(exprs, text, n, &options, &expr, err));
    skv_rule_define(exprs, root, expr);
    return SKV_OK;
}
