/* Calls that are no JSON, read as a whole: see reply_form.h. */
#include <string.h>

#include "text/json_scan.h"
#include "text/reply_form.h"

#define GEMMA_QUOTE "<|\"|>"

enum { QUOTED_BY_MARK = 1, NAME_BYTES_MAX = 256 };

static bool is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '+' || c == '.' || c == '$' || (unsigned char)c >= 0x80;
}

static bool starts(const char *text, size_t n, const char *mark)
{
    const size_t n_mark = strlen(mark);
    return n >= n_mark && memcmp(text, mark, n_mark) == 0;
}

/* The first place of the mark from `from` on; n: nowhere. */
static size_t find(const char *text, size_t from, size_t n, const char *mark)
{
    for (size_t i = from; i < n; i++) {
        const char *at = memchr(text + i, mark[0], n - i);
        if (!at) return n;
        i = (size_t)(at - text);
        if (starts(at, n - i, mark)) return i;
    }
    return n;
}

/* ---- where a call ends ---- */

/* Behind the last parameter: marks inside values do not count. */
static skv_raw_state scan_xml(const skv_reply_form *form, skv_raw_scan *scan, const char *text,
                              size_t n)
{
    for (;;) {
        if (scan->in_value) {
            const size_t n_mark = strlen(form->value_end),
                         at = find(text, scan->pos, n, form->value_end);
            if (at == n) {
                if (n >= n_mark && scan->pos < n - n_mark + 1) scan->pos = n - n_mark + 1;
                return SKV_RAW_MORE;
            }
            scan->pos = at + n_mark;
            scan->in_value = false;
            continue;
        }
        const size_t i = scan->pos;
        if (i == n) return SKV_RAW_MORE;
        const size_t n_left = n - i;
        if (starts(text + i, n_left, form->end)) {
            scan->pos += strlen(form->end);
            return SKV_RAW_ENDED;
        }
        if (starts(text + i, n_left, form->key)) {
            scan->pos += strlen(form->key);
            scan->in_value = true;
            scan->depth = 1;
            continue;
        }
        /* It may be one of them when more comes. */
        if ((n_left < strlen(form->end) && memcmp(text + i, form->end, n_left) == 0) ||
            (n_left < strlen(form->key) && memcmp(text + i, form->key, n_left) == 0)) {
            return SKV_RAW_MORE;
        }
        if (scan->depth == 0 && scan->pos > NAME_BYTES_MAX) return SKV_RAW_BAD;
        scan->pos++;
    }
}

