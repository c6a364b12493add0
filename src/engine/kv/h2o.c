/*
 * H2O, heavy hitters (arXiv:2306.14048), for prompts: as SnapKV's paper compares with it.
 *
 * A row's score is all the attention that it got from all tokens of the prompt; the C - w highest
 * stay, and the w most recent. The original evicts during generation too, and halves the capacity
 * between the two kinds, which is our default for w; here generated rows stay. All queries
 * have to be seen, so with SwiftKV the deep layers run for every token of the prompt.
 */
#include "kv/evict.h"

static void score(const skv_evict_slot *slot, size_t head)
{
    /* Votes are scores. */
    (void)slot;
    (void)head;
}

const skv_evict_method skv_evict_h2o = {
    .form = "C[,w][,kv|query]",
    .about = "heavy hitters: rows that all of the prompt attended to, and the last w (C/2)",
    .voting = SKV_VOTES_ALL,
    .takes = SKV_EVICT_TAKES_WINDOW,
    .window = 0,
    .kernel = 1,
    .most = 1,
    .score = score,
    .share = skv_evict_share_equally,
};
