/*
 * Internals of the tokenizer: filled in on opening, read by encoding and decoding.
 *
 * Encoding is a chain. Added tokens are cut out of the raw text; each piece between them is
 * normalised; added tokens that want it are cut out of the result; the rest is split into words by
 * the pre-tokenisation steps; the model turns every word into ids.
 */
#ifndef SKV_TEXT_TOKENIZER_IMPL_H
#define SKV_TEXT_TOKENIZER_IMPL_H

#include "text/bpe.h"
#include "text/normalize.h"
#include "text/pretokenize.h"
#include "text/tokenizer.h"
#include "text/tokenizer_added.h"
#include "text/tokenizer_vocab.h"
#include "text/tokenizer_word.h"

enum {
    SKV_STEPS_MAX = 16,                /* of normalisation, of pre-tokenisation, of decoding */
    SKV_AFFIX_MAX = 8,                 /* ids put before or after the text */
    SKV_ENCODE_BYTES_MAX = 1 << 30,    /* of one text */
    SKV_TOKENIZER_FILE_MAX = 256 << 20 /* of tokenizer.json or tokenizer.model */
};

typedef enum skv_model_kind { SKV_MODEL_BPE, SKV_MODEL_UNIGRAM } skv_model_kind;

typedef enum skv_decode_kind {
    SKV_DECODE_REPLACE,    /* `from` becomes `to` in every token */
    SKV_DECODE_BYTES,      /* <0xXX> becomes the byte */
    SKV_DECODE_BYTE_LEVEL, /* characters of the GPT-2 alphabet become bytes */
    SKV_DECODE_METASPACE,  /* `from` becomes a space, and nothing in the first token */
    SKV_DECODE_STRIP       /* up to n characters `from` go from the start of every token */
} skv_decode_kind;

typedef struct skv_decode_step {
    skv_decode_kind kind;
    char *from, *to; /* owned; may be NULL */
    size_t n_from, n_to, n;
    bool keep_first; /* METASPACE: the first token keeps its space */
} skv_decode_step;

typedef struct skv_decoder {
    skv_decode_step steps[SKV_STEPS_MAX];
    size_t n_steps;
    bool lossy_bytes;   /* one U+FFFD for each bad byte (byte fallback), not for each bad run */
    bool join_by_space; /* no decoder at all: tokens are words */
    char strip_char[8]; /* after joining: up to n_strip of these go from the start */
    size_t n_strip_char, n_strip;
} skv_decoder;

/* SentencePiece's precompiled character map: the longest known prefix becomes its replacement. */
typedef struct skv_charsmap {
    uint32_t *units; /* owned; double-array trie (Yata's Darts) */
    size_t n_units;
    char *texts; /* owned; the replacements, each ended by a zero byte */
    size_t n_texts;
} skv_charsmap;

/* SentencePiece's transformations of the text before its model. */
typedef struct skv_spm_rules {
    bool active;
    bool add_prefix;       /* a space before the text */
    bool merge_spaces;     /* no spaces at the ends, one between words */
    bool escape;           /* spaces become U+2581 */
    bool space_as_suffix;  /* the added space goes to the end */
    bool raw_bytes;        /* bad bytes reach the model; otherwise they become U+FFFD */
    skv_charsmap charsmap; /* empty for the identity */
    skv_trie user_defined; /* pieces that are taken out of the text as they are */
} skv_spm_rules;

/*
 * The unigram model (Kudo 2018): of all ways to spell a text with tokens, the one with the
 * highest sum of scores, by Viterbi's algorithm over byte positions.
 */
typedef struct skv_unigram {
    skv_trie pieces; /* values: ids */
    float *scores;   /* owned; [n_ids], log probabilities */
    float unk_score;
    uint32_t unk;
    bool byte_fallback;
    uint32_t byte_token[256]; /* SKV_NO_TOKEN if missing */
} skv_unigram;

struct skv_tokenizer {
    char *name; /* owned; for messages */
    skv_vocab vocab;
    skv_model_kind model;
    skv_bpe_model bpe;
    skv_unigram unigram;
    skv_normalizer normalizer;
    skv_pretokenizer pretokenizer;
    skv_spm_rules spm;
    skv_added added;
    skv_decoder decoder;
    int32_t prefix[SKV_AFFIX_MAX], suffix[SKV_AFFIX_MAX];
    size_t n_prefix, n_suffix;
    int32_t bos, eos;    /* -1: none */
    char *chat_template; /* owned; NULL: none */
};

/** An empty tokenizer under this name. */
SKV_MUST_CHECK skv_status skv_tokenizer_create(const char *name, skv_tokenizer **out,
                                               skv_error *err);

