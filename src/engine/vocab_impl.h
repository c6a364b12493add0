/* What the files behind skv/text.h share. */
#ifndef SKV_ENGINE_VOCAB_IMPL_H
#define SKV_ENGINE_VOCAB_IMPL_H

#include "base/buf.h"
#include "skv/text.h"
#include "text/tokenizer.h"

struct skv_vocab {
    skv_tokenizer *tokenizer; /* owned */
};

/** Hands a finished buffer's text to the caller, or releases it; returns the status. */
SKV_MUST_CHECK skv_status skv_give_text(skv_buf *buf, skv_status status, char **text, size_t *n,
                                        skv_error *err);

#endif
