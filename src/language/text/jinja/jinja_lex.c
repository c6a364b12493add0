/*
 * Tokens of a template. Numbers and strings inside tags are in jinja_literal.c.
 * jinja2's lexer is a table of regular expressions; each function here is one of its rules.
 */
#include <string.h>

#include <utf8proc.h>

#include "base/utf8.h"
#include "text/jinja/jinja_parser.h"

/* "\r\n" and "\r" become "\n", and one line break at the very end is dropped. */
skv_status skv_jlex_init(skv_jlex *lex, const char *source, size_t n, skv_error *err)
{
    size_t bad;
    SKV_REQUIRE(skv_utf8_valid(source, n, &bad), err, SKV_FORMAT, "%s: invalid UTF-8 at byte %zu",
                lex->name, bad);
    char *text = skv_jarena_take(lex->arena, n + 1, 1);
    if (!text) SKV_TRY(skv_budget_check(lex->arena->budget, lex->name, err));
    SKV_REQUIRE(text, err, SKV_MEMORY, "%s: no memory for %zu bytes of source", lex->name, n);
    size_t size = 0;
    for (size_t i = 0; i < n; i++) {
        char c = source[i];
        if (c == '\r') {
            if (i + 1 < n && source[i + 1] == '\n') i++;
            c = '\n';
        }
        text[size++] = c;
    }
    if (size && text[size - 1] == '\n') size--;
    lex->text = text;
    lex->size = size;
    lex->at = 0;
    lex->line = 1;
    lex->mode = SKV_JT_DATA;
    lex->pending = SKV_JT_END;
    lex->n_open = 0;
    return SKV_OK;
}

static bool looking_at(const skv_jlex *lex, size_t at, const char *text)
{
    size_t n = strlen(text);
    return at <= lex->size && lex->size - at >= n && memcmp(lex->text + at, text, n) == 0;
}

/* The first position at or after `at` that holds no white space. */
static size_t skip_space(const skv_jlex *lex, size_t at)
{
    while (at < lex->size) {
        uint32_t code;
        size_t step = skv_utf8_decode(lex->text + at, lex->size - at, &code);
        if (!skv_j_space(code)) break;
        at += step;
    }
    return at;
}

/* The end of text[from..to) without its trailing white space. */
static size_t strip_right(const skv_jlex *lex, size_t from, size_t to)
{
    size_t end = from;
    for (size_t at = from; at < to;) {
        uint32_t code;
        at += skv_utf8_decode(lex->text + at, to - at, &code);
        if (!skv_j_space(code)) end = at;
    }
    return end;
}

static void advance(skv_jlex *lex, size_t to)
{
    for (size_t i = lex->at; i < to; i++) lex->line += lex->text[i] == '\n';
    lex->at = to;
}

/* Where the data before a tag ends: `-` strips it, lstrip_blocks strips a lone indentation. */
static size_t data_end(const skv_jlex *lex, size_t from, size_t to, char sign, bool is_print)
{
    if (sign == '-') return strip_right(lex, from, to);
    if (sign == '+' || is_print) return to;
    size_t line = to;
    while (line > from && lex->text[line - 1] != '\n') line--;
    bool at_line_start = line > from || from == 0 || lex->text[from - 1] == '\n';
    if (at_line_start && line < to && skip_space(lex, line) >= to) return line;
    return to;
}

static char sign_at(const skv_jlex *lex, size_t at)
{
    char c = at < lex->size ? lex->text[at] : 0;
    return c == '-' || c == '+' ? c : 0;
}

/*
 * Returns the end of a tag that closes with `close`: "-" also consumes the white space after it, no
 * sign one line break (trim_blocks), "+" neither. Returns 0 if the tag does not end here.
 */
static size_t tag_end(const skv_jlex *lex, size_t at, const char *close, bool plus)
{
    char sign = sign_at(lex, at);
    if (sign == '+' && !plus) return 0;
    if (!looking_at(lex, at + (sign != 0), close)) return 0;
    size_t end = at + (sign != 0) + 2;
    if (sign == '-') return skip_space(lex, end);
    if (!sign && end < lex->size && lex->text[end] == '\n') end++;
    return end;
}

/* For "{% raw %}" at `at`: returns the start of its content, else 0. No line break is consumed
 * after it. */
