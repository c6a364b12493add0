/* Filters on text and numbers, as jinja2 defines them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "text/jinja/jinja_builtin.h"
#include "text/jinja/jinja_loop.h"
#include "text/jinja/jinja_run.h"

/* jinja2's soft_str: strings are unchanged, including markup. */
static skv_jv soft(skv_jrun *r, skv_jv v)
{
    return v.kind == SKV_J_STRING ? v : skv_j_str(r, v);
}

/* A string method with the filter's value turned into a string. */
static skv_jv as_method(skv_jrun *r, const skv_jcall *call, skv_jfn *fn)
{
    skv_jcall inner = *call;
    inner.self = soft(r, call->self);
    return skv_j_ok(r) ? fn(r, &inner) : inner.self;
}

static skv_jv filter_trim(skv_jrun *r, const skv_jcall *call)
{
    return as_method(r, call, skv_jstr_strip);
}

static skv_jv filter_case(skv_jrun *r, const skv_jcall *call)
{
    return as_method(r, call, skv_jstr_change_case);
}

static skv_jv filter_center(skv_jrun *r, const skv_jcall *call)
{
    const skv_jv width = call->arg[0];
    const skv_jv arg[2] = {width.kind == SKV_J_MISSING ? skv_j_int(80) : width, skv_j_missing()};
    skv_jcall inner = *call;
    inner.arg = arg;
    return as_method(r, &inner, skv_jstr_align);
}

/* Words begin after white space, hyphens and opening brackets, not after digits or quotes. */
static skv_jv filter_title(skv_jrun *r, const skv_jcall *call)
{
    skv_jout out;
    skv_jv text = soft(r, call->self);
    if (!skv_j_ok(r)) return text;
    skv_j_out_init(r, &out);
    bool start = true;
    for (size_t at = 0; at < text.as.s->size;) {
        uint32_t code;
        skv_jout_follow(&out, text.as.s, at);
        at += skv_utf8_decode(text.as.s->data + at, text.as.s->size - at, &code);
        skv_jstr_write_case(&out.text, code, start);
        start = skv_j_space(code) || (code < 0x80 && strchr("-({[<", (int)code));
    }
    (void)skv_j_spend_bytes(r, text.as.s->size);
    return skv_j_from_out(r, &out);
}

static skv_jv filter_string(skv_jrun *r, const skv_jcall *call)
{
    return soft(r, call->self);
}

static skv_jv filter_safe(skv_jrun *r, const skv_jcall *call)
{
    skv_jv v = skv_j_str(r, call->self);
    v.markup = 1;
    return v;
}

static skv_jv filter_escape(skv_jrun *r, const skv_jcall *call)
{
    return skv_j_escape(r, call->self);
}

static skv_jv filter_forceescape(skv_jrun *r, const skv_jcall *call)
{
    skv_jv v = skv_j_str(r, call->self);
    return skv_j_ok(r) ? skv_j_escape(r, v) : v;
}

static skv_jv filter_replace(skv_jrun *r, const skv_jcall *call)
{
    const skv_jv *arg = call->arg;
    int64_t count = -1;
    if (arg[2].kind != SKV_J_NONE && !skv_j_arg_int(r, call, arg[2], -1, &count))
        return skv_j_undefined();
    skv_jv text = skv_j_str(r, call->self), old = skv_j_str(r, arg[0]), with = skv_j_str(r, arg[1]);
    return skv_j_ok(r) ? skv_jstr_replace_in(r, text.as.s, old.as.s, with.as.s, count) : text;
}

static skv_jv filter_default(skv_jrun *r, const skv_jcall *call)
{
    const skv_jv *arg = call->arg;
    if (call->self.kind != SKV_J_UNDEFINED && (skv_j_truth(call->self) || !skv_j_truth(arg[1])))
        return call->self;
    return arg[0].kind == SKV_J_MISSING ? skv_j_text_value(r, "") : arg[0];
}

