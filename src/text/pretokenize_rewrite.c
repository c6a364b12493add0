/*
 * Patterns are rewritten where the two engines differ: \s and \p{..} become explicit ranges from
 * our own tables (PCRE2's Unicode is older, and its \s has U+180E), \h is a hexadecimal digit,
 * (?m) is PCRE2's (?s). Class intersections and nested classes are refused.
 */
#include "text/pretokenize_rewrite.h"

#include <stdbool.h>
#include <string.h>

#include "text/unicode_class.h"

typedef struct rewriter {
    const char *pattern, *name;
    size_t n, at;
    skv_buf *out;
    bool in_class;
} rewriter;

/* Names of \p{..} that the tables know. */
static const struct {
    const char *name;
    unsigned flags;
} properties[] = {
    {"L", SKV_U_LETTER}, {"N", SKV_U_NUMBER}, {"P", SKV_U_PUNCT}, {"S", SKV_U_SYMBOL},
    {"M", SKV_U_MARK},   {"Ll", SKV_U_LOWER}, {"Han", SKV_U_HAN},
};

/* The ranges of all characters with (or without) the flags, as the inside of a class. */
static void put_ranges(skv_buf *out, unsigned flags, bool without)
{
    uint32_t start = 0;
    bool inside = false;
    for (uint32_t code = 0; code <= SKV_UNICODE_END; code++) {
        bool hit = code < SKV_UNICODE_END && (code < 0xd800 || code > 0xdfff) &&
                   ((skv_unicode_class(code) & flags) != 0) != without;
        if (hit && !inside) start = code;
        if (!hit && inside) {
            skv_buf_printf(out, "\\x{%x}-\\x{%x}", (unsigned)start, (unsigned)code - 1);
        }
        inside = hit;
    }
}

static void put_class(rewriter *r, unsigned flags, bool without)
{
    if (!r->in_class) skv_buf_text(r->out, "[");
    put_ranges(r->out, flags, without);
    if (!r->in_class) skv_buf_text(r->out, "]");
}

/* \p{Name}, \P{Name}, \p{^Name}: ours where the tables know it, PCRE2's otherwise. */
static void put_property(rewriter *r)
{
    size_t start = r->at + 2, end = start;
    bool without = r->pattern[r->at + 1] == 'P';
    if (start < r->n && r->pattern[start] == '{') {
        while (end < r->n && r->pattern[end] != '}') end++;
        start++;
    } else if (end < r->n) {
        end++;
    }
    size_t next = end < r->n && r->pattern[end] == '}' ? end + 1 : end;
    size_t from = start;
    bool inverted = without;
    if (from < end && r->pattern[from] == '^') {
        inverted = !inverted;
        from++;
    }
    for (size_t i = 0; i < sizeof properties / sizeof properties[0]; i++) {
        if (strlen(properties[i].name) != end - from ||
            memcmp(properties[i].name, r->pattern + from, end - from) != 0) {
            continue;
        }
        put_class(r, properties[i].flags, inverted);
        r->at = next;
        return;
    }
    skv_buf_append(r->out, r->pattern + r->at, next - r->at);
    r->at = next;
}

static void put_escape(rewriter *r)
{
    char c = r->at + 1 < r->n ? r->pattern[r->at + 1] : '\0';
    if (c == 'p' || c == 'P') {
        put_property(r);
        return;
    }
    if (c == 's' || c == 'S')
        put_class(r, SKV_U_SPACE, c == 'S');
    else if (c == 'h')
        skv_buf_text(r->out, r->in_class ? "0-9a-fA-F" : "[0-9a-fA-F]");
    else
        skv_buf_append(r->out, r->pattern + r->at, r->n - r->at < 2 ? r->n - r->at : 2);
    r->at += 2;
}

/* Copies one character inside [..]; false for what PCRE2 has no words for. */
static bool put_class_char(rewriter *r)
{
    const char *at = r->pattern + r->at;
    size_t left = r->n - r->at;
    if (left >= 2 && at[0] == '&' && at[1] == '&') return false;
    if (at[0] == '[') {
        const char *end = left >= 2 && at[1] == ':' ? memchr(at, ']', left) : NULL;
        if (end == NULL || end[-1] != ':') return false;
        size_t n = (size_t)(end - at) + 1;
        skv_buf_append(r->out, at, n);
        r->at += n;
        return true;
    }
    if (at[0] == ']') r->in_class = false;
    skv_buf_byte(r->out, at[0]);
    r->at++;
    return true;
}

static void open_class(rewriter *r)
{
    r->in_class = true;
    skv_buf_byte(r->out, '[');
    r->at++;
    if (r->at < r->n && r->pattern[r->at] == '^') {
        skv_buf_byte(r->out, '^');
        r->at++;
    }
    if (r->at < r->n && r->pattern[r->at] == ']') {
        skv_buf_text(r->out, "\\]");
        r->at++;
    }
}

/* (?m: lets the dot match line ends in Ruby; that is s here. */
static void put_group_start(rewriter *r)
{
    size_t start = r->at;
    r->at += 2;
    while (r->at < r->n && strchr("imx-", r->pattern[r->at]) != NULL) r->at++;
    for (size_t i = start; i < r->at; i++) {
        skv_buf_byte(r->out, i > start + 1 && r->pattern[i] == 'm' ? 's' : r->pattern[i]);
    }
}

skv_status skv_regex_rewrite(const char *pattern, size_t n, const char *name, skv_buf *out,
                             skv_error *err)
{
    rewriter r = {.pattern = pattern, .name = name, .n = n, .out = out};
    SKV_REQUIRE(memchr(pattern, 0, n) == NULL, err, SKV_FORMAT, "%s: a zero byte in a pattern",
                name);
    while (r.at < n) {
        char c = pattern[r.at];
        if (c == '\\') {
            put_escape(&r);
        } else if (r.in_class) {
            SKV_REQUIRE(put_class_char(&r), err, SKV_UNSUPPORTED,
                        "%s: class operations in the regular expression '%.*s'", name,
                        (int)(n < 200 ? n : 200), pattern);
        } else if (c == '[') {
            open_class(&r);
        } else if (c == '(' && r.at + 1 < n && pattern[r.at + 1] == '?') {
            put_group_start(&r);
        } else {
            skv_buf_byte(out, c);
            r.at++;
        }
    }
    SKV_REQUIRE(!out->failed, err, SKV_RANGE, "%s: a pattern that is too long", name);
    return SKV_OK;
}