static size_t raw_begin(const skv_jlex *lex, size_t at)
{
    at += 2;
    at = skip_space(lex, at + (sign_at(lex, at) != 0));
    if (!looking_at(lex, at, "raw")) return 0;
    at = skip_space(lex, at + 3);
    if (looking_at(lex, at, "%}")) return at + 2;
    if (looking_at(lex, at, "-%}")) return skip_space(lex, at + 3);
    return 0;
}

static size_t raw_end(const skv_jlex *lex, size_t at)
{
    at += 2;
    at = skip_space(lex, at + (sign_at(lex, at) != 0));
    if (!looking_at(lex, at, "endraw")) return 0;
    return tag_end(lex, skip_space(lex, at + 6), "%}", true);
}

static void set_data(skv_jlex *lex, skv_jtoken *token, size_t from, size_t to)
{
    token->kind = SKV_JT_DATA;
    token->line = lex->line;
    token->text = (skv_jstr){.data = lex->text + from, .size = to - from};
}

/* Reads the content of a raw block as one token; the lexer then stands after the block. */
static skv_status lex_raw(skv_jlex *lex, skv_jtoken *token, skv_error *err)
{
    size_t from = lex->at;
    for (size_t at = from; at < lex->size; at++) {
        if (!looking_at(lex, at, "{%")) continue;
        size_t end = raw_end(lex, at);
        if (!end) continue;
        set_data(lex, token, from, data_end(lex, from, at, sign_at(lex, at + 2), false));
        advance(lex, end);
        return SKV_OK;
    }
    return skv_fail(err, SKV_FORMAT, "%s: line %u: missing end of raw block", lex->name, lex->line);
}

static skv_status skip_comment(skv_jlex *lex, skv_error *err)
{
    size_t at = lex->at + 2;
    at += sign_at(lex, at) != 0;
    for (; at < lex->size; at++) {
        size_t end = tag_end(lex, at, "#}", true);
        if (!end) continue;
        advance(lex, end);
        return SKV_OK;
    }
    return skv_fail(err, SKV_FORMAT, "%s: line %u: missing end of comment tag", lex->name,
                    lex->line);
}

/* Moves to the tag that starts at `at`, or past it if it is a comment. */
static skv_status lex_begin(skv_jlex *lex, size_t at, skv_error *err)
{
    advance(lex, at);
    if (lex->text[at + 1] == '#') return skip_comment(lex, err);
    size_t raw = lex->text[at + 1] == '%' ? raw_begin(lex, at) : 0;
    if (raw) {
        lex->pending = SKV_JT_DATA;
        lex->pending_end = raw;
        return SKV_OK;
    }
    lex->pending = lex->text[at + 1] == '%' ? SKV_JT_BLOCK_BEGIN : SKV_JT_PRINT_BEGIN;
    lex->pending_end = at + 2 + (sign_at(lex, at + 2) != 0);
    return SKV_OK;
}

/* Text up to the next tag; the token may be empty. */
static skv_status lex_data(skv_jlex *lex, skv_jtoken *token, skv_error *err)
{
    size_t from = lex->at, at = from;
    while (at < lex->size) {
        const char *brace = memchr(lex->text + at, '{', lex->size - at);
        at = brace ? (size_t)(brace - lex->text) : lex->size;
        if (at + 1 < lex->size && strchr("{%#", lex->text[at + 1]) && lex->text[at + 1]) break;
        if (at < lex->size) at++;
    }
    if (at >= lex->size) {
        set_data(lex, token, from, lex->size);
        advance(lex, lex->size);
        return SKV_OK;
    }
    bool is_print = lex->text[at + 1] == '{';
    set_data(lex, token, from, data_end(lex, from, at, sign_at(lex, at + 2), is_print));
    return lex_begin(lex, at, err);
}

static skv_status lex_pending(skv_jlex *lex, skv_jtoken *token, skv_error *err)
{
    skv_jtoken_kind kind = lex->pending;
    lex->pending = SKV_JT_END;
    *token = (skv_jtoken){.kind = kind, .line = lex->line};
    advance(lex, lex->pending_end);
    if (kind == SKV_JT_DATA) return lex_raw(lex, token, err);
    lex->mode = kind;
    return SKV_OK;
}

static bool name_char(uint32_t code)
{
    if (code < 0x80)
        return (code >= 'a' && code <= 'z') || (code >= 'A' && code <= 'Z') ||
               (code >= '0' && code <= '9') || code == '_';
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)code);
    return (c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_MC) || c == UTF8PROC_CATEGORY_ND ||
           c == UTF8PROC_CATEGORY_NL;
}