/* Python's len(), which counts the rounds of `loop`. */
static bool length_of(skv_jrun *r, skv_jv v, int64_t *n)
{
    static const skv_jstr name = {"length", 6, 6, NULL};
    if (v.kind != SKV_J_LOOP) return skv_j_length(v, n);
    *n = skv_jloop_attribute(r, v.as.loop, &name).as.i;
    return true;
}

static skv_jv filter_length(skv_jrun *r, const skv_jcall *call)
{
    int64_t n = 0;
    if (length_of(r, call->self, &n)) return skv_j_int(n);
    return skv_j_fail(r, SKV_ARGUMENT, "object of type '%s' has no length",
                      skv_j_type_name(call->self));
}

/* Text that Python's int() or float() reads: trimmed, with underscores between digits. */
static bool number_text(const skv_jstr *s, char *out, size_t n_out)
{
    size_t from = 0, to = s->size, n = 0;
    while (from < to && skv_j_space((unsigned char)s->data[from])) from++;
    while (to > from && skv_j_space((unsigned char)s->data[to - 1])) to--;
    if (to == from || to - from >= n_out) return false;
    for (size_t i = from; i < to; i++) {
        char c = s->data[i];
        bool digit_before = i > from && s->data[i - 1] >= '0' && s->data[i - 1] <= '9';
        bool digit_after = i + 1 < to && s->data[i + 1] >= '0' && s->data[i + 1] <= '9';
        if (c == '_' && digit_before && digit_after) continue;
        if (c == '_' || c == 'x' || c == 'X' || c == '(' || skv_j_space((unsigned char)c))
            return false;
        out[n++] = c;
    }
    out[n] = 0;
    return true;
}

static bool parse_float(skv_jv v, double *f)
{
    char text[512], *end;
    int64_t i = 0;
    if (skv_j_as_int(v, &i)) {
        *f = (double)i;
        return true;
    }
    *f = v.kind == SKV_J_FLOAT ? v.as.f : 0;
    if (v.kind != SKV_J_STRING) return v.kind == SKV_J_FLOAT;
    if (!number_text(v.as.s, text, sizeof text)) return false;
    *f = strtod(text, &end);
    return end != text && !*end;
}

/* int(text, base); overflow is reported separately because Python has no such limit. */
static bool parse_int(skv_jv v, int base, int64_t *i, bool *overflow)
{
    char text[512];
    if (skv_j_as_int(v, i)) return true;
    if (v.kind != SKV_J_STRING || !number_text(v.as.s, text, sizeof text)) return false;
    const char *p = text + (*text == '-' || *text == '+');
    if (!*p) return false;
    int64_t value = 0;
    for (; *p; p++) {
        int digit = *p >= '0' && *p <= '9'   ? *p - '0'
                    : *p >= 'a' && *p <= 'z' ? *p - 'a' + 10
                    : *p >= 'A' && *p <= 'Z' ? *p - 'A' + 10
                                             : 99;
        if (digit >= base) return false;
        if (__builtin_mul_overflow(value, base, &value) ||
            __builtin_sub_overflow(value, digit, &value))
            *overflow = true;
    }
    if (*text != '-' && value == INT64_MIN) *overflow = true;
    if (!*overflow) *i = *text == '-' ? value : -value;
    return true;
}

static skv_jv filter_int(skv_jrun *r, const skv_jcall *call)
{
    const skv_jv *arg = call->arg;
    int64_t base, i = 0;
    double f;
    bool overflow = false;
    if (!skv_j_arg_int(r, call, arg[1], 10, &base)) return skv_j_undefined();
    if (call->self.kind == SKV_J_UNDEFINED) return skv_j_fail_undefined(r, call->self);
    skv_jv otherwise = arg[0].kind == SKV_J_MISSING ? skv_j_int(0) : arg[0];
    if (base < 2 || base > 36)
        return skv_j_fail(r, SKV_UNSUPPORTED, "%s with that base is not supported",
                          skv_j_what(r, call));
    if (parse_int(call->self, (int)base, &i, &overflow) && !overflow) return skv_j_int(i);
    if (overflow) return skv_j_fail(r, SKV_UNSUPPORTED, "integer beyond 64 bits");
    if (!parse_float(call->self, &f) || isnan(f)) return otherwise;
    if (isinf(f) && call->self.kind == SKV_J_FLOAT)
        return skv_j_fail(r, SKV_RANGE, "cannot convert an infinite number to an integer");
    if (isinf(f)) return otherwise;
    if (f <= -9223372036854775808.0 || f >= 9223372036854775808.0)
        return skv_j_fail(r, SKV_UNSUPPORTED, "integer beyond 64 bits");
    return skv_j_int((int64_t)f);
}

