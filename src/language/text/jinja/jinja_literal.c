/* Number and string literals of a template. */
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "text/jinja/jinja_parser.h"

static int digit_of(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return 99;
}

static char at(const skv_jlex *lex, size_t i)
{
    return i < lex->size ? lex->text[i] : 0;
}

/* Digits of a base with single underscores between them, from i on. */
static size_t digits_end(const skv_jlex *lex, size_t i, int base)
{
    for (;;) {
        size_t next = i + (at(lex, i) == '_');
        if (digit_of(at(lex, next)) >= base) return i;
        i = next + 1;
    }
}

/* "(\d+_)*\d+" starts with a digit; i itself when there is none. */
static size_t decimal_end(const skv_jlex *lex, size_t i)
{
    return digit_of(at(lex, i)) < 10 ? digits_end(lex, i, 10) : i;
}

/* The end of a float that starts at lex->at, or 0. */
static size_t float_end(const skv_jlex *lex)
{
    if (lex->at && lex->text[lex->at - 1] == '.') return 0;
    size_t whole = decimal_end(lex, lex->at), end = whole;
    if (at(lex, end) == '.' && digit_of(at(lex, end + 1)) < 10) end = decimal_end(lex, end + 1);
    if (at(lex, end) == 'e' || at(lex, end) == 'E') {
        size_t exponent = end + 1;
        if (at(lex, exponent) == '+' || at(lex, exponent) == '-') exponent++;
        if (digit_of(at(lex, exponent)) < 10) return decimal_end(lex, exponent);
    }
    return end > whole ? end : 0;
}

static skv_status read_float(skv_jlex *lex, size_t end, skv_jtoken *token, skv_error *err)
{
    char text[400];
    size_t n = 0;
    for (size_t i = lex->at; i < end; i++) {
        if (lex->text[i] == '_') continue;
        SKV_REQUIRE(n + 1 < sizeof text, err, SKV_FORMAT, "%s: line %u: number is too long",
                    lex->name, lex->line);
        text[n++] = lex->text[i];
    }
    text[n] = 0;
    token->kind = SKV_JT_FLOAT;
    token->f = strtod(text, NULL);
    lex->at = end;
    return SKV_OK;
}

static int radix_of(char c)
{
    if (c == 'x' || c == 'X') return 16;
    if (c == 'o' || c == 'O') return 8;
    if (c == 'b' || c == 'B') return 2;
    return 0;
}

skv_status skv_jlex_number(skv_jlex *lex, skv_jtoken *token, skv_error *err)
{
    size_t end = float_end(lex), i = lex->at;
    if (end) return read_float(lex, end, token, err);
    int base = 10, radix = radix_of(at(lex, i + 1));
    if (at(lex, i) == '0' && radix && digits_end(lex, i + 2, radix) > i + 2) {
        base = radix;
        i += 2;
    }
    /* "007" is not a number: after a zero only zeros may follow. */
    bool zero = base == 10 && at(lex, i) == '0';
    end = digits_end(lex, i, zero ? 1 : base);
    int64_t value = 0;
    for (; i < end; i++) {
        if (lex->text[i] == '_') continue;
        SKV_REQUIRE(!__builtin_mul_overflow(value, base, &value) &&
                        !__builtin_add_overflow(value, digit_of(lex->text[i]), &value),
                    err, SKV_UNSUPPORTED, "%s: line %u: integer beyond 64 bits", lex->name,
                    lex->line);
    }
    token->kind = SKV_JT_INT;
    token->i = value;
    lex->at = end;
    return SKV_OK;
}

static skv_status bad_escape(const skv_jlex *lex, const char *what, skv_error *err)
{
    return skv_fail(err, SKV_FORMAT, "%s: line %u: %s in a string", lex->name, lex->line, what);
}

/* Exactly n hexadecimal digits at i. */
static bool read_hex(const skv_jlex *lex, size_t i, size_t n, uint32_t *code)
{
    *code = 0;
    for (size_t k = 0; k < n; k++) {
        int digit = digit_of(at(lex, i + k));
        if (digit >= 16) return false;
        *code = *code << 4 | (uint32_t)digit;
    }
    return true;
}

