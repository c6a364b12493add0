/*
 * JSON as rules: the building blocks of json_object and JSON schemas.
 *
 * Blanks are bounded, so that no answer can consist of endless blanks: where they are allowed
 * (after '{', '[', ',' and ':', before '}' and ']') there may be one space, or one line end and up
 * to 32 spaces or 8 tabs of indentation.
 */
#ifndef SKV_GRAMMAR_JSON_RULES_H
#define SKV_GRAMMAR_JSON_RULES_H

#include "grammar/grammar_expr.h"

enum {
    SKV_JSON_DIGITS_MAX = 18,   /* of an integer, and of a number before its point */
    SKV_JSON_FRACTION_MAX = 17, /* digits after the decimal point */
    SKV_JSON_EXPONENT_MAX = 2,  /* digits of an exponent */
    SKV_JSON_CONTROL_MAX = 0x1f /* the last control character */
};

/* Rules are made when they are asked for first. */
typedef struct skv_json_rules {
    skv_exprs *exprs;                                               /* borrowed */
    uint32_t blank, string, number, value, object, array, key_rest; /* rule + 1; 0: not made */
} skv_json_rules;

/** Any string, number, value, object, array. */
skv_expr skv_json_string(skv_json_rules *r);
skv_expr skv_json_number(skv_json_rules *r);
skv_expr skv_json_integer(skv_json_rules *r);
skv_expr skv_json_value(skv_json_rules *r);

/** The characters that a string holds escaped only: adds all, or those of a set. */
void skv_json_add_escaped(skv_code_set *set);
void skv_json_cut_escaped(const skv_code_set *set, skv_code_set *out);
/** One character of a tidy set inside a string, in its one canonical spelling: as it is where
 * JSON allows that, else the short escape, else \u00XX. */
skv_expr skv_json_char(skv_exprs *exprs, const skv_code_set *set);
/** Any character in its canonical spelling. */
skv_expr skv_json_any_char(skv_exprs *exprs);
/** Returns the rest of a canonical string: any characters and the closing quotation mark. */
skv_expr skv_json_string_rest(skv_json_rules *r);
/** The string of a text, in its canonical spelling, with its quotation marks. */
skv_expr skv_json_quoted(skv_exprs *exprs, const char *text, size_t n);

/** open ws (items ws)? close; if `items` matches "", there is only one ws. */
skv_expr skv_json_bracket(skv_json_rules *r, const char *open, skv_expr items, bool may_be_empty,
                          const char *close);
/** "," ws item */
skv_expr skv_json_after_comma(skv_json_rules *r, skv_expr item);
/** ":" ws value */
skv_expr skv_json_after_name(skv_json_rules *r, skv_expr value);
/** key ":" ws value */
skv_expr skv_json_member(skv_json_rules *r, skv_expr key, skv_expr value);
/** item ("," ws item)*, min to max items in all; max >= 1. */
skv_expr skv_json_list(skv_json_rules *r, skv_expr item, uint32_t min, uint32_t max);

/* Numbers between bounds, as automata over their digits: json_number.c. */

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
skv_expr skv_json_bounded(skv_exprs *exprs, const skv_number_bounds *bounds);

/** Every multiple of `step`, which is above 0, within the bounds, of at most 18 digits:
 * json_multiple.c. False: `step` and the bounds ask for more digits or states than there is room
 * for. */
SKV_MUST_CHECK bool skv_json_multiples(skv_exprs *exprs, const skv_number_bounds *bounds,
                                       const skv_decimal *step, skv_expr *out);

#endif
