/*
 * Rules in the GBNF notation of llama.cpp:
 *
 *     root  ::= item ("," ws item)* | ""      # alternatives, groups, repetitions
 *     item  ::= [^,\n]{1,20}                  # a class of characters
 *     ws    ::= [ \t]?
 *
 * Literals and classes take the escapes \n \r \t \\ \" \[ \] \xHH \uHHHH \UHHHHHHHH; '.' is any
 * character. A rule continues in the next line inside parentheses, after '|', and before it.
 */
#include <string.h>

#include "base/budget_mem.h"
#include "base/utf8.h"
#include "grammar/grammar_front.h"

enum {
    GROUPS_MAX = 200,    /* nesting */
    NAME_LISTS = 1 << 9, /* of rules' names, by their hash; a power of two */
    BYTES_A_UNIT = 4     /* read for one unit of work */
};

typedef struct named {
    const char *name; /* borrowed from the text */
    size_t n;
    size_t at; /* byte of its first use */
    uint32_t rule;
    uint32_t hash;
    uint32_t link; /* to the next name of the same list, plus 1 */
} named;

typedef struct parser {
    skv_exprs *exprs;
    const char *text;
    size_t n, at;
    skv_expr_groups groups; /* the right side of a rule, and the groups in it */
    named *names;           /* owned, [n_names] */
    uint32_t *heads;        /* owned, [NAME_LISTS] a name, plus 1, of each hash */
    size_t n_names, names_capacity;
    skv_error *err;
} parser;

static skv_status bad(const parser *p, size_t at, const char *what)
{
    size_t line = 1;
    for (size_t i = 0; i < at && i < p->n; i++) line += p->text[i] == '\n';
    return skv_fail(p->err, SKV_FORMAT, "grammar: line %zu, byte %zu: %s", line, at, what);
}

static char peek(const parser *p)
{
    return p->at < p->n ? p->text[p->at] : '\0';
}

static bool is_name_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
}

/* Skips blanks and comments; also line ends if the rule may continue after them. */
static void skip_space(parser *p, bool lines)
{
    for (; p->at < p->n; p->at++) {
        char c = p->text[p->at];
        if (c == '#') {
            while (p->at < p->n && p->text[p->at] != '\n') p->at++;
            if (!lines || p->at == p->n) return;
        } else if (c != ' ' && c != '\t' && (!lines || (c != '\n' && c != '\r'))) {
            return;
        }
    }
}

/* ---- rules by name ---- */

/* FNV-1a. */
static uint32_t hash_of(const char *name, size_t n)
{
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < n; i++) hash = (hash ^ (unsigned char)name[i]) * 16777619u;
    return hash;
}

static const named *find_name(parser *p, const char *name, size_t n, uint32_t hash)
{
    size_t n_steps = 1;
    const named *found = NULL;
    uint32_t i = p->names ? p->heads[hash % NAME_LISTS] : 0;
    for (; i > 0 && !found; i = p->names[i - 1].link) {
        const named *one = &p->names[i - 1];
        if (one->hash == hash && one->n == n && memcmp(one->name, name, n) == 0) found = one;
        n_steps++;
    }
    (void)skv_expr_work(p->exprs, n_steps + n / BYTES_A_UNIT); /* the caller checks `exprs` */
    return found;
}

/* The rule of a name, which is used or defined at byte `at`. */
static skv_status rule_of(parser *p, const char *name, size_t n, size_t at, uint32_t *rule)
{
    uint32_t hash = hash_of(name, n);
    const named *known = find_name(p, name, n, hash);
    if (known) {
        *rule = known->rule;
        return skv_exprs_check(p->exprs, p->err);
    }
    if (skv_expr_reserve(p->exprs, &p->names, &p->names_capacity, p->n_names + 1, sizeof *p->names,
                         SKV_RULES_MAX, "more than 32768 rules")) {
        *rule = skv_rule_declare(p->exprs, name, n);
        uint32_t *head = &p->heads[hash % NAME_LISTS];
        p->names[p->n_names++] = (named){name, n, at, *rule, hash, *head};
        *head = (uint32_t)p->n_names;
    }
    return skv_exprs_check(p->exprs, p->err);
}

static size_t name_length(const parser *p)
{
    size_t n = 0;
    while (p->at + n < p->n && is_name_byte(p->text[p->at + n])) n++;
    return n;
}

/* Whether a rule begins here: a name, then "::=". */
static bool at_rule(const parser *p)
{
    parser ahead = *p;
    size_t n = name_length(p);
    ahead.at += n;
    skip_space(&ahead, false);
    return n > 0 && ahead.n - ahead.at >= 3 && memcmp(ahead.text + ahead.at, "::=", 3) == 0;
}

/* ---- literals and classes ---- */

