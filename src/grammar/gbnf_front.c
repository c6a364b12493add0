/*
 * Rules in the GBNF notation of llama.cpp:
 *
 *     root  ::= item ("," ws item)* | ""      # alternatives, groups, repetitions
 *     item  ::= [^,\n]{1,20}                  # a class of characters
 *     ws    ::= [ \t]?
 *
 * Literals and classes take the escapes \n \r \t \\ \" \[ \] \xHH \uHHHH \UHHHHHHHH; '.' is any
 * character. A rule goes on in the next line inside parentheses, after '|', and before it.
 */
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "grammar/grammar_impl.h"
#include "grammar/regex_front.h"

enum { GROUPS_MAX = 200 /* nesting */ };

typedef struct named {
    const char *name; /* borrowed from the text */
    size_t n;
    size_t at; /* byte of its first use */
    uint32_t rule;
} named;

typedef struct parser {
    skv_expr_pool *pool;
    const char *text;
    size_t n, at;
    size_t depth; /* groups around this place */
    named *names; /* owned */
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

/* Blanks and comments; line ends too where the rule may go on behind them. */
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

/* The rule of a name, which is used or defined at byte `at`. */
static skv_status rule_of(parser *p, const char *name, size_t n, size_t at, uint32_t *rule)
{
    for (size_t i = 0; i < p->n_names; i++) {
        if (p->names[i].n == n && memcmp(p->names[i].name, name, n) == 0) {
            *rule = p->names[i].rule;
            return SKV_OK;
        }
    }
    if (p->n_names == p->names_capacity) {
        size_t grown = p->names_capacity == 0 ? 32 : 2 * p->names_capacity;
        named *names =
            grown > 2 * (size_t)SKV_RULES_MAX ? NULL : skv_realloc(p->names, grown, sizeof *names);
        SKV_REQUIRE(names != NULL, p->err, SKV_MEMORY, "grammar: no memory for %zu rules", grown);
        p->names = names;
        p->names_capacity = grown;
    }
    *rule = skv_rule_declare(p->pool, name, n);
    p->names[p->n_names++] = (named){name, n, at, *rule};
    return skv_expr_pool_check(p->pool, p->err);
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
    if (letter == NULL && strchr(plain, c) == NULL) return bad(p, begin, "an unknown escape");
    *code = (uint32_t)(letter != NULL ? codes[letter - letters] : c);
    return SKV_OK;
}

static skv_status take_literal(parser *p, skv_expr *out)
{
    size_t begin = p->at++;
    skv_buf text;
    skv_status status = SKV_OK;
    skv_buf_init(&text, SKV_GRAMMAR_TEXT_MAX);
    while (status == SKV_OK && p->at < p->n && peek(p) != '"' && peek(p) != '\n') {
        uint32_t code = 0;
        char bytes[4];
        status = take_code(p, &code);
        if (status == SKV_OK) skv_buf_append(&text, bytes, skv_utf8_encode(code, bytes));
    }
    if (status == SKV_OK && peek(p) != '"') status = bad(p, begin, "a text without its end");
    if (status == SKV_OK && text.failed)
        status = skv_fail(p->err, SKV_MEMORY, "grammar: no memory");
    if (status == SKV_OK) {
        p->at++;
        *out = skv_expr_bytes(p->pool, text.data, text.size);
    }
    skv_buf_release(&text);
    return status;
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
    skv_code_set set = {0};
    if (negated) p->at++;
    skv_status status = take_members(p, &set, begin);
    skv_code_set_tidy(&set);
    if (negated) skv_code_set_invert(&set);
    if (status == SKV_OK) *out = skv_expr_set(p->pool, &set);
    skv_code_set_release(&set);
    return status;
}

/* ---- right sides ---- */

static skv_status take_alternatives(parser *p, skv_expr *out);

static skv_status take_group(parser *p, skv_expr *out)
{
    size_t begin = p->at++;
    if (p->depth == GROUPS_MAX) return bad(p, begin, "groups nested deeper than 200");
    p->depth++;
    SKV_TRY(take_alternatives(p, out));
    p->depth--;
    if (peek(p) != ')') return bad(p, begin, "a group without its end");
    p->at++;
    return SKV_OK;
}

static skv_status take_atom(parser *p, skv_expr *out)
{
    char c = peek(p);
    if (c == '"') return take_literal(p, out);
    if (c == '[') return take_class(p, out);
    if (c == '(') return take_group(p, out);
    if (c == '.') {
        p->at++;
        *out = skv_expr_range(p->pool, 0, SKV_CODE_MAX);
        return SKV_OK;
    }
    if (c == '<') return bad(p, p->at, "tokens <...> are not supported");
    size_t n = name_length(p);
    if (n == 0) return bad(p, p->at, "no text, class, group or rule");
    uint32_t rule;
    SKV_TRY(rule_of(p, p->text + p->at, n, p->at, &rule));
    p->at += n;
    *out = skv_expr_call(p->pool, rule);
    return SKV_OK;
}

static skv_status take_repeated(parser *p, skv_expr *out)
{
    SKV_TRY(take_atom(p, out));
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
        *out = skv_expr_repeat(p->pool, *out, min, max);
    }
}

