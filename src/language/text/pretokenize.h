/*
 * Pre-tokenisation: how a text is split into the words that the model sees one by one.
 */
#ifndef SKV_TEXT_PRETOKENIZE_H
#define SKV_TEXT_PRETOKENIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/fail.h"
#include "text/pretokenize_regex.h"

/* Hand-written scanners for the regular expressions that published tokenizers split by. */

/** The length of the match at text[0..n), n >= 1; never 0: these patterns cover every text. */
typedef size_t skv_scan_fn(const char *text, size_t n);

/** Returns the scanner that implements a pattern; NULL if there is none. */
skv_scan_fn *skv_scan_for_pattern(const char *pattern, size_t n);

skv_scan_fn skv_scan_gpt2;

typedef enum skv_split_behavior {
    SKV_SPLIT_ISOLATED,             /* every match is a word */
    SKV_SPLIT_REMOVED,              /* matches go */
    SKV_SPLIT_CONTIGUOUS,           /* neighbouring matches are one word */
    SKV_SPLIT_MERGED_WITH_PREVIOUS, /* a match joins the text before it */
    SKV_SPLIT_MERGED_WITH_NEXT      /* a match joins the text after it */
} skv_split_behavior;

typedef enum skv_pre_kind {
    SKV_PRE_SCAN,      /* a scanner that covers the whole text, every match a word */
    SKV_PRE_REGEX,     /* matches of a regular expression */
    SKV_PRE_TEXT,      /* matches of a given text */
    SKV_PRE_CLASS,     /* characters of given classes, each a match */
    SKV_PRE_METASPACE, /* spaces become `text`, one is added, words begin with it */
    SKV_PRE_PREFIX,    /* a space before a text without one */
    SKV_PRE_ALPHABET   /* bytes become the characters of the GPT-2 alphabet */
} skv_pre_kind;

typedef enum skv_prepend { SKV_PREPEND_ALWAYS, SKV_PREPEND_FIRST, SKV_PREPEND_NEVER } skv_prepend;

typedef struct skv_pre_step {
    skv_pre_kind kind;
    skv_split_behavior behavior;
    bool invert;         /* the text between matches counts as match */
    bool ascii_punct;    /* CLASS: ASCII punctuation is of the class too */
    bool split;          /* METASPACE */
    unsigned classes;    /* CLASS: skv_unicode flags */
    skv_prepend prepend; /* METASPACE */
    skv_scan_fn *scan;
    skv_regex *regex; /* owned */
    char *text;       /* owned; TEXT, METASPACE */
    size_t n_text;
} skv_pre_step;

enum { SKV_PRE_STEPS_MAX = 24 };

typedef struct skv_pretokenizer {
    skv_pre_step steps[SKV_PRE_STEPS_MAX];
    size_t n_steps;
} skv_pretokenizer;

typedef skv_status skv_word_fn(void *arg, const char *word, size_t n, skv_error *err);

/* One call's memory; `word` is called for every word in order. */
typedef struct skv_pre_work {
    const skv_pretokenizer *pre;
    skv_word_fn *word;
    void *arg;
    skv_buf texts[SKV_PRE_STEPS_MAX]; /* the output of each step for its piece */
    skv_regex_work
        regexes[SKV_PRE_STEPS_MAX]; /* one a step: a search continues while later ones run */
} skv_pre_work;

void skv_pretokenizer_release(skv_pretokenizer *pre);
/** max: bytes that a piece of text may become. budget: where they count; NULL: nowhere. */
void skv_pre_work_init(skv_pre_work *work, const skv_pretokenizer *pre, size_t max,
                       skv_budget *budget, skv_word_fn *word, void *arg);
void skv_pre_work_release(skv_pre_work *work);

/** Splits text[0..n); `first` when it is the beginning of the whole text. */
SKV_MUST_CHECK skv_status skv_pretokenize(skv_pre_work *work, const char *text, size_t n,
                                          bool first, skv_error *err);

/** Adds a step that splits by a regular expression, through a scanner where one is known. */
SKV_MUST_CHECK skv_status skv_pretokenizer_add_regex(skv_pretokenizer *pre, const char *pattern,
                                                     size_t n, skv_split_behavior behavior,
                                                     bool invert, const char *name, skv_error *err);
/** Adds an empty step; NULL when there are too many. */
skv_pre_step *skv_pretokenizer_add(skv_pretokenizer *pre, skv_pre_kind kind);

/** GPT-2's alphabet: the character that represents a byte; the byte of a character, -1: none. */
uint32_t skv_alphabet_char(unsigned char byte);
int skv_alphabet_byte(uint32_t code);

#endif
