/*
 * Numbers between bounds: see json_rules.h.
 *
 * Digits are written from the left while it is known whether the number still equals the lower
 * bound so far (on_min) and the upper one (on_max). Off both, every digit may follow; on one, only
 * those that do not cross it. Magnitudes are compared; negative numbers change the bounds' places.
 */
#include <stdlib.h>
#include <string.h>

#include "grammar/json_rules.h"

enum {
    EXACT_DIGITS = 15, /* numbers with this many digits never round onto a bound as a double */
    EXPONENT_MAX = 400 /* beyond those of a double */
};

/* ---- decimals ---- */

/* Digits around a point at `point`, zeros where the digits do not reach. */
static bool place_point(const char *digits, long n, long point, skv_decimal *out)
{
    long n_whole = point > 0 ? point : 0, n_fraction = n > point ? n - point : 0;
    if (n_whole > SKV_BOUND_DIGITS_MAX || n_fraction > SKV_BOUND_DIGITS_MAX) return false;
    for (long i = 0; i < n_whole; i++) out->whole[i] = i < n ? digits[i] : '0';
    for (long i = 0; i < n_fraction; i++) {
        long at = point + i;
        out->fraction[i] = at >= 0 ? digits[at] : '0';
    }
    if (n_whole == 0) out->whole[n_whole++] = '0';
    out->whole[n_whole] = out->fraction[n_fraction] = '\0';
    return true;
}

bool skv_decimal_parse(const char *text, skv_decimal *out)
{
    char digits[512];
    long n = 0, point = 0;
    bool behind_point = false;
    skv_decimal d = {.negative = *text == '-'};
    if (d.negative) text++;
    for (; (*text >= '0' && *text <= '9') || *text == '.'; text++) {
        if (*text == '.') {
            behind_point = true;
            continue;
        }
        if (n == (long)sizeof digits) return false;
        if (n == 0 && *text == '0') { /* zeros in front only move the point */
            point -= behind_point;
            continue;
        }
        digits[n++] = *text;
        point += !behind_point;
    }
    if (*text == 'e' || *text == 'E') {
        long exponent = strtol(text + 1, NULL, 10);
        if (exponent > EXPONENT_MAX || exponent < -EXPONENT_MAX) return false;
        point += exponent;
    }
    while (n > 0 && digits[n - 1] == '0') n--;
    if (n == 0) point = 0;
    if (!place_point(digits, n, point, &d)) return false;
    *out = d;
    return true;
}

static int compare_magnitudes(const skv_decimal *a, const skv_decimal *b)
{
    size_t n_a = strlen(a->whole), n_b = strlen(b->whole);
    if (n_a != n_b) return n_a < n_b ? -1 : 1;
    int order = strcmp(a->whole, b->whole);
    if (order == 0) order = strcmp(a->fraction, b->fraction); /* no zeros last: as texts */
    return (order > 0) - (order < 0);
}

static bool is_zero(const skv_decimal *d)
{
    return strcmp(d->whole, "0") == 0 && d->fraction[0] == '\0';
}

int skv_decimal_compare(const skv_decimal *a, const skv_decimal *b)
{
    bool a_below = a->negative && !is_zero(a), b_below = b->negative && !is_zero(b);
    if (a_below != b_below) return a_below ? -1 : 1;
    return a_below ? compare_magnitudes(b, a) : compare_magnitudes(a, b);
}

/* ---- magnitudes ---- */

typedef struct range {
    skv_exprs *exprs;
    const skv_decimal *min, *max; /* max: NULL if there is none */
    bool open_min, open_max, whole;
    size_t n_whole;    /* digits before the point of the numbers being made */
    size_t n_fraction; /* the most digits after it */
} range;

static skv_expr one_digit(const range *r, char lo, char hi)
{
    if (lo > hi) return SKV_EXPR_NEVER;
    return skv_expr_range(r->exprs, (uint32_t)lo, (uint32_t)hi);
}

static skv_expr any_digits(const range *r, size_t min, size_t max)
{
    return skv_expr_repeat(r->exprs, one_digit(r, '0', '9'), (uint32_t)min, (uint32_t)max);
}

/* Whether a number may end before its i-th digit after the decimal point. */
static bool may_end(const range *r, size_t i, bool on_min, bool on_max)
{
    if (on_min && (r->open_min || strlen(r->min->fraction) > i)) return false;
    return !(on_max && r->open_max && strlen(r->max->fraction) <= i);
}

typedef skv_expr digit_fn(const range *r, size_t i, bool on_min, bool on_max);

/* Every digit from `lowest` on that stays within the bounds, with its continuation. */
static skv_expr each_digit(const range *r, size_t i, char min, char max, bool on_min, bool on_max,
                           digit_fn *then)
{
    skv_expr choices[3] = {SKV_EXPR_NEVER, SKV_EXPR_NEVER, SKV_EXPR_NEVER};
    if (on_min && on_max && min == max) {
        return skv_expr_seq2(r->exprs, one_digit(r, min, min), then(r, i + 1, true, true));
    }
    char lo = on_min ? (char)(min + 1) : min, hi = on_max ? (char)(max - 1) : max;
    if (on_min) {
        choices[0] = skv_expr_seq2(r->exprs, one_digit(r, min, min), then(r, i + 1, true, false));
    }
    if (lo <= hi) {
        choices[1] = skv_expr_seq2(r->exprs, one_digit(r, lo, hi), then(r, i + 1, false, false));
    }
    if (on_max) {
        choices[2] = skv_expr_seq2(r->exprs, one_digit(r, max, max), then(r, i + 1, false, true));
    }
    return skv_expr_alt(r->exprs, choices, 3);
}