static skv_jv filter_float(skv_jrun *r, const skv_jcall *call)
{
    const skv_jv otherwise = call->arg[0];
    double f;
    if (call->self.kind == SKV_J_UNDEFINED) return skv_j_fail_undefined(r, call->self);
    if (parse_float(call->self, &f)) return skv_j_float(f);
    return otherwise.kind == SKV_J_MISSING ? skv_j_float(0) : otherwise;
}

static skv_jv filter_abs(skv_jrun *r, const skv_jcall *call)
{
    skv_jv v = call->self;
    int64_t i = 0;
    if (v.kind == SKV_J_FLOAT) return skv_j_float(fabs(v.as.f));
    if (skv_j_as_int(v, &i)) return skv_j_negate(r, v, i < 0);
    return skv_j_negate(r, v, false);
}

/* Python rounds to even on the exact decimal value; 15 digits more than asked settle it. */
static double round_decimal(double f, int64_t precision)
{
    char text[400];
    if (precision > 300 || precision < -300 || !isfinite(f)) return precision < 0 ? 0 * f : f;
    if (precision >= 0) {
        if (fabs(f) > 1e22) return f;
        (void)snprintf(text, sizeof text, "%.*f", (int)precision, f);
        return strtod(text, NULL);
    }
    double scale = pow(10, (double)-precision);
    return nearbyint(f / scale) * scale;
}

static skv_jv filter_round(skv_jrun *r, const skv_jcall *call)
{
    const skv_jv *arg = call->arg;
    int64_t precision, i = 0;
    double f;
    if (!skv_j_arg_int(r, call, arg[0], 0, &precision)) return skv_j_undefined();
    skv_jv method = arg[1].kind == SKV_J_MISSING ? skv_j_text_value(r, "common") : arg[1];
    if (!skv_j_ok(r) || method.kind != SKV_J_STRING)
        return skv_j_fail(r, SKV_ARGUMENT, "method must be common, ceil or floor");
    char how = method.as.s->size ? method.as.s->data[0] : 0;
    bool is_int = skv_j_as_int(call->self, &i);
    if (!is_int && call->self.kind != SKV_J_FLOAT)
        return skv_j_fail(r, SKV_ARGUMENT, "%s needs a number", skv_j_what(r, call));
    f = is_int ? (double)i : call->self.as.f;
    if (how == 'c' && method.as.s->size == 6) {
        if (is_int && precision >= 0) return skv_j_int(i);
        if (is_int) return skv_j_fail(r, SKV_UNSUPPORTED, "rounding integers is not supported");
        return skv_j_float(round_decimal(f, precision));
    }
    if (!((how == 'c' && method.as.s->size == 4) || how == 'f'))
        return skv_j_fail(r, SKV_ARGUMENT, "method must be common, ceil or floor");
    double scale = pow(10, (double)precision);
    return skv_j_float((how == 'f' ? floor(f * scale) : ceil(f * scale)) / scale);
}

static skv_jv filter_format(skv_jrun *r, const skv_jcall *call)
{
    skv_jv text = soft(r, call->self);
    skv_jv values = call->n_keywords ? skv_j_dict(r) : skv_j_list(r, SKV_J_TUPLE, call->n);
    if (call->n && call->n_keywords)
        return skv_j_fail(r, SKV_ARGUMENT, "%s takes either positions or keywords",
                          skv_j_what(r, call));
    for (size_t i = 0; i < call->n && skv_j_ok(r); i++)
        (void)skv_j_push(r, values.as.list, call->items[i]);
    for (size_t i = 0; i < call->n_keywords && skv_j_ok(r); i++)
        (void)skv_j_put(r, values.as.dict, call->keywords[i].key, call->keywords[i].value);
    return skv_j_ok(r) ? skv_j_percent(r, text, values) : text;
}

