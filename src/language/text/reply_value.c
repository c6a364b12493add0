/* Values of calls that are no JSON, as JSON: see reply_form.h. */
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "text/json_scan.h"
#include "text/reply_form.h"

/* Digits that every reader of JSON keeps, and that a real has with its exponent. */
enum { PLAIN_DIGITS_MAX = 15, REAL_DIGITS_MAX = 19 };

enum { BLANKS_MAX = 64 }; /* between a quotation mark and what tells whether it ends a text */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '_' ||
           c == '-' || c == '+' || c == '.' || c == '$' || (unsigned char)c >= 0x80;
}

static void trim(const char **text, size_t *n)
{
    while (*n > 0 && skv_json_is_blank(**text)) (*text)++, (*n)--;
    while (*n > 0 && skv_json_is_blank((*text)[*n - 1])) (*n)--;
}

/* ---- strings ---- */

bool skv_raw_ends_mark(char behind)
{
    return behind == ',' || behind == '}' || behind == ']' || behind == ':';
}

skv_raw_state skv_raw_ends_quote(const char *text, size_t n)
{
    size_t k = 0;
    while (k < n && k < BLANKS_MAX && skv_json_is_blank(text[k])) k++;
    if (k == n) return SKV_RAW_MORE;
    return text[k] == ')' || skv_raw_ends_mark(text[k]) ? SKV_RAW_ENDED : SKV_RAW_BAD;
}

/* n digits of a base of 16; false: they are none. */
static bool read_hex(const char *text, size_t n, uint32_t *code)
{
    *code = 0;
    for (size_t i = 0; i < n; i++) {
        const char c = text[i];
        const bool low = c >= 'a' && c <= 'f', high = c >= 'A' && c <= 'F';
        if (!is_digit(c) && !low && !high) return false;
        *code = *code << 4 | (uint32_t)(is_digit(c) ? c - '0' : low ? c - 'a' + 10 : c - 'A' + 10);
    }
    return true;
}

/* What stands behind a backslash, in Python or JSON; returns its bytes. */
static size_t put_escape(const char *text, size_t n, skv_buf *out)
{
    static const char *const rows[] = {"''", "\n", "a\\u0007", "v\\u000b", "0\\u0000"};
    const char c = text[0];
    const size_t n_hex = c == 'x' ? 2 : c == 'U' ? 8 : 0;
    uint32_t code;
    char bytes[4];
    if (c != 0 && strchr("\"\\/bfnrtu", c)) {
        skv_buf_byte(out, '\\');
        skv_buf_byte(out, c);
        return 1;
    }
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (c != rows[i][0]) continue;
        skv_buf_text(out, rows[i] + 1);
        return 1;
    }
    if (n_hex > 0 && n > n_hex && read_hex(text + 1, n_hex, &code) && code <= 0x10ffff) {
        skv_buf_json_text(out, bytes, skv_utf8_encode(code, bytes));
        return 1 + n_hex;
    }
    skv_buf_text(out, "\\\\");
    return 0; /* Python keeps the backslash */
}

/* text[0..n) at Gemma's mark; the one that ends the text stands in front of what may follow a
 * value. */
static size_t put_marked(const char *text, size_t n, skv_buf *out)
{
    const size_t n_mark = strlen(SKV_GEMMA_QUOTE);
    for (size_t i = n_mark; i + n_mark <= n; i++) {
        if (!skv_text_starts(text + i, n - i, SKV_GEMMA_QUOTE)) continue;
        const size_t behind = i + n_mark;
        if (behind < n && !skv_raw_ends_mark(text[behind])) continue;
        skv_buf_json_text(out, text + n_mark, i - n_mark);
        skv_buf_byte(out, '"');
        return behind;
    }
    return 0;
}

