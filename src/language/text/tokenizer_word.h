/*
 * The BPE model: one word (or a whole SentencePiece text) -> ids.
 *
 * Symbols are token ids. Above them are two kinds outside the vocabulary: `virtual` ones, for
 * characters that are only a part of tokens, and `raw` ones, for characters and bytes that no token
 * contains. Both only live until a word is written out.
 */
#ifndef SKV_TEXT_TOKENIZER_WORD_H
#define SKV_TEXT_TOKENIZER_WORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "text/bpe.h"
#include "text/tokenizer.h"
#include "text/tokenizer_vocab.h"

enum { SKV_CUT_CLASSES = 129 }; /* ASCII, and U+2581 */

typedef struct skv_bpe_model {
    skv_bpe merges;
    bool byte_level;           /* a word is raw bytes, each the symbol byte_symbol[b] */
    bool ignore_merges;        /* a word that is a token is that token */
    bool whole_newlines;       /* the same, for words of newlines alone */
    bool byte_fallback;        /* unknown characters become <0xXX> tokens, if all of these exist */
    bool fuse_unk;             /* neighbouring unknown characters are one unknown token */
    bool late_unknown;         /* SentencePiece: unknown characters are written after merging */
    bool can_cut;              /* `cut` may be used */
    uint32_t unk;              /* SKV_NO_TOKEN: unknown characters vanish */
    uint32_t byte_symbol[256]; /* byte-level: the token of the byte's character */
    uint32_t byte_token[256];  /* <0xXX>; SKV_NO_TOKEN if missing */
    uint32_t ascii[128];       /* the symbol of an ASCII character */
    /* cut[a][b]: no merge reaches from a character a to a character b after it. */
    uint8_t cut[SKV_CUT_CLASSES][SKV_CUT_CLASSES];
    uint32_t *virtual_codes; /* owned; sorted code points, symbols n_ids + index */
    size_t n_virtual;
} skv_bpe_model;

/* One call's memory: the merger's, and a cache of short words when the text is long. */
typedef struct skv_word_work {
    const skv_bpe_model *model;
    const skv_vocab *vocab;
    skv_bpe_work bpe;
    uint32_t *ahead; /* owned, [n_ahead]: the symbols of a very long word that are read again */
    size_t n_ahead;
    struct skv_cached_word *cache; /* owned; [cache_mask + 1], NULL: none */
    size_t cache_mask;
    skv_budget *budget; /* borrowed: where all of it counts; NULL: nowhere */
    skv_ids *out;
} skv_word_work;

void skv_bpe_model_release(skv_bpe_model *model);
/** Fills byte_symbol, byte_token, ascii, cut and the merges' margin from the vocabulary and the
 * merges. */
void skv_bpe_model_prepare(skv_bpe_model *model, const skv_vocab *vocab);

void skv_word_work_init(skv_word_work *work, const skv_bpe_model *model, const skv_vocab *vocab,
                        size_t n_text, skv_budget *budget, skv_ids *out);
void skv_word_work_release(skv_word_work *work);
/** Appends the ids of word[0..n). */
SKV_MUST_CHECK skv_status skv_encode_word(skv_word_work *work, const char *word, size_t n,
                                          skv_error *err);

#endif
