/* What must hold for every grammar that compiles, shared by its fuzz targets. */
#ifndef SKV_FUZZ_GRAMMAR_H
#define SKV_FUZZ_GRAMMAR_H

#include <stdlib.h>
#include <string.h>

#include "grammar/token_table.h"

enum { FUZZ_TOKENS = 280, FUZZ_END = 279 };

static inline void fuzz_require(int ok)
{
    if (!ok) abort();
}

static inline bool fuzz_token(void *user, uint32_t id, const char **bytes, size_t *n)
{
    static const char *const more[] = {"\"}", "\":", "\",", "{\"",      "[[",     "]]",  "\n  ",
                                       "12",  "ab",  "aaa", "\xc3\xa4", "\xa4\"", "true"};
    char *byte = user;
    if (id >= 256 + sizeof more / sizeof more[0]) return false;
    *byte = (char)id;
    *bytes = id < 256 ? byte : more[id - 256];
    *n = id < 256 ? 1 : strlen(*bytes);
    return true;
}

/* The mask, compared with every token tried alone; returns an allowed one, -1: none. */
static inline int32_t fuzz_mask(skv_matcher *m, size_t choice)
{
    uint32_t bits[FUZZ_TOKENS / 32 + 1];
    int32_t chosen = -1;
    if (skv_matcher_mask(m, bits, FUZZ_TOKENS, NULL) != SKV_OK) return -1;
    for (int32_t i = 0; i < FUZZ_TOKENS; i++) {
        int32_t id = (int32_t)(((size_t)i + choice) % FUZZ_TOKENS);
        bool said = (bits[id / 32] >> id % 32 & 1) != 0;
        bool fits = skv_matcher_accept(m, id, NULL, NULL, NULL) == SKV_OK;
        if (fits) fuzz_require(skv_matcher_rollback(m, 1));
        fuzz_require(said == fits);
        if (said && chosen < 0) chosen = id;
    }
    return chosen;
}

static inline void fuzz_walk(const skv_grammar *g, const skv_token_table *table, const char *text,
                             size_t n)
{
    skv_matcher *m = NULL, *copy = NULL;
    char forced[16];
    if (skv_matcher_create(g, table, NULL, &m, NULL) != SKV_OK) return;
    for (size_t i = 0; i < 12; i++) {
        size_t n_forced = skv_matcher_forced(m, forced, sizeof forced);
        fuzz_require(skv_matcher_copy(m, &copy, NULL) == SKV_OK);
        skv_status status = skv_matcher_accept_bytes(copy, forced, n_forced, NULL);
        fuzz_require(status == SKV_OK || skv_matcher_is_finished(m));
        skv_matcher_free(copy);
        int32_t id = fuzz_mask(m, n > 0 ? (uint8_t)text[i % n] * 7u : 0);
        if (id < 0 || skv_matcher_accept(m, id, NULL, NULL, NULL) != SKV_OK) break;
    }
    skv_matcher_free(m);
}

/* Compiles text[0..n) and walks through it, led by its own bytes. */
static inline int fuzz_grammar(skv_grammar_kind kind, const uint8_t *data, size_t n)
{
    const char *text = (const char *)data;
    char byte;
    skv_grammar *g = NULL;
    skv_token_table *table = NULL;
    skv_error err = {SKV_OK, ""};
    skv_status status = skv_grammar_compile(kind, text, n, NULL, &g, &err);
    fuzz_require(status == err.status);
    if (status != SKV_OK) return 0;
    if (skv_token_table_build(FUZZ_TOKENS, fuzz_token, &byte, &table, NULL) == SKV_OK) {
        skv_token_table_add_end(table, FUZZ_END);
        fuzz_walk(g, table, text, n);
    }
    skv_token_table_free(table);
    skv_grammar_free(g);
    return 0;
}

#endif
