/* tojson: Python's json.dumps with the options that transformers allows. Its marks count as data,
 * but for the texts of literals. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/utf8.h"
#include "text/jinja/jinja_builtin.h"
#include "text/jinja/jinja_run.h"

typedef struct json_style {
    bool ascii, sort, indented;
    skv_jstr indent, item, colon; /* one level; between items; after a key */
} json_style;

static void put_unit(skv_buf *buf, uint32_t unit)
{
    skv_buf_printf(buf, "\\u%04" PRIx32, unit);
}

static void write_char(skv_buf *buf, const char *data, size_t n, uint32_t code, bool ascii)
{
    static const char from[] = "\"\\\n\r\t\f\b", to[] = "\"\\nrtfb";
    const char *escape = code && code < 0x80 ? strchr(from, (int)code) : NULL;
    if (escape) {
        skv_buf_byte(buf, '\\');
        skv_buf_byte(buf, to[escape - from]);
    } else if (code >= 0x20 && (!ascii || code <= 0x7f)) {
        skv_buf_append(buf, data, n);
    } else if (code < 0x10000) {
        put_unit(buf, code);
    } else {
        put_unit(buf, 0xd800 + ((code - 0x10000) >> 10));
        put_unit(buf, 0xdc00 + ((code - 0x10000) & 0x3ff));
    }
}

static void write_string(skv_jrun *r, skv_jout *out, const skv_jstr *s, const json_style *style)
{
    skv_buf_byte(&out->text, '"');
    for (size_t i = 0; i < s->size && !out->text.failed;) {
        uint32_t code;
        size_t n = skv_utf8_decode(s->data + i, s->size - i, &code);
        skv_jout_follow(out, s, i);
        write_char(&out->text, s->data + i, n, code, style->ascii);
        i += n;
    }
    skv_jout_set(out, true);
    skv_buf_byte(&out->text, '"');
    (void)skv_j_spend_bytes(r, s->size);
}

static void write_float(skv_jrun *r, skv_buf *out, double f)
{
    if (isnan(f))
        skv_buf_text(out, "NaN");
    else if (isinf(f))
        skv_buf_text(out, f < 0 ? "-Infinity" : "Infinity");
    else
        skv_j_write_float(r, out, f);
}

static void new_line(skv_buf *out, const json_style *style, unsigned level)
{
    if (!style->indented) return;
    skv_buf_byte(out, '\n');
    while (level-- && !out->failed) skv_buf_append(out, style->indent.data, style->indent.size);
}

static void write_json(skv_jrun *r, skv_jout *out, skv_jv v, const json_style *style,
                       unsigned level);

static void write_array(skv_jrun *r, skv_jout *out, const skv_jlist *list, const json_style *style,
                        unsigned level)
{
    skv_buf_byte(&out->text, '[');
    for (size_t i = 0; i < list->n && skv_j_ok(r); i++) {
        if (i) skv_buf_append(&out->text, style->item.data, style->item.size);
        new_line(&out->text, style, level + 1);
        write_json(r, out, list->items[i], style, level + 1);
    }
    if (list->n) new_line(&out->text, style, level);
    skv_buf_byte(&out->text, ']');
}

/* Keys are strings in JSON; Python turns these other kinds into one. */
static void write_key(skv_jrun *r, skv_jout *out, skv_jv key, const json_style *style)
{
    switch (key.kind) {
    case SKV_J_STRING: write_string(r, out, key.as.s, style); break;
    case SKV_J_NONE:
    case SKV_J_BOOL:
    case SKV_J_INT:
    case SKV_J_FLOAT:
        skv_buf_byte(&out->text, '"');
        write_json(r, out, key, style, 0);
        skv_buf_byte(&out->text, '"');
        break;
    default:
        skv_j_fail(r, SKV_ARGUMENT, "tojson: keys must be strings, got '%s'", skv_j_type_name(key));
        break;
    }
}

static const skv_jdict *sorted_by_key(skv_jrun *r, const skv_jdict *dict)
{
    skv_jv keys = skv_j_list(r, SKV_J_LIST, dict->n), out = skv_j_dict(r);
    for (size_t i = 0; i < dict->n && skv_j_ok(r); i++)
        (void)skv_j_push(r, keys.as.list, dict->pairs[i].key);
    if (skv_j_ok(r)) keys = skv_j_sorted(r, keys.as.list, keys.as.list, false);
    for (size_t i = 0; skv_j_ok(r) && i < keys.as.list->n; i++) {
        uint64_t hash;
        skv_jv key = keys.as.list->items[i];
        const skv_jv *value = skv_jdict_hash(r->budget, key, &hash)
                                  ? skv_jdict_find(r->budget, dict, key, hash)
                                  : NULL;
        if (value) (void)skv_j_put(r, out.as.dict, key, *value);
    }
    return out.as.dict;
}

