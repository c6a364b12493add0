/* See tokenizer_skim.h. */
#include "text/tokenizer_skim.h"

#include <string.h>

#include "base/utf8.h"
#include "text/json_scan.h"

static size_t skip_spaces(const char *text, size_t n, size_t at)
{
    while (at < n && skv_json_is_blank(text[at])) at++;
    return at;
}

/* Returns the closing quote, from after the opening one (n if there is none). */
static size_t string_end(const char *text, size_t n, size_t at)
{
    while (at < n && text[at] != '"') at += text[at] == '\\' ? 2 : 1;
    return at < n ? at : n;
}

/* Returns the offset after the closing bracket, from an opening one (n if there is none). */
static size_t skip_value(const char *text, size_t n, size_t at)
{
    size_t depth = 0;
    while (at < n) {
        char c = text[at++];
        if (c == '"') {
            at = string_end(text, n, at);
            if (at < n) at++;
        } else if (c == '{' || c == '[') {
            depth++;
        } else if ((c == '}' || c == ']') && --depth == 0) {
            break;
        }
    }
    return at;
}

/* The walk over the file: the part copied so far, and whether it is inside "model". */
typedef struct walk {
    const char *text;
    size_t n, at, copied, depth;
    bool model_next, in_model;
    skv_skim *out;
} walk;

static bool is_key(const walk *w, size_t start, size_t end, const char *name)
{
    return end - start == strlen(name) && memcmp(w->text + start, name, end - start) == 0;
}

/* A member of the model: its large parts are noted and left out. */
static void on_member(walk *w, size_t start, size_t end)
{
    bool vocab = is_key(w, start, end, "vocab"), merges = is_key(w, start, end, "merges");
    if (w->at >= w->n || (!vocab && !merges) || w->text[w->at] != (vocab ? '{' : '[')) return;
    size_t after = skip_value(w->text, w->n, w->at);
    *(vocab ? &w->out->vocab : &w->out->merges) = w->text + w->at + 1;
    *(vocab ? &w->out->n_vocab : &w->out->n_merges) = w->n - w->at - 1;
    skv_buf_append(&w->out->rest, w->text + w->copied, w->at - w->copied);
    skv_buf_text(&w->out->rest, vocab ? "{}" : "[]");
    w->at = w->copied = after;
}

static void on_string(walk *w)
{
    size_t start = w->at, end = string_end(w->text, w->n, start);
    w->at = end < w->n ? end + 1 : w->n;
    if (w->depth > 2) return;
    size_t colon = skip_spaces(w->text, w->n, w->at);
    if (colon >= w->n || w->text[colon] != ':') return;
    w->at = skip_spaces(w->text, w->n, colon + 1);
    if (w->depth == 1) w->model_next = is_key(w, start, end, "model");
    if (w->depth == 2 && w->in_model) on_member(w, start, end);
}

skv_status skv_skim_file(const char *json, size_t n, const char *name, skv_skim *out,
                         skv_error *err)
{
    walk w = {.text = json, .n = n, .out = out};
    *out = (skv_skim){0};
    skv_buf_init(&out->rest, n + 16);
    while (w.at < n) {
        char c = json[w.at++];
        if (c == '"') {
            on_string(&w);
        } else if (c == '{' || c == '[') {
            if (++w.depth == 2) w.in_model = w.model_next && c == '{';
        } else if (c == '}' || c == ']') {
            w.depth -= w.depth > 0;
        }
    }
    skv_buf_append(&out->rest, json + w.copied, n - w.copied);
    if (!out->rest.failed) return SKV_OK;
    skv_buf_release(&out->rest);
    return skv_fail(err, SKV_MEMORY, "%s: no memory", name);
}

void skv_skim_begin(skv_skim_cursor *c, const char *text, size_t n, const char *name)
{
    *c = (skv_skim_cursor){.text = text, .n = n, .name = name};
    skv_buf_init(&c->unescaped[0], n);
    skv_buf_init(&c->unescaped[1], n);
}

void skv_skim_end(skv_skim_cursor *c)
{
    skv_buf_release(&c->unescaped[0]);
    skv_buf_release(&c->unescaped[1]);
}

static bool take(skv_skim_cursor *c, char wanted)
{
    c->at = skip_spaces(c->text, c->n, c->at);
    if (c->at >= c->n || c->text[c->at] != wanted) return false;
    c->at++;
    return true;
}

static bool read_hex(const char *text, size_t n, uint32_t *code)
{
    *code = 0;
    if (n < 4) return false;
    for (size_t i = 0; i < 4; i++) {
        char c = text[i], low = (char)(c | 0x20);
        bool digit = c >= '0' && c <= '9', letter = low >= 'a' && low <= 'f';
        if (!digit && !letter) return false;
        *code = *code << 4 | (uint32_t)(digit ? c - '0' : low - 'a' + 10);
    }
    return true;
}

