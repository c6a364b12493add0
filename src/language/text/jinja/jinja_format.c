/* Formatting in both of Python's ways: the % operator and str.format. */
#include <math.h>
#include <string.h>

#include "base/utf8.h"
#include "text/jinja/jinja_builtin.h"
#include "text/jinja/jinja_run.h"

/* The source of the values: a tuple in order, a dict by name, or one single value. */
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
    const skv_jv *found = skv_jdict_get(r->budget, args->values.as.dict, &key);
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
static int64_t read_size(skv_jrun *r, percent_args *args, const skv_jstr *f, size_t *at)
{
    int64_t n = 0;
    if (*at < f->size && f->data[*at] == '*') {
        skv_jv v = next_value(r, args);
        (*at)++;
        if (skv_j_ok(r) && !skv_j_as_int(v, &n)) skv_j_fail(r, SKV_ARGUMENT, "* wants int");
        return n;
    }
    for (; *at < f->size && f->data[*at] >= '0' && f->data[*at] <= '9'; (*at)++)
        if (n < SKV_JNUMBER_WIDTH_MAX) n = 10 * n + (f->data[*at] - '0');
    return n;
}

/* str(v) for 's', else repr(v). */
static skv_jv text_of(skv_jrun *r, skv_jv v, char conversion)
{
    skv_jout text;
    skv_j_out_init(r, &text);
    if (conversion == 's')
        skv_j_write_str(r, &text, v);
    else
        skv_j_write_repr(r, &text, v);
    return skv_j_from_out(r, &text);
}

static void put_char(skv_jrun *r, skv_jout *out, skv_jv v, const skv_jnumber_style *style)
{
    char bytes[4];
    int64_t i = 0;
    skv_jstr s = {.data = bytes, .size = 0, .n_chars = 1};
    if (v.kind == SKV_J_STRING && v.as.s->n_chars == 1) {
        s = *v.as.s;
    } else if (skv_j_as_int(v, &i) && i >= 0 && i <= 0x10ffff && (i < 0xd800 || i > 0xdfff)) {
        s.size = skv_utf8_encode((uint32_t)i, bytes);
        s.marks = &skv_j_data;
    } else {
        skv_j_fail(r, SKV_ARGUMENT, "%%c requires int or char");
        return;
    }
    skv_jnumber_pad_text(r, out, &s, style);
}

static void convert(skv_jrun *r, skv_jout *out, skv_jv v, char kind, skv_jnumber_style *style)
{
    int64_t i = 0;
    double f = v.kind == SKV_J_FLOAT ? v.as.f : 0;
    bool is_int = skv_j_as_int(v, &i);
    if (kind == 's' || kind == 'r') {
        skv_jv text = text_of(r, v, kind);
        if (skv_j_ok(r)) skv_jnumber_pad_text(r, out, text.as.s, style);
    } else if (kind == 'c') {
        put_char(r, out, v, style);
    } else if (strchr("diuxXo", kind)) {
        if (v.kind == SKV_J_FLOAT && strchr("diu", kind) && fabs(f) < 9.2e18)
            i = (int64_t)f;
        else if (!is_int) {
            skv_j_fail(r, SKV_ARGUMENT, "%%%c format: a number is required, not %s", kind,
                       skv_j_type_name(v));
            return;
        }
        skv_jnumber_write_int(r, out, i, strchr("iu", kind) ? 'd' : kind, style);
    } else {
        if (!is_int && v.kind != SKV_J_FLOAT) {
            skv_j_fail(r, SKV_ARGUMENT, "must be real number, not %s", skv_j_type_name(v));
            return;
        }
        skv_jnumber_write_float(r, out, is_int ? (double)i : f, kind, style);
    }
}

/* Formats the conversion after a % at f->data[*at - 1]. */
static void one_conversion(skv_jrun *r, skv_jout *out, percent_args *args, const skv_jstr *f,
                           size_t *at)
{
    skv_jnumber_style style = {.align = '>', .precision = -1};
    skv_jv v = skv_j_missing();
    if (*at < f->size && f->data[*at] == '(') {
        (*at)++;
        v = named_value(r, args, f, at);
    }
    read_flags(f, at, &style);
    style.width = read_size(r, args, f, at);
    if (style.width < 0) {
        style.align = '<';
        style.width = style.width < -SKV_JNUMBER_WIDTH_MAX ? SKV_JNUMBER_WIDTH_MAX : -style.width;
    }
    if (*at < f->size && f->data[*at] == '.') {
        (*at)++;
        style.precision = read_size(r, args, f, at);
        if (style.precision < 0) style.precision = 0;
    }
    while (*at < f->size && strchr("hlL", f->data[*at]) && f->data[*at]) (*at)++;
    if (!skv_j_ok(r)) return;
    char kind = *at < f->size ? f->data[(*at)++] : 0;
    if (kind == '%') {
        skv_jout_part(out, f, *at - 1, *at);
        return;
    }
    if (!kind || !strchr("srcdiuxXofFeEgG", kind)) {
        skv_j_fail(r, SKV_ARGUMENT, "unsupported format character");
        return;
    }
    if (v.kind == SKV_J_MISSING) v = next_value(r, args);
    if (style.align == '<') style.zero = false;
    if (skv_j_ok(r)) convert(r, out, v, kind, &style);
}

