/*
 * PyramidKV (arXiv:2406.02069): SnapKV's votes, with budgets that fall linearly from the first
 * layer to the last.
 *
 * The mean of the budgets, without the window, is C - w; the last layer has 1 / beta of it and the
 * first as much more. Where the first would exceed the prefix, both ends are moved. A prompt of
 * less than twice the mean is treated as SnapKV does. "Layer" is a KV slot here: with AcrossKV
 * several layers share one.
 */
#include "base/size.h"
#include "kv/evict.h"

static void share(const skv_evict_slot *slot, size_t *n_kept)
{
    const skv_eviction *how = slot->how;
    size_t base = how->capacity - how->window;
    size_t least = (size_t)((double)base / how->beta), most = 2 * base - least;
    for (size_t h = 0; h < slot->n_heads; h++) {
        size_t n_prefix = skv_evict_prefix(slot, h), first = most, last = least;
        if (slot->n_rows[h] < 2 * base || slot->n_slots < 2) {
            n_kept[h] = skv_min_size(base, n_prefix);
            continue;
        }
        if (first >= n_prefix) {
            first = n_prefix;
            last = 2 * base - first;
        }
        size_t step = (first - last) / (slot->n_slots - 1);
        n_kept[h] = skv_min_size(first - slot->i_slot * step, n_prefix);
    }
}

const skv_evict_method skv_evict_pyramidkv = {
    .form = "C[,w[,k[,beta]]][,max|avg][,kv|query][,exact|last]",
    .about = "SnapKV with more rows for early layers: the last has 1/beta of the mean",
    .voting = SKV_VOTES_WINDOW,
    .takes = SKV_EVICT_TAKES_WINDOW | SKV_EVICT_TAKES_KERNEL | SKV_EVICT_TAKES_BETA |
             SKV_EVICT_TAKES_SMOOTHING | SKV_EVICT_TAKES_DEPTH,
    .window = 32,
    .kernel = 7,
    .most = 2,
    .score = skv_evict_score_smoothed,
    .share = share,
};