/* A character, escapes resolved. */
static skv_status take_code(parser *p, uint32_t *code)
{
    static const char plain[] = "\\\"[]^-'/.", letters[] = "nrt", codes[] = "\n\r\t";
    size_t begin = p->at;
    if (p->text[p->at] != '\\') {
        p->at += skv_utf8_decode(p->text + p->at, p->n - p->at, code);
        return SKV_OK;
    }
    p->at++;
    char c = peek(p);
    if (c == '\0') return bad(p, begin, "a backslash at the end");
    p->at++;
    size_t n_digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    const char *letter = strchr(letters, c);
    if (n_digits > 0) {
        if (skv_read_hex(p->text, p->n, &p->at, n_digits, code)) return SKV_OK;
        return bad(p, begin, "an escape that is no code point");
    }
    if (!letter && !strchr(plain, c)) return bad(p, begin, "an unknown escape");
    *code = (uint32_t)(letter ? codes[letter - letters] : c);
    return SKV_OK;
}

static skv_status take_literal(parser *p, skv_expr *out)
{
    size_t begin = p->at++, first = p->exprs->n_bytes;
    while (p->at < p->n && peek(p) != '"' && peek(p) != '\n') {
        uint32_t code = 0;
        char bytes[4];
        SKV_TRY(take_code(p, &code));
        skv_expr_bytes_put(p->exprs, bytes, skv_utf8_encode(code, bytes));
    }
    if (peek(p) != '"') return bad(p, begin, "a text without its end");
    p->at++;
    *out = skv_expr_bytes_end(p->exprs, first);
    return SKV_OK;
}

static skv_status take_members(parser *p, skv_code_set *set, size_t begin)
{
    while (p->at < p->n && peek(p) != ']' && peek(p) != '\n') {
        uint32_t lo = 0, hi = 0;
        size_t at = p->at;
        SKV_TRY(take_code(p, &lo));
        hi = lo;
        if (peek(p) == '-' && p->at + 1 < p->n && p->text[p->at + 1] != ']') {
            p->at++;
            SKV_TRY(take_code(p, &hi));
        }
        if (lo > hi) return bad(p, at, "a range that is none");
        skv_code_set_add(set, lo, hi);
    }
    if (peek(p) != ']') return bad(p, begin, "a class without its end");
    p->at++;
    return SKV_OK;
}

static skv_status take_class(parser *p, skv_expr *out)
{
    size_t begin = p->at++;
    bool negated = peek(p) == '^';
    skv_code_set set = {.budget = p->exprs->budget};
    if (negated) p->at++;
    skv_status status = take_members(p, &set, begin);
    skv_code_set_tidy(&set);
    if (negated) skv_code_set_invert(&set);
    if (status == SKV_OK) *out = skv_expr_set(p->exprs, &set);
    skv_code_set_release(&set);
    return status;
}

/* ---- right sides ---- */

/* Groups around this place. */
static size_t depth(const parser *p)
{
    return p->groups.n_open - 1;
}

static skv_status open_group(parser *p)
{
    size_t begin = p->at++;
    SKV_REQUIRE(depth(p) < GROUPS_MAX, p->err, SKV_RANGE,
                "grammar: byte %zu: groups nested deeper than %d", begin, GROUPS_MAX);
    skv_expr_groups_open(&p->groups, begin);
    skip_space(p, true);
    return skv_exprs_check(p->exprs, p->err);
}

static skv_status take_atom(parser *p, skv_expr *out)
{
    char c = peek(p);
    if (c == '"') return take_literal(p, out);
    if (c == '[') return take_class(p, out);
    if (c == '.') {
        p->at++;
        *out = skv_expr_range(p->exprs, 0, SKV_CODE_MAX);
        return SKV_OK;
    }
    if (c == '<') return bad(p, p->at, "tokens <...> are not supported");
    size_t n = name_length(p);
    if (n == 0) return bad(p, p->at, "no text, class, group or rule");
    uint32_t rule;
    SKV_TRY(rule_of(p, p->text + p->at, n, p->at, &rule));
    p->at += n;
    *out = skv_expr_call(p->exprs, rule);
    return SKV_OK;
}

static skv_status take_repetitions(parser *p, skv_expr *out)
{
    for (;;) {
        uint32_t min = 0, max = SKV_REPEAT_MANY;
        size_t at = p->at;
        char c = peek(p);
        if (c == '{') {
            if (!skv_read_count(p->text, p->n, &p->at, &min, &max)) {
                return bad(p, at, "a repetition that is none of {m} {m,} {m,n}");
            }
            if (min > max) return bad(p, at, "a repetition whose minimum is above its maximum");
        } else if (c == '*' || c == '+' || c == '?') {
            p->at++;
            min = c == '+' ? 1 : 0;
            if (c == '?') max = 1;
        } else {
            return SKV_OK;
        }
        *out = skv_expr_repeat(p->exprs, *out, min, max);
    }
}

