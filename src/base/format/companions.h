/* The files beside a model's weights: tokenizer, chat template, sampling defaults. */
#ifndef SKV_FORMAT_COMPANIONS_H
#define SKV_FORMAT_COMPANIONS_H

#include "base/fail.h"
#include "format/gguf.h"
#include "format/source.h"

/**
 * Finds the folder that has a model's vocabulary: the model's own if it has one. A model stored as
 * a difference uses its base's (swiftkv_base in config.json). The auxiliary inside a model with KV
 * Prediction uses that model's. Otherwise the result is `folder`. *home is allocated on the heap.
 */
SKV_MUST_CHECK skv_status skv_tokenizer_home(const char *folder, char **home, skv_error *err);

/** Copies the companion files that exist from one model's folder to another's, including tokenizer
 * files that the folder takes from its base. */
SKV_MUST_CHECK skv_status skv_companions_copy(const char *from, const char *to, skv_error *err);
/** As skv_companions_copy, from an open model. A GGUF file contributes its tokenizer with the chat
 * template (skv_tokenizer_keep), since its weights are written in another form. */
SKV_MUST_CHECK skv_status skv_companions_write(const skv_source *source, const char *to,
                                               skv_error *err);
/** Writes the files that a folder with a base beside it cannot take from that base. */
SKV_MUST_CHECK skv_status skv_companions_write_delta(const skv_source *source, const char *to,
                                                     skv_error *err);

/*
 * The tokenizer of a GGUF file, kept beside weights that are written in another form.
 * tokenizer.gguf is a GGUF file without tensors; it holds the entries needed for tokenizing, byte
 * for byte. Nothing is translated, so every text keeps its ids.
 */
/** Its name in a model's folder. */
#define SKV_TOKENIZER_GGUF "tokenizer.gguf"

/** Writes folder/tokenizer.gguf; a file without a tokenizer leaves none. */
SKV_MUST_CHECK skv_status skv_tokenizer_keep(const skv_gguf *gguf, const char *folder,
                                             skv_error *err);

#endif
