/*
 * The tokenizer of a GGUF file, kept beside weights that are written in another form:
 * tokenizer.gguf is a GGUF file without tensors that holds the entries tokenizing needs, byte for
 * byte. Nothing is translated, so the ids of every text stay what they were.
 */
#ifndef SKV_FORMAT_TOKENIZER_KEEP_H
#define SKV_FORMAT_TOKENIZER_KEEP_H

#include "base/fail.h"
#include "format/gguf.h"

/** What it is called in a model's folder. */
#define SKV_TOKENIZER_GGUF "tokenizer.gguf"

/** Writes folder/tokenizer.gguf; a file without a tokenizer leaves none. */
SKV_MUST_CHECK skv_status skv_tokenizer_keep(const skv_gguf *gguf, const char *folder,
                                             skv_error *err);

#endif
