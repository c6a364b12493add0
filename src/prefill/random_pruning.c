/* RP: a prompt keeps a random share of its tokens. See pruning.h. */
#include "base/rng.h"
#include "prefill/pruning.h"

void skv_prune_random(uint64_t seed, size_t position0, size_t n, double *scores)
{
    for (size_t i = 0; i < n; i++) {
        scores[i] = (double)(skv_mix64(skv_mix64(seed) + position0 + i) >> 11) * 0x1p-53;
    }
}
