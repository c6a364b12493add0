/* The files beside a model's weights: tokenizer, chat template, sampling defaults. */
#ifndef SKV_FORMAT_COMPANIONS_H
#define SKV_FORMAT_COMPANIONS_H

#include "base/fail.h"
#include "format/gguf.h"
#include "format/source.h"

/**
 * The folder that has a model's vocabulary, on the heap: the model's own where it has one. What is
 * stored as a difference has its base's (swiftkv_base in config.json), and a model inside one with
 * KV Prediction, as its auxiliary, has that one's. Where nothing leads further it is `folder`.
 */
SKV_MUST_CHECK skv_status skv_tokenizer_home(const char *folder, char **home, skv_error *err);

/** Copies those that are there from one model's folder to another's, of the tokenizer also what
 * the folder takes from its base. */
SKV_MUST_CHECK skv_status skv_companions_copy(const char *from, const char *to, skv_error *err);
/** The same from an open model; of a GGUF file, whose weights are written in another form, that is
 * its tokenizer with the chat template (skv_tokenizer_keep). */
SKV_MUST_CHECK skv_status skv_companions_write(const skv_source *source, const char *to,
                                               skv_error *err);
/** What a folder that names its base beside it cannot take from there. */
SKV_MUST_CHECK skv_status skv_companions_write_delta(const skv_source *source, const char *to,
                                                     skv_error *err);

/*
 * The tokenizer of a GGUF file, kept beside weights that are written in another form:
 * tokenizer.gguf is a GGUF file without tensors that holds the entries tokenizing needs, byte for
 * byte. Nothing is translated, so the ids of every text stay what they were.
 */
/** What it is called in a model's folder. */
#define SKV_TOKENIZER_GGUF "tokenizer.gguf"

/** Writes folder/tokenizer.gguf; a file without a tokenizer leaves none. */
SKV_MUST_CHECK skv_status skv_tokenizer_keep(const skv_gguf *gguf, const char *folder,
                                             skv_error *err);

#endif