skv_jv skv_j_percent(skv_jrun *r, skv_jv format, skv_jv values)
{
    const skv_jstr *f = format.as.s;
    percent_args args = {.values = values};
    skv_jout out;
    if (format.markup)
        return skv_j_fail(r, SKV_UNSUPPORTED, "%% formatting of a safe string is not supported");
    skv_j_out_init(r, &out);
    for (size_t at = 0; at < f->size && skv_j_ok(r) && !out.text.failed;) {
        const char *percent = memchr(f->data + at, '%', f->size - at);
        size_t end = percent ? (size_t)(percent - f->data) : f->size;
        skv_jout_part(&out, f, at, end);
        at = end + 1;
        if (percent && skv_j_spend(r, 1)) one_conversion(r, &out, &args, f, &at);
    }
    /* Python asks whether the values could be looked up by name, which a dict is not alone in. */
    bool subscripted = values.kind == SKV_J_DICT || values.kind == SKV_J_LIST ||
                       values.kind == SKV_J_UNDEFINED || values.kind == SKV_J_RANGE;
    bool leftover =
        values.kind == SKV_J_TUPLE ? args.next < values.as.list->n : !args.next && !subscripted;
    if (leftover && !args.named)
        skv_j_fail(r, SKV_ARGUMENT, "not all arguments converted during string formatting");
    return skv_j_from_out(r, &out);
}

typedef struct field {
    const char *name; /* up to '!' or ':' */
    size_t n_name;
    char conversion; /* 's', 'r' or 0 */
    const char *spec;
    size_t n_spec;
} field;

static bool all_digits(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (text[i] < '0' || text[i] > '9') return false;
    return n > 0 && n < 9;
}

static size_t number_of(const char *text, size_t n)
{
    size_t value = 0;
    for (size_t i = 0; i < n; i++) value = 10 * value + (size_t)(text[i] - '0');
    return value;
}

/* Fields are numbered by themselves or by the template, not both. */
typedef struct numbering {
    size_t next;
    bool automatic, manual;
} numbering;

static skv_jv first_part(skv_jrun *r, const skv_jcall *call, const char *name, size_t n,
                         numbering *numbers)
{
    if (!n || all_digits(name, n)) {
        size_t i = n ? number_of(name, n) : numbers->next++;
        if (n)
            numbers->manual = true;
        else
            numbers->automatic = true;
        if (numbers->manual && numbers->automatic)
            return skv_j_fail(r, SKV_ARGUMENT, "%s: cannot mix {} and {0}", skv_j_what(r, call));
        if (i < call->n) return call->items[i];
        return skv_j_fail(r, SKV_ARGUMENT, "%s: index %zu is out of range", skv_j_what(r, call), i);
    }
    for (size_t i = 0; i < call->n_keywords; i++) {
        const skv_jstr *key = call->keywords[i].key.as.s;
        if (key->size == n && memcmp(key->data, name, n) == 0) return call->keywords[i].value;
    }
    return skv_j_fail(r, SKV_ARGUMENT, "%s: no argument of that name", skv_j_what(r, call));
}

/* "0.name[key]": the value of a field. */
static skv_jv field_value(skv_jrun *r, const skv_jcall *call, const field *f, numbering *numbers)
{
    size_t at = 0;
    while (at < f->n_name && f->name[at] != '.' && f->name[at] != '[') at++;
    skv_jv v = first_part(r, call, f->name, at, numbers);
    while (at < f->n_name && skv_j_ok(r)) {
        bool attribute = f->name[at] == '.';
        size_t from = ++at;
        while (at < f->n_name &&
               (attribute ? f->name[at] != '.' && f->name[at] != '[' : f->name[at] != ']'))
            at++;
        if (at == from || (!attribute && at == f->n_name))
            return skv_j_fail(r, SKV_ARGUMENT, "%s: malformed field", skv_j_what(r, call));
        skv_jv key = skv_j_string(r, f->name + from, at - from);
        if (!skv_j_ok(r)) break;
        bool index = !attribute && all_digits(f->name + from, at - from);
        if (index) key = skv_j_int((int64_t)number_of(f->name + from, at - from));
        v = attribute ? skv_j_getattr(r, v, key.as.s) : skv_j_getitem(r, v, key);
        at += !attribute;
    }
    return v;
}