/* text[0..n) at a quotation mark; returns the bytes of the string, 0: it has no end. */
static size_t put_string(const char *text, size_t n, skv_buf *out)
{
    skv_buf_byte(out, '"');
    if (text[0] == '<') return put_marked(text, n, out);
    for (size_t i = 1; i < n; i++) {
        if (text[i] == text[0] && skv_raw_ends_quote(text + i + 1, n - i - 1) != SKV_RAW_BAD) {
            skv_buf_byte(out, '"');
            return i + 1;
        }
        if (text[i] == '\\' && i + 1 < n) {
            i += put_escape(text + i + 1, n - i - 1, out);
        } else if ((unsigned char)text[i] < 0x80) {
            skv_buf_json_text(out, text + i, 1);
        } else {
            skv_buf_byte(out, text[i]);
        }
    }
    return 0;
}

/* ---- values ---- */

typedef struct python_word {
    const char *word, *json;
    unsigned type;
} python_word;

/* True, False or None; NULL: neither. */
static const python_word *find_word(const char *text, size_t n)
{
    static const python_word words[] = {{"True", "true", SKV_TYPE_BOOLEAN},
                                        {"False", "false", SKV_TYPE_BOOLEAN},
                                        {"None", "null", SKV_TYPE_NULL}};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (n == strlen(words[i].word) && memcmp(text, words[i].word, n) == 0) return &words[i];
    }
    return NULL;
}

/* A name of a member, or a word; returns its bytes. */
static size_t put_word(const char *text, size_t n, skv_buf *out)
{
    size_t k = 0, behind;
    while (k < n && is_word(text[k])) k++;
    for (behind = k; behind < n && skv_json_is_blank(text[behind]);) behind++;
    if (behind < n && (text[behind] == ':' || text[behind] == '=')) {
        skv_buf_byte(out, '"');
        skv_buf_json_text(out, text, k);
        skv_buf_text(out, "\":");
        return behind + 1;
    }
    const python_word *word = find_word(text, k);
    if (word) {
        skv_buf_text(out, word->json);
    } else {
        skv_buf_append(out, text, k);
    }
    return k;
}

/* Whether this is exactly one value. */
static bool is_json(const char *text, size_t n)
{
    skv_json_scan scan;
    skv_json_scan_init(&scan);
    (void)skv_json_scan_byte(&scan, '[');
    for (size_t i = 0; i < n; i++) {
        const skv_json_place place = skv_json_scan_byte(&scan, text[i]);
        const bool another = place == SKV_JSON_VALUE && scan.depth == 1;
        if (place == SKV_JSON_ENDED || place == SKV_JSON_BAD || another) return false;
    }
    return scan.place != SKV_JSON_FIRST_VALUE && skv_json_scan_byte(&scan, ']') == SKV_JSON_ENDED;
}

/* A comma in front of a bracket, which Python allows. */
static bool is_last_comma(const char *text, size_t n)
{
    size_t k = 1;
    while (text[0] == ',' && k < n && skv_json_is_blank(text[k])) k++;
    return text[0] == ',' && k < n && (text[k] == ')' || text[k] == ']' || text[k] == '}');
}