static bool lex_name(skv_jlex *lex, skv_jtoken *token)
{
    size_t at = lex->at;
    while (at < lex->size) {
        uint32_t code;
        size_t step = skv_utf8_decode(lex->text + at, lex->size - at, &code);
        if (!name_char(code)) break;
        at += step;
    }
    if (at == lex->at) return false;
    token->kind = SKV_JT_NAME;
    token->text = (skv_jstr){.data = lex->text + lex->at, .size = at - lex->at};
    lex->at = at;
    return true;
}

static skv_status track_bracket(skv_jlex *lex, char c, skv_error *err)
{
    const char *opens = "([{", *closes = ")]}";
    const char *open = strchr(opens, c), *close = strchr(closes, c);
    if (open) {
        SKV_REQUIRE(lex->n_open < sizeof lex->open, err, SKV_FORMAT,
                    "%s: line %u: brackets nested more than %zu deep", lex->name, lex->line,
                    sizeof lex->open);
        lex->open[lex->n_open++] = closes[open - opens];
    } else if (close) {
        SKV_REQUIRE(lex->n_open && lex->open[lex->n_open - 1] == c, err, SKV_FORMAT,
                    "%s: line %u: unexpected '%c'", lex->name, lex->line, c);
        lex->n_open--;
    }
    return SKV_OK;
}

static skv_status lex_operator(skv_jlex *lex, skv_jtoken *token, skv_error *err)
{
    static const char pairs[][3] = {"//", "**", "==", "!=", ">=", "<="};
    char c = lex->text[lex->at];
    token->kind = SKV_JT_OPERATOR;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        if (!looking_at(lex, lex->at, pairs[i])) continue;
        token->op = SKV_JOP(pairs[i][0], pairs[i][1]);
        lex->at += 2;
        return SKV_OK;
    }
    SKV_REQUIRE(c && strchr("+-/*%~[](){}><=.:|,;", c), err, SKV_FORMAT,
                "%s: line %u: unexpected character '%c'", lex->name, lex->line,
                c < 0x20 || c > 0x7e ? '?' : c);
    token->op = (unsigned char)c;
    lex->at++;
    return track_bracket(lex, c, err);
}

/* Inside "{% %}" or "{{ }}". Its end counts only outside of brackets. */
static skv_status lex_tag(skv_jlex *lex, skv_jtoken *token, skv_error *err)
{
    bool block = lex->mode == SKV_JT_BLOCK_BEGIN;
    for (;;) {
        *token = (skv_jtoken){.line = lex->line};
        size_t end = 0;
        if (!lex->n_open && block) end = tag_end(lex, lex->at, "%}", true);
        if (!lex->n_open && !block) {
            end = tag_end(lex, lex->at, "}}", false);
            /* trim_blocks keeps the line break after a variable. */
            if (end && lex->text[lex->at] == '}') end = lex->at + 2;
        }
        if (end) {
            token->kind = block ? SKV_JT_BLOCK_END : SKV_JT_PRINT_END;
            advance(lex, end);
            lex->mode = SKV_JT_DATA;
            return SKV_OK;
        }
        size_t at = skip_space(lex, lex->at);
        if (at == lex->at) break;
        advance(lex, at);
    }
    if (lex->at >= lex->size) {
        token->kind = SKV_JT_END;
        return SKV_OK;
    }
    char c = lex->text[lex->at];
    if (c >= '0' && c <= '9') return skv_jlex_number(lex, token, err);
    if (lex_name(lex, token)) return SKV_OK;
    if (c == '"' || c == '\'') return skv_jlex_string(lex, token, err);
    return lex_operator(lex, token, err);
}

skv_status skv_jlex_next(skv_jlex *lex, skv_jtoken *token, skv_error *err)
{
    for (;;) {
        if (lex->pending != SKV_JT_END) {
            SKV_TRY(lex_pending(lex, token, err));
            if (token->kind != SKV_JT_DATA || token->text.size) return SKV_OK;
            continue;
        }
        if (lex->mode != SKV_JT_DATA) return lex_tag(lex, token, err);
        if (lex->at >= lex->size) {
            *token = (skv_jtoken){.kind = SKV_JT_END, .line = lex->line};
            return SKV_OK;
        }
        SKV_TRY(lex_data(lex, token, err));
        if (token->text.size) return SKV_OK;
    }
}
