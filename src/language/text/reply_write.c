/* Calls of earlier turns as texts, and arguments that were cut off: see skv/reply.h. */
#include <jansson.h>
#include <string.h>

#include "text/json_scan.h"
#include "text/reply_form.h"

enum { TEXT_BYTES_MAX = 1 << 28, DEPTH_MAX = 64 };

/* ---- calls ---- */

static void put_json(skv_buf *out, const json_t *value)
{
    if (json_dump_callback(value, skv_buf_dump, out, JSON_ENCODE_ANY) != 0) out->failed = true;
}

/* A literal of Python; strings of JSON are some. */
static void put_python(skv_buf *out, const json_t *value, size_t depth)
{
    const char *key;
    const json_t *one;
    size_t i = 0;
    out->failed = out->failed || depth == 0;
    if (out->failed) return;
    switch (json_typeof(value)) {
    case JSON_TRUE: skv_buf_text(out, "True"); return;
    case JSON_FALSE: skv_buf_text(out, "False"); return;
    case JSON_NULL: skv_buf_text(out, "None"); return;
    case JSON_ARRAY:
        skv_buf_byte(out, '[');
        json_array_foreach(value, i, one)
        {
            if (i > 0) skv_buf_text(out, ", ");
            put_python(out, one, depth - 1);
        }
        skv_buf_byte(out, ']');
        return;
    case JSON_OBJECT:
        skv_buf_byte(out, '{');
        json_object_foreach((json_t *)(uintptr_t)value, key, one)
        {
            skv_buf_text(out, i++ > 0 ? ", \"" : "\"");
            skv_buf_json_text(out, key, strlen(key));
            skv_buf_text(out, "\": ");
            put_python(out, one, depth - 1);
        }
        skv_buf_byte(out, '}');
        return;
    case JSON_STRING:
    case JSON_INTEGER:
    case JSON_REAL: put_json(out, value); return;
    }
}

/* f(a="x", b=1) */
static void put_python_call(skv_buf *out, const json_t *name, const json_t *arguments)
{
    const char *key;
    const json_t *one;
    bool any = false;
    skv_buf_append(out, json_string_value(name), json_string_length(name));
    skv_buf_byte(out, '(');
    json_object_foreach((json_t *)(uintptr_t)arguments, key, one)
    {
        if (any) skv_buf_text(out, ", ");
        skv_buf_printf(out, "%s=", key);
        put_python(out, one, DEPTH_MAX);
        any = true;
    }
    skv_buf_byte(out, ')');
}

/* {"name": "f", "arguments": {...}} */
static void put_object_call(skv_buf *out, const skv_reply_form *form, const json_t *name,
                            const json_t *arguments)
{
    skv_buf_printf(out, "{\"%s\": ", form->name_key);
    put_json(out, name);
    skv_buf_printf(out, ", \"%s\": ", form->args_key);
    put_json(out, arguments);
    skv_buf_byte(out, '}');
}

/* A mark of the form, which may be NULL. */
static void put_own(skv_buf *out, skv_text_piece own_mark, const char *text)
{
    if (!text || !*text) return;
    skv_buf_append(out, own_mark.text, own_mark.n);
    skv_buf_text(out, text);
    skv_buf_append(out, own_mark.text, own_mark.n);
}

/* begin prefix f:0 separator {...} end */
static void put_named_call(skv_buf *out, const skv_reply_form *form, const json_t *call,
                           skv_text_piece own_mark, size_t i)
{
    const json_t *name = json_object_get(call, "name");
    if (!form->begin) put_own(out, own_mark, form->open);
    put_own(out, own_mark, form->begin);
    put_own(out, own_mark, form->prefix);
    skv_buf_append(out, json_string_value(name), json_string_length(name));
    if (form->id) skv_buf_printf(out, "%s%zu", form->id, i);
    put_own(out, own_mark, form->separator);
    put_json(out, json_object_get(call, "arguments"));
    if (form->end && form->end[0] == '`') skv_buf_byte(out, '\n');
    put_own(out, own_mark, form->end);
}

static bool put_calls(skv_buf *out, const skv_reply_form *form, const json_t *calls,
                      skv_text_piece own_mark)
{
    const json_t *call;
    size_t i;
    if (form->list || form->begin) put_own(out, own_mark, form->open);
    if (form->list) skv_buf_byte(out, '[');
    json_array_foreach(calls, i, call)
    {
        const json_t *name = json_object_get(call, "name"),
                     *arguments = json_object_get(call, "arguments");
        if (!json_is_string(name) || !json_is_object(arguments)) return false;
        if (i > 0 && form->list) skv_buf_text(out, ", ");
        if (form->spelling == SKV_SPELL_PYTHON) {
            put_python_call(out, name, arguments);
        } else if (form->spelling == SKV_SPELL_NAMED) {
            put_named_call(out, form, call, own_mark, i);
        } else {
            put_object_call(out, form, name, arguments);
        }
    }
    if (form->list) skv_buf_byte(out, ']');
    put_own(out, own_mark, form->close);
    return true;
}

/* Lists, and names in front of arguments, unless an id of nine digits stands between them. */
static bool can_write(const skv_reply_form *form)
{
    if (!form || !form->open) return false;
    if (form->spelling == SKV_SPELL_NAMED) return form->own_id != SKV_ID_BEHIND;
    return form->list && (form->spelling == SKV_SPELL_PYTHON || form->spelling == SKV_SPELL_OBJECT);
}