/* Decodes \uXXXX at text (after the u), with surrogate pairs; returns the bytes taken, 0 on
 * error. */
static size_t read_unicode(const char *text, size_t n, uint32_t *code)
{
    uint32_t low;
    if (!read_hex(text, n, code)) return 0;
    if (*code < 0xd800 || *code > 0xdfff) return 4;
    bool pair = *code < 0xdc00 && n >= 10 && text[4] == '\\' && text[5] == 'u' &&
                read_hex(text + 6, n - 6, &low) && low >= 0xdc00 && low <= 0xdfff;
    if (!pair) return 0;
    *code = 0x10000 + ((*code - 0xd800) << 10 | (low - 0xdc00));
    return 10;
}

static bool unescape(const char *text, size_t n, skv_buf *out)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    skv_buf_clear(out);
    for (size_t i = 0; i < n;) {
        const char *slash = memchr(text + i, '\\', n - i);
        size_t end = !slash ? n : (size_t)(slash - text);
        skv_buf_append(out, text + i, end - i);
        if (!slash) break;
        if (end + 1 >= n) return false;
        char kind = text[end + 1];
        i = end + 2;
        const char *simple = memchr(from, kind, sizeof from - 1);
        if (simple) {
            skv_buf_byte(out, to[simple - from]);
            continue;
        }
        uint32_t code;
        size_t taken = kind == 'u' ? read_unicode(text + i, n - i, &code) : 0;
        if (taken == 0) return false;
        char bytes[4];
        skv_buf_append(out, bytes, skv_utf8_encode(code, bytes));
        i += taken;
    }
    return !out->failed;
}

static bool read_string(skv_skim_cursor *c, size_t which, const char **text, size_t *n)
{
    if (!take(c, '"')) return false;
    size_t start = c->at, end = string_end(c->text, c->n, start);
    if (end >= c->n) return false;
    c->at = end + 1;
    *text = c->text + start;
    *n = end - start;
    if (!memchr(*text, '\\', *n)) return true;
    if (!unescape(*text, *n, &c->unescaped[which])) return false;
    *n = c->unescaped[which].size;
    *text = *n > 0 ? c->unescaped[which].data : "";
    return true;
}

/* After an element: takes the end of the list, or a comma before the next element. */
static bool next_element(skv_skim_cursor *c, char close, bool *more)
{
    *more = false;
    if (take(c, close)) return true;
    if (c->i > 0 && !take(c, ',')) return false;
    c->i++;
    *more = true;
    return true;
}

static bool read_id(skv_skim_cursor *c, uint32_t *id)
{
    uint64_t value = 0;
    c->at = skip_spaces(c->text, c->n, c->at);
    size_t start = c->at;
    while (c->at < c->n && c->text[c->at] >= '0' && c->text[c->at] <= '9' && value <= INT32_MAX) {
        value = value * 10 + (uint64_t)(c->text[c->at++] - '0');
    }
    *id = (uint32_t)value;
    size_t end = skip_spaces(c->text, c->n, c->at);
    bool ended = end < c->n && (c->text[end] == ',' || c->text[end] == '}');
    return c->at > start && value < INT32_MAX && ended;
}

skv_status skv_skim_token(skv_skim_cursor *c, bool *more, const char **text, size_t *n,
                          uint32_t *id, skv_error *err)
{
    bool good = next_element(c, '}', more);
    if (good && !*more) return SKV_OK;
    good = good && read_string(c, 0, text, n) && take(c, ':') && read_id(c, id);
    SKV_REQUIRE(good, err, SKV_FORMAT,
                "%s: model.vocab: entry %zu is no text with an id below 2^31", c->name, c->i);
    return SKV_OK;
}

skv_status skv_skim_merge(skv_skim_cursor *c, bool *more, const char *texts[2], size_t lengths[2],
                          skv_error *err)
{
    bool good = next_element(c, ']', more);
    texts[1] = NULL;
    if (good && !*more) return SKV_OK;
    if (good && take(c, '[')) {
        good = read_string(c, 0, &texts[0], &lengths[0]) && take(c, ',') &&
               read_string(c, 1, &texts[1], &lengths[1]) && take(c, ']');
    } else {
        good = good && read_string(c, 0, &texts[0], &lengths[0]);
    }
    SKV_REQUIRE(good, err, SKV_FORMAT,
                "%s: model.merges: entry %zu is no text and no pair of texts", c->name, c->i);
    return SKV_OK;
}
