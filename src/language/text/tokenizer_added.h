/*
 * Added tokens: found in the text before the model sees it, leftmost first, the longest of those
 * that start together.
 */
#ifndef SKV_TEXT_TOKENIZER_ADDED_H
#define SKV_TEXT_TOKENIZER_ADDED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/fail.h"

/* A set of byte strings with a value each, searched from a given position. */
typedef struct skv_trie {
    uint32_t first[256];         /* node after the first byte, 0: none */
    struct skv_trie_edge *edges; /* owned; [mask + 1] open addressing by (node, byte) */
    size_t mask, n_edges;
    uint32_t *values; /* owned; [n_nodes] value + 1, 0: no string ends here */
    size_t n_nodes, nodes_capacity;
    size_t n_strings;
} skv_trie;

void skv_trie_release(skv_trie *trie);
/** Adds a string of 1 to SKV_TRIE_TEXT_MAX bytes; the last value of equal strings counts. */
SKV_MUST_CHECK skv_status skv_trie_add(skv_trie *trie, const char *text, size_t n, uint32_t value,
                                       skv_error *err);
/** The longest string at text[0..n): its length (0: none) and value. */
size_t skv_trie_longest(const skv_trie *trie, const char *text, size_t n, uint32_t *value);
/** Walks every string that begins text[0..n), shortest first; start with *state = 0, *at = 0. */
bool skv_trie_next(const skv_trie *trie, const char *text, size_t n, uint32_t *state, size_t *at,
                   uint32_t *value);

enum { SKV_TRIE_TEXT_MAX = 4096 };

typedef struct skv_added_token {
    uint32_t id;
    bool special, single_word, lstrip, rstrip;
    bool trim_ascii; /* llama.cpp strips C's isspace characters, not Unicode's spaces */
} skv_added_token;

typedef struct skv_added {
    skv_added_token *tokens; /* owned */
    size_t n, capacity;
    skv_trie raw;        /* looked for before normalisation; values index tokens */
    skv_trie normalized; /* after it */
    bool late_special;   /* some of `normalized` are special */
} skv_added;

void skv_added_release(skv_added *added);
/** Adds a token to search for as `text`, which is already normalised if after_normalizing. */
SKV_MUST_CHECK skv_status skv_added_put(skv_added *added, const char *text, size_t n,
                                        skv_added_token token, bool after_normalizing,
                                        skv_error *err);

/* A match: tokens[i] covers text[start..end), spaces that it strips included. */
typedef struct skv_added_match {
    size_t start, end;
    const skv_added_token *token; /* NULL: none in the rest of the text */
} skv_added_match;

/* A text in which tokens are looked for. */
typedef struct skv_added_text {
    const char *text; /* [n] */
    size_t n;
    bool special;        /* special tokens are wanted, */
    const size_t *marks; /* [n_marks] unless they touch data, which begin and end here in turn; */
    size_t n_marks;      /* the last ones may go on to the text's end */
} skv_added_text;

/**
 * Finds the next match in a text that begins at or after *at; nothing before `done` is stripped.
 * Advances *at past the searched text.
 */
skv_added_match skv_added_find(const skv_added *added, const skv_trie *trie,
                               const skv_added_text *in, size_t done, size_t *at);

#endif
