/**
 * Text: a model's tokenizer and chat template, without its weights.
 *
 * A skv_vocab is immutable; threads share it freely.
 */
#ifndef SKV_TEXT_H
#define SKV_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "skv/api.h"
#include "skv/budget.h"
#include "skv/error.h"

SKV_BEGIN

typedef struct skv_vocab skv_vocab;

/** Opens the tokenizer of a folder or a GGUF file. Fails with SKV_UNSUPPORTED if the model has no
 * tokenizer. */
SKV_CHECKED skv_status skv_vocab_open(const char *path, skv_vocab **out, skv_error *err);
SKV_API void skv_vocab_close(skv_vocab *vocab);

SKV_API size_t skv_vocab_size(const skv_vocab *vocab);
SKV_API int32_t skv_vocab_bos(const skv_vocab *vocab); /* -1: none */
SKV_API int32_t skv_vocab_eos(const skv_vocab *vocab); /* -1: none */

/* A caller's text: n bytes, not necessarily zero-terminated. */
typedef struct skv_text_piece {
    const char *text;
    size_t n;
} skv_text_piece;

/* A caller's token ids. */
typedef struct skv_id_piece {
    const int32_t *ids;
    size_t n;
} skv_id_piece;

/* The bytes of a text that are data, with arbitrary content: at[0] to at[1], at[2] to at[3], and so
 * on. The offsets rise, and there is an even number of them. */
typedef struct skv_text_marks {
    size_t *at; /* [n] */
    size_t n;
} skv_text_marks;

typedef struct skv_encode_options {
    bool add_special;   /* add the tokenizer's own special tokens: BOS, sometimes EOS */
    bool parse_special; /* special tokens that are written in the text become their ids */
    skv_budget *budget; /* borrowed: limits the call; NULL: no limit */
    size_t max_ids;     /* stops reading the text after this many ids; 0: reads all */
    /* Borrowed: with parse_special, a special token is parsed only if none of its bytes is data.
     * Everything else is tokenized as without marks. NULL: there are no data. */
    const skv_text_marks *data;
} skv_encode_options;

/** Encodes a text. The ids are allocated on the heap (skv_text_free) and not counted in the budget
 * any more; at most max_ids are returned. Fails with SKV_RANGE if the tokenizer's own rules make
 * the text much longer. */
SKV_CHECKED skv_status skv_vocab_encode(const skv_vocab *vocab, skv_text_piece text,
                                        skv_encode_options options, int32_t **ids, size_t *n_ids,
                                        skv_error *err);

typedef struct skv_decode_options {
    bool with_special;  /* special tokens have text too */
    skv_budget *budget; /* borrowed: limits the call; NULL: no limit */
} skv_decode_options;

/** Decodes ids to text on the heap, with a terminating zero that *n_text does not count. */
SKV_CHECKED skv_status skv_vocab_decode(const skv_vocab *vocab, skv_id_piece ids,
                                        skv_decode_options options, char **text, size_t *n_text,
                                        skv_error *err);
/** Returns the bytes that a token adds to a text in progress, perhaps a part of a character, on the
 * heap; for a special token, its text. Fails with SKV_ARGUMENT for an invalid id. */
SKV_CHECKED skv_status skv_vocab_token_bytes(const skv_vocab *vocab, int32_t id, char **bytes,
                                             size_t *n, skv_error *err);
SKV_API void skv_text_free(void *text_or_ids);

/* Text as tokens arrive: whole UTF-8 characters only. */
typedef struct skv_text_stream skv_text_stream;
SKV_CHECKED skv_status skv_text_stream_create(const skv_vocab *vocab, bool with_special,
                                              skv_text_stream **out, skv_error *err);
SKV_API void skv_text_stream_free(skv_text_stream *stream);
/** Adds a token. *text is the text that is now complete (maybe ""), valid until the next call. */
SKV_CHECKED skv_status skv_text_stream_push(skv_text_stream *stream, int32_t id, const char **text,
                                            size_t *n, skv_error *err);
/** Returns the bytes that the last token added to the text, perhaps a part of a character. The
 * bytes of all tokens together are the text. Valid until the next call. */
SKV_API const char *skv_text_stream_bytes(const skv_text_stream *stream, size_t *n);
/** Returns the remaining text at the end. */
SKV_CHECKED skv_status skv_text_stream_finish(skv_text_stream *stream, const char **text, size_t *n,
                                              skv_error *err);

/* ---- chat templates ---- */

/** Returns the model's chat template (Jinja), NULL if it has none. */
SKV_API const char *skv_vocab_chat_template(const skv_vocab *vocab);

/** Checks that a chat template can be parsed. SKV_FORMAT names the error and its position. */
SKV_CHECKED skv_status skv_chat_template_check(skv_text_piece template_text, skv_error *err);

/* The input of a rendering; all borrowed. */
typedef struct skv_render_input {
    skv_text_piece template_text;
    skv_text_piece vars;    /* a JSON object with the template's variables: messages, tools and
                             * others */
    const skv_vocab *vocab; /* supplies bos_token and eos_token if vars lacks them; NULL:
                             * undefined */
    skv_budget *budget;     /* NULL: the default limits */
    /* Texts in vars are data, except the parts between two of these marks, which are removed: a
     * caller that writes into a message itself encloses its own words in them. Must be secret. n 0:
     * none. */
    skv_text_piece own_mark;
} skv_render_input;

/**
 * Renders a chat template to text on the heap, byte for byte as the usual Python stack does.
 * SKV_RANGE names the limit that the template or its variables exceed.
 */
SKV_CHECKED skv_status skv_render(const skv_render_input *input, char **text, size_t *n_text,
                                  skv_error *err);
/**
 * As skv_render, and also returns the bytes of the text that come from vars, after any processing
 * by the template. The budget no longer counts them; skv_text_free frees marks->at. Roles of
 * messages that templates know ("user", "tool" ...), the vocabulary's bos_token and eos_token, and
 * numbers do not count as data.
 */
SKV_CHECKED skv_status skv_render_marked(const skv_render_input *input, char **text, size_t *n_text,
                                         skv_text_marks *marks, skv_error *err);

SKV_END

#endif
