/* Front ends: the parsers that turn a text of one kind into expressions, and their shared code. */
#ifndef SKV_GRAMMAR_FRONT_H
#define SKV_GRAMMAR_FRONT_H

#include <jansson.h>

#include "grammar/grammar_expr.h"

/* Each fills `exprs`, the root rule first. */
SKV_MUST_CHECK skv_status skv_regex_read(skv_exprs *exprs, const char *text, size_t n,
                                         skv_error *err);
SKV_MUST_CHECK skv_status skv_gbnf_read(skv_exprs *exprs, const char *text, size_t n,
                                        skv_error *err);
SKV_MUST_CHECK skv_status skv_schema_read(skv_exprs *exprs, const char *text, size_t n,
                                          skv_error *err);
SKV_MUST_CHECK skv_status skv_choice_read(skv_exprs *exprs, const char *text, size_t n,
                                          skv_error *err);
SKV_MUST_CHECK skv_status skv_parts_read(skv_exprs *exprs, const char *text, size_t n,
                                         skv_error *err);
/** Any JSON object. */
void skv_json_object_read(skv_exprs *exprs);

/** A schema that has been read, its references within itself; the next rule of `exprs` is every
 * value of it. */
SKV_MUST_CHECK skv_status skv_schema_read_json(skv_exprs *exprs, const json_t *json, bool loose,
                                               skv_error *err);

/*
 * Regular expressions: only the part that describes sets of texts.
 *
 * Literals, '.', classes with ranges and negation, \d \w \s and their opposites (ASCII), escapes,
 * groups (named ones too), alternatives, and the repetitions * + ? {m} {m,} {,n} {m,n}, also in
 * their lazy spelling, which describes the same texts. ^ and $ are only allowed at the ends.
 * Lookahead, lookbehind, backreferences and \b are refused by name.
 */
typedef struct skv_regex_options {
    const char *name; /* of the text, for messages */
    /* How one character of a tidy set is written, inside a JSON string for one. */
    skv_expr (*spell)(skv_exprs *exprs, const skv_code_set *set);
    bool search; /* the pattern may match anywhere, unless ^ or $ anchor it */
} skv_regex_options;

SKV_MUST_CHECK skv_status skv_regex_parse(skv_exprs *exprs, const char *text, size_t n,
                                          const skv_regex_options *options, skv_expr *out,
                                          skv_error *err);

/* ---- pieces that the GBNF notation shares ---- */

/** A hexadecimal number of exactly n_digits at text[*at..n), below 0x110000 and no surrogate. */
SKV_MUST_CHECK bool skv_read_hex(const char *text, size_t n, size_t *at, size_t n_digits,
                                 uint32_t *code);
/** "{m}", "{m,}", "{,n}" or "{m,n}" at text[*at..n); false, and *at stays, for anything else. */
SKV_MUST_CHECK bool skv_read_count(const char *text, size_t n, size_t *at, uint32_t *min,
                                   uint32_t *max);

#endif