/* Behind the bracket that closes the first one. */
static skv_raw_state scan_brackets(skv_raw_scan *scan, const char *text, size_t n, char first)
{
    for (; scan->pos < n; scan->pos++) {
        const char c = text[scan->pos];
        const size_t n_left = n - scan->pos;
        const bool marks =
            first == '{' && c == '<' && (scan->quote == 0 || scan->quote == QUOTED_BY_MARK);
        if (marks && n_left < strlen(GEMMA_QUOTE) &&
            memcmp(text + scan->pos, GEMMA_QUOTE, n_left) == 0) {
            return SKV_RAW_MORE;
        }
        if (marks && starts(text + scan->pos, n_left, GEMMA_QUOTE)) {
            scan->quote = scan->quote ? 0 : QUOTED_BY_MARK;
            scan->pos += strlen(GEMMA_QUOTE) - 1;
        } else if (scan->quote == QUOTED_BY_MARK) {
            continue;
        } else if (scan->quote && c == '\\') {
            if (n_left == 1) return SKV_RAW_MORE;
            scan->pos++;
        } else if (scan->quote) {
            if (c == scan->quote) scan->quote = 0;
        } else if (scan->depth == 0) {
            if (c != first && (!is_word(c) && c != ':')) return SKV_RAW_BAD;
            if (c == first) scan->depth = 1;
            if (scan->pos > NAME_BYTES_MAX) return SKV_RAW_BAD;
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

skv_raw_state skv_raw_scan_text(const skv_reply_form *form, skv_raw_scan *scan, const char *text,
                                size_t n)
{
    switch (form->spelling) {
    case SKV_SPELL_XML: return scan_xml(form, scan, text, n);
    case SKV_SPELL_PYTHON: return scan_brackets(scan, text, n, '(');
    case SKV_SPELL_GEMMA: return scan_brackets(scan, text, n, '{');
    case SKV_SPELL_OBJECT:
    case SKV_SPELL_KEYED:
    case SKV_SPELL_NAMED:
    case SKV_SPELL_MESSAGE: break;
    }
    return SKV_RAW_BAD;
}

/* ---- values ---- */

/* text[0..n) at a quotation mark; returns the bytes of the string, 0: it has no end. */
static size_t put_string(const char *text, size_t n, skv_buf *out)
{
    const bool marked = text[0] == '<';
    skv_buf_byte(out, '"');
    if (marked) {
        const size_t from = strlen(GEMMA_QUOTE), at = find(text, from, n, GEMMA_QUOTE);
        if (at == n) return 0;
        skv_buf_json_text(out, text + from, at - from);
        skv_buf_byte(out, '"');
        return at + from;
    }
    for (size_t i = 1; i < n; i++) {
        if (text[i] == text[0]) {
            skv_buf_byte(out, '"');
            return i + 1;
        }
        if (text[i] == '\\' && i + 1 < n) {
            i++;
            if (text[i] != '\'') skv_buf_byte(out, '\\');
            skv_buf_byte(out, text[i]);
        } else if ((unsigned char)text[i] < 0x80) {
            skv_buf_json_text(out, text + i, 1);
        } else {
            skv_buf_byte(out, text[i]);
        }
    }
    return 0;
}

/* A name of a member, or a word; returns its bytes. */
static size_t put_word(const char *text, size_t n, skv_buf *out)
{
    static const char *const words[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"}};
    size_t k = 0, behind;
    while (k < n && is_word(text[k])) k++;
    for (behind = k; behind < n && is_blank(text[behind]);) behind++;
    if (behind < n && (text[behind] == ':' || text[behind] == '=')) {
        skv_buf_byte(out, '"');
        skv_buf_json_text(out, text, k);
        skv_buf_text(out, "\":");
        return behind + 1;
    }
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (k != strlen(words[i][0]) || memcmp(text, words[i][0], k) != 0) continue;
        skv_buf_text(out, words[i][1]);
        return k;
    }
    skv_buf_append(out, text, k);
    return k;
}

static bool is_json(const char *text, size_t n)
{
    skv_json_scan scan;
    skv_json_scan_init(&scan);
    (void)skv_json_scan_byte(&scan, '[');
    for (size_t i = 0; i < n; i++) {
        const skv_json_place place = skv_json_scan_byte(&scan, text[i]);
        if (place == SKV_JSON_ENDED || place == SKV_JSON_BAD) return false;
    }
    return skv_json_scan_byte(&scan, ']') == SKV_JSON_ENDED;
}

/* Appends JSON for a value in JSON, Python or Gemma's spelling, `open` and `close` around it;
 * false: it is none, and nothing is appended. */
static bool put_loose(const char *open, const char *text, size_t n, const char *close, skv_buf *out)
{
    const size_t begin = out->size;
    bool ok = true;
    skv_buf_text(out, open);
    for (size_t i = 0; ok && i < n;) {
        const char c = text[i];
        size_t k = 1;
        if (c == '"' || c == '\'' || starts(text + i, n - i, GEMMA_QUOTE)) {
            k = put_string(text + i, n - i, out);
        } else if (is_word(c)) {
            k = put_word(text + i, n - i, out);
        } else if (c == '(' || c == ')') {
            skv_buf_byte(out, c == '(' ? '[' : ']');
        } else if (!is_blank(c)) {
            skv_buf_byte(out, c);
        }
        ok = k > 0;
        i += k;
    }
    skv_buf_text(out, close);
    if (ok && !out->failed && out->size > begin && is_json(out->data + begin, out->size - begin)) {
        return true;
    }
    if (!out->failed) out->size = begin;
    return false;
}

/* ---- calls ---- */

static void trim(const char **text, size_t *n)
{
    while (*n > 0 && is_blank(**text)) (*text)++, (*n)--;
    while (*n > 0 && is_blank((*text)[*n - 1])) (*n)--;
}

/* A value without the line ends that belong to the marks around it. */
static void put_value(const char *text, size_t n, bool is_text, skv_buf *out)
{
    if (n > 0 && text[0] == '\n') text++, n--;
    if (n > 0 && text[n - 1] == '\n') n--;
    const char *value = text;
    size_t n_value = n;
    trim(&value, &n_value);
    if (!is_text && n_value > 0 && put_loose("", value, n_value, "", out)) return;
    skv_buf_byte(out, '"');
    skv_buf_json_text(out, text, n);
    skv_buf_byte(out, '"');
}

/* A parameter at text[0..n), behind its first mark; returns its bytes, 0: it is none. */
static size_t put_parameter(const skv_reply_options *options, const skv_reply_form *form,
                            const skv_buf *name, const char *text, size_t n, skv_buf *args)
{
    const size_t at = find(text, 0, n, form->value);
    if (at == n) return 0;
    const size_t from = at + strlen(form->value), to = find(text, from, n, form->value_end);
    if (to == n) return 0;
    /* KEY" string="true">, KEY">, KEY>, KEY</arg_key> */
    size_t n_key = 0, n_name = name->size;
    while (n_key < at && text[n_key] != '"' && text[n_key] != '<' && text[n_key] != '>') n_key++;
    const char *key = text;
    trim(&key, &n_key);
    const bool said = find(text, 0, at, "string=\"") < at;
    const bool says_text = find(text, 0, at, "string=\"true\"") < at;
    const bool wanted =
        options->is_text && options->is_text(options->functions, name->data, n_name, key, n_key);
    if (args->data[args->size - 1] != '{') skv_buf_byte(args, ',');
    skv_buf_byte(args, '"');
    skv_buf_json_text(args, key, n_key);
    skv_buf_text(args, "\":");
    put_value(text + from, to - from, said ? says_text : wanted, args);
    return to + strlen(form->value_end);
}

static bool convert_xml(const skv_reply_options *options, const skv_reply_form *form,
                        const char *text, size_t n, skv_buf *name, skv_buf *args)
{
    n -= strlen(form->end);
    size_t i = find(text, 0, n, form->key);
    const size_t sep = form->separator[0] ? find(text, 0, i, form->separator) : i;
    if (form->separator[0] && sep == i) return false;
    const char *word = text;
    size_t n_word = sep;
    trim(&word, &n_word);
    if (n_word == 0) return false;
    skv_buf_append(name, word, n_word);
    skv_buf_byte(args, '{');
    while (i < n && !args->failed && !name->failed) {
        i += strlen(form->key);
        const size_t k = put_parameter(options, form, name, text + i, n - i, args);
        if (k == 0) return false;
        i = find(text, i + k, n, form->key);
    }
    return skv_buf_byte(args, '}');
}

/* prefix NAME ( ... ) */
static bool convert_brackets(const skv_reply_form *form, const char *text, size_t n, skv_buf *name,
                             skv_buf *args)
{
    const bool gemma = form->spelling == SKV_SPELL_GEMMA;
    const size_t at = find(text, 0, n, gemma ? "{" : "(");
    const size_t n_prefix = form->prefix ? strlen(form->prefix) : 0;
    if (n_prefix > 0 && !starts(text, n, form->prefix)) return false;
    if (at <= n_prefix) return false;
    skv_buf_append(name, text + n_prefix, at - n_prefix);
    const char *inside = text + at + 1;
    size_t n_inside = n - at - 2;
    trim(&inside, &n_inside);
    if (n_inside > 0 && inside[n_inside - 1] == ',') n_inside--;
    return put_loose("{", inside, n_inside, "}", args);
}

bool skv_raw_convert(const skv_reply_options *options, const skv_reply_form *form, const char *text,
                     size_t n, skv_buf *name, skv_buf *args)
{
    return form->spelling == SKV_SPELL_XML ? convert_xml(options, form, text, n, name, args)
                                           : convert_brackets(form, text, n, name, args);
}
