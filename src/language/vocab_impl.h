/* The library's internal interface of a vocabulary, beyond skv/text.h. */
#ifndef SKV_LANGUAGE_VOCAB_IMPL_H
#define SKV_LANGUAGE_VOCAB_IMPL_H

#include "skv/text.h"
#include "text/tokenizer.h"

struct skv_vocab {
    skv_tokenizer *tokenizer; /* owned */
};

/*
 * Ids for a text whose beginning is already known as other ids.
 *
 * The ids that a model generates often differ from the tokenizer's ids for the same text. A text
 * that comes back with an answer inside keeps the ids of the answer up to a place where both have a
 * boundary between tokens; from there on it has the tokenizer's. The result therefore decodes to
 * the same text, and the text after the answer is tokenized as if nothing had been kept.
 */

/* A text and the ids that encoding gave it. */
typedef struct skv_read_text {
    const char *text; /* [n] */
    size_t n;
    bool add_special;   /* the ids begin with special tokens of the tokenizer that are not in the
                         * text */
    const int32_t *ids; /* [n_ids] */
    size_t n_ids;
    skv_text_marks data; /* borrowed: as the text was encoded. No known id that is special is kept
                          * inside data, nor any id after it */
} skv_read_text;

typedef struct skv_splice {
    int32_t *ids; /* owned (skv_text_free); NULL: nothing is gained, the text's own ids hold */
    size_t n_ids;
    size_t n_same; /* ids at the beginning that are the text's own anyway */
    size_t n_kept; /* ids at the beginning that are the known ones */
} skv_splice;

SKV_CHECKED skv_status skv_vocab_splice(const skv_vocab *vocab, const skv_read_text *read,
                                        const int32_t *known, size_t n_known, skv_splice *out,
                                        skv_error *err);

#endif