skv_status skv_reply_write_calls(skv_reply_format format, skv_text_piece calls_json,
                                 skv_text_piece own_mark, char **text, size_t *n, skv_error *err)
{
    const skv_reply_form *form = skv_reply_form_at(format.calls);
    SKV_REQUIRE(can_write(form), err, SKV_UNSUPPORTED,
                "calls: the format is written by its template alone");
    json_error_t why;
    json_t *calls = json_loadb(calls_json.text, calls_json.n, JSON_ALLOW_NUL, &why);
    SKV_REQUIRE(calls, err, SKV_FORMAT, "calls: %s at byte %d", why.text, why.position);
    skv_buf out;
    skv_buf_init(&out, TEXT_BYTES_MAX);
    const bool ok = json_is_array(calls) && put_calls(&out, form, calls, own_mark);
    json_decref(calls);
    if (ok && !out.failed) {
        *n = out.size;
        *text = skv_buf_give_away(&out);
        return SKV_OK;
    }
    const bool failed = out.failed;
    skv_buf_release(&out);
    return failed ? skv_fail(err, SKV_MEMORY, "calls: no memory for their text")
                  : skv_fail(err, SKV_FORMAT, "calls: one has no name or no arguments");
}

/* ---- arguments that were cut off ---- */

/* How far a text can be kept, and which brackets are open there. */
typedef struct kept {
    size_t n, depth;
    uint64_t objects;
    bool in_text; /* of a value: a quotation mark is missing too */
} kept;

static kept keep(const skv_json_scan *scan, size_t n, bool in_text)
{
    return (kept){.n = n, .depth = scan->depth, .objects = scan->objects, .in_text = in_text};
}

/* Reads on by a byte; false: the text is no beginning of an object. */
static bool read_on(skv_json_scan *scan, const char *text, size_t i, kept *best)
{
    const skv_json_place place = skv_json_scan_byte(scan, text[i]);
    switch (place) {
    case SKV_JSON_BAD:
    case SKV_JSON_VALUE: break;
    case SKV_JSON_FIRST_VALUE:
    case SKV_JSON_FIRST_NAME:
    case SKV_JSON_BEHIND:
    case SKV_JSON_ENDED: *best = keep(scan, i + 1, false); break;
    case SKV_JSON_STRING:
        if (!scan->in_name) *best = keep(scan, i + 1, true);
        break;
    case SKV_JSON_NAME:
    case SKV_JSON_COLON:
    case SKV_JSON_ESCAPE:
    case SKV_JSON_HEX:
    case SKV_JSON_WORD:
    case SKV_JSON_NUMBER: break;
    }
    /* The number in front of a comma is whole. */
    if (text[i] == ',' && (place == SKV_JSON_NAME || place == SKV_JSON_VALUE)) {
        *best = keep(scan, i, false);
    }
    return place != SKV_JSON_BAD && scan->depth + (place == SKV_JSON_ENDED) > 0;
}

/* Without half of a surrogate pair at the end. */
static size_t without_half(const char *text, size_t n)
{
    const bool half = n >= 6 && text[n - 6] == '\\' && text[n - 5] == 'u' &&
                      (text[n - 4] | 0x20) == 'd' && strchr("89abAB", text[n - 3]);
    return half && (n < 7 || text[n - 7] != '\\') ? n - 6 : n;
}

bool skv_reply_is_deep(const char *text, size_t n)
{
    size_t depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < n && depth <= SKV_REPLY_DEPTH_MAX; i++) {
        const char c = text[i];
        if (in_string) {
            in_string = c != '"';
            i += c == '\\';
        } else {
            in_string = c == '"';
            depth += c == '{' || c == '[';
            depth -= depth > 0 && (c == '}' || c == ']');
        }
    }
    return depth > SKV_REPLY_DEPTH_MAX;
}

skv_status skv_reply_close_object(const char *text, size_t n, char **closed, size_t *n_closed,
                                  skv_error *err)
{
    skv_json_scan scan;
    kept best = {0};
    size_t i = 0;
    skv_json_scan_init(&scan);
    while (i < n && strchr(" \t\r\n", text[i]) && text[i] != 0) i++;
    SKV_REQUIRE(i < n && text[i] == '{', err, SKV_FORMAT, "arguments: no object begins");
    for (; i < n && scan.place != SKV_JSON_ENDED; i++) {
        SKV_REQUIRE(read_on(&scan, text, i, &best), err, SKV_FORMAT,
                    "arguments: no JSON at byte %zu", i);
    }
    for (; i < n; i++) {
        SKV_REQUIRE(strchr(" \t\r\n", text[i]) && text[i] != 0, err, SKV_FORMAT,
                    "arguments: more than an object at byte %zu", i);
    }
    skv_buf out;
    skv_buf_init(&out, TEXT_BYTES_MAX);
    skv_buf_append(&out, text, best.in_text ? without_half(text, best.n) : best.n);
    if (best.in_text) skv_buf_byte(&out, '"');
    for (size_t d = best.depth; d > 0; d--) {
        skv_buf_byte(&out, (best.objects >> (d - 1) & 1) != 0 ? '}' : ']');
    }
    if (out.failed) {
        skv_buf_release(&out);
        return skv_fail(err, SKV_MEMORY, "arguments: no memory");
    }
    *n_closed = out.size;
    *closed = skv_buf_give_away(&out);
    return SKV_OK;
}
