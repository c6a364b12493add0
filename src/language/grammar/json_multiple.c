/*
 * Multiples of a number: see json_rules.h.
 *
 * A number with f digits after the decimal point is a whole number of units of 10^-f, so the
 * multiples with f digits are whole multiples of one step. Digits are generated from the left,
 * tracking the remainder of the number so far modulo the step; the last digit must make it 0. Once
 * a number has left its bounds, the continuation depends only on that remainder and on the number
 * of digits left, and is a rule of its own.
 */
#include <string.h>

#include "base/budget_mem.h"
#include "grammar/json_rules.h"

enum {
    DIGITS = SKV_JSON_DIGITS_MAX,
    RULES_OF_STEP = 4096 /* rests times digits */
};

static const int64_t UNITS_MAX = 999999999999999999; /* 18 digits */

typedef struct multiples {
    skv_exprs *exprs;
    uint64_t step;       /* in units of the last digit */
    size_t n_fraction;   /* digits after the decimal point */
    size_t n_zeros;      /* zeros that every number ends with, after the digits made here */
    skv_expr digits[10]; /* each digit */
    skv_expr *off;       /* owned, [DIGITS + 1][step] by digits left and rest */
    bool *made;          /* owned, the same: whether that was looked for */
} multiples;

/* ---- bounds in units ---- */

/* |d| in units of 10^-f, cut; *more: something was cut. Beyond UNITS_MAX it is UNITS_MAX + 1. */
static int64_t cut_units(const skv_decimal *d, size_t f, bool *more)
{
    int64_t n = 0;
    const size_t n_whole = strlen(d->whole), n_given = strlen(d->fraction);
    *more = n_given > f;
    for (size_t i = 0; i < n_whole + f; i++) {
        const size_t behind = i - n_whole;
        const char c = i < n_whole ? d->whole[i] : behind < n_given ? d->fraction[behind] : '0';
        if (n > UNITS_MAX / 10) return UNITS_MAX + 1;
        n = n * 10 + (c - '0');
    }
    return n;
}

/* The first number of units from a bound on, or the last one up to it. */
static int64_t units_of(const skv_decimal *d, size_t f, bool open, bool upper)
{
    bool more;
    const int64_t n = cut_units(d, f, &more);
    const bool outward = d->negative == upper; /* cutting has moved it off the numbers' side */
    int64_t magnitude = n + (more && outward ? 1 : 0);
    if (open && !more) magnitude += outward ? 1 : -1;
    return d->negative ? -magnitude : magnitude;
}

/* ---- digits ---- */

/* One digit and its continuation; the decimal point precedes the last n_fraction digits. */
static skv_expr one_digit(const multiples *m, size_t n_left, unsigned digit, skv_expr then)
{
    const bool point = m->n_fraction > 0 && n_left == m->n_fraction;
    const skv_expr dot = point ? skv_expr_text(m->exprs, ".") : SKV_EXPR_EMPTY;
    return skv_expr_seq3(m->exprs, dot, m->digits[digit], then);
}

static uint64_t next_rest(const multiples *m, uint64_t rest, unsigned digit)
{
    return (10 * rest + digit) % m->step;
}

/* Any n_left digits that end a multiple. */
static skv_expr free_digits(multiples *m, size_t n_left, uint64_t rest)
{
    if (n_left == 0) return rest == 0 ? SKV_EXPR_EMPTY : SKV_EXPR_NEVER;
    const size_t at = n_left * m->step + rest;
    if (m->made[at]) return m->off[at];
    m->made[at] = true;
    skv_expr ways[10];
    for (unsigned digit = 0; digit < 10; digit++) {
        const skv_expr then = free_digits(m, n_left - 1, next_rest(m, rest, digit));
        ways[digit] = one_digit(m, n_left, digit, then);
    }
    const skv_expr expr = skv_expr_alt(m->exprs, ways, 10);
    if (expr == SKV_EXPR_NEVER) return expr;
    const uint32_t rule = skv_rule_declare(m->exprs, "multiple", 8);
    skv_rule_define(m->exprs, rule, expr);
    m->off[at] = skv_expr_call(m->exprs, rule);
    return m->off[at];
}

/* The digits of bounds, [n]. */
typedef struct span {
    char lo[DIGITS], hi[DIGITS];
    size_t n;
} span;

static void write_digits(int64_t number, size_t n, char *out)
{
    for (; n-- > 0; number /= 10) out[n] = (char)('0' + number % 10);
}

static skv_expr bound_digits(multiples *m, const span *s, size_t i, uint64_t rest, bool on_lo,
                             bool on_hi)
{
    const size_t n_left = s->n - i;
    if (n_left == 0 || (!on_lo && !on_hi)) return free_digits(m, n_left, rest);
    skv_expr ways[10];
    const unsigned lo = on_lo ? (unsigned)(s->lo[i] - '0') : 0;
    const unsigned hi = on_hi ? (unsigned)(s->hi[i] - '0') : 9;
    size_t n = 0;
    for (unsigned digit = lo; digit <= hi; digit++) {
        const skv_expr then = bound_digits(m, s, i + 1, next_rest(m, rest, digit),
                                           on_lo && digit == lo, on_hi && digit == hi);
        ways[n++] = one_digit(m, n_left, digit, then);
    }
    return skv_expr_alt(m->exprs, ways, n);
}

