/* % formatting: see jinja_format.h. */
#include "text/jinja/jinja_format.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "text/jinja/jinja_number.h"
#include "text/jinja/jinja_op.h"
#include "text/jinja/jinja_text.h"

/* Where the values come from: a tuple in order, a dict by name, or one single value. */
typedef struct percent_args {
    skv_jv values;
    size_t next;
    bool named; /* a %(name)s was seen */
} percent_args;

static skv_jv next_value(skv_jrun *r, percent_args *args)
{
    bool tuple = args->values.kind == SKV_J_TUPLE;
    size_t n = tuple ? args->values.as.list->n : 1;
    if (args->next >= n)
        return skv_j_fail(r, SKV_ARGUMENT, "not enough arguments for format string");
    args->next++;
    return tuple ? args->values.as.list->items[args->next - 1] : args->values;
}

static skv_jv named_value(skv_jrun *r, percent_args *args, const skv_jstr *f, size_t *at)
{
    size_t from = *at, open = 1;
    while (*at < f->size && open) {
        open += f->data[*at] == '(';
        open -= f->data[*at] == ')';
        (*at)++;
    }
    if (open) return skv_j_fail(r, SKV_ARGUMENT, "incomplete format key");
    if (args->values.kind != SKV_J_DICT)
        return skv_j_fail(r, SKV_ARGUMENT, "format requires a mapping");
    skv_jstr key = {.data = f->data + from, .size = *at - 1 - from};
    const skv_jv *found = skv_jdict_get(args->values.as.dict, &key);
    args->named = true;
    return found ? *found : skv_j_fail(r, SKV_ARGUMENT, "the format's key is not in the mapping");
}

static void read_flags(const skv_jstr *f, size_t *at, skv_jnumber_style *style)
{
    for (; *at < f->size; (*at)++) {
        char c = f->data[*at];
        if (c == '-')
            style->align = '<';
        else if (c == '+')
            style->sign = '+';
        else if (c == ' ' && style->sign != '+')
            style->sign = ' ';
        else if (c == '0')
            style->zero = true;
        else if (c == '#')
            style->alternate = true;
        else if (c != ' ')
            break;
    }
}

/* A number or a star at *at. */
static int64_t read_size(skv_jrun *r, percent_args *args, const skv_jstr *f, size_t *at,
                         int64_t otherwise)
{
    int64_t n = otherwise;
    if (*at < f->size && f->data[*at] == '*') {
        skv_jv v = next_value(r, args);
        (*at)++;
        if (skv_j_ok(r) && !skv_j_as_int(v, &n)) skv_j_fail(r, SKV_ARGUMENT, "* wants int");
        return n;
    }
    bool any = false;
    int64_t sum = 0;
    for (; *at < f->size && f->data[*at] >= '0' && f->data[*at] <= '9'; (*at)++) {
        any = true;
        if (sum < SKV_JNUMBER_WIDTH_MAX) sum = 10 * sum + (f->data[*at] - '0');
    }
    return any ? sum : n;
}

static void put_text(skv_jrun *r, skv_buf *buf, skv_jv v, char kind, const skv_jnumber_style *style)
{
    skv_buf text;
    skv_j_buf_init(r, &text);
    if (kind == 's')
        skv_j_write_str(r, &text, v);
    else
        skv_j_write_repr(r, &text, v);
    skv_jv s = skv_j_from_buf(r, &text);
    if (skv_j_ok(r)) skv_jnumber_pad_text(r, buf, s.as.s, style);
}

static void put_char(skv_jrun *r, skv_buf *buf, skv_jv v, const skv_jnumber_style *style)
{
    char bytes[4];
    int64_t i = 0;
    skv_jstr s = {.data = bytes, .size = 0, .n_chars = 1};
    if (v.kind == SKV_J_STRING && v.as.s->n_chars == 1) {
        s = *v.as.s;
    } else if (skv_j_as_int(v, &i) && i >= 0 && i <= 0x10ffff && (i < 0xd800 || i > 0xdfff)) {
        s.size = skv_utf8_encode((uint32_t)i, bytes);
    } else {
        skv_j_fail(r, SKV_ARGUMENT, "%%c requires int or char");
        return;
    }
    skv_jnumber_pad_text(r, buf, &s, style);
}

