/*
 * Byte pair merging: which pairs of symbols join, in which order (Sennrich et al. 2016).
 *
 * The same engine runs merge lists (each pair has its own rank) and SentencePiece's BPE (pairs
 * that spell a piece, ranked by score): the lowest rank first, the leftmost of equal ranks.
 */
#ifndef SKV_TEXT_BPE_H
#define SKV_TEXT_BPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/fail.h"

#define SKV_BPE_NONE UINT32_MAX

typedef struct skv_bpe_pair {
    uint64_t key;  /* left << 32 | right */
    uint32_t rank; /* the lower the earlier */
    uint32_t id;   /* what the two become; SKV_BPE_NONE marks an empty slot */
} skv_bpe_pair;

typedef struct skv_bpe {
    skv_bpe_pair *pairs; /* owned; [mask + 1] open addressing */
    size_t mask, n_pairs, limit;
} skv_bpe;

/* Working memory of one call. */
typedef struct skv_bpe_work {
    uint32_t *symbols; /* owned; [capacity] in: the symbols, out: what they became */
    size_t capacity;
    struct skv_bpe_node *nodes; /* owned; used for long words only */
    struct skv_bpe_entry *heap; /* owned */
    size_t long_capacity;
} skv_bpe_work;

/** Room for n_pairs. */
SKV_MUST_CHECK bool skv_bpe_init(skv_bpe *bpe, size_t n_pairs);
void skv_bpe_release(skv_bpe *bpe);
/** Sets what a pair becomes; the last of two equal pairs counts. At most n_pairs times. */
void skv_bpe_put(skv_bpe *bpe, uint32_t left, uint32_t right, uint32_t rank, uint32_t id);

/** Makes room for n symbols. */
SKV_MUST_CHECK bool skv_bpe_reserve(skv_bpe_work *work, size_t n);
void skv_bpe_work_release(skv_bpe_work *work);
/**
 * Merges work->symbols[0..*n) in place. Short words by scanning for the lowest rank, long ones
 * with a heap in O(n log n). False when out of memory.
 */
SKV_MUST_CHECK bool skv_bpe_merge(const skv_bpe *bpe, skv_bpe_work *work, size_t *n);

#endif
