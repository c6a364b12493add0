/* str() and repr(): see jinja_text.h. */
#include "text/jinja/jinja_text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <utf8proc.h>

#include "base/utf8.h"

const char *skv_j_type_name(skv_jv v)
{
    static const char *const names[] = {[SKV_J_UNDEFINED] = "Undefined",
                                        [SKV_J_MISSING] = "missing",
                                        [SKV_J_NONE] = "NoneType",
                                        [SKV_J_BOOL] = "bool",
                                        [SKV_J_INT] = "int",
                                        [SKV_J_FLOAT] = "float",
                                        [SKV_J_STRING] = "str",
                                        [SKV_J_LIST] = "list",
                                        [SKV_J_TUPLE] = "tuple",
                                        [SKV_J_DICT] = "dict",
                                        [SKV_J_RANGE] = "range",
                                        [SKV_J_VIEW] = "dict view",
                                        [SKV_J_ITERATOR] = "generator",
                                        [SKV_J_NAMESPACE] = "Namespace",
                                        [SKV_J_LOOP] = "LoopContext",
                                        [SKV_J_MACRO] = "Macro",
                                        [SKV_J_FUNCTION] = "function",
                                        [SKV_J_METHOD] = "method"};
    return names[v.kind];
}

size_t skv_j_count_chars(const char *data, size_t size)
{
    size_t n = 0;
    for (size_t i = 0; i < size; i++) n += ((unsigned char)data[i] & 0xc0) != 0x80;
    return n;
}

size_t skv_j_offset(const skv_jstr *s, size_t i)
{
    if (s->n_chars == s->size) return i;
    size_t at = 0;
    for (; i && at < s->size; i--) {
        at++;
        while (at < s->size && ((unsigned char)s->data[at] & 0xc0) == 0x80) at++;
    }
    return at;
}

/* The fewest digits that read back as f, as "d.ddde+xx". */
static int shortest_digits(double f, char digits[20])
{
    char text[40];
    for (int precision = 0; precision < 17; precision++) {
        (void)snprintf(text, sizeof text, "%.*e", precision, f);
        if (strtod(text, NULL) == f) break;
    }
    size_t n = 0;
    const char *p = text;
    for (; *p && *p != 'e'; p++)
        if (*p >= '0' && *p <= '9' && n < 19) digits[n++] = *p;
    digits[n] = 0;
    return (int)strtol(p + 1, NULL, 10);
}

void skv_j_write_float(skv_buf *buf, double f)
{
    if (isnan(f) || isinf(f)) {
        skv_buf_text(buf, isnan(f) ? "nan" : f < 0 ? "-inf" : "inf");
        return;
    }
    char digits[20];
    if (signbit(f)) skv_buf_byte(buf, '-');
    int exponent = shortest_digits(fabs(f), digits), n = (int)strlen(digits);
    while (n > 1 && digits[n - 1] == '0') digits[--n] = 0;
    if (exponent < -4 || exponent >= 16) {
        skv_buf_byte(buf, digits[0]);
        if (n > 1) skv_buf_printf(buf, ".%s", digits + 1);
        skv_buf_printf(buf, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
        return;
    }
    if (exponent < 0) skv_buf_printf(buf, "0.%.*s", -exponent - 1, "0000");
    for (int i = 0; i < n || i <= exponent; i++) {
        if (i && i == exponent + 1) skv_buf_byte(buf, '.');
        skv_buf_byte(buf, i < n ? digits[i] : '0');
    }
    if (exponent >= 0 && n <= exponent + 1) skv_buf_text(buf, ".0");
}

static bool printable(uint32_t code)
{
    if (code < 0x7f) return code >= 0x20;
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)code);
    return c != UTF8PROC_CATEGORY_CN && c < UTF8PROC_CATEGORY_ZS;
}

static void write_repr_char(skv_buf *buf, const char *data, size_t n, uint32_t code, char quote)
{
    if (code == (unsigned char)quote || code == '\\') {
        skv_buf_printf(buf, "\\%c", (int)code);
    } else if (code == '\n' || code == '\r' || code == '\t') {
        skv_buf_text(buf, code == '\n' ? "\\n" : code == '\r' ? "\\r" : "\\t");
    } else if (printable(code)) {
        skv_buf_append(buf, data, n);
    } else if (code < 0x100) {
        skv_buf_printf(buf, "\\x%02" PRIx32, code);
    } else {
        skv_buf_printf(buf, code < 0x10000 ? "\\u%04" PRIx32 : "\\U%08" PRIx32, code);
    }
}

static void write_string_repr(skv_buf *buf, const skv_jstr *s)
{
    bool single = s->size && memchr(s->data, '\'', s->size);
    bool both = single && memchr(s->data, '"', s->size);
    char quote = single && !both ? '"' : '\'';
    skv_buf_byte(buf, quote);
    for (size_t i = 0; i < s->size;) {
        uint32_t code;
        size_t n = skv_utf8_decode(s->data + i, s->size - i, &code);
        write_repr_char(buf, s->data + i, n, code, quote);
        i += n;
    }
    skv_buf_byte(buf, quote);
}

static void write_list(skv_jrun *r, skv_buf *buf, const skv_jlist *list, bool tuple)
{
    skv_buf_byte(buf, tuple ? '(' : '[');
    for (size_t i = 0; i < list->n && skv_j_ok(r); i++) {
        if (i) skv_buf_text(buf, ", ");
        skv_j_write_repr(r, buf, list->items[i]);
    }
    if (tuple && list->n == 1) skv_buf_byte(buf, ',');
    skv_buf_byte(buf, tuple ? ')' : ']');
}

