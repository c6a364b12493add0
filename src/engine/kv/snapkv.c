/*
 * SnapKV (arXiv:2404.14469, sections 4 and 4.3).
 *
 * Equation 1: a prompt is its prefix and an observation window of its last w tokens. Equation 2:
 * every prefix row's votes are the sum over the window's queries of their softmax weights (over
 * the whole prompt, the window causally). Here the queries are those of all query heads that read
 * the KV head: their mean has the same order as their sum. Listing 1, line 13: votes are smoothed
 * over k neighbours, so that the neighbours of an important token stay too. Equation 3: the top C
 * - w of the prefix stay, and the window.
 *
 * The paper's text takes a share of the prefix as the number of rows to keep; its program, like
 * ours, takes the capacity C.
 */
#include "kv/evict.h"

const skv_evict_method skv_evict_snapkv = {
    .form = "C[,w[,k]][,max|avg][,kv|query][,exact|last]",
    .about = "rows that the prompt's last w queries attend to, clustered by pooling over k",
    .voting = SKV_VOTES_WINDOW,
    .takes = SKV_EVICT_TAKES_WINDOW | SKV_EVICT_TAKES_KERNEL | SKV_EVICT_TAKES_SMOOTHING |
             SKV_EVICT_TAKES_DEPTH,
    .window = 32,
    .kernel = 7,
    .most = 1,
    .score = skv_evict_score_smoothed,
    .share = skv_evict_share_equally,
};
