/*
 * Regular expressions of tokenizer.json that no hand-written scanner knows, through PCRE2.
 *
 * The files are written for Oniguruma: constructs that PCRE2 reads differently are rewritten (\s,
 * \h, Unicode classes, line anchors) or refused (class operations). Matching is bounded.
 */
#ifndef SKV_TEXT_PRETOKENIZE_REGEX_H
#define SKV_TEXT_PRETOKENIZE_REGEX_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/fail.h"

typedef struct skv_regex skv_regex;

/** Compiles a pattern; `name` is the file for errors. */
SKV_MUST_CHECK skv_status skv_regex_create(const char *pattern, size_t n, const char *name,
                                           skv_regex **out, skv_error *err);
void skv_regex_free(skv_regex *regex);

/* Working memory of matching, made at its first use. */
typedef struct skv_regex_work {
    struct skv_regex_state *state; /* owned */
    skv_buf valid;                 /* a copy of text that was not UTF-8 */
    skv_budget *budget;            /* borrowed: where both count; NULL: nowhere */
} skv_regex_work;

void skv_regex_work_release(skv_regex_work *work);

/* One search through a text: the matches from left to right, as an iterator would find them. */
typedef struct skv_regex_search {
    const skv_regex *regex;
    skv_regex_work *work;
    const char *text;
    size_t n, at;
    size_t last_end; /* of the previous match; an empty match is not taken there again */
    bool any;
} skv_regex_search;

SKV_MUST_CHECK skv_status skv_regex_begin(skv_regex_search *search, const skv_regex *regex,
                                          skv_regex_work *work, const char *text, size_t n,
                                          skv_error *err);
SKV_MUST_CHECK skv_status skv_regex_next(skv_regex_search *search, bool *found, size_t *start,
                                         size_t *end, skv_error *err);

#endif
