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
#include "skv/error.h"

SKV_BEGIN

typedef struct skv_vocab skv_vocab;

/** Of a folder or a GGUF file; SKV_UNSUPPORTED when the model brings no tokenizer. */
SKV_CHECKED skv_status skv_vocab_open(const char *path, skv_vocab **out, skv_error *err);
SKV_API void skv_vocab_close(skv_vocab *vocab);

SKV_API size_t skv_vocab_size(const skv_vocab *vocab);
SKV_API int32_t skv_vocab_bos(const skv_vocab *vocab); /* -1: none */
SKV_API int32_t skv_vocab_eos(const skv_vocab *vocab); /* -1: none */

/**
 * The ids of text[0..n) on the heap (skv_text_free). add_special: what the tokenizer adds by
 * itself, usually BOS. parse_special: special tokens written in the text become their ids.
 */
SKV_CHECKED skv_status skv_vocab_encode(const skv_vocab *vocab, const char *text, size_t n,
                                        bool add_special, bool parse_special, int32_t **ids,
                                        size_t *n_ids, skv_error *err);
/** The text of ids on the heap, with a terminating zero that *n_text does not count. */
SKV_CHECKED skv_status skv_vocab_decode(const skv_vocab *vocab, const int32_t *ids, size_t n,
                                        bool with_special, char **text, size_t *n_text,
                                        skv_error *err);
SKV_API void skv_text_free(void *text_or_ids);

/* Text as tokens arrive: whole UTF-8 characters only. */
typedef struct skv_text_stream skv_text_stream;
SKV_CHECKED skv_status skv_text_stream_create(const skv_vocab *vocab, bool with_special,
                                              skv_text_stream **out, skv_error *err);
SKV_API void skv_text_stream_free(skv_text_stream *stream);
/** *text is what the token made certain (perhaps ""), valid until the next call. */
SKV_CHECKED skv_status skv_text_stream_push(skv_text_stream *stream, int32_t id, const char **text,
                                            size_t *n, skv_error *err);
/** What is left at the end. */
SKV_CHECKED skv_status skv_text_stream_finish(skv_text_stream *stream, const char **text, size_t *n,
                                              skv_error *err);

/* ---- chat templates ---- */

/** The model's chat template (Jinja), NULL when it has none. */
SKV_API const char *skv_vocab_chat_template(const skv_vocab *vocab);

/**
 * Renders a chat template to text on the heap, byte for byte as the usual Python stack does.
 * `vars_json` is a JSON object: messages, tools, add_generation_prompt, and what else the
 * template reads; bos_token and eos_token are added from `vocab` (may be NULL) where absent.
 */
SKV_CHECKED skv_status skv_render(const char *template_text, size_t n_template,
                                  const char *vars_json, size_t n_vars, const skv_vocab *vocab,
                                  char **text, size_t *n_text, skv_error *err);

SKV_END

#endif
