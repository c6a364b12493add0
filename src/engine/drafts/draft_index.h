/*
 * Where tokens were seen before: the places of a text, chained by the two tokens before each,
 * newest first, as in a compressor. Memory is bounded by the text's length, and a search looks at a
 * bounded number of places.
 */
#ifndef SKV_ENGINE_DRAFT_INDEX_H
#define SKV_ENGINE_DRAFT_INDEX_H

#include <stddef.h>
#include <stdint.h>

#include "base/fail.h"

enum { SKV_DRAFT_GRAM = 2 }; /* the shortest match */

typedef struct skv_draft_index skv_draft_index;

/** An empty index of a text of at most max_tokens tokens. */
SKV_MUST_CHECK skv_status skv_draft_index_create(size_t max_tokens, skv_draft_index **out,
                                                 skv_error *err);
void skv_draft_index_free(skv_draft_index *index);
/** The bytes that one of max_tokens tokens takes, at most. */
size_t skv_draft_index_bytes(size_t max_tokens);

/** The text [*n] that the index has the places of. */
const int32_t *skv_draft_index_ids(const skv_draft_index *index, size_t *n);
/** Appends a token; there must be room. */
void skv_draft_index_put(skv_draft_index *index, int32_t id);
/** Forgets the tokens from n on. */
void skv_draft_index_truncate(skv_draft_index *index, size_t n);
/** The longest match of the last tokens of ids [n] with tokens of the text, the latest of equal
 * ones. Returns its length, SKV_DRAFT_GRAM or more, and in *at the place after it; 0: there is
 * none. */
size_t skv_draft_index_find(const skv_draft_index *index, const int32_t *ids, size_t n, size_t *at);

#endif
