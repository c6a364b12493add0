/*
 * StreamingLLM (arXiv:2309.17453), for prompts: the first rows, which attention falls back on
 * ("sinks"), and the last ones.
 *
 * The original rolls its window on during generation and numbers positions within the cache; here,
 * as in comparisons of prompt compression, rows are dropped once and keep their true positions.
 */
#include "base/size.h"
#include "kv/evict.h"

/* Sinks before all others, then the later the better. */
static void score(const skv_evict_slot *slot, size_t head)
{
    float *scores = slot->votes + head * slot->stride;
    size_t n = skv_evict_prefix(slot, head), sinks = skv_min_size(slot->how->sinks, n);
    for (size_t i = 0; i < n; i++) scores[i] = (float)(i < sinks ? n : i);
}

const skv_evict_method skv_evict_streaming = {
    .form = "SINKS,C",
    .about = "the first SINKS rows and the last C - SINKS",
    .voting = SKV_VOTES_NONE,
    .takes = SKV_EVICT_TAKES_SINKS,
    .window = 1,
    .kernel = 1,
    .most = 1,
    .score = score,
    .share = skv_evict_share_equally,
};