/* All multiples from lo to hi units, both from 0 on, by the number of their digits: at least one
 * precedes the decimal point. */
static skv_expr magnitudes(multiples *m, int64_t lo, int64_t hi)
{
    skv_expr_list list = {.exprs = m->exprs};
    int64_t end = 1;
    for (size_t n = 1; n <= DIGITS; n++) {
        const int64_t first = n == m->n_fraction + 1 ? 0 : end;
        end *= 10;
        const int64_t from = lo > first ? lo : first, to = hi < end - 1 ? hi : end - 1;
        if (n <= m->n_fraction || from > to) continue;
        span s = {.n = n};
        write_digits(from, n, s.lo);
        write_digits(to, n, s.hi);
        skv_expr_list_add(&list, bound_digits(m, &s, 0, 0, true, true));
    }
    const uint32_t n_zeros = (uint32_t)m->n_zeros;
    return skv_expr_seq2(m->exprs, skv_expr_list_alt(&list),
                         skv_expr_repeat(m->exprs, m->digits[0], n_zeros, n_zeros));
}

/* Those on both sides of 0, and 0 where every number ends with a digit that is made here. */
static skv_expr both_sides(multiples *m, int64_t lo, int64_t hi)
{
    const bool zero = m->n_fraction == 0; /* 0 is a case of its own: no digits follow it */
    skv_expr positive = magnitudes(m, lo > 0 ? lo : zero, hi);
    skv_expr negative = magnitudes(m, hi < 0 ? -hi : 1, -lo);
    skv_expr ways[] = {positive, skv_expr_seq2(m->exprs, skv_expr_text(m->exprs, "-"), negative),
                       zero && lo <= 0 && hi >= 0 ? m->digits[0] : SKV_EXPR_NEVER};
    return skv_expr_alt(m->exprs, ways, 3);
}

static int64_t divide(int64_t n, int64_t by, bool up)
{
    const int64_t q = n / by;
    if (n % by == 0) return q;
    return up ? q + (n > 0) : q - (n < 0);
}

static size_t count_digits(int64_t n)
{
    size_t n_digits = 1;
    for (; n > 9; n /= 10) n_digits++;
    return n_digits;
}

/* Makes the multiples of m->step units with m->n_fraction digits after the decimal point. */
static bool make(multiples *m, int64_t lo, int64_t hi, skv_expr *out)
{
    skv_budget *budget = m->exprs->budget;
    int64_t tens = 1;
    *out = SKV_EXPR_NEVER;
    if (m->n_fraction > 0 && m->step % 10 == 0) return true; /* has fewer digits */
    for (m->n_zeros = 0; m->step % 10 == 0; m->n_zeros++, tens *= 10) m->step /= 10;
    lo = divide(lo, tens, true);
    hi = divide(hi, tens, false);
    if (lo > hi) return true;
    const size_t n = count_digits(hi > -lo ? hi : -lo) + 1;
    if (m->step > RULES_OF_STEP / n) return false;
    m->off = skv_budget_alloc_zero(budget, (DIGITS + 1) * m->step, sizeof *m->off);
    m->made = skv_budget_alloc_zero(budget, (DIGITS + 1) * m->step, sizeof *m->made);
    const bool room = m->off && m->made;
    if (room) *out = both_sides(m, lo, hi);
    skv_budget_free(budget, m->off, (DIGITS + 1) * m->step, sizeof *m->off);
    skv_budget_free(budget, m->made, (DIGITS + 1) * m->step, sizeof *m->made);
    return room;
}

static int64_t common_factor(int64_t a, int64_t b)
{
    while (b != 0) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

bool skv_json_multiples(skv_exprs *exprs, const skv_number_bounds *b, const skv_decimal *step,
                        skv_expr *out)
{
    bool more, fits = true;
    const size_t n_fraction = strlen(step->fraction), most = b->whole ? 0 : n_fraction;
    const int64_t units = cut_units(step, n_fraction, &more);
    skv_expr_list list = {.exprs = exprs};
    multiples m = {.exprs = exprs};
    if (units > UNITS_MAX || n_fraction >= DIGITS) return false;
    for (uint32_t i = 0; i < 10; i++) m.digits[i] = skv_expr_range(exprs, '0' + i, '0' + i);
    for (size_t f = 0; fits && f <= most; f++) {
        int64_t lo = -UNITS_MAX, hi = UNITS_MAX, tens = 1;
        for (size_t i = f; i < n_fraction; i++) tens *= 10;
        if (b->has_min) lo = units_of(&b->min, f, b->open_min, false);
        if (b->has_max) hi = units_of(&b->max, f, b->open_max, true);
        skv_expr one = SKV_EXPR_NEVER;
        m.n_fraction = f;
        m.step = (uint64_t)(units / common_factor(units, tens));
        fits = lo <= UNITS_MAX && hi >= -UNITS_MAX &&
               make(&m, lo < -UNITS_MAX ? -UNITS_MAX : lo, hi > UNITS_MAX ? UNITS_MAX : hi, &one);
        skv_expr_list_add(&list, one);
    }
    *out = skv_expr_list_alt(&list);
    return fits;
}
