/*
 * Calls of XML, read as a whole: see reply_form.h.
 *
 *     NAME separator  key KEY value VALUE value_end  key KEY value VALUE value_end  end
 *
 * A text may hold any of these marks, so `value_end` ends a value only in front of another
 * parameter or of the end of the call. Between parameters stand nothing but blanks.
 */
#include <string.h>

#include "text/json_scan.h"
#include "text/reply_form.h"

enum { NAME_BYTES_MAX = 256, KEY_BYTES_MAX = 4096 };

typedef struct xml {
    const skv_reply_form *form;
    skv_raw_scan *scan;
    const char *text; /* [n] */
    size_t n;
    skv_raw_state state; /* where reading stopped */
} xml;

typedef enum match { MATCH_NO, MATCH_PART, MATCH_WHOLE } match;

static match match_at(const xml *x, size_t at, const char *mark)
{
    const size_t n_mark = strlen(mark), n_left = x->n - at;
    const size_t n = n_left < n_mark ? n_left : n_mark;
    if (memcmp(x->text + at, mark, n) != 0) return MATCH_NO;
    return n == n_mark ? MATCH_WHOLE : MATCH_PART;
}

/* The first place of the mark from `from` on; n: nowhere. */
static size_t find(const xml *x, size_t from, const char *mark)
{
    size_t i = from;
    for (; i < x->n; i++) {
        const char *at = memchr(x->text + i, mark[0], x->n - i);
        i = at ? (size_t)(at - x->text) : x->n;
        if (!at || match_at(x, i, mark) == MATCH_WHOLE) break;
    }
    x->scan->n_looked += i - from;
    return i;
}

static bool stop(xml *x, skv_raw_state state)
{
    x->state = state;
    return false;
}

static void skip_blanks(xml *x)
{
    const size_t from = x->scan->pos;
    while (x->scan->pos < x->n && skv_json_is_blank(x->text[x->scan->pos])) x->scan->pos++;
    x->scan->n_looked += x->scan->pos - from;
}

/* The first place of the mark in text[0..n); n: nowhere. */
static size_t cut_at(const xml *x, size_t n, const char *mark)
{
    const xml front = {.form = x->form, .scan = x->scan, .text = x->text, .n = n};
    return find(&front, 0, mark);
}

static bool read_name(xml *x)
{
    const char *separator = x->form->separator;
    size_t from = 0, to = 0;
    if (separator[0]) {
        to = find(x, 0, separator);
    } else {
        while (from < x->n && skv_json_is_blank(x->text[from])) from++;
        for (to = from; to < x->n && !skv_json_is_blank(x->text[to]) && x->text[to] != '<';) to++;
        x->scan->n_looked += to;
    }
    if (to > NAME_BYTES_MAX) return stop(x, SKV_RAW_BAD);
    if (to == x->n) return stop(x, SKV_RAW_MORE);
    x->scan->pos = to + strlen(separator);
    if (x->form->id) to = cut_at(x, to, x->form->id);
    while (from < to && skv_json_is_blank(x->text[from])) from++;
    while (from < to && skv_json_is_blank(x->text[to - 1])) to--;
    if (from == to) return stop(x, SKV_RAW_BAD);
    x->scan->name = (skv_raw_span){from, to};
    x->scan->place = SKV_RAW_KEYS;
    return stop(x, SKV_RAW_NAMED);
}

/* Whether a parameter or the end stands here, or may. */
static match match_next(const xml *x, match *end)
{
    const match key = match_at(x, x->scan->pos, x->form->key);
    *end = match_at(x, x->scan->pos, x->form->end);
    return key == MATCH_WHOLE || *end == MATCH_NO ? key : *end;
}

static bool read_keys(xml *x)
{
    match end;
    skip_blanks(x);
    const match next = match_next(x, &end);
    if (next == MATCH_PART) return stop(x, SKV_RAW_MORE);
    if (next == MATCH_NO) return stop(x, SKV_RAW_BAD);
    x->scan->pos += strlen(end == MATCH_WHOLE ? x->form->end : x->form->key);
    if (end == MATCH_WHOLE) return stop(x, SKV_RAW_ENDED);
    x->scan->key.from = x->scan->pos;
    x->scan->place = SKV_RAW_KEY;
    return true;
}

/* The same from pos on, which goes as far as no mark can begin; n: nowhere yet. */
static size_t find_on(xml *x, const char *mark)
{
    const size_t n_mark = strlen(mark), at = find(x, x->scan->pos, mark);
    if (at == x->n && x->n >= n_mark && x->scan->pos < x->n - n_mark + 1) {
        x->scan->pos = x->n - n_mark + 1;
    }
    return at;
}

static bool read_key(xml *x)
{
    skv_raw_span *key = &x->scan->key;
    key->to = find_on(x, x->form->value);
    if (key->to - key->from > KEY_BYTES_MAX) {
        x->scan->pos = key->from;
        return stop(x, SKV_RAW_BAD);
    }
    if (key->to == x->n) return stop(x, SKV_RAW_MORE);
    x->scan->pos = x->scan->value.from = key->to + strlen(x->form->value);
    x->scan->place = SKV_RAW_VALUE;
    return true;
}

