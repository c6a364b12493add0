/*
 * The unigram model (Kudo 2018): of all ways to spell a text with tokens, the one with the
 * highest sum of scores, by Viterbi's algorithm over byte positions.
 */
#ifndef SKV_TEXT_TOKENIZER_UNIGRAM_H
#define SKV_TEXT_TOKENIZER_UNIGRAM_H

#include "text/tokenizer.h"
#include "text/tokenizer_added.h"

typedef struct skv_unigram {
    skv_trie pieces; /* values: ids */
    float *scores;   /* owned; [n_ids], log probabilities */
    float unk_score;
    uint32_t unk;
    bool byte_fallback;
    uint32_t byte_token[256]; /* SKV_NO_TOKEN where it is missing */
} skv_unigram;

void skv_unigram_release(skv_unigram *model);
/** Appends the ids of text[0..n). */
SKV_MUST_CHECK skv_status skv_unigram_encode(const skv_unigram *model, const char *text, size_t n,
                                             skv_ids *out, skv_error *err);

#endif
