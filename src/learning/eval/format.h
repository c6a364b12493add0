/*
 * The formats of records and their questions: one table. A record belongs to the first format whose
 * fields it has; a new data set is a new row.
 */
#ifndef SKV_EVAL_FORMAT_H
#define SKV_EVAL_FORMAT_H

#include "eval/example.h"
#include "eval/prompt.h"
#include "eval/records.h"
#include "format/json_doc.h"

enum { SKV_EVAL_FIELDS_MAX = 3 };

/* When a generated answer counts as right. */
typedef enum skv_answer_rule {
    SKV_ANSWER_EXACT,        /* but for white space around and between words and a last full stop */
    SKV_ANSWER_WORDS,        /* lower case, without punctuation and articles, as SQuAD compares */
    SKV_ANSWER_CONTAINS,     /* the right answer may be anywhere in it */
    SKV_ANSWER_LAST_NUMBER,  /* the last number in it is the right one */
    SKV_ANSWER_MARKED_NUMBER /* the number after "####" if there is one, else the last; of the
                              right answer too */
} skv_answer_rule;

typedef struct skv_eval_maker {
    const skv_eval_prompter *prompter; /* borrowed */
    size_t max_new;                    /* tokens of a generated answer; 0: the format's own */
    size_t window;                     /* tokens of a piece of text */
    size_t scored;                     /* of these, at the end; 0: all but the first */
    const char *subject;               /* of the file's name, for examinations; "" when unknown */
} skv_eval_maker;

typedef struct skv_eval_format {
    const char *name;
    const char *fields[SKV_EVAL_FIELDS_MAX]; /* of a record; NULL: end of the list */
    /* Turns a record into requests. Errors name the field; the caller adds file and line. */
    void (*make)(const skv_eval_maker *m, const struct skv_eval_format *format, skv_json_reader *r,
                 skv_eval_example *e);
    /* Turns log-probabilities into values; NULL: the answer is generated, and judged by `rule`. */
    void (*judge)(skv_eval_example *e);
    const char *cue, *lead, *stop_text; /* of questions, without a template: see prompt.h */
    size_t max_new;                     /* 0: as long as the right answer and some more */
    skv_answer_rule rule;
    bool has_norm; /* choices differ in length, so acc_norm is meaningful */
} skv_eval_format;

/** The format of a record, NULL when it is none of the table's. */
const skv_eval_format *skv_eval_format_of(const json_t *record);
/** The format of that name, NULL when there is none. */
const skv_eval_format *skv_eval_format_find(const char *name);

/** Fills an example from a record; `where` names file and line in errors. */
SKV_MUST_CHECK skv_status skv_eval_make(const skv_eval_maker *m, const skv_eval_format *format,
                                        const json_t *record, const char *where,
                                        skv_eval_example *e, skv_error *err);
/** The values of an example that has been asked. */
SKV_MUST_CHECK skv_status skv_eval_judge(const skv_eval_prompter *p, skv_eval_example *e,
                                         skv_error *err);

/* ---- answer.c ---- */

/** *right tells whether `said` matches one of the answers by that rule. */
SKV_MUST_CHECK skv_status skv_answer_check(skv_answer_rule rule, const char *said,
                                           char *const *answers, size_t n_answers, bool *right,
                                           skv_error *err);

/* ---- texts in windows ---- */

typedef struct skv_eval_window {
    size_t at, n;  /* of the text's tokens */
    int32_t begin; /* the token before them, -1: none */
    double bytes;  /* of the text that they are */
    size_t scored; /* how many count, at the end; 0: all but the first */
} skv_eval_window;

/** Returns the tokens of a text without its first special token, and that token (-1: the tokenizer
 * adds none). */
SKV_MUST_CHECK skv_status skv_eval_text_tokens(const skv_eval_prompter *p, skv_eval_text text,
                                               skv_ids *ids, int32_t *begin, skv_error *err);
/** How many tokens of text a window has. */
size_t skv_eval_window_tokens(size_t window, int32_t begin);
/** A request for the likelihood of one window. */
SKV_MUST_CHECK skv_status skv_eval_text_window(const skv_ids *ids, skv_eval_window w,
                                               skv_eval_example *e, skv_error *err);

/* ---- the makers of the formats ---- */

typedef void skv_format_make_fn(const skv_eval_maker *m, const skv_eval_format *format,
                                skv_json_reader *r, skv_eval_example *e);

/* format_score.c */
skv_format_make_fn skv_format_make_choices;
skv_format_make_fn skv_format_make_partial;
skv_format_make_fn skv_format_make_pair;
skv_format_make_fn skv_format_make_word;
skv_format_make_fn skv_format_make_letters;
skv_format_make_fn skv_format_make_truthful;
skv_format_make_fn skv_format_make_text;
/* format_ask.c */
skv_format_make_fn skv_format_make_document;
skv_format_make_fn skv_format_make_register;
skv_format_make_fn skv_format_make_pairs;
skv_format_make_fn skv_format_make_aliases;
skv_format_make_fn skv_format_make_sum;

#endif
