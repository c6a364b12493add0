/*
 * Text <-> token ids, as the model's own tokenizer does it.
 *
 * One object covers byte-level BPE (GPT-2, Llama 3, Qwen ...) and SentencePiece-like BPE
 * (Llama 2, Mistral, Gemma: metaspace, byte fallback), from tokenizer.json, tokenizer.model or
 * the metadata of a GGUF file. Immutable after opening: threads share it freely.
 */
#ifndef SKV_TEXT_TOKENIZER_H
#define SKV_TEXT_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/fail.h"
#include "skv/text.h"

struct skv_gguf;
struct skv_gguf_out;
typedef struct skv_tokenizer skv_tokenizer;

typedef struct skv_ids {
    int32_t *data; /* owned; release with skv_ids_release */
    size_t n, capacity;
    size_t max;         /* that it takes; 0: any number */
    skv_budget *budget; /* borrowed: `capacity` counts there; NULL: nowhere */
} skv_ids;

void skv_ids_release(skv_ids *ids);
/** Hands the ids over, which skv_free frees and no budget counts any more. */
int32_t *skv_ids_give_away(skv_ids *ids);
/** Room for more ids. */
SKV_MUST_CHECK skv_status skv_ids_reserve(skv_ids *ids, size_t more, skv_error *err);
/** Fails with SKV_FULL, without an error text, if there are `max` ids already. */
SKV_MUST_CHECK skv_status skv_ids_push(skv_ids *ids, int32_t id, skv_error *err);
/** As skv_ids_push for several ids; those that fit are appended in any case. */
SKV_MUST_CHECK skv_status skv_ids_append(skv_ids *ids, const int32_t *more, size_t n,
                                         skv_error *err);

/** From tokenizer.json, tokenizer.model or tokenizer.gguf (format/companions.h) in the folder,
 * or where the folder leaves them (skv_tokenizer_home); *out is NULL when there are none. */
SKV_MUST_CHECK skv_status skv_tokenizer_open_folder(const char *folder, skv_tokenizer **out,
                                                    skv_error *err);
/** From a folder or a GGUF file. */
SKV_MUST_CHECK skv_status skv_tokenizer_open(const char *path, skv_tokenizer **out, skv_error *err);
/** From the metadata of a GGUF file; *out is NULL when it holds none. */
SKV_MUST_CHECK skv_status skv_tokenizer_open_gguf(const struct skv_gguf *gguf, skv_tokenizer **out,
                                                  skv_error *err);
/**
 * Appends the entries of a GGUF file that describe this tokenizer, for a model with n_ids rows in
 * its embedding. GGUF names rules instead of spelling them out, so they are found by trial: the
 * rules are written for which skv_tokenizer_open_gguf produces the same ids on a distinguishing
 * text. Fails with SKV_UNSUPPORTED if none do.
 */
SKV_MUST_CHECK skv_status skv_tokenizer_to_gguf(const skv_tokenizer *t, size_t n_ids,
                                                struct skv_gguf_out *out, skv_error *err);
/** From memory; `name` is for errors. config may be NULL (tokenizer_config.json). */
SKV_MUST_CHECK skv_status skv_tokenizer_parse_json(const char *json, size_t n, const char *config,
                                                   size_t n_config, const char *name,
                                                   skv_tokenizer **out, skv_error *err);
SKV_MUST_CHECK skv_status skv_tokenizer_parse_spm(const void *data, size_t n, const char *name,
                                                  skv_tokenizer **out, skv_error *err);
void skv_tokenizer_free(skv_tokenizer *t);

/** Appends the ids of text[0..n), or the first options.max_ids of them. Any bytes are accepted;
 * invalid UTF-8 is encoded as the original tokenizer does (byte tokens if there are any, else
 * U+FFFD). */
SKV_MUST_CHECK skv_status skv_tokenizer_encode(const skv_tokenizer *t, const char *text, size_t n,
                                               skv_encode_options options, skv_ids *out,
                                               skv_error *err);
