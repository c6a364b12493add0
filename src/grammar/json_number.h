/* Numbers between bounds, as automata over their digits. */
#ifndef SKV_GRAMMAR_JSON_NUMBER_H
#define SKV_GRAMMAR_JSON_NUMBER_H

#include "grammar/grammar_expr.h"

enum { SKV_BOUND_DIGITS_MAX = 40 /* of each side of the point */ };

/* A decimal number without an exponent: sign, "12", "05" is -12.05 or 12.05. */
typedef struct skv_decimal {
    bool negative;
    char whole[SKV_BOUND_DIGITS_MAX + 1];    /* "0", or no zero first */
    char fraction[SKV_BOUND_DIGITS_MAX + 1]; /* "", or no zero last */
} skv_decimal;

/** Reads "-12.5e-3"; false when it needs more digits than there is room for. */
SKV_MUST_CHECK bool skv_decimal_parse(const char *text, skv_decimal *out);
/** -1, 0, 1 as a is below, equal to or above b. */
int skv_decimal_compare(const skv_decimal *a, const skv_decimal *b);

typedef struct skv_number_bounds {
    bool has_min, has_max;
    bool open_min, open_max; /* the bound itself does not belong to it */
    skv_decimal min, max;
    bool whole; /* integers only */
} skv_number_bounds;

/** Every number within the bounds, exactly, written without an exponent; SKV_EXPR_NEVER where
 * there is none. */
skv_expr skv_json_bounded(skv_expr_pool *pool, const skv_number_bounds *bounds);

#endif
