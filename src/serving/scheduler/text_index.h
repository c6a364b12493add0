/*
 * Finds the ids that a text had when the server answered it: prompts followed by their answers,
 * looked up in the text of a later prompt.
 *
 * An entry is the ids of a prompt and of the tokens generated after it, found by a keyed hash of
 * the prompt's text. A prompt that continues the conversation begins with that text, so one pass
 * over its prefixes finds the longest known one; it may have several answers. The hash only finds:
 * callers that use the ids compare their spelling with the text (language/vocab_impl.h). A domain
 * is the group that may share entries. Any thread may call; the lock is never held for long.
 */
#ifndef SKV_SERVE_TEXT_INDEX_H
#define SKV_SERVE_TEXT_INDEX_H

#include <stddef.h>
#include <stdint.h>

#include "base/fail.h"
#include "skv/text.h"

typedef struct skv_text_index skv_text_index;

enum { SKV_TEXT_ANSWERS_MAX = 8 }; /* kept of one prompt, and found at a time */

typedef struct skv_text_found {
    int32_t *ids; /* owned (skv_free): those of all answers, one after the other */
    size_t n_answers;
    size_t n_ids[SKV_TEXT_ANSWERS_MAX]; /* of each, the newest first */
    uint64_t key;                       /* of the whole text */
} skv_text_found;

/** Of at most max_ids ids; the least recently used go first. `seed` keys the hashes. */
SKV_MUST_CHECK skv_status skv_text_index_create(size_t max_ids, uint64_t seed, skv_text_index **out,
                                                skv_error *err);
void skv_text_index_free(skv_text_index *index);

/** The answers to the longest known prompt that the text begins with: the newest ones that have
 * max_ids together. Without memory for it less is found. */
void skv_text_index_find(skv_text_index *index, uint64_t domain, skv_text_piece text,
                         size_t max_ids, skv_text_found *out);
/** Remembers the ids of the prompt whose text has this key, and of its answer. */
void skv_text_index_put(skv_text_index *index, uint64_t domain, uint64_t key, const int32_t *ids,
                        size_t n);

#endif