/* Every line but the first is indented, empty ones only if `blank`. */
static void write_indented(skv_jout *out, const skv_jlist *lines, const skv_jstr *by, bool first,
                           bool blank)
{
    if (first) skv_jout_put(out, by);
    for (size_t i = 0; i < lines->n && !out->text.failed; i++) {
        const skv_jstr *line = lines->items[i].as.s;
        if (i) skv_buf_byte(&out->text, '\n');
        if (i && (line->size || blank)) skv_jout_put(out, by);
        skv_jout_put(out, line);
    }
}

static skv_jv filter_indent(skv_jrun *r, const skv_jcall *call)
{
    const skv_jv *arg = call->arg;
    int64_t width = 4;
    skv_jout out;
    if (call->self.kind == SKV_J_UNDEFINED) return skv_j_fail_undefined(r, call->self);
    if (call->self.kind != SKV_J_STRING)
        return skv_j_fail(r, SKV_ARGUMENT, "%s needs a string, got '%s'", skv_j_what(r, call),
                          skv_j_type_name(call->self));
    skv_jv by = arg[0];
    if (by.kind != SKV_J_STRING) {
        if (!skv_j_arg_int(r, call, arg[0], 4, &width)) return by;
        skv_jv blank = skv_j_text_value(r, " ");
        by = skv_j_ok(r) ? skv_j_binary(r, '*', blank, skv_j_int(width)) : blank;
    }
    skv_jv newline = {.kind = SKV_J_STRING, .as.s = &(skv_jstr){"\n", 1, 1, NULL}};
    skv_jv plain = call->self;
    plain.markup = 0;
    skv_jcall inner = {.self = skv_j_ok(r) ? skv_j_binary(r, '+', plain, newline) : newline,
                       .arg = &(skv_jv){.kind = SKV_J_MISSING}};
    skv_jv lines = skv_j_ok(r) ? skv_jstr_splitlines(r, &inner) : newline;
    skv_j_out_init(r, &out);
    if (skv_j_ok(r))
        write_indented(&out, lines.as.list, by.as.s, skv_j_truth(arg[1]), skv_j_truth(arg[2]));
    skv_jv text = skv_j_from_out(r, &out);
    text.markup = call->self.markup;
    return text;
}

static skv_jv filter_truncate(skv_jrun *r, const skv_jcall *call)
{
    const skv_jv *arg = call->arg;
    int64_t length, leeway;
    if (!skv_j_arg_int(r, call, arg[0], 255, &length)) return skv_j_undefined();
    const skv_jv slack = arg[3].kind == SKV_J_NONE ? skv_j_missing() : arg[3];
    if (!skv_j_arg_int(r, call, slack, 5, &leeway)) return skv_j_undefined();
    skv_jv end = arg[2].kind == SKV_J_MISSING ? skv_j_text_value(r, "...") : arg[2];
    skv_jv text = call->self;
    int64_t n_end, n;
    if (!skv_j_ok(r) || !length_of(r, text, &n) || !skv_j_length(end, &n_end))
        return skv_j_fail(r, SKV_ARGUMENT, "%s needs strings", skv_j_what(r, call));
    if (length < n_end || leeway < 0)
        return skv_j_fail(r, SKV_ARGUMENT, "%s: length and leeway are too small",
                          skv_j_what(r, call));
    if (n - leeway <= length) return text;
    if (text.kind != SKV_J_STRING || end.kind != SKV_J_STRING)
        return skv_j_fail(r, SKV_ARGUMENT, "%s needs strings", skv_j_what(r, call));
    skv_jv part[3] = {skv_j_missing(), skv_j_int(length - n_end), skv_j_missing()};
    text = skv_j_slice(r, text, part);
    if (!skv_j_ok(r)) return text;
    size_t size = text.as.s->size;
    while (!skv_j_truth(arg[1]) && size && text.as.s->data[size - 1] != ' ') size--;
    if (size && !skv_j_truth(arg[1])) text = skv_j_part(r, text.as.s, 0, size - 1);
    return skv_j_ok(r) ? skv_j_binary(r, '+', text, end) : text;
}

