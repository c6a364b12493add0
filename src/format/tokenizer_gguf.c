/* The tokenizer in the metadata of a GGUF file. */
#include "format/gguf.h"
#include "format/tokenizer_impl.h"

skv_status skv_tokenizer_open_gguf(const struct skv_gguf *gguf, skv_tokenizer **out, skv_error *err)
{
    if (skv_gguf_find(gguf, "tokenizer.ggml.model") == NULL) {
        *out = NULL;
        return SKV_OK;
    }
    return skv_fail(err, SKV_UNSUPPORTED, "%s: tokenizer.ggml.model", skv_gguf_name(gguf));
}