/* Joins the next line if it continues with "|". */
static void join_lines(parser *p)
{
    parser ahead = *p;
    skip_space(&ahead, true);
    if (depth(p) > 0 || peek(&ahead) == '|') p->at = ahead.at;
}

static bool ends_sequence(char c)
{
    return c == '\n' || c == '\r' || c == '\0' || c == '|' || c == ')';
}

/* Where a sequence ends: another one follows, or the group ends, and *closed gets it. */
static skv_status end_sequence(parser *p, bool *closed, skv_expr *out)
{
    size_t begin;
    join_lines(p);
    *closed = peek(p) != '|';
    if (!*closed) {
        p->at++;
        skv_expr_groups_next(&p->groups);
        skip_space(p, true);
        return SKV_OK;
    }
    *out = skv_expr_groups_close(&p->groups, &begin);
    SKV_TRY(skv_exprs_check(p->exprs, p->err));
    if (p->groups.n_open == 0) return SKV_OK;
    if (peek(p) != ')') return bad(p, begin, "a group without its end");
    p->at++;
    return SKV_OK;
}

/* The right side of a rule, which is the outermost group. */
static skv_status take_alternatives(parser *p, skv_expr *out)
{
    skv_expr_groups_open(&p->groups, p->at);
    skip_space(p, true);
    while (p->exprs->status == SKV_OK) {
        bool closed = true;
        skip_space(p, depth(p) > 0);
        if (peek(p) == '(') {
            SKV_TRY(open_group(p));
            continue;
        }
        if (ends_sequence(peek(p))) {
            SKV_TRY(end_sequence(p, &closed, out));
            if (!closed) continue;
            if (p->groups.n_open == 0) break;
        } else {
            SKV_TRY(take_atom(p, out));
        }
        SKV_TRY(take_repetitions(p, out));
        skv_expr_groups_add(&p->groups, *out);
    }
    return skv_exprs_check(p->exprs, p->err);
}

static skv_status take_rule(parser *p)
{
    uint32_t rule = 0;
    skv_expr expr = SKV_EXPR_NEVER;
    size_t begin = p->at;
    if (!at_rule(p)) return bad(p, begin, "no rule (name ::= ...)");
    size_t n = name_length(p);
    SKV_TRY(rule_of(p, p->text + begin, n, begin, &rule));
    if (p->exprs->rules[rule].defined) {
        return skv_fail(p->err, SKV_FORMAT, "grammar: byte %zu: rule \"%s\" is defined twice",
                        begin, p->exprs->rules[rule].name);
    }
    p->at += n;
    skip_space(p, false);
    p->at += 3;
    SKV_TRY(take_alternatives(p, &expr));
    if (peek(p) == ')') return bad(p, p->at, "a ')' without its '('");
    skv_rule_define(p->exprs, rule, expr);
    return SKV_OK;
}

static skv_status take_rules(parser *p)
{
    uint32_t root;
    SKV_TRY(rule_of(p, "root", 4, 0, &root));
    skip_space(p, true);
    while (p->at < p->n) {
        SKV_TRY(take_rule(p));
        skip_space(p, true);
    }
    for (size_t i = 0; i < p->n_names; i++) {
        const named *name = &p->names[i];
        if (p->exprs->rules[name->rule].defined) continue;
        return skv_fail(p->err, SKV_FORMAT, "grammar: byte %zu: rule \"%.*s\" is not defined",
                        name->at, (int)(name->n < 64 ? name->n : 64), name->name);
    }
    return SKV_OK;
}

skv_status skv_gbnf_read(skv_exprs *exprs, const char *text, size_t n, skv_error *err)
{
    size_t bad_at;
    parser p = {.exprs = exprs, .text = text, .n = n, .groups = {.exprs = exprs}, .err = err};
    if (!skv_utf8_valid(text, n, &bad_at)) return bad(&p, bad_at, "not UTF-8");
    if (n > 0 && memchr(text, 0, n)) return bad(&p, 0, "a zero byte");
    skv_status status = SKV_OK;
    p.heads = skv_budget_alloc_zero(exprs->budget, NAME_LISTS, sizeof *p.heads);
    if (!p.heads || !skv_expr_work(exprs, n / BYTES_A_UNIT)) {
        status = skv_fail(err, SKV_MEMORY, "grammar: no memory");
    }
    if (status == SKV_OK) status = take_rules(&p);
    skv_budget_free(exprs->budget, p.heads, NAME_LISTS, sizeof *p.heads);
    skv_budget_free(exprs->budget, p.names, p.names_capacity, sizeof *p.names);
    skv_expr_groups_release(&p.groups);
    return status;
}
