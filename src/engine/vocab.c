/* Text for programs: the tokenizer of a model. (Chat templates: render.c.) */
#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "engine/vocab_impl.h"
#include "format/gguf.h"

enum { TEXT_MAX = 1 << 30 }; /* bytes of any text that is decoded or rendered */

static skv_status open_tokenizer(const char *path, skv_tokenizer **out, skv_error *err)
{
    if (skv_file_is_folder(path)) return skv_tokenizer_open_folder(path, out, err);
    skv_gguf *gguf;
    SKV_TRY(skv_gguf_open(path, &gguf, err));
    skv_status status = skv_tokenizer_open_gguf(gguf, out, err);
    skv_gguf_close(gguf);
    return status;
}

skv_status skv_vocab_open(const char *path, skv_vocab **out, skv_error *err)
{
    skv_tokenizer *tokenizer = NULL;
    SKV_TRY(open_tokenizer(path, &tokenizer, err));
    SKV_REQUIRE(tokenizer, err, SKV_UNSUPPORTED, "%s: the model brings no tokenizer", path);
    skv_vocab *vocab = skv_alloc_zero(1, sizeof *vocab);
    if (!vocab) {
        skv_tokenizer_free(tokenizer);
        return skv_fail(err, SKV_MEMORY, "%s: no memory", path);
    }
    vocab->tokenizer = tokenizer;
    *out = vocab;
    return SKV_OK;
}

void skv_vocab_close(skv_vocab *vocab)
{
    if (!vocab) return;
    skv_tokenizer_free(vocab->tokenizer);
    skv_free(vocab);
}

size_t skv_vocab_size(const skv_vocab *vocab)
{
    return skv_tokenizer_size(vocab->tokenizer);
}

int32_t skv_vocab_bos(const skv_vocab *vocab)
{
    return skv_tokenizer_bos(vocab->tokenizer);
}

int32_t skv_vocab_eos(const skv_vocab *vocab)
{
    return skv_tokenizer_eos(vocab->tokenizer);
}

skv_status skv_vocab_encode(const skv_vocab *vocab, const char *text, size_t n, bool add_special,
                            bool parse_special, int32_t **ids, size_t *n_ids, skv_error *err)
{
    skv_ids out = {0};
    skv_encode_options options = {add_special, parse_special};
    skv_status status = skv_tokenizer_encode(vocab->tokenizer, text, n, options, &out, err);
    if (status != SKV_OK) {
        skv_ids_release(&out);
        return status;
    }
    *ids = out.data;
    *n_ids = out.n;
    return SKV_OK;
}

skv_status skv_give_text(skv_buf *buf, skv_status status, char **text, size_t *n, skv_error *err)
{
    if (status == SKV_OK && !buf->failed && !buf->data) (void)skv_buf_text(buf, "");
    if (status == SKV_OK && buf->failed) {
        status = skv_fail(err, SKV_MEMORY, "text: no memory, or more than %d bytes", TEXT_MAX);
    }
    if (status != SKV_OK) {
        skv_buf_release(buf);
        return status;
    }
    *text = buf->data;
    *n = buf->size;
    return SKV_OK;
}

skv_status skv_vocab_decode(const skv_vocab *vocab, const int32_t *ids, size_t n, bool with_special,
                            char **text, size_t *n_text, skv_error *err)
{
    skv_buf buf;
    skv_buf_init(&buf, TEXT_MAX);
    skv_status status = skv_tokenizer_decode(vocab->tokenizer, ids, n, with_special, &buf, err);
    return skv_give_text(&buf, status, text, n_text, err);
}

void skv_text_free(void *text_or_ids)
{
    skv_free(text_or_ids);
}

/* ---- streams ---- */

struct skv_text_stream {
    skv_stream_decoder decoder;
    skv_buf buf;
};

skv_status skv_text_stream_create(const skv_vocab *vocab, bool with_special, skv_text_stream **out,
                                  skv_error *err)
{
    skv_text_stream *stream = skv_alloc_zero(1, sizeof *stream);
    SKV_REQUIRE(stream, err, SKV_MEMORY, "text: no memory");
    skv_stream_decoder_init(&stream->decoder, vocab->tokenizer, with_special);
    skv_buf_init(&stream->buf, TEXT_MAX);
    *out = stream;
    return SKV_OK;
}

void skv_text_stream_free(skv_text_stream *stream)
{
    if (!stream) return;
    skv_buf_release(&stream->buf);
    skv_free(stream);
}

static skv_status show(skv_text_stream *stream, skv_status status, const char **text, size_t *n,
                       skv_error *err)
{
    if (status != SKV_OK) return status;
    SKV_REQUIRE(!stream->buf.failed, err, SKV_MEMORY, "text: no memory");
    *text = stream->buf.data ? stream->buf.data : "";
    *n = stream->buf.size;
    return SKV_OK;
}

skv_status skv_text_stream_push(skv_text_stream *stream, int32_t id, const char **text, size_t *n,
                                skv_error *err)
{
    skv_buf_clear(&stream->buf);
    skv_status status = skv_stream_decoder_push(&stream->decoder, id, &stream->buf, err);
    return show(stream, status, text, n, err);
}

skv_status skv_text_stream_finish(skv_text_stream *stream, const char **text, size_t *n,
                                  skv_error *err)
{
    skv_buf_clear(&stream->buf);
    skv_status status = skv_stream_decoder_finish(&stream->decoder, &stream->buf, err);
    return show(stream, status, text, n, err);
}

const char *skv_vocab_chat_template(const skv_vocab *vocab)
{
    return skv_tokenizer_chat_template(vocab->tokenizer);
}
