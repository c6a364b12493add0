/* Values as text: str(), repr(), and numbers and strings in a given style. */
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <utf8proc.h>

#include "base/utf8.h"
#include "text/jinja/jinja_builtin.h"
#include "text/jinja/jinja_run.h"

enum { FLOAT_STEPS = 32, TINY_STEPS = 400 /* to write a number */ };

/* The fewest digits that read back as f, with zeros behind them, as "d.ddde+xx". Fifteen show all
 * of fifteen or fewer, but where f is too small to be exact. */
static int shortest_digits(double f, char digits[20])
{
    char text[40];
    for (int precision = f < DBL_MIN ? 0 : DBL_DIG - 1; precision < DBL_DECIMAL_DIG; precision++) {
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

void skv_j_write_float(skv_jrun *r, skv_buf *buf, double f)
{
    const bool tiny = f != 0 && fabs(f) < DBL_MIN;
    if (!skv_j_spend(r, tiny ? TINY_STEPS : FLOAT_STEPS)) return;
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

static void write_string_repr(skv_jout *out, const skv_jstr *s)
{
    const bool before = out->marks.data;
    bool single = s->size && memchr(s->data, '\'', s->size);
    bool both = single && memchr(s->data, '"', s->size);
    char quote = single && !both ? '"' : '\'';
    skv_buf_byte(&out->text, quote);
    for (size_t i = 0; i < s->size;) {
        uint32_t code;
        size_t n = skv_utf8_decode(s->data + i, s->size - i, &code);
        skv_jout_follow(out, s, i);
        write_repr_char(&out->text, s->data + i, n, code, quote);
        i += n;
    }
    skv_jout_set(out, before);
    skv_buf_byte(&out->text, quote);
}

static void write_list(skv_jrun *r, skv_jout *out, const skv_jlist *list, bool tuple)
{
    skv_buf_byte(&out->text, tuple ? '(' : '[');
    for (size_t i = 0; i < list->n && skv_j_ok(r); i++) {
        if (i) skv_buf_text(&out->text, ", ");
        skv_j_write_repr(r, out, list->items[i]);
    }
    if (tuple && list->n == 1) skv_buf_byte(&out->text, ',');
    skv_buf_byte(&out->text, tuple ? ')' : ']');
}

static void write_dict(skv_jrun *r, skv_jout *out, const skv_jdict *dict)
{
    skv_buf_byte(&out->text, '{');
    for (size_t i = 0; i < dict->n && skv_j_ok(r); i++) {
        if (i) skv_buf_text(&out->text, ", ");
        skv_j_write_repr(r, out, dict->pairs[i].key);
        skv_buf_text(&out->text, ": ");
        skv_j_write_repr(r, out, dict->pairs[i].value);
    }
    skv_buf_byte(&out->text, '}');
}

static void write_view(skv_jrun *r, skv_jout *out, const skv_jview *view)
{
    static const char *const names[] = {"dict_keys", "dict_values", "dict_items"};
    skv_buf_printf(&out->text, "%s([", names[view->of]);
    for (size_t i = 0; i < view->dict->n && skv_j_ok(r); i++) {
        const skv_jpair *pair = &view->dict->pairs[i];
        if (i) skv_buf_text(&out->text, ", ");
        if (view->of == SKV_J_ITEMS) skv_buf_byte(&out->text, '(');
        if (view->of != SKV_J_VALUES) skv_j_write_repr(r, out, pair->key);
        if (view->of == SKV_J_ITEMS) skv_buf_text(&out->text, ", ");
        if (view->of != SKV_J_KEYS) skv_j_write_repr(r, out, pair->value);
        if (view->of == SKV_J_ITEMS) skv_buf_byte(&out->text, ')');
    }
    skv_buf_text(&out->text, "])");
}

static void write_range(skv_buf *out, const skv_jrange *range)
{
    skv_buf_printf(out, "range(%" PRId64 ", %" PRId64, range->start, range->stop);
    if (range->step != 1) skv_buf_printf(out, ", %" PRId64, range->step);
    skv_buf_byte(out, ')');
}

/* Writes the repr of a markup string as markupsafe's does. */
static void write_markup(skv_jout *out, const skv_jstr *s)
{
    skv_buf_text(&out->text, "Markup(");
    write_string_repr(out, s);
    skv_buf_byte(&out->text, ')');
}

static void write_macro(skv_jout *out, const skv_jmacro *macro)
{
    skv_buf_text(&out->text, "<Macro ");
    if (macro->node->name) write_string_repr(out, macro->node->name);
    skv_buf_text(&out->text, macro->node->name ? ">" : "anonymous>");
}

static void write_value(skv_jrun *r, skv_jout *out, skv_jv v)
{
    switch (v.kind) {
    case SKV_J_UNDEFINED: skv_buf_text(&out->text, "Undefined"); break;
    case SKV_J_NONE: skv_buf_text(&out->text, "None"); break;
    case SKV_J_BOOL: skv_buf_text(&out->text, v.as.b ? "True" : "False"); break;
    case SKV_J_INT: skv_buf_printf(&out->text, "%" PRId64, v.as.i); break;
    case SKV_J_FLOAT: skv_j_write_float(r, &out->text, v.as.f); break;
    case SKV_J_STRING:
        if (v.markup)
            write_markup(out, v.as.s);
        else
            write_string_repr(out, v.as.s);
        break;
    case SKV_J_LIST:
    case SKV_J_TUPLE: write_list(r, out, v.as.list, v.kind == SKV_J_TUPLE); break;
    case SKV_J_DICT: write_dict(r, out, v.as.dict); break;
    case SKV_J_VIEW: write_view(r, out, v.as.view); break;
    case SKV_J_RANGE: write_range(&out->text, v.as.range); break;
    case SKV_J_MACRO: write_macro(out, v.as.macro); break;
    case SKV_J_NAMESPACE:
        skv_buf_text(&out->text, "<Namespace ");
        write_dict(r, out, v.as.dict);
        skv_buf_byte(&out->text, '>');
        break;
    default:
        skv_j_fail(r, SKV_UNSUPPORTED, "a value of type '%s' has no text", skv_j_type_name(v));
        break;
    }
}

/* Containers: the punctuation between their values counts as data, as most values do. */
static bool holds_values(skv_jv v)
{
    return skv_j_is_sequence(v) || v.kind == SKV_J_DICT || v.kind == SKV_J_VIEW ||
           v.kind == SKV_J_NAMESPACE;
}

void skv_j_write_repr(skv_jrun *r, skv_jout *out, skv_jv v)
{
    if (!skv_j_enter(r)) return;
    size_t before = out->text.size;
    bool data = out->marks.data;
    skv_jout_set(out, data || holds_values(v));
    if (skv_j_spend(r, 1)) write_value(r, out, v);
    skv_jout_set(out, data);
    (void)skv_j_spend_bytes(r, v.kind == SKV_J_STRING ? out->text.size - before : 0);
    if (out->text.failed) skv_j_fail_limit(r);
    skv_j_leave(r);
}

void skv_j_write_str(skv_jrun *r, skv_jout *out, skv_jv v)
{
    if (v.kind == SKV_J_UNDEFINED) return;
    if (v.kind != SKV_J_STRING) {
        skv_j_write_repr(r, out, v);
        return;
    }
    skv_jout_put(out, v.as.s);
    (void)skv_j_spend_bytes(r, v.as.s->size);
    if (out->text.failed) skv_j_fail_limit(r);
}

skv_jv skv_j_str(skv_jrun *r, skv_jv v)
{
    if (v.kind == SKV_J_STRING) {
        v.markup = 0;
        return v;
    }
    skv_jout out;
    skv_j_out_init(r, &out);
    skv_j_write_str(r, &out, v);
    return skv_j_from_out(r, &out);
}

static void pad(skv_jout *out, const skv_jstr *fill, int64_t n)
{
    for (; n > 0 && !out->text.failed; n--)
        if (fill->size)
            skv_jout_put(out, fill);
        else
            skv_buf_byte(&out->text, ' ');
}

static bool bounded(skv_jrun *r, const skv_jnumber_style *style)
{
    if (style->width <= SKV_JNUMBER_WIDTH_MAX) return true;
    skv_j_fail(r, SKV_RANGE, "format width over %d", SKV_JNUMBER_WIDTH_MAX);
    return false;
}

void skv_jnumber_pad_text(skv_jrun *r, skv_jout *out, const skv_jstr *s,
                          const skv_jnumber_style *style)
{
    size_t n = s->n_chars;
    if (!bounded(r, style)) return;
    if (style->precision >= 0 && (uint64_t)style->precision < n) n = (size_t)style->precision;
    int64_t space = style->width - (int64_t)n;
    int64_t left = space <= 0 || style->align == '<' ? 0 : style->align == '^' ? space / 2 : space;
    pad(out, &style->fill, left);
    skv_jout_part(out, s, 0, skv_j_offset(s, n));
    pad(out, &style->fill, space - left);
}

/* sign, prefix and digits with the padding where the style wants it */
static void put_number(skv_jout *out, const char *head, const char *digits,
                       const skv_jnumber_style *style)
{
    static const skv_jstr zero = {"0", 1, 1, NULL};
    int64_t space = style->width - (int64_t)strlen(head) - (int64_t)strlen(digits);
    char align = style->zero ? '=' : style->align;
    const skv_jstr *fill = style->zero ? &zero : &style->fill;
    int64_t left = space <= 0 || align == '<' || align == '=' ? 0
                   : align == '^'                             ? space / 2
                                                              : space;
    pad(out, fill, left);
    skv_buf_text(&out->text, head);
    if (align == '=') pad(out, fill, space);
    skv_buf_text(&out->text, digits);
    if (align != '=') pad(out, fill, space - left);
}

static void put_sign(char *head, size_t n, bool negative, const skv_jnumber_style *style,
                     const char *prefix)
{
    char sign[2] = {negative ? '-' : style->sign, 0};
    (void)snprintf(head, n, "%s%s", sign, prefix);
}

/* Copies digits with commas in the whole part. */
static void group(const char *digits, char *out, char comma)
{
    size_t whole = strspn(digits, "0123456789"), n = 0;
    for (size_t i = 0; digits[i]; i++) {
        if (comma && i && i < whole && (whole - i) % 3 == 0) out[n++] = comma;
        out[n++] = digits[i];
    }
    out[n] = 0;
}

void skv_jnumber_write_int(skv_jrun *r, skv_jout *out, int64_t i, char kind,
                           const skv_jnumber_style *style)
{
    char digits[80], grouped[120], zeros[SKV_JNUMBER_PRECISION_MAX + 80], head[8];
    uint64_t n = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
    unsigned base = kind == 'd' ? 10 : kind == 'o' ? 8 : kind == 'b' ? 2 : 16;
    size_t at = sizeof digits - 1;
    if (!bounded(r, style)) return;
    digits[at] = 0;
    do {
        digits[--at] = (kind == 'X' ? "0123456789ABCDEF" : "0123456789abcdef")[n % base];
        n /= base;
    } while (n);
    group(digits + at, grouped, style->comma);
    int64_t missing = style->precision - (int64_t)strlen(grouped);
    if (missing > SKV_JNUMBER_PRECISION_MAX) {
        skv_j_fail(r, SKV_RANGE, "format precision over %d", SKV_JNUMBER_PRECISION_MAX);
        return;
    }
    if (missing < 0) missing = 0;
    memset(zeros, '0', (size_t)missing);
    memcpy(zeros + missing, grouped, strlen(grouped) + 1);
    const char *prefix = !style->alternate || kind == 'd' ? ""
                         : kind == 'x'                    ? "0x"
                         : kind == 'X'                    ? "0X"
                         : kind == 'o'                    ? "0o"
                                                          : "0b";
    put_sign(head, sizeof head, i < 0, style, prefix);
    put_number(out, head, zeros, style);
}

void skv_jnumber_write_float(skv_jrun *r, skv_jout *out, double f, char kind,
                             const skv_jnumber_style *style)
{
    char text[SKV_JNUMBER_PRECISION_MAX + 700], grouped[SKV_JNUMBER_PRECISION_MAX + 600], head[8];
    int64_t precision = style->precision < 0 ? 6 : style->precision;
    if (!bounded(r, style)) return;
    if (precision > SKV_JNUMBER_PRECISION_MAX) {
        skv_j_fail(r, SKV_RANGE, "format precision over %d", SKV_JNUMBER_PRECISION_MAX);
        return;
    }
    double size = fabs(kind == '%' ? f * 100 : f);
    int digits = (int)precision;
    if (!isfinite(f)) {
        (void)snprintf(text, sizeof text, isnan(f) ? "nan" : "inf");
    } else {
        switch (kind) {
        case 'e': (void)snprintf(text, sizeof text, "%.*e", digits, size); break;
        case 'E': (void)snprintf(text, sizeof text, "%.*E", digits, size); break;
        case 'g': (void)snprintf(text, sizeof text, "%.*g", digits, size); break;
        case 'G': (void)snprintf(text, sizeof text, "%.*G", digits, size); break;
        default: (void)snprintf(text, sizeof text, "%.*f", digits, size); break;
        }
    }
    group(text, grouped, style->comma);
    if (kind == '%') (void)snprintf(text, sizeof text, "%s%%", grouped);
    put_sign(head, sizeof head, signbit(f) && !isnan(f), style, "");
    put_number(out, head, kind == '%' ? text : grouped, style);
}