static skv_jv filter_wordcount(skv_jrun *r, const skv_jcall *call)
{
    int64_t n = 0;
    bool inside = false;
    skv_jv text = soft(r, call->self);
    for (size_t at = 0; skv_j_ok(r) && at < text.as.s->size;) {
        uint32_t code;
        at += skv_utf8_decode(text.as.s->data + at, text.as.s->size - at, &code);
        bool word = code == '_' || skv_jstr_is_word(code);
        n += word && !inside;
        inside = word;
    }
    (void)skv_j_spend_bytes(r, skv_j_ok(r) ? text.as.s->size : 0);
    return skv_j_int(n);
}

static skv_jv filter_attr(skv_jrun *r, const skv_jcall *call)
{
    const skv_jv name = call->arg[0];
    if (name.kind != SKV_J_STRING)
        return skv_j_fail(r, SKV_ARGUMENT, "%s needs a name", skv_j_what(r, call));
    /* Unlike a dot, this filter does not look at a dict's keys. */
    skv_jv v = skv_j_getattr(r, call->self, name.as.s);
    if (call->self.kind != SKV_J_DICT || v.kind == SKV_J_METHOD) return v;
    return skv_j_no_attribute(r, name.as.s, "dict");
}

const skv_jfunction *skv_jfilter_find(const skv_jstr *name)
{
    static const skv_jfunction table[] = {
        {"tojson", skv_jfilter_tojson, 0, "ensure_ascii indent separators sort_keys"},
        {"trim", filter_trim, SKV_JSTRIP_LEFT | SKV_JSTRIP_RIGHT, "chars"},
        {"string", filter_string, 0, ""},
        {"length", filter_length, 0, ""},
        {"count", filter_length, 0, ""},
        {"default", filter_default, 0, "default_value boolean"},
        {"d", filter_default, 0, "default_value boolean"},
        {"upper", filter_case, SKV_JCASE_UPPER, ""},
        {"lower", filter_case, SKV_JCASE_LOWER, ""},
        {"capitalize", filter_case, SKV_JCASE_CAPITAL, ""},
        {"title", filter_title, 0, ""},
        {"safe", filter_safe, 0, ""},
        {"replace", filter_replace, 0, "!old !new count"},
        {"indent", filter_indent, 0, "width first blank"},
        {"int", filter_int, 0, "default base"},
        {"float", filter_float, 0, "default"},
        {"abs", filter_abs, 0, ""},
        {"round", filter_round, 0, "precision method"},
        {"escape", filter_escape, 0, ""},
        {"e", filter_escape, 0, ""},
        {"forceescape", filter_forceescape, 0, ""},
        {"format", filter_format, 0, NULL},
        {"center", filter_center, 'c', "width"},
        {"truncate", filter_truncate, 0, "length killwords end leeway"},
        {"wordcount", filter_wordcount, 0, ""},
        {"attr", filter_attr, 0, "!name"},
        {"filesizeformat", NULL, 0, NULL},
        {"pprint", NULL, 0, NULL},
        {"random", NULL, 0, NULL},
        {"striptags", NULL, 0, NULL},
        {"urlencode", NULL, 0, NULL},
        {"urlize", NULL, 0, NULL},
        {"wordwrap", NULL, 0, NULL},
        {"xmlattr", NULL, 0, NULL},
    };
    const skv_jfunction *found = skv_j_lookup(table, sizeof table / sizeof *table, name);
    return found ? found : skv_jfilter_find_seq(name);
}
