/* Arithmetic. Integers have 64 bits; overflow is refused. */
#include <math.h>
#include <string.h>

#include "text/jinja/jinja_builtin.h"
#include "text/jinja/jinja_run.h"

static skv_jv no_operator(skv_jrun *r, unsigned op, skv_jv a, skv_jv b)
{
    if (a.kind == SKV_J_UNDEFINED) return skv_j_fail_undefined(r, a);
    if (b.kind == SKV_J_UNDEFINED) return skv_j_fail_undefined(r, b);
    return skv_j_fail(r, SKV_ARGUMENT, "unsupported operand types for %c%s: '%s' and '%s'",
                      (char)op, op >> 8 ? (op >> 8 == '*' ? "*" : "/") : "", skv_j_type_name(a),
                      skv_j_type_name(b));
}

static skv_jv too_big(skv_jrun *r)
{
    return skv_j_fail(r, SKV_UNSUPPORTED, "integer beyond 64 bits");
}

static skv_jv by_zero(skv_jrun *r)
{
    return skv_j_fail(r, SKV_ARGUMENT, "division by zero");
}

static skv_jv int_power(skv_jrun *r, int64_t base, int64_t exponent)
{
    if (exponent < 0) {
        if (!base) return by_zero(r);
        return skv_j_float(pow((double)base, (double)exponent));
    }
    int64_t result = 1;
    for (;;) {
        if ((exponent & 1) && __builtin_mul_overflow(result, base, &result)) return too_big(r);
        exponent >>= 1;
        if (!exponent) return skv_j_int(result);
        if (__builtin_mul_overflow(base, base, &base)) return too_big(r);
    }
}

/* Python rounds // towards minus infinity, and % has the sign of the divisor. */
static skv_jv int_divide(skv_jrun *r, unsigned op, int64_t a, int64_t b)
{
    if (!b) return by_zero(r);
    if (op == '/') return skv_j_float((double)a / (double)b);
    if (b == -1) {
        int64_t negated;
        if (op == '%') return skv_j_int(0);
        return __builtin_sub_overflow(0, a, &negated) ? too_big(r) : skv_j_int(negated);
    }
    int64_t quotient = a / b, rest = a % b;
    if (rest && (rest < 0) != (b < 0)) {
        quotient--;
        rest += b;
    }
    return skv_j_int(op == '%' ? rest : quotient);
}

static skv_jv int_binary(skv_jrun *r, unsigned op, int64_t a, int64_t b)
{
    int64_t result;
    switch (op) {
    case '+': return __builtin_add_overflow(a, b, &result) ? too_big(r) : skv_j_int(result);
    case '-': return __builtin_sub_overflow(a, b, &result) ? too_big(r) : skv_j_int(result);
    case '*': return __builtin_mul_overflow(a, b, &result) ? too_big(r) : skv_j_int(result);
    case SKV_JOP('*', '*'): return int_power(r, a, b);
    default: return int_divide(r, op, a, b);
    }
}

static skv_jv float_modulo(double a, double b, bool quotient)
{
    double rest = fmod(a, b);
    double whole = (a - rest) / b;
    if (rest != 0) {
        if ((b < 0) != (rest < 0)) {
            rest += b;
            whole -= 1;
        }
    } else {
        rest = copysign(0.0, b);
    }
    if (!quotient) return skv_j_float(rest);
    if (whole == 0) return skv_j_float(copysign(0.0, a / b));
    double floored = floor(whole);
    return skv_j_float(whole - floored > 0.5 ? floored + 1 : floored);
}

static skv_jv float_power(skv_jrun *r, double a, double b)
{
    if (a == 0 && b < 0) return by_zero(r);
    if (a < 0 && isfinite(a) && isfinite(b) && b != floor(b))
        return skv_j_fail(r, SKV_UNSUPPORTED, "complex numbers are not supported");
    double result = pow(a, b);
    if (isinf(result) && isfinite(a) && isfinite(b))
        return skv_j_fail(r, SKV_RANGE, "result is too large");
    return skv_j_float(result);
}

static skv_jv float_binary(skv_jrun *r, unsigned op, double a, double b)
{
    switch (op) {
    case '+': return skv_j_float(a + b);
    case '-': return skv_j_float(a - b);
    case '*': return skv_j_float(a * b);
    case SKV_JOP('*', '*'): return float_power(r, a, b);
    default: break;
    }
    if (b == 0) return by_zero(r);
    return op == '/' ? skv_j_float(a / b) : float_modulo(a, b, op != '%');
}

/* Concatenates the marks of a and b, which are adjacent at `data`. */
static const skv_jmarks *joined_marks(skv_jrun *r, const skv_jstr *a, const skv_jstr *b,
                                      const char *data)
{
    skv_jmarker marker;
    if (a->marks == b->marks && (!a->marks || a->marks == &skv_j_data)) return a->marks;
    skv_jmarker_init(&marker, r->budget);
    skv_jmarker_copy(&marker, 0, a, 0, a->size);
    skv_jmarker_copy(&marker, a->size, b, 0, b->size);
    return skv_j_take_marks(r, &marker, data, a->size + b->size);
}

