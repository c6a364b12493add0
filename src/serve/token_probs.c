/* Log-probabilities: see token_probs.h. */
#include "serve/token_probs.h"

#include <math.h>

double skv_logits_norm(const float *logits, size_t n)
{
    float best = logits[0];
    for (size_t i = 1; i < n; i++) best = logits[i] > best ? logits[i] : best;
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += exp((double)logits[i] - (double)best);
    return (double)best + log(sum);
}

void skv_logits_top(const float *logits, size_t n, double norm, size_t n_top, skv_token_prob *top)
{
    size_t n_kept = 0;
    for (size_t i = 0; i < n; i++) {
        double logprob = (double)logits[i] - norm;
        if (n_kept == n_top && (n_top == 0 || logprob <= top[n_top - 1].logprob)) continue;
        size_t at = n_kept < n_top ? n_kept++ : n_top - 1;
        for (; at > 0 && top[at - 1].logprob < logprob; at--) top[at] = top[at - 1];
        top[at] = (skv_token_prob){(int32_t)i, logprob};
    }
}
