/* SentencePiece's normalisation, shared by tokenizer.model and GGUF. */
#ifndef SKV_TEXT_TOKENIZER_SPM_H
#define SKV_TEXT_TOKENIZER_SPM_H

#include "base/buf.h"
#include "text/tokenizer_impl.h"

/** Appends the normalised text; false when out of memory. */
SKV_MUST_CHECK bool skv_spm_normalize(const skv_spm_rules *rules, const char *text, size_t n,
                                      skv_buf *out);

/**
 * Builds the merges of a SentencePiece BPE vocabulary: every way to spell a token by two tokens
 * (or characters), ranked by the token's score. scores[id] belongs to the vocabulary's id;
 * pieces with the flag SKV_TOKEN_BYTE, UNKNOWN or LITERAL take part where `all` is set only.
 */
SKV_MUST_CHECK skv_status skv_spm_build_merges(skv_tokenizer *t, const float *scores, bool all,
                                               skv_error *err);

/** The steps that turn pieces back into text. */
SKV_MUST_CHECK skv_status skv_spm_set_decoder(skv_tokenizer *t, skv_error *err);

#endif
