/*
 * Earlier answers that texts are drafted from, beside a sequence's own tokens (draft_text.c): those
 * of one reader, which must not see another's. It holds the latest answers, as many as fit.
 */
#ifndef SKV_ENGINE_DRAFT_HISTORY_H
#define SKV_ENGINE_DRAFT_HISTORY_H

#include <stddef.h>
#include <stdint.h>

#include "base/fail.h"
#include "skv/skv.h"

typedef struct skv_draft_history skv_draft_history;

/** An empty one of at most max_tokens tokens, in all answers. */
SKV_MUST_CHECK skv_status skv_draft_history_create(size_t max_tokens, skv_draft_history **out,
                                                   skv_error *err);
void skv_draft_history_free(skv_draft_history *history);
/** The bytes that one of max_tokens tokens takes, at most. */
size_t skv_draft_history_bytes(size_t max_tokens);
/** Adds an answer, of a long one its end. Where there is no room, the older half of all goes. */
void skv_draft_history_add(skv_draft_history *history, const int32_t *ids, size_t n);
/** The longest match of the last tokens of ids [n] with an answer; 0: there is none. *out
 * [*n_out] are the tokens that follow it there. */
size_t skv_draft_history_find(const skv_draft_history *history, const int32_t *ids, size_t n,
                              const int32_t **out, size_t *n_out);

/** Lets the text source of a sequence use it as well, until it is freed; NULL: no more. */
void skv_sequence_set_history(skv_sequence *sequence, const skv_draft_history *history);

#endif
