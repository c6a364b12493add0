/**
 * Fields: the name, the bounds and the meaning of one value of an options struct. The options of
 * the command line, the keys of recipes and the members of requests are tables of fields, so a
 * value has the same bounds and error text regardless of its origin.
 */
#ifndef SKV_COMMON_FIELD_H
#define SKV_COMMON_FIELD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/fail.h"

/* The type of a field in its struct. */
typedef enum skv_field_kind {
    SKV_FIELD_FLAG,    /* bool: "no" or "yes" */
    SKV_FIELD_SIZE,    /* size_t; a value below 0, where the bounds allow one, is stored as 0 */
    SKV_FIELD_COUNT,   /* uint64_t */
    SKV_FIELD_INTEGER, /* int64_t */
    SKV_FIELD_NUMBER,  /* double */
    SKV_FIELD_SEED,    /* uint64_t: a whole number of any size */
    SKV_FIELD_CHOICE,  /* int or an enum: the place among the choices */
    SKV_FIELD_EITHER,  /* bool: true is the second of two choices */
    SKV_FIELD_WORD,    /* const char *: one of the choices, borrowed from the text */
    SKV_FIELD_TEXT,    /* const char *, borrowed from the text */
    SKV_FIELD_PARSED   /* whatever `parse` fills */
} skv_field_kind;

typedef struct skv_field skv_field;
/* Reads `text` into the field at `out`. */
typedef skv_status skv_field_parser(const skv_field *field, const char *text, void *out,
                                    skv_error *err);

struct skv_field {
    const char *name;
    const char *argument; /* the value in help texts: "N", or choices as "one|other" */
    skv_field_kind kind;
    size_t offset;   /* in its struct */
    double min, max; /* of a number */
    bool open_min, open_max;
    const char *initial; /* the default, as it is written; NULL: none, or `help` says it */
    const char *option;  /* on the command line, where that is not "--" and the name */
    const char *help;    /* one line */
    skv_field_parser *parse;
};

/* A macro's number as it is written, for `initial` and `help`. */
#define SKV_TEXT_OF(number) SKV_TEXT_OF_(number)
#define SKV_TEXT_OF_(number) #number

/** Reads 12, -1.5, 1e6, 1K, 4Ki, 2^20, 5%; false when the text is no such number. */
bool skv_number_parse(const char *text, double *out);

/** Reads a text into the field's place in `object`. Errors begin with the field's name. */
SKV_MUST_CHECK skv_status skv_field_parse(const skv_field *field, const char *text, void *object,
                                          skv_error *err);
/** Stores a number in a SIZE, COUNT, INTEGER or NUMBER. */
SKV_MUST_CHECK skv_status skv_field_set(const skv_field *field, double value, void *object,
                                        skv_error *err);
/** Checks the number that `object` has there; fields of other kinds pass. */
SKV_MUST_CHECK skv_status skv_field_check(const skv_field *field, const void *object,
                                          skv_error *err);
/** Fails because `given`, a value as a user would recognise it, is not of the field's kind. */
skv_status skv_field_mismatch(const skv_field *field, const char *given, skv_error *err);

enum { SKV_FIELD_RANGE_TEXT = 96 };
/** The bounds in words: "between 0 and 2", "above 0 and at most 1". */
void skv_field_range(const skv_field *field, char out[SKV_FIELD_RANGE_TEXT]);

#endif