static void write_dict(skv_jrun *r, skv_buf *buf, const skv_jdict *dict)
{
    skv_buf_byte(buf, '{');
    for (size_t i = 0; i < dict->n && skv_j_ok(r); i++) {
        if (i) skv_buf_text(buf, ", ");
        skv_j_write_repr(r, buf, dict->pairs[i].key);
        skv_buf_text(buf, ": ");
        skv_j_write_repr(r, buf, dict->pairs[i].value);
    }
    skv_buf_byte(buf, '}');
}

static void write_view(skv_jrun *r, skv_buf *buf, const skv_jview *view)
{
    static const char *const names[] = {"dict_keys", "dict_values", "dict_items"};
    skv_buf_printf(buf, "%s([", names[view->of]);
    for (size_t i = 0; i < view->dict->n && skv_j_ok(r); i++) {
        const skv_jpair *pair = &view->dict->pairs[i];
        if (i) skv_buf_text(buf, ", ");
        if (view->of == SKV_J_ITEMS) skv_buf_byte(buf, '(');
        if (view->of != SKV_J_VALUES) skv_j_write_repr(r, buf, pair->key);
        if (view->of == SKV_J_ITEMS) skv_buf_text(buf, ", ");
        if (view->of != SKV_J_KEYS) skv_j_write_repr(r, buf, pair->value);
        if (view->of == SKV_J_ITEMS) skv_buf_byte(buf, ')');
    }
    skv_buf_text(buf, "])");
}

static void write_range(skv_buf *buf, const skv_jrange *range)
{
    skv_buf_printf(buf, "range(%" PRId64 ", %" PRId64, range->start, range->stop);
    if (range->step != 1) skv_buf_printf(buf, ", %" PRId64, range->step);
    skv_buf_byte(buf, ')');
}

/* A markup string's repr says so, as markupsafe's does. */
static void write_markup(skv_buf *buf, const skv_jstr *s)
{
    skv_buf_text(buf, "Markup(");
    write_string_repr(buf, s);
    skv_buf_byte(buf, ')');
}

static void write_macro(skv_buf *buf, const skv_jmacro *macro)
{
    skv_buf_text(buf, "<Macro ");
    if (macro->node->name) write_string_repr(buf, macro->node->name);
    skv_buf_text(buf, macro->node->name ? ">" : "anonymous>");
}

static void write_value(skv_jrun *r, skv_buf *buf, skv_jv v)
{
    switch (v.kind) {
    case SKV_J_UNDEFINED: skv_buf_text(buf, "Undefined"); break;
    case SKV_J_NONE: skv_buf_text(buf, "None"); break;
    case SKV_J_BOOL: skv_buf_text(buf, v.as.b ? "True" : "False"); break;
    case SKV_J_INT: skv_buf_printf(buf, "%" PRId64, v.as.i); break;
    case SKV_J_FLOAT: skv_j_write_float(buf, v.as.f); break;
    case SKV_J_STRING:
        if (v.markup)
            write_markup(buf, v.as.s);
        else
            write_string_repr(buf, v.as.s);
        break;
    case SKV_J_LIST:
    case SKV_J_TUPLE: write_list(r, buf, v.as.list, v.kind == SKV_J_TUPLE); break;
    case SKV_J_DICT: write_dict(r, buf, v.as.dict); break;
    case SKV_J_VIEW: write_view(r, buf, v.as.view); break;
    case SKV_J_RANGE: write_range(buf, v.as.range); break;
    case SKV_J_MACRO: write_macro(buf, v.as.macro); break;
    case SKV_J_NAMESPACE:
        skv_buf_text(buf, "<Namespace ");
        write_dict(r, buf, v.as.dict);
        skv_buf_byte(buf, '>');
        break;
    default:
        skv_j_fail(r, SKV_UNSUPPORTED, "a value of type '%s' has no text", skv_j_type_name(v));
        break;
    }
}

void skv_j_write_repr(skv_jrun *r, skv_buf *buf, skv_jv v)
{
    if (!skv_j_enter(r)) return;
    size_t before = buf->size;
    if (skv_j_spend(r, 1)) write_value(r, buf, v);
    (void)skv_j_spend_bytes(r, v.kind == SKV_J_STRING ? buf->size - before : 0);
    if (buf->failed) skv_j_fail(r, SKV_FULL, "a text needs more than %zu bytes", buf->max);
    skv_j_leave(r);
}

void skv_j_write_str(skv_jrun *r, skv_buf *buf, skv_jv v)
{
    if (v.kind == SKV_J_UNDEFINED) return;
    if (v.kind != SKV_J_STRING) {
        skv_j_write_repr(r, buf, v);
        return;
    }
    skv_buf_append(buf, v.as.s->data, v.as.s->size);
    (void)skv_j_spend_bytes(r, v.as.s->size);
    if (buf->failed) skv_j_fail(r, SKV_FULL, "a text needs more than %zu bytes", buf->max);
}

skv_jv skv_j_str(skv_jrun *r, skv_jv v)
{
    if (v.kind == SKV_J_STRING) {
        v.markup = 0;
        return v;
    }
    skv_buf buf;
    skv_j_buf_init(r, &buf);
    skv_j_write_str(r, &buf, v);
    return skv_j_from_buf(r, &buf);
}
