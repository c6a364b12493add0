/*
 * The two large parts of tokenizer.json, read without building a tree: the vocabulary (an object
 * of ids) and the merges (a list). jansson takes 240 ms for the 18 MB of a vocabulary of 128,000
 * tokens, this a tenth. The rest of the file is small, and jansson's.
 */
#ifndef SKV_TEXT_TOKENIZER_SKIM_H
#define SKV_TEXT_TOKENIZER_SKIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/fail.h"

typedef struct skv_skim {
    const char *vocab, *merges; /* borrowed: after the opening bracket; NULL: absent */
    size_t n_vocab, n_merges;   /* bytes up to the end of the file */
    skv_buf rest;               /* the file with {} and [] in their places */
} skv_skim;

/** Finds model.vocab (if it is an object) and model.merges; release with skv_buf_release(rest). */
SKV_MUST_CHECK skv_status skv_skim_file(const char *json, size_t n, const char *name, skv_skim *out,
                                        skv_error *err);

/* Reads the elements of one of them in order. Texts are good until the next but one call. */
typedef struct skv_skim_cursor {
    const char *text, *name; /* borrowed */
    size_t n, at;
    size_t i; /* of the next element */
    skv_buf unescaped[2];
} skv_skim_cursor;

void skv_skim_begin(skv_skim_cursor *c, const char *text, size_t n, const char *name);
void skv_skim_end(skv_skim_cursor *c);
/** Reads "text": id. *more is false after the last one. */
SKV_MUST_CHECK skv_status skv_skim_token(skv_skim_cursor *c, bool *more, const char **text,
                                         size_t *n, uint32_t *id, skv_error *err);
/** "left right" (texts[1] NULL, to be split) or ["left", "right"]. */
SKV_MUST_CHECK skv_status skv_skim_merge(skv_skim_cursor *c, bool *more, const char *texts[2],
                                         size_t lengths[2], skv_error *err);

#endif