/* tokenizer_steps.c: the parts of tokenizer.json that are lists of steps. */
struct json_t;
SKV_MUST_CHECK skv_status skv_read_normalizer(skv_tokenizer *t, const struct json_t *node,
                                              skv_error *err);
SKV_MUST_CHECK skv_status skv_read_pretokenizer(skv_tokenizer *t, const struct json_t *node,
                                                skv_error *err);
/* tokenizer_post.c */
SKV_MUST_CHECK skv_status skv_read_decoder(skv_tokenizer *t, const struct json_t *node,
                                           skv_error *err);
SKV_MUST_CHECK skv_status skv_read_postprocessor(skv_tokenizer *t, const struct json_t *node,
                                                 skv_error *err);
/* tokenizer_json.c: one merge, by the texts of its two tokens; `joined` is scratch. */
typedef struct skv_merge_text {
    const char *texts[2];
    size_t lengths[2];
} skv_merge_text;
SKV_MUST_CHECK skv_status skv_put_merge(skv_tokenizer *t, size_t rank, const skv_merge_text *merge,
                                        skv_buf *joined, skv_error *err);
/* tokenizer_config.json; fills bos, eos and the chat template. */
SKV_MUST_CHECK skv_status skv_read_tokenizer_config(skv_tokenizer *t, const char *json, size_t n,
                                                    skv_error *err);

/* tokenizer_steps.c: checked access to JSON values; `what` is the field's name in messages. */
const char *skv_node_type(const struct json_t *node);
bool skv_node_is(const struct json_t *node, const char *type);
/** The list `what` of a node of type Sequence; *list is NULL for any other node. */
SKV_MUST_CHECK skv_status skv_node_sequence(const skv_tokenizer *t, const struct json_t *node,
                                            const char *what, int depth, const struct json_t **list,
                                            skv_error *err);
SKV_MUST_CHECK skv_status skv_node_bool(const skv_tokenizer *t, const struct json_t *node,
                                        const char *what, bool fallback, bool *out, skv_error *err);
SKV_MUST_CHECK skv_status skv_node_text(const skv_tokenizer *t, const struct json_t *node,
                                        const char *what, const char **text, size_t *n,
                                        skv_error *err);
SKV_MUST_CHECK skv_status skv_node_size(const skv_tokenizer *t, const struct json_t *node,
                                        const char *what, size_t max, size_t *out, skv_error *err);
/** pattern: {"String": s} or {"Regex": s}. */
SKV_MUST_CHECK skv_status skv_node_pattern(const skv_tokenizer *t, const struct json_t *node,
                                           const char **text, size_t *n, bool *is_regex,
                                           skv_error *err);

/* tokenizer_pre.c: the pre-tokenizers that GGUF files name in tokenizer.ggml.pre. */
enum { SKV_PRE_PATTERNS_MAX = 7 };

typedef struct skv_pre_type {
    const char *patterns[SKV_PRE_PATTERNS_MAX]; /* applied one after the other; NULL at the end */
    bool ignore_merges, add_bos;
} skv_pre_type;

/** Looks up a pre-tokenizer by name; NULL if it is unknown. */
const skv_pre_type *skv_pre_type_find(const char *name, size_t n);
/** A name of the i-th of them, NULL past the last. */
const char *skv_pre_type_name(size_t i);

/* tokenizer_unigram.c */
void skv_unigram_release(skv_unigram *model);
/** Appends the ids of text[0..n). */
SKV_MUST_CHECK skv_status skv_unigram_encode(const skv_unigram *model, skv_text_piece text,
                                             skv_budget *budget, skv_ids *out, skv_error *err);

/* spm_normalize.c */
SKV_MUST_CHECK skv_status skv_charsmap_parse(skv_charsmap *map, const void *data, size_t n,
                                             const char *name, skv_error *err);
void skv_charsmap_release(skv_charsmap *map);
/** Appends the normalised text; false when out of memory. */
SKV_MUST_CHECK bool skv_spm_normalize(const skv_spm_rules *rules, const char *text, size_t n,
                                      skv_buf *out);
/** The steps that turn pieces back into text. */
SKV_MUST_CHECK skv_status skv_spm_set_decoder(skv_tokenizer *t, skv_error *err);

/* spm_merges.c */
/**
 * Builds the merges of a SentencePiece BPE vocabulary: every way to spell a token by two tokens
 * (or characters), ranked by the token's score. scores[id] belongs to the vocabulary's id;
 * pieces with the flag SKV_TOKEN_BYTE, UNKNOWN or LITERAL take part where `all` is set only.
 */
SKV_MUST_CHECK skv_status skv_spm_build_merges(skv_tokenizer *t, const float *scores, bool all,
                                               skv_error *err);

#endif
