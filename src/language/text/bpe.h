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
#include "skv/budget.h"

#define SKV_BPE_NONE UINT32_MAX

typedef struct skv_bpe_pair {
    uint64_t key;  /* left << 32 | right */
    uint32_t rank; /* the lower the earlier */
    uint32_t id;   /* the merged symbol; SKV_BPE_NONE marks an empty slot */
} skv_bpe_pair;

typedef struct skv_bpe {
    skv_bpe_pair *pairs; /* owned; [mask + 1] open addressing */
    size_t mask, n_pairs, limit;
    /* The number of symbols at the end of a text that later text can still change; 0: unlimited. */
    size_t margin;
} skv_bpe;

/* Working memory of one call. */
typedef struct skv_bpe_work {
    uint32_t *symbols; /* owned; [capacity] in: the symbols, out: the merged symbols */
    size_t capacity;
    struct skv_bpe_node *nodes; /* owned, [long_capacity]; used for long words only */
    uint64_t *heap;             /* owned, [heap_capacity]: rank << 32 | position */
    size_t long_capacity, heap_capacity;
    skv_budget *budget; /* borrowed: where all of it counts; NULL: nowhere */
} skv_bpe_work;

/** Room for n_pairs. */
SKV_MUST_CHECK bool skv_bpe_init(skv_bpe *bpe, size_t n_pairs);
void skv_bpe_release(skv_bpe *bpe);
/** Sets the result of a pair; the last of two equal pairs counts. At most n_pairs times. */
void skv_bpe_put(skv_bpe *bpe, uint32_t left, uint32_t right, uint32_t rank, uint32_t id);

/**
 * Sets `margin`. Text after the end changes earlier symbols through a chain of merges, each of
 * which takes the symbol to the left of the previous one. If every merge has a higher rank than
 * those that made its two symbols (as training writes them), all merges of a rank are done before
 * those of the next, from left to right. Ranks then rise along the chain, no rank occurs twice, and
 * the chain is at most as long as the left symbols of one merge for each rank together. This is
 * bounded by the left symbols of all merges or, if all merges that make a token have one rank, by
 * all tokens. lengths [n_ids]: symbols of a text that a token stands for, at most. `made` [n_ids]
 * is scratch.
 */
void skv_bpe_find_margin(skv_bpe *bpe, const uint32_t *lengths, uint32_t *made, size_t n_ids);

/** Makes room for n symbols. */
SKV_MUST_CHECK bool skv_bpe_reserve(skv_bpe_work *work, size_t n);
void skv_bpe_work_release(skv_bpe_work *work);
/**
 * Merges work->symbols[0..*n) in place. Short words are scanned for the lowest rank, long ones use
 * a heap in O(n log n). False when out of memory or budget.
 */
SKV_MUST_CHECK bool skv_bpe_merge(const skv_bpe *bpe, skv_bpe_work *work, size_t *n);
/**
 * As skv_bpe_merge, for the beginning of a word, more than two margins long: leaves the symbols
 * that later text cannot change, *n of them, made from the first *n_taken.
 */
SKV_MUST_CHECK bool skv_bpe_merge_front(const skv_bpe *bpe, skv_bpe_work *work, size_t *n,
                                        size_t *n_taken);

#endif