static void write_object(skv_jrun *r, skv_jout *out, const skv_jdict *dict, const json_style *style,
                         unsigned level)
{
    if (style->sort) dict = sorted_by_key(r, dict);
    if (!skv_j_ok(r)) return;
    skv_buf_byte(&out->text, '{');
    for (size_t i = 0; i < dict->n && skv_j_ok(r); i++) {
        if (i) skv_buf_append(&out->text, style->item.data, style->item.size);
        new_line(&out->text, style, level + 1);
        write_key(r, out, dict->pairs[i].key, style);
        skv_buf_append(&out->text, style->colon.data, style->colon.size);
        write_json(r, out, dict->pairs[i].value, style, level + 1);
    }
    if (dict->n) new_line(&out->text, style, level);
    skv_buf_byte(&out->text, '}');
}

static void write_value(skv_jrun *r, skv_jout *out, skv_jv v, const json_style *style,
                        unsigned level)
{
    switch (v.kind) {
    case SKV_J_NONE: skv_buf_text(&out->text, "null"); break;
    case SKV_J_BOOL: skv_buf_text(&out->text, v.as.b ? "true" : "false"); break;
    case SKV_J_INT: skv_buf_printf(&out->text, "%" PRId64, v.as.i); break;
    case SKV_J_FLOAT: write_float(r, &out->text, v.as.f); break;
    case SKV_J_STRING: write_string(r, out, v.as.s, style); break;
    case SKV_J_LIST:
    case SKV_J_TUPLE: write_array(r, out, v.as.list, style, level); break;
    case SKV_J_DICT: write_object(r, out, v.as.dict, style, level); break;
    default:
        skv_j_fail(r, SKV_ARGUMENT, "tojson: object of type '%s' is not JSON serializable",
                   skv_j_type_name(v));
        break;
    }
}

static void write_json(skv_jrun *r, skv_jout *out, skv_jv v, const json_style *style,
                       unsigned level)
{
    if (!skv_j_enter(r)) return;
    if (skv_j_spend(r, 1)) write_value(r, out, v, style, level);
    if (out->text.failed) skv_j_fail_limit(r);
    skv_j_leave(r);
}

/* indent is a number of blanks or the text itself; without it everything is on one line. */
static bool read_indent(skv_jrun *r, const skv_jcall *call, skv_jv indent, json_style *style)
{
    int64_t n;
    if (indent.kind == SKV_J_MISSING || indent.kind == SKV_J_NONE) return true;
    style->indented = true;
    style->item = (skv_jstr){",", 1, 1, NULL};
    if (indent.kind != SKV_J_STRING) {
        if (!skv_j_arg_int(r, call, indent, 0, &n)) return false;
        skv_jv blank = skv_j_text_value(r, " ");
        indent = skv_j_ok(r) ? skv_j_binary(r, '*', blank, skv_j_int(n)) : blank;
    }
    if (skv_j_ok(r)) style->indent = *indent.as.s;
    return skv_j_ok(r);
}

static bool read_separators(skv_jrun *r, skv_jv pair, json_style *style)
{
    if (pair.kind == SKV_J_MISSING || pair.kind == SKV_J_NONE) return true;
    const skv_jlist *list = skv_j_is_sequence(pair) ? pair.as.list : NULL;
    if (!list || list->n != 2 || list->items[0].kind != SKV_J_STRING ||
        list->items[1].kind != SKV_J_STRING) {
        skv_j_fail(r, SKV_ARGUMENT, "tojson: separators must be two strings");
        return false;
    }
    style->item = *list->items[0].as.s;
    style->colon = *list->items[1].as.s;
    return true;
}

skv_jv skv_jfilter_tojson(skv_jrun *r, const skv_jcall *call)
{
    json_style style = {.item = {", ", 2, 2, NULL}, .colon = {": ", 2, 2, NULL}};
    const skv_jv *arg = call->arg;
    skv_jout out;
    style.ascii = skv_j_truth(arg[0]);
    style.sort = skv_j_truth(arg[3]);
    if (!read_indent(r, call, arg[1], &style) || !read_separators(r, arg[2], &style))
        return skv_j_undefined();
    skv_j_out_init(r, &out);
    skv_jout_set(&out, true);
    write_json(r, &out, call->self, &style, 0);
    return skv_j_from_out(r, &out);
}
