/* Log-probabilities of tokens from a row of logits. */
#ifndef SKV_SERVE_TOKEN_PROBS_H
#define SKV_SERVE_TOKEN_PROBS_H

#include "skv/serve.h"

/* The constant that a row's logits are less: log p(i) = logits[i] - norm. */
double skv_logits_norm(const float *logits, size_t n);
/** The n_top most likely, best first, equal ones by id. */
void skv_logits_top(const float *logits, size_t n, double norm, size_t n_top, skv_token_prob *top);

#endif
