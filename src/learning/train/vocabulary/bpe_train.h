/*
 * Learning the merges of a byte-level BPE: the words of a text are counted, then the most frequent
 * pair of neighbouring tokens becomes a token, again and again. Of equally frequent pairs the one
 * with the lower ids goes first, so that the result is one and the same everywhere.
 */
#ifndef SKV_TRAIN_BPE_TRAIN_H
#define SKV_TRAIN_BPE_TRAIN_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/fail.h"
#include "text/pretokenize.h"

typedef struct skv_bpe_word {
    size_t at, n;   /* bytes in `text`; later its tokens in `tokens` */
    uint64_t count; /* times it occurs */
    uint32_t n_tokens;
} skv_bpe_word;

typedef struct skv_bpe_token {
    size_t at, n; /* bytes in `spelling` */
} skv_bpe_token;

/* Two merges may make one token: "a" + "bc", "ab" + "c". */
typedef struct skv_bpe_merge {
    uint32_t left, right, id;
} skv_bpe_merge;

typedef struct skv_bpe_trainer {
    uint32_t first;      /* id of the first byte token; ids below are special tokens */
    skv_buf text;        /* the different words, one after the other */
    skv_bpe_word *words; /* owned */
    size_t n_words, words_capacity;
    uint32_t *slots; /* owned; hash table: index of a word + 1, 0: free */
    size_t n_slots;
    uint32_t *tokens; /* owned; [text.size] the words as token ids */
    skv_buf spelling;
    skv_bpe_token *vocab; /* owned; id - first: bytes, then the results of merges, in order */
    size_t n_vocab, vocab_capacity;
    skv_bpe_merge *merges; /* owned; in order */
    size_t n_merges, merges_capacity;
    size_t n_bytes;                                                  /* of all texts */
    void (*on_progress)(void *user, const char *what, double share); /* may be NULL */
    void *user;
    skv_pretokenizer pre;
    skv_pre_work work;
} skv_bpe_trainer;

/** The byte tokens get the ids from `first` on, ordered as the GPT-2 alphabet spells them. */
SKV_MUST_CHECK skv_status skv_bpe_trainer_init(skv_bpe_trainer *t, uint32_t first, skv_error *err);
void skv_bpe_trainer_release(skv_bpe_trainer *t);
/** Counts the words of a text. */
SKV_MUST_CHECK skv_status skv_bpe_trainer_add(skv_bpe_trainer *t, const char *text, size_t n,
                                              skv_error *err);
/** Makes tokens until there are n_vocab with the 256 bytes, or nothing occurs twice. Once only. */
SKV_MUST_CHECK skv_status skv_bpe_trainer_learn(skv_bpe_trainer *t, size_t n_vocab, skv_error *err);
/** Tokens that the counted text takes. */
uint64_t skv_bpe_trainer_tokens(const skv_bpe_trainer *t);

#endif
