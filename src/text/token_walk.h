/*
 * Walking along a text with tokens: which bytes each of them covers.
 *
 * A token covers the bytes that it decodes to. Three things that tokenizers do at added tokens
 * ("<|user|>") and at the start are allowed for: a space that is put before a piece of text, and
 * white space that an added token takes from its left or right. Everything else has to agree byte
 * for byte; the walk ends where it does not, so that a tokenizer that changes its text (lower
 * case, composed characters) is walked up to the first change.
 */
#ifndef SKV_TEXT_TOKEN_WALK_H
#define SKV_TEXT_TOKEN_WALK_H

#include "text/tokenizer.h"

/** Ids that the tokenizer puts before every text with add_special. */
size_t skv_token_walk_prefix(const skv_tokenizer *t);

/**
 * ends[i]: bytes of text[0..n_text) behind ids[0..i]; ends [n]. *n_walked ids cover text; those
 * behind do not.
 */
SKV_MUST_CHECK skv_status skv_token_walk(const skv_tokenizer *t, const int32_t *ids, size_t n,
                                         const char *text, size_t n_text, size_t *ends,
                                         size_t *n_walked, skv_error *err);

#endif
