/*
 * Early exit (arXiv:2410.03960, B.4): a second head on norm_swiftkv(x_l). A token whose next one it
 * is sure of (its largest probability is above a threshold, 0.95 in the paper) never enters the
 * deep layers. Nothing is missing afterwards: with SwiftKV the keys and values of those layers are
 * made from x_l for every token, before any of them runs.
 */
#include <assert.h>
#include <math.h>

#include "prefill/gates.h"

static bool leaves(const void *user, const float *logits, size_t n)
{
    const double *above = user;
    double sum = 0, top = (double)logits[0];
    for (size_t i = 1; i < n; i++) top = fmax(top, (double)logits[i]);
    for (size_t i = 0; i < n; i++) sum += exp((double)logits[i] - top);
    return 1 / sum > *above;
}

skv_exit_gate skv_early_exit_gate(const double *above)
{
    assert(*above > 0);
    return (skv_exit_gate){leaves, above};
}
