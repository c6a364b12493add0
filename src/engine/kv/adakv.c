/*
 * AdaKV (arXiv:2407.11550): SnapKV's votes, with budgets by head.
 *
 * The heads of a layer together keep as many rows as they would with equal budgets, chosen by one
 * ranking of all their scores; of the budgets that come of it a head gets 1 - floor, and floor of
 * the equal one, so that no head is left with nothing. Then each head keeps its own best. Heads
 * have pages of their own, so rows that one does not keep are memory that is free.
 */
#include <math.h>

#include "base/size.h"
#include "kv/evict.h"

/* How many of a head's scores are among those within the limit; it takes equals as they come. */
static size_t count_within(const float *scores, size_t n, skv_evict_limit *limit)
{
    size_t n_above = 0, n_equal = 0;
    for (size_t i = 0; i < n; i++) {
        n_above += scores[i] > limit->score;
        n_equal += scores[i] == limit->score;
    }
    n_equal = skv_min_size(n_equal, limit->n_equal);
    limit->n_equal -= n_equal;
    return n_above + n_equal;
}

enum { HEADS_MAX = 1024 };

static void share(const skv_evict_slot *slot, size_t *n_kept)
{
    const float *lists[HEADS_MAX];
    size_t n[HEADS_MAX], all = 0, base = slot->how->capacity - slot->how->window;
    size_t n_heads = skv_min_size(slot->n_heads, HEADS_MAX);
    for (size_t h = 0; h < n_heads; h++) {
        lists[h] = slot->votes + h * slot->stride;
        n[h] = skv_evict_prefix(slot, h);
        all += n[h];
    }
    skv_evict_limit limit =
        skv_evict_find_limit(lists, n, n_heads, skv_min_size(n_heads * base, all));
    double sure = floor(slot->how->floor * (double)base);
    for (size_t h = 0; h < slot->n_heads; h++) {
        size_t own = h < n_heads ? count_within(lists[h], n[h], &limit) : base;
        double budget = rint((double)own * (1 - slot->how->floor) + sure);
        n_kept[h] = skv_min_size((size_t)budget, skv_evict_prefix(slot, h));
    }
}

const skv_evict_method skv_evict_adakv = {
    .form = "C[,w[,k[,floor]]][,max|avg][,kv|query][,exact|last]",
    .about =
        "SnapKV with more rows for heads whose votes spread; `floor` of the equal share is sure",
    .voting = SKV_VOTES_WINDOW,
    .takes = SKV_EVICT_TAKES_WINDOW | SKV_EVICT_TAKES_KERNEL | SKV_EVICT_TAKES_FLOOR |
             SKV_EVICT_TAKES_SMOOTHING | SKV_EVICT_TAKES_DEPTH,
    .window = 32,
    .kernel = 7,
    .most = SKV_EVICT_ANY_ROWS,
    .score = skv_evict_score_smoothed,
    .share = share,
};
