/*
 * What methods are made of: pooled votes, equal budgets, the highest of many scores.
 */
#ifndef SKV_KV_POOL_VOTES_H
#define SKV_KV_POOL_VOTES_H

#include "kv/evict_method.h"

/** Votes pooled over `kernel` neighbours within [0, n): see pool_votes.c. */
void skv_evict_pool(float *votes, size_t n, size_t kernel, bool average, float *scratch);
/** SnapKV's scores: pooled votes. */
void skv_evict_score_pooled(const skv_evict_slot *slot, size_t head);
/** C - w rows for every head. */
void skv_evict_share_equally(const skv_evict_slot *slot, size_t *n_kept);
/** The `n_kept` highest of scores [n], the earlier of equals; ascending rows in kept [n_kept].
 * Scores are not negative. */
void skv_evict_top(const float *scores, size_t n, size_t n_kept, uint32_t *kept);
/** The n-th highest of `n_lists` lists of scores, and how many of that value are among the n. */
typedef struct skv_evict_limit {
    float score;    /* higher ones are chosen, */
    size_t n_equal; /* and so many that are equal to it */
} skv_evict_limit;
skv_evict_limit skv_evict_find_limit(const float *const *scores, const size_t *n, size_t n_lists,
                                     size_t n_chosen);

#endif