static void convert(skv_jrun *r, skv_buf *buf, skv_jv v, char kind, skv_jnumber_style *style)
{
    int64_t i = 0;
    double f = v.kind == SKV_J_FLOAT ? v.as.f : 0;
    bool is_int = skv_j_as_int(v, &i);
    if (kind == 's' || kind == 'r') {
        put_text(r, buf, v, kind, style);
    } else if (kind == 'c') {
        put_char(r, buf, v, style);
    } else if (strchr("diuxXo", kind)) {
        if (v.kind == SKV_J_FLOAT && strchr("diu", kind) && fabs(f) < 9.2e18)
            i = (int64_t)f;
        else if (!is_int) {
            skv_j_fail(r, SKV_ARGUMENT, "%%%c format: a number is required, not %s", kind,
                       skv_j_type_name(v));
            return;
        }
        skv_jnumber_write_int(r, buf, i, strchr("iu", kind) ? 'd' : kind, style);
    } else {
        if (!is_int && v.kind != SKV_J_FLOAT) {
            skv_j_fail(r, SKV_ARGUMENT, "must be real number, not %s", skv_j_type_name(v));
            return;
        }
        skv_jnumber_write_float(r, buf, is_int ? (double)i : f, kind, style);
    }
}

/* The conversion behind a % at f->data[*at - 1]. */
static void one_conversion(skv_jrun *r, skv_buf *buf, percent_args *args, const skv_jstr *f,
                           size_t *at)
{
    skv_jnumber_style style = {.align = '>', .precision = -1};
    skv_jv v = skv_j_missing();
    if (*at < f->size && f->data[*at] == '(') {
        (*at)++;
        v = named_value(r, args, f, at);
    }
    read_flags(f, at, &style);
    style.width = read_size(r, args, f, at, 0);
    if (style.width < 0) {
        style.align = '<';
        style.width = style.width < -SKV_JNUMBER_WIDTH_MAX ? SKV_JNUMBER_WIDTH_MAX : -style.width;
    }
    if (*at < f->size && f->data[*at] == '.') {
        (*at)++;
        style.precision = read_size(r, args, f, at, 0);
        if (style.precision < 0) style.precision = 0;
    }
    while (*at < f->size && strchr("hlL", f->data[*at]) && f->data[*at]) (*at)++;
    if (!skv_j_ok(r)) return;
    char kind = *at < f->size ? f->data[(*at)++] : 0;
    if (kind == '%') {
        skv_buf_byte(buf, '%');
        return;
    }
    if (!kind || !strchr("srcdiuxXofFeEgG", kind)) {
        skv_j_fail(r, SKV_ARGUMENT, "unsupported format character");
        return;
    }
    if (v.kind == SKV_J_MISSING) v = next_value(r, args);
    if (style.align == '<') style.zero = false;
    if (skv_j_ok(r)) convert(r, buf, v, kind, &style);
}

skv_jv skv_j_percent(skv_jrun *r, skv_jv format, skv_jv values)
{
    const skv_jstr *f = format.as.s;
    percent_args args = {.values = values};
    skv_buf buf;
    if (format.markup)
        return skv_j_fail(r, SKV_UNSUPPORTED, "%% formatting of a safe string is not supported");
    skv_j_buf_init(r, &buf);
    for (size_t at = 0; at < f->size && skv_j_ok(r) && !buf.failed;) {
        const char *percent = memchr(f->data + at, '%', f->size - at);
        size_t end = percent ? (size_t)(percent - f->data) : f->size;
        skv_buf_append(&buf, f->data + at, end - at);
        at = end + 1;
        if (percent && skv_j_spend(r, 1)) one_conversion(r, &buf, &args, f, &at);
    }
    /* Python asks whether the values could be looked up by name, which a dict is not alone in. */
    bool subscripted = values.kind == SKV_J_DICT || values.kind == SKV_J_LIST ||
                       values.kind == SKV_J_UNDEFINED || values.kind == SKV_J_RANGE;
    bool leftover =
        values.kind == SKV_J_TUPLE ? args.next < values.as.list->n : !args.next && !subscripted;
    if (leftover && !args.named)
        skv_j_fail(r, SKV_ARGUMENT, "not all arguments converted during string formatting");
    return skv_j_from_buf(r, &buf);
}