static skv_status hex_escape(const skv_jlex *lex, size_t *i, char *out, size_t *n, skv_error *err)
{
    char c = at(lex, *i);
    size_t n_digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
    uint32_t code;
    if (!read_hex(lex, *i + 1, n_digits, &code)) return bad_escape(lex, "truncated escape", err);
    if (code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff))
        return bad_escape(lex, "escape that is no character", err);
    *i += 1 + n_digits;
    *n += skv_utf8_encode(code, out + *n);
    return SKV_OK;
}

static uint32_t octal_escape(const skv_jlex *lex, size_t *i)
{
    uint32_t code = 0;
    for (int k = 0; k < 3 && digit_of(at(lex, *i)) < 8; k++) {
        code = code << 3 | (uint32_t)digit_of(at(lex, *i));
        (*i)++;
    }
    return code;
}

/*
 * A backslash before a non-ASCII character: jinja2 writes that character as an escape first, so
 * the backslash is doubled and the escape's letters stay. It writes at most 10 bytes for the 2
 * or more that it read, which the caller's buffer allows for.
 */
static void foreign_escape(const skv_jlex *lex, size_t *i, char *out, size_t *n)
{
    static const char hex[] = "0123456789abcdef";
    uint32_t code;
    *i += skv_utf8_decode(lex->text + *i, lex->size - *i, &code);
    int n_digits = code < 0x100 ? 2 : code < 0x10000 ? 4 : 8;
    out[(*n)++] = '\\';
    out[(*n)++] = n_digits == 2 ? 'x' : n_digits == 4 ? 'u' : 'U';
    for (int k = n_digits - 1; k >= 0; k--) out[(*n)++] = hex[code >> (4 * k) & 15];
}

/* The escape whose backslash was at *i - 1. */
static skv_status read_escape(const skv_jlex *lex, size_t *i, char *out, size_t *n, skv_error *err)
{
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    char c = at(lex, *i);
    const char *simple = c ? strchr(from, c) : NULL;
    if (c == '\n') {
        (*i)++;
    } else if (simple) {
        out[(*n)++] = to[simple - from];
        (*i)++;
    } else if (c >= '0' && c <= '7') {
        *n += skv_utf8_encode(octal_escape(lex, i), out + *n);
    } else if (c == 'x' || c == 'u' || c == 'U') {
        return hex_escape(lex, i, out, n, err);
    } else if (c == 'N') {
        return bad_escape(lex, "unsupported escape \\N", err);
    } else if ((unsigned char)c >= 0x80) {
        foreign_escape(lex, i, out, n);
    } else {
        out[(*n)++] = '\\';
    }
    return SKV_OK;
}

/* The position of the closing quote, or the end of the source. */
static size_t string_end(const skv_jlex *lex, size_t i, char quote)
{
    for (; i < lex->size && lex->text[i] != quote; i++)
        if (lex->text[i] == '\\') i++;
    return i;
}

skv_status skv_jlex_string(skv_jlex *lex, skv_jtoken *token, skv_error *err)
{
    size_t i = lex->at + 1, end = string_end(lex, i, lex->text[lex->at]);
    SKV_REQUIRE(end < lex->size, err, SKV_FORMAT, "%s: line %u: string without an end", lex->name,
                lex->line);
    char *out = skv_jarena_take(lex->arena, end - i + 1, 4);
    if (!out) SKV_TRY(skv_budget_check(lex->arena->budget, lex->name, err));
    SKV_REQUIRE(out, err, SKV_MEMORY, "%s: no memory for a string", lex->name);
    size_t n = 0;
    while (i < end) {
        char c = lex->text[i++];
        if (c == '\\') {
            SKV_TRY(read_escape(lex, &i, out, &n, err));
        } else {
            out[n++] = c;
        }
    }
    token->kind = SKV_JT_STRING;
    token->text = (skv_jstr){.data = out, .size = n};
    for (size_t k = lex->at; k < end; k++) lex->line += lex->text[k] == '\n';
    lex->at = end + 1;
    return SKV_OK;
}
