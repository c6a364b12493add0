/*
 * The writer of a document: random words and numbers of the right set, a context of lines within a
 * budget of tokens, and questions with their answers. Each family of tasks has a file that uses it.
 *
 * A family fills the context with skv_doc_line until that returns false, then asks until
 * skv_doc_ask returns false. Failures (memory) are kept in `status` and end both loops.
 */
#ifndef SKV_DATA_DOC_WRITER_H
#define SKV_DATA_DOC_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/rng.h"
#include "data/doc_maker.h"

/* ---- doc_words.c: fixed lists, and words made of syllables ---- */

typedef enum skv_word_list {
    SKV_WORDS_ADJECTIVES,
    SKV_WORDS_FIRST_NAMES,
    SKV_WORDS_LAST_NAMES,
    SKV_WORDS_CITIES,
    SKV_WORDS_TRADES,   /* names of companies, after their founder's name */
    SKV_WORDS_SERVICES, /* that write logs */
    SKV_WORDS_ONSETS,   /* of syllables */
    SKV_WORDS_RIMES,
    /* The remaining lists are nouns by category, for learning labels. */
    SKV_WORDS_ANIMALS,
    SKV_WORDS_FOODS,
    SKV_WORDS_TOOLS,
    SKV_WORDS_CLOTHES,
    SKV_WORDS_VEHICLES,
    SKV_WORDS_INSTRUMENTS,
    SKV_WORDS_PLANTS,
    SKV_WORDS_PLACES,
    SKV_WORDS_COUNT
} skv_word_list;

enum { SKV_WORDS_CATEGORIES = SKV_WORDS_COUNT - SKV_WORDS_ANIMALS };

size_t skv_words_size(skv_word_list list);
/** i < skv_words_size(list). */
const char *skv_word_at(skv_word_list list, size_t i);

/* ---- writing ---- */

enum { SKV_DOC_WORD_MAX = 64, SKV_DOC_VALUES = 4 };

typedef struct skv_doc_word {
    char text[SKV_DOC_WORD_MAX]; /* terminated */
} skv_doc_word;

/* A fact in the context; each family gives the values its own meaning. */
typedef struct skv_doc_fact {
    skv_doc_word key, value;
    int64_t number[SKV_DOC_VALUES];
    size_t at; /* its byte offset in the context */
} skv_doc_fact;

typedef struct skv_doc_prose {
    const char *text; /* borrowed; NULL: none */
    size_t n;
} skv_doc_prose;

typedef struct skv_doc_writer {
    skv_rng rng;
    skv_document *doc;              /* borrowed */
    const skv_tokenizer *tokenizer; /* borrowed, NULL: an estimate */
    skv_doc_prose prose;
    bool held_out;
    size_t budget;      /* tokens of the document */
    size_t turn_tokens; /* of the marks around a question and its answer */
    size_t used;        /* of them so far */
    size_t n_questions; /* the requested number */
    size_t reserve;     /* tokens kept for the questions while the context is written */
    size_t n_asked;
    size_t n_again;      /* questions drawn that had been asked before */
    skv_doc_fact *facts; /* owned */
    size_t n_facts, facts_capacity;
    uint64_t *taken; /* owned; hashes of the keys in use, open addressing, 0: free */
    size_t n_taken, taken_capacity;
    skv_buf scratch;
    skv_ids ids; /* scratch, for counting tokens */
    skv_status status;
    skv_error *err;
} skv_doc_writer;

/* ---- chance ---- */

/** Uniform in 0 .. n - 1. */
size_t skv_doc_below(skv_doc_writer *w, size_t n);
/** Uniform in low .. high. */
int64_t skv_doc_between(skv_doc_writer *w, int64_t low, int64_t high);
/** log-uniform in low .. high, low >= 1. */
size_t skv_doc_scale(skv_doc_writer *w, size_t low, size_t high);
const char *skv_doc_pick(skv_doc_writer *w, skv_word_list list);
/** Any word of the categories. */
const char *skv_doc_noun(skv_doc_writer *w);

/* ---- words of the document's own set, each new to it ---- */

typedef enum skv_doc_key {
    SKV_KEY_PAIR,   /* torpid-kid */
    SKV_KEY_PSEUDO, /* bralim-tos */
    SKV_KEY_CODE,   /* K4821 */
    SKV_KEY_PERSON, /* Mira Holt */
    SKV_KEY_COMPANY,
    SKV_KEY_NUMBER /* 24169 */
} skv_doc_key;

void skv_doc_new_key(skv_doc_writer *w, skv_doc_key kind, skv_doc_word *out);
/** Any of the kinds for names of registers and entries. */
skv_doc_key skv_doc_any_key(skv_doc_writer *w);
/** A number of the document's own set in low .. high; numbers may repeat. */
int64_t skv_doc_number(skv_doc_writer *w, int64_t low, int64_t high);
/** One word of one to three syllables, of any set. */
void skv_doc_syllables(skv_doc_writer *w, size_t n, skv_doc_word *out);

/* ---- text ---- */

/** Adds to the context if it still fits; false when it does not. *at: its first byte. */
bool skv_doc_line(skv_doc_writer *w, size_t *at, const char *format, ...) SKV_PRINTF(3, 4);
/** A fact of the context; NULL when memory ran out. Valid until the next one. */
skv_doc_fact *skv_doc_fact_new(skv_doc_writer *w);

/**
 * Ends a turn with a question and gives its answer. `at` is the answer's byte offset in the
 * context. A repeated question is skipped: its answer could be copied from the earlier one, without
 * the context. Returns false when there are enough questions, none is new, or the question does not
 * fit; the first always does.
 */
bool skv_doc_ask(skv_doc_writer *w, size_t at, const char *question, const char *answer);
/** A piece of a text without turns. */
bool skv_doc_piece(skv_doc_writer *w, bool loss, const char *text, size_t n);

/** Tokens of a text, by the tokenizer or by estimate. */
size_t skv_doc_count(skv_doc_writer *w, const char *text, size_t n);
void skv_doc_failed(skv_doc_writer *w);

/* ---- the families: one file each ---- */

typedef void skv_doc_family_fn(skv_doc_writer *w);

skv_doc_family_fn skv_doc_write_tokens, skv_doc_write_repeat, skv_doc_write_copy,
    skv_doc_write_edit;
skv_doc_family_fn skv_doc_write_lines, skv_doc_write_kv, skv_doc_write_needle;
skv_doc_family_fn skv_doc_write_variables, skv_doc_write_hops, skv_doc_write_table;
skv_doc_family_fn skv_doc_write_labels, skv_doc_write_report, skv_doc_write_log;

#endif