/** Appends the text of the ids, special tokens included only with_special. */
SKV_MUST_CHECK skv_status skv_tokenizer_decode(const skv_tokenizer *t, const int32_t *ids, size_t n,
                                               skv_decode_options options, skv_buf *out,
                                               skv_error *err);

/*
 * Decoding as tokens arrive: `push` appends to out the bytes that the new id completes (whole UTF-8
 * characters), `finish` the remaining ones. The concatenation equals skv_tokenizer_decode.
 */
typedef struct skv_stream_decoder {
    const skv_tokenizer *tokenizer; /* borrowed */
    bool with_special;
    bool started;
    char held[16]; /* the unfinished character */
    size_t n_held;
    size_t n_stripped; /* characters that the decoder took from the start of the text */
    skv_buf *raw;      /* borrowed: receives each token's raw bytes; NULL: not wanted */
} skv_stream_decoder;

void skv_stream_decoder_init(skv_stream_decoder *d, const skv_tokenizer *t, bool with_special);
SKV_MUST_CHECK skv_status skv_stream_decoder_push(skv_stream_decoder *d, int32_t id, skv_buf *out,
                                                  skv_error *err);
SKV_MUST_CHECK skv_status skv_stream_decoder_finish(skv_stream_decoder *d, skv_buf *out,
                                                    skv_error *err);

size_t skv_tokenizer_size(const skv_tokenizer *t); /* ids are below this */
int32_t skv_tokenizer_bos(const skv_tokenizer *t); /* -1: none */
int32_t skv_tokenizer_eos(const skv_tokenizer *t); /* -1: none */
bool skv_tokenizer_is_special(const skv_tokenizer *t, int32_t id);
/** The id of a token's text as the vocabulary spells it, -1 when there is none. */
int32_t skv_tokenizer_find(const skv_tokenizer *t, const char *text, size_t n);
/** Appends the bytes that the id adds to a text in progress, which may be a part of a character;
 * false for special, unknown and unused tokens, which are no text, and when out is full. */
SKV_MUST_CHECK bool skv_tokenizer_piece(const skv_tokenizer *t, int32_t id, skv_buf *out);
/** As above, with special and unknown tokens as they are spelled; false for an invalid id. */
SKV_MUST_CHECK bool skv_tokenizer_bytes(const skv_tokenizer *t, int32_t id, skv_buf *out);
/** The vocabulary's spelling of an id; NULL when there is none. */
const char *skv_tokenizer_text(const skv_tokenizer *t, int32_t id, size_t *n);
/** Refuses a tokenizer of a model beside another that means another text by an id than the base's
 * does; `name` (its file) and `role` ("auxiliary model") are for errors. */
SKV_MUST_CHECK skv_status skv_tokenizer_compare(const skv_tokenizer *t, const skv_tokenizer *other,
                                                const char *name, const char *role, skv_error *err);
/** The chat template of the folder or file (Jinja source), NULL when there is none. */
const char *skv_tokenizer_chat_template(const skv_tokenizer *t);

/*
 * Walking along a text with tokens: which bytes each of them covers.
 *
 * A token covers the bytes that it decodes to. Three things that tokenizers do at added tokens
 * ("<|user|>") and at the start are allowed for: a space that is put before a piece of text, and
 * white space that an added token takes from its left or right. Everything else has to agree byte
 * for byte; the walk ends where it does not, so that a tokenizer that changes its text (lower
 * case, composed characters) is walked up to the first change.
 */
/** Ids that the tokenizer puts before every text with add_special. */
size_t skv_token_walk_prefix(const skv_tokenizer *t);

/**
 * ends[i]: bytes of text[0..n_text) that ids[0..i] cover; ends [n]. Only the first *n_walked ids
 * cover text.
 */
SKV_MUST_CHECK skv_status skv_token_walk(const skv_tokenizer *t, const int32_t *ids, size_t n,
                                         const char *text, size_t n_text, size_t *ends,
                                         size_t *n_walked, skv_error *err);

#endif