bool skv_raw_put_loose(const char *open, const char *text, size_t n, const char *close,
                       skv_buf *out)
{
    const size_t begin = out->size;
    bool ok = true;
    skv_buf_text(out, open);
    for (size_t i = 0; ok && i < n;) {
        const char c = text[i];
        size_t k = 1;
        if (c == '"' || c == '\'' || skv_text_starts(text + i, n - i, SKV_GEMMA_QUOTE)) {
            k = put_string(text + i, n - i, out);
        } else if (is_word(c)) {
            k = put_word(text + i, n - i, out);
        } else if (c == '(' || c == ')') {
            skv_buf_byte(out, c == '(' ? '[' : ']');
        } else if (!skv_json_is_blank(c) && !is_last_comma(text + i, n - i)) {
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

/* Whether Python and JSON write a number so: a text of digits (a version, a telephone) often is
 * not.
 */
static bool is_plain_number(const char *text, size_t n)
{
    const char *point = memchr(text, '.', n), *e = memchr(text, 'e', n);
    size_t n_digits = 0;
    for (size_t i = 0; i < n; i++) n_digits += is_digit(text[i]);
    const size_t n_max = point || e ? REAL_DIGITS_MAX : PLAIN_DIGITS_MAX;
    if (n_digits > n_max || memchr(text, 'E', n)) return false;
    if (n == 2 && text[0] == '-' && text[1] == '0') return false;
    if (e) return e + 1 < text + n && !is_digit(e[1]);
    return !point || text[n - 1] != '0' || text[n - 2] == '.';
}

/* The type of one value of JSON; 0: it is none. A number may be an integer in two spellings. */
static unsigned type_of(const char *text, size_t n)
{
    if (n == 0 || !is_json(text, n)) return 0;
    switch (text[0]) {
    case '{': return SKV_TYPE_OBJECT;
    case '[': return SKV_TYPE_ARRAY;
    case '"': return SKV_TYPE_STRING;
    case 't':
    case 'f': return SKV_TYPE_BOOLEAN;
    case 'n': return SKV_TYPE_NULL;
    default: break;
    }
    const char *point = memchr(text, '.', n);
    if (memchr(text, 'e', n) || memchr(text, 'E', n)) return SKV_TYPE_NUMBER;
    if (!point) return SKV_TYPE_INTEGER;
    for (const char *at = point + 1; at < text + n; at++) {
        if (*at != '0') return SKV_TYPE_NUMBER;
    }
    return SKV_TYPE_NUMBER | SKV_TYPE_INTEGER;
}

/* JSON without the blanks between its parts. */
static void put_compact(const char *text, size_t n, skv_buf *out)
{
    bool quoted = false;
    for (size_t i = 0; i < n; i++) {
        if (!quoted && skv_json_is_blank(text[i])) continue;
        if (text[i] == '"') quoted = !quoted;
        skv_buf_byte(out, text[i]);
        if (text[i] == '\\' && ++i < n) skv_buf_byte(out, text[i]);
    }
}

/* A value of one of these types; false: it is a text, and nothing is appended. Where a text is
 * allowed too, numbers and lists count only as templates write them. */
static bool put_typed(const char *text, size_t n, unsigned types, skv_buf *out)
{
    const unsigned known = types == 0 ? SKV_TYPE_ANY : types;
    const bool may_be_text = (known & SKV_TYPE_STRING) != 0;
    const unsigned type = type_of(text, n);
    const python_word *word = find_word(text, n);
    if (word && (word->type & known)) return skv_buf_text(out, word->json);
    if (type == SKV_TYPE_STRING && !(types & SKV_TYPE_QUOTED)) return false;
    const bool number = (type & (SKV_TYPE_INTEGER | SKV_TYPE_NUMBER)) != 0;
    if (number && may_be_text && !is_plain_number(text, n)) return false;
    if (type == SKV_TYPE_STRING || (type & known)) {
        put_compact(text, n, out);
        return true;
    }
    if (type != 0 || (may_be_text && types != 0)) return false;
    const bool tuple = text[0] == '(' && !may_be_text;
    const unsigned opened = text[0] == '[' || tuple ? SKV_TYPE_ARRAY
                            : text[0] == '{'        ? SKV_TYPE_OBJECT
                                                    : 0;
    return (opened & known) && skv_raw_put_loose("", text, n, "", out);
}

/* Whether a value is a text in such marks, which are taken off. */
static bool take_cdata(const char **text, size_t *n)
{
    static const char begin[] = "<![CDATA[", end[] = "]]>";
    const size_t n_begin = sizeof begin - 1, n_end = sizeof end - 1;
    if (*n < n_begin + n_end || memcmp(*text, begin, n_begin) != 0 ||
        memcmp(*text + *n - n_end, end, n_end) != 0) {
        return false;
    }
    *text += n_begin;
    *n -= n_begin + n_end;
    return true;
}

void skv_raw_put_value(const skv_reply_form *form, const char *text, size_t n, unsigned types,
                       skv_buf *out)
{
    const size_t n_behind = strlen(form->behind_key);
    const bool lines = n_behind > 0 && form->behind_key[n_behind - 1] == '\n';
    const bool in_cdata = form->cdata && take_cdata(&text, &n);
    const bool is_text = in_cdata || types == SKV_TYPE_STRING;
    /* Line ends that belong to the marks. GLM has one in front of the mark of a value. */
    if (lines && n > 0 && text[0] == '\n') text++, n--;
    if (lines && n > 0 && text[n - 1] == '\n') n--;
    const char *value = text;
    size_t n_value = n;
    trim(&value, &n_value);
    if (!is_text && n_value > 0 && put_typed(value, n_value, types, out)) return;
    skv_buf_byte(out, '"');
    skv_buf_json_text(out, text, n);
    skv_buf_byte(out, '"');
}

/* ---- doubled names ---- */

typedef struct member {
    const char *name; /* [n_name], as JSON has it */
    size_t n_name, from, to;
    bool dropped;
} member;

static int by_name(const void *a, const void *b)
{
    const member *x = a, *y = b;
    const size_t n = x->n_name < y->n_name ? x->n_name : y->n_name;
    const int order = n > 0 ? memcmp(x->name, y->name, n) : 0;
    if (order != 0) return order;
    if (x->n_name != y->n_name) return x->n_name < y->n_name ? -1 : 1;
    return x->from < y->from ? -1 : 1;
}

static int by_place(const void *a, const void *b)
{
    const member *x = a, *y = b;
    return x->from < y->from ? -1 : 1;
}

/* The members of an object without blanks between its parts, as an array in `out`; false: it is
 * none.
 */
static bool list_members(const char *text, size_t n, skv_buf *out)
{
    skv_json_scan scan;
    member one = {.from = 1};
    bool named = false;
    skv_json_scan_init(&scan);
    for (size_t i = 0; i < n; i++) {
        const skv_json_place place = skv_json_scan_byte(&scan, text[i]);
        if (scan.depth == 1 && place == SKV_JSON_COLON && !named) {
            one.name = text + one.from + 1;
            one.n_name = i - one.from - 1;
            named = true;
        }
        if ((scan.depth != 1 || place != SKV_JSON_NAME) && place != SKV_JSON_ENDED) continue;
        one.to = i;
        if (named) skv_buf_append(out, &one, sizeof one);
        one = (member){.from = i + 1};
        named = false;
    }
    return scan.place == SKV_JSON_ENDED && !out->failed;
}

void skv_raw_drop_doubled(skv_buf *args, size_t begin)
{
    skv_buf list = {.max = args->max, .memory = args->memory}, kept = list;
    char *text = args->data + begin;
    bool any = false;
    const bool listed = list_members(text, args->size - begin, &list);
    member *all = (member *)(void *)list.data;
    const size_t n = list.size / sizeof *all;
    if (n > 1 && listed) {
        qsort(all, n, sizeof *all, by_name);
        for (size_t i = 0; i + 1 < n; i++) {
            all[i].dropped = all[i].n_name == all[i + 1].n_name &&
                             memcmp(all[i].name, all[i + 1].name, all[i].n_name) == 0;
            any = any || all[i].dropped;
        }
    }
    if (any) {
        qsort(all, n, sizeof *all, by_place);
        for (size_t i = 0; i < n; i++) {
            if (all[i].dropped) continue;
            skv_buf_byte(&kept, kept.size == 0 ? '{' : ',');
            skv_buf_append(&kept, text + all[i].from, all[i].to - all[i].from);
        }
        skv_buf_byte(&kept, '}');
        if (!kept.failed) memcpy(text, kept.data, kept.size);
        args->size = begin + kept.size;
    }
    args->failed = args->failed || list.failed || kept.failed;
    skv_buf_release(&list);
    skv_buf_release(&kept);
}