/* The digits from the i-th after the decimal point on; the first one is required. */
static skv_expr fraction_digits(const range *r, size_t i, bool on_min, bool on_max)
{
    if (!on_min && !on_max) return any_digits(r, i == 0 ? 1 : 0, r->n_fraction - i);
    skv_expr end = i > 0 && may_end(r, i, on_min, on_max) ? SKV_EXPR_EMPTY : SKV_EXPR_NEVER;
    if (i == r->n_fraction) return end;
    char min = '0', max = '9';
    if (on_min && i < strlen(r->min->fraction)) min = r->min->fraction[i];
    if (on_max) max = i < strlen(r->max->fraction) ? r->max->fraction[i] : '0';
    return skv_expr_alt2(r->exprs, end,
                         each_digit(r, i, min, max, on_min, on_max, fraction_digits));
}

static skv_expr whole_digits(const range *r, size_t i, bool on_min, bool on_max)
{
    if (i == r->n_whole) {
        skv_expr end = may_end(r, 0, on_min, on_max) ? SKV_EXPR_EMPTY : SKV_EXPR_NEVER;
        if (r->whole || r->n_fraction == 0) return end;
        skv_expr fraction = skv_expr_seq2(r->exprs, skv_expr_text(r->exprs, "."),
                                          fraction_digits(r, 0, on_min, on_max));
        return skv_expr_alt2(r->exprs, end, fraction);
    }
    if (!on_min && !on_max && i > 0) {
        skv_expr rest = any_digits(r, r->n_whole - i, r->n_whole - i);
        return skv_expr_seq2(r->exprs, rest, whole_digits(r, r->n_whole, false, false));
    }
    char min = i == 0 && r->n_whole > 1 ? '1' : '0', max = '9';
    if (on_min) min = r->min->whole[i];
    if (on_max) max = r->max->whole[i];
    return each_digit(r, i, min, max, on_min, on_max, whole_digits);
}

/* All magnitudes from min to max, by the number of digits before the point. */
static skv_expr magnitudes(range *r)
{
    if (r->max && compare_magnitudes(r->max, r->min) < 0) return SKV_EXPR_NEVER;
    size_t n_min = strlen(r->min->whole), n_max = r->max ? strlen(r->max->whole) : 0;
    size_t last = n_max;
    if (!r->max) last = n_min < SKV_JSON_DIGITS_MAX ? SKV_JSON_DIGITS_MAX : n_min + 1;
    size_t n_bound = n_max > n_min ? n_max : n_min, n_fraction = strlen(r->min->fraction);
    if (r->max && strlen(r->max->fraction) > n_fraction) {
        n_fraction = strlen(r->max->fraction);
    }
    r->n_fraction = n_bound < EXACT_DIGITS ? EXACT_DIGITS - n_bound : 0;
    if (r->n_fraction < n_fraction) r->n_fraction = n_fraction;
    skv_expr_list list = {.exprs = r->exprs};
    for (r->n_whole = n_min; r->n_whole <= last; r->n_whole++) {
        bool on_max = r->max && r->n_whole == n_max;
        skv_expr_list_add(&list, whole_digits(r, 0, r->n_whole == n_min, on_max));
    }
    return skv_expr_list_alt(&list);
}

skv_expr skv_json_bounded(skv_exprs *exprs, const skv_number_bounds *b)
{
    static const skv_decimal zero = {.whole = "0"};
    bool min_below = b->has_min && skv_decimal_compare(&b->min, &zero) < 0;
    bool max_below = b->has_max && skv_decimal_compare(&b->max, &zero) < 0;
    bool above = b->has_min && skv_decimal_compare(&b->min, &zero) >= 0;
    skv_expr positive = SKV_EXPR_NEVER, negative = SKV_EXPR_NEVER;
    if (!max_below) {
        range r = {.exprs = exprs,
                   .min = above ? &b->min : &zero,
                   .max = b->has_max ? &b->max : NULL,
                   .open_min = above && b->open_min,
                   .open_max = b->open_max,
                   .whole = b->whole};
        positive = magnitudes(&r);
    }
    if (!b->has_min || min_below) {
        /* Numbers that are not whole write zero with a sign too: -0.0. */
        const bool open_zero = b->whole || (b->has_max && b->open_max && is_zero(&b->max));
        range r = {.exprs = exprs,
                   .min = max_below ? &b->max : &zero,
                   .max = b->has_min ? &b->min : NULL,
                   .open_min = max_below ? b->open_max : open_zero,
                   .open_max = b->open_min,
                   .whole = b->whole};
        negative = skv_expr_seq2(exprs, skv_expr_text(exprs, "-"), magnitudes(&r));
    }
    return skv_expr_alt2(exprs, negative, positive);
}