/* [[fill]align][sign][#][0][width][,][.precision][type] */
static char read_spec(const field *f, skv_jnumber_style *style, bool *valid)
{
    const char *p = f->n_spec ? f->spec : "", *end = p + f->n_spec;
    uint32_t code;
    size_t step = p < end ? skv_utf8_decode(p, (size_t)(end - p), &code) : 0;
    if (step && p + step < end && strchr("<>^=", p[step]) && p[step]) {
        style->fill = (skv_jstr){.data = p, .size = step, .n_chars = 1};
        style->align = p[step];
        p += step + 1;
    } else if (p < end && *p && strchr("<>^=", *p)) {
        style->align = *p++;
    }
    if (p < end && (*p == '+' || *p == '-' || *p == ' ')) style->sign = *p++;
    if (style->sign == '-') style->sign = 0;
    if (p < end && *p == '#') style->alternate = *p++ == '#';
    if (p < end && *p == '0') style->zero = !style->align && *p++ == '0';
    for (; p < end && *p >= '0' && *p <= '9'; p++)
        if (style->width <= SKV_JNUMBER_WIDTH_MAX) style->width = 10 * style->width + (*p - '0');
    if (p < end && (*p == ',' || *p == '_')) style->comma = *p++;
    if (p < end && *p == '.') {
        style->precision = 0;
        for (p++; p < end && *p >= '0' && *p <= '9'; p++)
            if (style->precision <= SKV_JNUMBER_WIDTH_MAX)
                style->precision = 10 * style->precision + (*p - '0');
    }
    char kind = p < end ? *p++ : 0;
    *valid = p == end;
    return kind;
}

static void write_field(skv_jrun *r, skv_jout *out, skv_jv v, const field *f)
{
    skv_jnumber_style style = {.precision = -1};
    bool valid;
    int64_t i = 0;
    char kind = read_spec(f, &style, &valid);
    bool is_int = v.kind == SKV_J_INT && skv_j_as_int(v, &i), is_float = v.kind == SKV_J_FLOAT;
    bool as_float = kind && strchr("fFeEgG%", kind);
    if (valid && f->n_spec && (is_int || is_float) && !(is_float && !as_float)) {
        if (!style.align) style.align = '>';
        if (as_float)
            skv_jnumber_write_float(r, out, is_int ? (double)i : v.as.f, kind, &style);
        else if ((!kind || strchr("dxXob", kind)) && style.precision < 0)
            skv_jnumber_write_int(r, out, i, kind ? kind : 'd', &style);
        else
            valid = false;
    } else if (!f->n_spec) {
        skv_j_write_str(r, out, v);
    } else if (valid && v.kind == SKV_J_STRING && (!kind || kind == 's') && !style.zero &&
               style.align != '=' && !style.sign && !style.comma) {
        if (!style.align) style.align = '<';
        skv_jnumber_pad_text(r, out, v.as.s, &style);
    } else {
        valid = false;
    }
    if (!valid) skv_j_fail(r, SKV_UNSUPPORTED, "format(): unsupported format specification");
}

/* Reads the field that starts after a '{' at *at; nested fields are refused. */
static bool read_field(skv_jrun *r, const skv_jstr *s, size_t *at, field *f)
{
    size_t from = *at, end = from;
    while (end < s->size && s->data[end] != '}' && s->data[end] != '{') end++;
    if (end >= s->size || s->data[end] == '{') {
        skv_j_fail(r, SKV_UNSUPPORTED, "format(): malformed or nested field");
        return false;
    }
    *at = end + 1;
    *f = (field){.name = s->data + from};
    size_t i = from;
    while (i < end && s->data[i] != '!' && s->data[i] != ':') i++;
    f->n_name = i - from;
    if (i < end && s->data[i] == '!') {
        f->conversion = i + 1 < end ? s->data[i + 1] : 0;
        i += 2;
        if ((f->conversion != 's' && f->conversion != 'r') || (i < end && s->data[i] != ':')) {
            skv_j_fail(r, SKV_ARGUMENT, "format(): unknown conversion");
            return false;
        }
    }
    if (i < end) {
        f->spec = s->data + i + 1;
        f->n_spec = end - i - 1;
    }
    return true;
}

static void convert_field(skv_jrun *r, skv_jout *out, const skv_jcall *call, const field *f,
                          numbering *numbers)
{
    skv_jv v = field_value(r, call, f, numbers);
    if (f->conversion && skv_j_ok(r)) v = text_of(r, v, f->conversion);
    if (skv_j_ok(r)) write_field(r, out, v, f);
}

skv_jv skv_jstr_format(skv_jrun *r, const skv_jcall *call)
{
    const skv_jstr *s = call->self.as.s;
    numbering numbers = {0};
    skv_jout out;
    field f;
    if (call->self.markup)
        return skv_j_fail(r, SKV_UNSUPPORTED, "format() of a safe string is not supported");
    skv_j_out_init(r, &out);
    for (size_t at = 0; at < s->size && skv_j_ok(r) && !out.text.failed;) {
        char c = s->data[at++];
        bool twice = at < s->size && s->data[at] == c;
        if (c != '{' && c != '}') {
            skv_jout_part(&out, s, at - 1, at);
        } else if (twice) {
            skv_jout_part(&out, s, at - 1, at);
            at++;
        } else if (c == '}') {
            skv_j_fail(r, SKV_ARGUMENT, "single '}' in format string");
        } else if (skv_j_spend(r, 1) && read_field(r, s, &at, &f)) {
            convert_field(r, &out, call, &f, &numbers);
        }
    }
    return skv_j_from_out(r, &out);
}