/* Whether the next line goes on with "|". */
static void join_lines(parser *p)
{
    parser ahead = *p;
    skip_space(&ahead, true);
    if (p->depth > 0 || peek(&ahead) == '|') p->at = ahead.at;
}

static skv_status take_sequence(parser *p, skv_expr_list *list)
{
    for (;;) {
        skip_space(p, p->depth > 0);
        char c = peek(p);
        if (c == '\n' || c == '\r' || c == '\0' || c == '|' || c == ')') return SKV_OK;
        skv_expr item = SKV_EXPR_NEVER;
        SKV_TRY(take_repeated(p, &item));
        skv_expr_list_add(list, item);
    }
}

static skv_status take_alternatives(parser *p, skv_expr *out)
{
    skv_expr_list list = {.pool = p->pool};
    skv_status status = SKV_OK;
    for (bool more = true; more && status == SKV_OK;) {
        skv_expr_list one = {.pool = p->pool};
        skip_space(p, true);
        status = take_sequence(p, &one);
        skv_expr_list_add(&list, skv_expr_list_seq(&one));
        if (status == SKV_OK) join_lines(p);
        more = peek(p) == '|';
        if (more) p->at++;
    }
    *out = skv_expr_list_alt(&list);
    return status;
}

static skv_status take_rule(parser *p)
{
    uint32_t rule;
    skv_expr expr = SKV_EXPR_NEVER;
    size_t begin = p->at;
    if (!at_rule(p)) return bad(p, begin, "no rule (name ::= ...)");
    size_t n = name_length(p);
    SKV_TRY(rule_of(p, p->text + begin, n, begin, &rule));
    if (p->pool->rules[rule].defined) {
        return skv_fail(p->err, SKV_FORMAT, "grammar: byte %zu: rule \"%s\" is defined twice",
                        begin, p->pool->rules[rule].name);
    }
    p->at += n;
    skip_space(p, false);
    p->at += 3;
    SKV_TRY(take_alternatives(p, &expr));
    if (peek(p) == ')') return bad(p, p->at, "a ')' without its '('");
    skv_rule_define(p->pool, rule, expr);
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
        if (p->pool->rules[name->rule].defined) continue;
        return skv_fail(p->err, SKV_FORMAT, "grammar: byte %zu: rule \"%.*s\" is not defined",
                        name->at, (int)(name->n < 64 ? name->n : 64), name->name);
    }
    return SKV_OK;
}

skv_status skv_gbnf_read(skv_expr_pool *pool, const char *text, size_t n, skv_error *err)
{
    size_t bad_at;
    parser p = {.pool = pool, .text = text, .n = n, .err = err};
    if (!skv_utf8_valid(text, n, &bad_at)) return bad(&p, bad_at, "not UTF-8");
    if (n > 0 && memchr(text, 0, n) != NULL) return bad(&p, 0, "a zero byte");
    skv_status status = take_rules(&p);
    skv_free(p.names);
    return status;
}