static bool read_value(xml *x)
{
    skv_raw_scan *scan = x->scan;
    const size_t at = find_on(x, x->form->value_end);
    if (at == x->n) return stop(x, SKV_RAW_MORE);
    scan->value.to = at;
    scan->pos = at + strlen(x->form->value_end);
    scan->place = SKV_RAW_BEHIND;
    return true;
}

static bool read_behind(xml *x)
{
    match end;
    skip_blanks(x);
    const match next = match_next(x, &end);
    if (next == MATCH_PART) return stop(x, SKV_RAW_MORE);
    x->scan->place = next == MATCH_WHOLE ? SKV_RAW_KEYS : SKV_RAW_VALUE;
    return next == MATCH_WHOLE ? stop(x, SKV_RAW_PARAMETER) : true;
}

skv_raw_state skv_xml_next(const skv_reply_form *form, skv_raw_scan *scan, const char *text,
                           size_t n)
{
    xml x = {.form = form, .scan = scan, .text = text, .n = n};
    bool goes_on = true;
    while (goes_on) {
        switch (scan->place) {
        case SKV_RAW_NAME: goes_on = read_name(&x); break;
        case SKV_RAW_KEYS: goes_on = read_keys(&x); break;
        case SKV_RAW_KEY: goes_on = read_key(&x); break;
        case SKV_RAW_VALUE: goes_on = read_value(&x); break;
        case SKV_RAW_BEHIND: goes_on = read_behind(&x); break;
        }
    }
    return x.state;
}

/* ---- whole calls ---- */

/* What the mark around a value says of its type, or the function's schema does. */
static unsigned types_of(const skv_reply_options *options, const skv_reply_form *form,
                         skv_raw_scan *scan, const char *text, size_t n_key)
{
    const char *key = text + scan->key.from;
    const xml head = {.scan = scan, .text = text, .n = scan->key.to};
    if (form->typed && find(&head, scan->key.from, form->typed) < head.n) {
        const bool is_text = find(&head, scan->key.from, form->text_type) < head.n;
        return is_text ? SKV_TYPE_STRING : (SKV_TYPE_ANY & ~SKV_TYPE_STRING) | SKV_TYPE_QUOTED;
    }
    if (!options->types) return 0;
    return options->types(options->functions, text + scan->name.from,
                          scan->name.to - scan->name.from, key, n_key);
}

/* The character of an entity, which text[0..n) begins with if `&` is none by itself; returns the
 * bytes read. */
static size_t put_entity(const char *text, size_t n, skv_buf *args)
{
    static const char *const entities[][2] = {{"&amp;", "&"}, {"&quot;", "\""}};
    for (size_t i = 0; i < sizeof entities / sizeof entities[0]; i++) {
        const size_t n_entity = strlen(entities[i][0]);
        if (n < n_entity || memcmp(text, entities[i][0], n_entity) != 0) continue;
        skv_buf_json_text(args, entities[i][1], 1);
        return n_entity;
    }
    skv_buf_byte(args, '&');
    return 1;
}

/* A parameter's name as JSON. */
static void put_key(const skv_reply_form *form, const char *text, size_t n, skv_buf *args)
{
    for (size_t i = 0; i < n;) {
        const char *entity = form->escaped ? memchr(text + i, '&', n - i) : NULL;
        const size_t k = entity ? (size_t)(entity - text) - i : n - i;
        skv_buf_json_text(args, text + i, k);
        i += k;
        if (i < n) i += put_entity(text + i, n - i, args);
    }
}

/* KEY" string="true">, KEY" type="string", KEY">, KEY>, KEY</arg_key> */
static void put_parameter(const skv_reply_options *options, const skv_reply_form *form,
                          skv_raw_scan *scan, const char *text, skv_buf *args)
{
    skv_raw_span *key = &scan->key;
    while (key->from < key->to && skv_json_is_blank(text[key->from])) key->from++;
    size_t n_key = 0;
    while (key->from + n_key < key->to && !strchr("\"<>", text[key->from + n_key])) n_key++;
    while (n_key > 0 && skv_json_is_blank(text[key->from + n_key - 1])) n_key--;
    const unsigned types = types_of(options, form, scan, text, n_key);
    if (args->data[args->size - 1] != '{') skv_buf_byte(args, ',');
    skv_buf_byte(args, '"');
    put_key(form, text + key->from, n_key, args);
    skv_buf_text(args, "\":");
    skv_raw_put_value(form, text + scan->value.from, scan->value.to - scan->value.from, types,
                      args);
}

bool skv_xml_convert(const skv_reply_options *options, const skv_reply_form *form, const char *text,
                     size_t n, skv_buf *name, skv_buf *args)
{
    skv_raw_scan scan = {0};
    skv_raw_state state = SKV_RAW_NAMED;
    const size_t begin = args->size;
    skv_buf_byte(args, '{');
    while ((state == SKV_RAW_NAMED || state == SKV_RAW_PARAMETER) && !args->failed) {
        state = skv_xml_next(form, &scan, text, n);
        if (state == SKV_RAW_PARAMETER) put_parameter(options, form, &scan, text, args);
    }
    if (state != SKV_RAW_ENDED) return false;
    skv_buf_append(name, text + scan.name.from, scan.name.to - scan.name.from);
    skv_buf_byte(args, '}');
    if (!args->failed) skv_raw_drop_doubled(args, begin);
    return !args->failed;
}
