/* The tokens of a vocabulary for constrained decoding (skv/grammar.h). */
#include "base/buf.h"
#include "engine/vocab_impl.h"
#include "grammar/token_table.h"

typedef struct reader {
    const skv_vocab *vocab;
    skv_buf buf; /* the bytes of the token that was asked for last */
} reader;

static bool read_token(void *user, uint32_t id, const char **bytes, size_t *n)
{
    reader *r = user;
    skv_buf_clear(&r->buf);
    if (!skv_tokenizer_piece(r->vocab->tokenizer, (int32_t)id, &r->buf)) return false;
    *bytes = r->buf.data;
    *n = r->buf.size;
    return true;
}

skv_status skv_token_table_create(const skv_vocab *vocab, const int32_t *ids, size_t n_ids,
                                  skv_token_table **out, skv_error *err)
{
    reader r = {.vocab = vocab};
    skv_buf_init(&r.buf, 1 << 20);
    skv_status status =
        skv_token_table_build(skv_tokenizer_size(vocab->tokenizer), read_token, &r, out, err);
    skv_buf_release(&r.buf);
    if (status != SKV_OK) return status;
    skv_token_table_add_end(*out, skv_tokenizer_eos(vocab->tokenizer));
    for (size_t i = 0; i < n_ids; i++) skv_token_table_add_end(*out, ids[i]);
    return SKV_OK;
}
