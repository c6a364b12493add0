/* Calls that are no JSON, read as a whole: see reply_form.h. */
#include <string.h>

#include "text/json_scan.h"
#include "text/reply_form.h"

enum { QUOTED_BY_MARK = 1, NAME_BYTES_MAX = 256 };

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '+' || c == '.' || c == '$' || (unsigned char)c >= 0x80;
}

/* The first place of the mark from `from` on; n: nowhere. */
static size_t find(const char *text, size_t from, size_t n, const char *mark)
{
    for (size_t i = from; i < n; i++) {
        const char *at = memchr(text + i, mark[0], n - i);
        if (!at) return n;
        i = (size_t)(at - text);
        if (skv_text_starts(at, n - i, mark)) return i;
    }
    return n;
}

/* ---- where a call ends ---- */

/* prefix NAME and the first bracket, which pos ends behind. */
static skv_raw_state scan_name(const skv_reply_form *form, skv_raw_scan *scan, const char *text,
                               size_t n, char first)
{
    const size_t n_prefix = form->prefix ? strlen(form->prefix) : 0;
    for (; scan->pos < n; scan->pos++) {
        const char c = text[scan->pos];
        if (scan->pos > NAME_BYTES_MAX || (c != first && !is_word(c) && c != ':')) break;
        if (c != first) continue;
        const bool prefixed = n_prefix == 0 || skv_text_starts(text, scan->pos, form->prefix);
        scan->name = (skv_raw_span){n_prefix, scan->pos++};
        scan->depth = 1;
        return prefixed && scan->name.to > n_prefix ? SKV_RAW_NAMED : SKV_RAW_BAD;
    }
    return scan->pos < n ? SKV_RAW_BAD : SKV_RAW_MORE;
}

/* Behind the bracket that closes the first one. */
static skv_raw_state scan_brackets(skv_raw_scan *scan, const char *text, size_t n, char first)
{
    for (; scan->pos < n; scan->pos++) {
        const char c = text[scan->pos];
        const size_t n_left = n - scan->pos;
        const bool marks =
            first == '{' && c == '<' && (scan->quote == 0 || scan->quote == QUOTED_BY_MARK);
        if (marks && n_left < strlen(SKV_GEMMA_QUOTE) &&
            memcmp(text + scan->pos, SKV_GEMMA_QUOTE, n_left) == 0) {
            return SKV_RAW_MORE;
        }
        if (marks && skv_text_starts(text + scan->pos, n_left, SKV_GEMMA_QUOTE)) {
            const size_t n_mark = strlen(SKV_GEMMA_QUOTE);
            if (scan->quote && n_left == n_mark) return SKV_RAW_MORE;
            const bool inside = scan->quote && !skv_raw_ends_mark(text[scan->pos + n_mark]);
            scan->quote = scan->quote && !inside ? 0 : QUOTED_BY_MARK;
            scan->pos += n_mark - 1;
        } else if (scan->quote == QUOTED_BY_MARK) {
            continue;
        } else if (scan->quote && c == '\\') {
            if (n_left == 1) return SKV_RAW_MORE;
            scan->pos++;
        } else if (scan->quote) {
            const skv_raw_state end = c == scan->quote
                                          ? skv_raw_ends_quote(text + scan->pos + 1, n_left - 1)
                                          : SKV_RAW_BAD;
            if (end == SKV_RAW_MORE) return SKV_RAW_MORE;
            if (end == SKV_RAW_ENDED) scan->quote = 0;
        } else if (c == '"' || c == '\'') {
            scan->quote = c;
        } else if (c == '(' || c == '[' || c == '{') {
            scan->depth++;
        } else if ((c == ')' || c == ']' || c == '}') && --scan->depth == 0) {
            scan->pos++;
            return SKV_RAW_ENDED;
        }
    }
    return SKV_RAW_MORE;
}

static skv_raw_state scan_call(const skv_reply_form *form, skv_raw_scan *scan, const char *text,
                               size_t n)
{
    const char first = form->spelling == SKV_SPELL_GEMMA ? '{' : '(';
    const size_t from = scan->pos;
    const skv_raw_state state = scan->depth == 0 ? scan_name(form, scan, text, n, first)
                                                 : scan_brackets(scan, text, n, first);
    scan->n_looked += scan->pos - from;
    return state;
}

skv_raw_state skv_raw_scan_text(const skv_reply_form *form, skv_raw_scan *scan, const char *text,
                                size_t n)
{
    skv_raw_state state;
    switch (form->spelling) {
    case SKV_SPELL_XML: do { state = skv_xml_next(form, scan, text, n);
        } while (state == SKV_RAW_PARAMETER);
        return state;
    case SKV_SPELL_PYTHON:
    case SKV_SPELL_GEMMA: return scan_call(form, scan, text, n);
    case SKV_SPELL_OBJECT:
    case SKV_SPELL_KEYED:
    case SKV_SPELL_NAMED:
    case SKV_SPELL_MESSAGE: break;
    }
    return SKV_RAW_BAD;
}

/* ---- calls ---- */

/* prefix NAME ( ... ) */
static bool convert_brackets(const skv_reply_form *form, const char *text, size_t n, skv_buf *name,
                             skv_buf *args)
{
    const bool gemma = form->spelling == SKV_SPELL_GEMMA;
    const size_t at = find(text, 0, n, gemma ? "{" : "(");
    const size_t n_prefix = form->prefix ? strlen(form->prefix) : 0;
    if (n_prefix > 0 && !skv_text_starts(text, n, form->prefix)) return false;
    if (at <= n_prefix) return false;
    skv_buf_append(name, text + n_prefix, at - n_prefix);
    const char *inside = text + at + 1;
    size_t n_inside = n - at - 2;
    while (n_inside > 0 && skv_json_is_blank(*inside)) inside++, n_inside--;
    while (n_inside > 0 && skv_json_is_blank(inside[n_inside - 1])) n_inside--;
    if (n_inside > 0 && inside[n_inside - 1] == ',') n_inside--;
    const size_t begin = args->size;
    if (!skv_raw_put_loose("{", inside, n_inside, "}", args)) return false;
    skv_raw_drop_doubled(args, begin);
    return !args->failed;
}

bool skv_raw_convert(const skv_reply_options *options, const skv_reply_form *form, const char *text,
                     size_t n, skv_buf *name, skv_buf *args)
{
    return form->spelling == SKV_SPELL_XML ? skv_xml_convert(options, form, text, n, name, args)
                                           : convert_brackets(form, text, n, name, args);
}
