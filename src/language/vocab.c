/* Text for programs (skv/text.h): the tokenizer of a model, its tokens, and chat templates. */
#include "base/buf.h"
#include "base/mem.h"
#include "grammar/token_table.h"
#include "language/vocab_impl.h"
#include "skv/text.h"
#include "text/chat_template.h"

enum { TEXT_MAX = 1 << 30 }; /* bytes of any text that is decoded or rendered */

skv_status skv_vocab_open(const char *path, skv_vocab **out, skv_error *err)
{
    skv_tokenizer *tokenizer = NULL;
    SKV_TRY(skv_tokenizer_open(path, &tokenizer, err));
    SKV_REQUIRE(tokenizer, err, SKV_UNSUPPORTED, "%s: this model has no tokenizer", path);
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

skv_status skv_vocab_encode(const skv_vocab *vocab, skv_text_piece text, skv_encode_options options,
                            int32_t **ids, size_t *n_ids, skv_error *err)
{
    skv_ids out = {.budget = options.budget};
    skv_status status =
        skv_tokenizer_encode(vocab->tokenizer, text.text, text.n, options, &out, err);
    if (status != SKV_OK) {
        skv_ids_release(&out);
        return status;
    }
    *n_ids = out.n;
    *ids = skv_ids_give_away(&out);
    return SKV_OK;
}

/* Hands a finished buffer's text to the caller, or releases it; returns the status. */
static skv_status give_text(skv_buf *buf, skv_status status, char **text, size_t *n, skv_error *err)
{
    if (status == SKV_OK && !buf->failed && !buf->data) (void)skv_buf_text(buf, "");
    if (status == SKV_OK && buf->failed && buf->budget) {
        status = skv_budget_check(buf->budget, "text", err);
    }
    if (status == SKV_OK && buf->failed) {
        status = skv_fail(err, SKV_MEMORY, "text: no memory, or more than %d bytes", TEXT_MAX);
    }
    if (status != SKV_OK) {
        skv_buf_release(buf);
        return status;
    }
    *n = buf->size;
    *text = skv_buf_give_away(buf);
    return SKV_OK;
}

skv_status skv_vocab_decode(const skv_vocab *vocab, skv_id_piece ids, skv_decode_options options,
                            char **text, size_t *n_text, skv_error *err)
{
    skv_buf buf;
    skv_buf_init_within(&buf, TEXT_MAX, options.budget);
    skv_status status = skv_tokenizer_decode(vocab->tokenizer, ids.ids, ids.n, options, &buf, err);
    return give_text(&buf, status, text, n_text, err);
}

skv_status skv_vocab_token_bytes(const skv_vocab *vocab, int32_t id, char **bytes, size_t *n,
                                 skv_error *err)
{
    skv_buf buf;
    skv_buf_init(&buf, TEXT_MAX);
    const bool known = skv_tokenizer_bytes(vocab->tokenizer, id, &buf);
    const skv_status status = known || buf.failed
                                  ? SKV_OK
                                  : skv_fail(err, SKV_ARGUMENT, "token %d: no such token", (int)id);
    return give_text(&buf, status, bytes, n, err);
}

void skv_text_free(void *text_or_ids)
{
    skv_free(text_or_ids);
}

/* ---- streams ---- */

struct skv_text_stream {
    skv_stream_decoder decoder;
    skv_buf buf, raw; /* raw: the bytes of the last token */
};

skv_status skv_text_stream_create(const skv_vocab *vocab, bool with_special, skv_text_stream **out,
                                  skv_error *err)
{
    skv_text_stream *stream = skv_alloc_zero(1, sizeof *stream);
    SKV_REQUIRE(stream, err, SKV_MEMORY, "text: no memory");
    skv_stream_decoder_init(&stream->decoder, vocab->tokenizer, with_special);
    skv_buf_init(&stream->buf, TEXT_MAX);
    skv_buf_init(&stream->raw, TEXT_MAX);
    stream->decoder.raw = &stream->raw;
    *out = stream;
    return SKV_OK;
}

void skv_text_stream_free(skv_text_stream *stream)
{
    if (!stream) return;
    skv_buf_release(&stream->buf);
    skv_buf_release(&stream->raw);
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
    skv_buf_clear(&stream->raw);
    skv_status status = skv_stream_decoder_push(&stream->decoder, id, &stream->buf, err);
    return show(stream, status, text, n, err);
}

const char *skv_text_stream_bytes(const skv_text_stream *stream, size_t *n)
{
    *n = stream->raw.size;
    return stream->raw.data ? stream->raw.data : "";
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

/* ---- chat templates, with the variables that a model's own tokens add ---- */

static skv_text_piece token_text(const skv_vocab *vocab, int32_t id)
{
    skv_text_piece piece = {0};
    if (id >= 0) piece.text = skv_tokenizer_text(vocab->tokenizer, id, &piece.n);
    return piece;
}

skv_status skv_chat_template_check(skv_text_piece template_text, skv_error *err)
{
    skv_template *template = NULL;
    SKV_TRY(skv_template_parse(template_text.text, template_text.n, "chat template", NULL,
                               &template, err));
    skv_template_free(template);
    return SKV_OK;
}

static skv_status render(const skv_render_input *in, skv_budget *budget, skv_buf *out,
                         skv_buf *marks, skv_error *err)
{
    skv_template_options options = {.budget = budget, .own_mark = in->own_mark, .marks = marks};
    skv_template *template = NULL;
    if (in->vocab) {
        options.bos_token = token_text(in->vocab, skv_vocab_bos(in->vocab));
        options.eos_token = token_text(in->vocab, skv_vocab_eos(in->vocab));
    }
    SKV_TRY(skv_template_parse(in->template_text.text, in->template_text.n, "chat template", budget,
                               &template, err));
    skv_status status =
        skv_template_render(template, in->vars.text, in->vars.n, &options, out, err);
    skv_template_free(template);
    return status;
}

skv_status skv_render_marked(const skv_render_input *input, char **text, size_t *n_text,
                             skv_text_marks *marks, skv_error *err)
{
    skv_budget own;
    skv_buf out, at;
    if (!input->budget) skv_budget_init(&own, NULL);
    skv_budget *budget = input->budget ? input->budget : &own;
    skv_buf_init_within(&out, TEXT_MAX, budget);
    skv_buf_init_within(&at, SIZE_MAX / 4, budget);
    skv_status status = render(input, budget, &out, &at, err);
    status = give_text(&out, status, text, n_text, err);
    const size_t n = at.size / sizeof *marks->at;
    void *places = skv_buf_give_away(&at);
    if (status == SKV_OK)
        *marks = (skv_text_marks){places, n};
    else
        skv_free(places);
    return status;
}

skv_status skv_render(const skv_render_input *input, char **text, size_t *n_text, skv_error *err)
{
    skv_text_marks marks;
    SKV_TRY(skv_render_marked(input, text, n_text, &marks, err));
    skv_free(marks.at);
    return SKV_OK;
}

/* ---- the tokens of a vocabulary for constrained decoding (skv/grammar.h) ---- */

typedef struct reader {
    const skv_vocab *vocab;
    skv_buf buf; /* the bytes of the token that was asked for last */
} reader;

/* A special token is its text after a byte that no text contains, so that only a part that names it
 * allows it. */
static bool read_token(void *user, uint32_t id, const char **bytes, size_t *n)
{
    reader *r = user;
    skv_buf_clear(&r->buf);
    if (!skv_tokenizer_piece(r->vocab->tokenizer, (int32_t)id, &r->buf)) {
        const skv_text_piece text = token_text(r->vocab, (int32_t)id);
        if (text.n == 0) return false;
        skv_buf_clear(&r->buf);
        skv_buf_byte(&r->buf, (char)SKV_TOKEN_MARK);
        skv_buf_append(&r->buf, text.text, text.n);
    }
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