static skv_jv join_strings(skv_jrun *r, skv_jv a, skv_jv b)
{
    skv_jv whole = {.kind = SKV_J_STRING, .markup = a.markup || b.markup};
    if (whole.markup) {
        a = skv_j_escape(r, a);
        b = skv_j_escape(r, b);
    }
    if (!skv_j_ok(r)) return a;
    skv_jstr *s = skv_j_take(r, 1, sizeof *s);
    char *data = skv_j_take(r, a.as.s->size + b.as.s->size, 1);
    if (!s || !data || !skv_j_spend_bytes(r, a.as.s->size + b.as.s->size)) return a;
    if (a.as.s->size) memcpy(data, a.as.s->data, a.as.s->size);
    if (b.as.s->size) memcpy(data + a.as.s->size, b.as.s->data, b.as.s->size);
    *s = (skv_jstr){.data = data,
                    .size = a.as.s->size + b.as.s->size,
                    .n_chars = a.as.s->n_chars + b.as.s->n_chars,
                    .marks = joined_marks(r, a.as.s, b.as.s, data)};
    whole.as.s = s;
    return whole;
}

static skv_jv join_lists(skv_jrun *r, skv_jv a, skv_jv b)
{
    size_t n = a.as.list->n, k = b.as.list->n;
    skv_jv list = skv_j_list(r, a.kind, n + k);
    if (!skv_j_ok(r) || !skv_j_spend(r, (n + k) / 4)) return list;
    if (n) memcpy(list.as.list->items, a.as.list->items, n * sizeof(skv_jv));
    if (k) memcpy(list.as.list->items + n, b.as.list->items, k * sizeof(skv_jv));
    list.as.list->n = n + k;
    return list;
}

static skv_jv repeat_string(skv_jrun *r, skv_jv v, int64_t times)
{
    skv_jout out;
    skv_j_out_init(r, &out);
    if (times > 0 && !skv_j_fits(r, (uint64_t)times, v.as.s->size)) return skv_j_undefined();
    for (int64_t i = 0; i < times && v.as.s->size && !out.text.failed; i++)
        skv_jout_put(&out, v.as.s);
    skv_jv repeated = skv_j_from_out(r, &out);
    repeated.markup = v.markup;
    return repeated;
}

static skv_jv repeat_list(skv_jrun *r, skv_jv v, int64_t times)
{
    skv_jv list = skv_j_list(r, v.kind, 0);
    for (int64_t i = 0; i < times && v.as.list->n; i++)
        for (size_t k = 0; k < v.as.list->n; k++)
            if (!skv_j_spend(r, 1) || !skv_j_push(r, list.as.list, v.as.list->items[k]))
                return list;
    return list;
}

static bool as_number(skv_jv v, double *f)
{
    int64_t i = 0;
    if (skv_j_as_int(v, &i))
        *f = (double)i;
    else if (v.kind == SKV_J_FLOAT)
        *f = v.as.f;
    else
        return false;
    return true;
}

skv_jv skv_j_binary(skv_jrun *r, unsigned op, skv_jv a, skv_jv b)
{
    int64_t i = 0, k = 0;
    double x = 0, y = 0;
    if (skv_j_as_int(a, &i) && skv_j_as_int(b, &k)) return int_binary(r, op, i, k);
    if (as_number(a, &x) && as_number(b, &y)) return float_binary(r, op, x, y);
    if (op == '+' && a.kind == SKV_J_STRING && b.kind == SKV_J_STRING) return join_strings(r, a, b);
    if (op == '+' && skv_j_is_sequence(a) && a.kind == b.kind) return join_lists(r, a, b);
    if (op == '*' && a.kind == SKV_J_STRING && skv_j_as_int(b, &k)) return repeat_string(r, a, k);
    if (op == '*' && b.kind == SKV_J_STRING && skv_j_as_int(a, &k)) return repeat_string(r, b, k);
    if (op == '*' && skv_j_is_sequence(a) && skv_j_as_int(b, &k)) return repeat_list(r, a, k);
    if (op == '*' && skv_j_is_sequence(b) && skv_j_as_int(a, &k)) return repeat_list(r, b, k);
    if (op == '%' && a.kind == SKV_J_STRING) return skv_j_percent(r, a, b);
    return no_operator(r, op, a, b);
}

skv_jv skv_j_negate(skv_jrun *r, skv_jv v, bool negative)
{
    int64_t i = 0;
    if (v.kind == SKV_J_FLOAT) return skv_j_float(negative ? -v.as.f : v.as.f);
    if (skv_j_as_int(v, &i)) {
        if (!negative) return skv_j_int(i);
        return i == INT64_MIN ? too_big(r) : skv_j_int(-i);
    }
    if (v.kind == SKV_J_UNDEFINED) return skv_j_fail_undefined(r, v);
    return skv_j_fail(r, SKV_ARGUMENT, "bad operand type for unary %c: '%s'", negative ? '-' : '+',
                      skv_j_type_name(v));
}

skv_jv skv_j_escape(skv_jrun *r, skv_jv v)
{
    if (v.kind == SKV_J_STRING && v.markup) return v;
    skv_jv text = skv_j_str(r, v);
    if (!skv_j_ok(r)) return text;
    skv_jout out;
    skv_j_out_init(r, &out);
    for (size_t i = 0; i < text.as.s->size; i++) {
        char c = text.as.s->data[i];
        skv_jout_follow(&out, text.as.s, i);
        switch (c) {
        case '&': skv_buf_text(&out.text, "&amp;"); break;
        case '<': skv_buf_text(&out.text, "&lt;"); break;
        case '>': skv_buf_text(&out.text, "&gt;"); break;
        case '\'': skv_buf_text(&out.text, "&#39;"); break;
        case '"': skv_buf_text(&out.text, "&#34;"); break;
        default: skv_buf_byte(&out.text, c);
        }
    }
    skv_jv escaped = skv_j_from_out(r, &out);
    escaped.markup = 1;
    return escaped;
}
