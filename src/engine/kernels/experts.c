/* The choice of experts: see experts.h. */
#include "kernels/experts.h"

#include <math.h>

float skv_experts_sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

/* The n_active experts with the largest scores of a row, in falling order: chosen[j], scores[j]. */
static void choose(const skv_experts_choice *how, const float *logits, const float *bias,
                   uint32_t *chosen, float *scores)
{
    size_t n = 0;
    for (size_t e = 0; e < how->n_experts; e++) {
        const float score =
            how->sigmoid ? skv_experts_sigmoid(logits[e]) + (bias ? bias[e] : 0) : logits[e];
        if (n == how->n_active && !(score > scores[n - 1])) continue;
        size_t j = n < how->n_active ? n++ : n - 1;
        for (; j > 0 && score > scores[j - 1]; j--) {
            chosen[j] = chosen[j - 1];
            scores[j] = scores[j - 1];
        }
        chosen[j] = (uint32_t)e;
        scores[j] = score;
    }
}

/* The weights of the chosen experts by their sigmoids. */
static void weigh_sigmoids(const skv_experts_choice *how, const float *logits,
                           const uint32_t *chosen, float *weights)
{
    float sum = how->eps;
    for (size_t j = 0; j < how->n_active; j++) {
        sum += weights[j] = skv_experts_sigmoid(logits[chosen[j]]);
    }
    const float scale = how->scale != 0 ? how->scale : 1;
    for (size_t j = 0; j < how->n_active; j++) {
        weights[j] = weights[j] / (how->renormalise ? sum : 1) * scale;
    }
}

void skv_experts_choose(const skv_experts_choice *how, const float *logits, const float *bias,
                        uint32_t *chosen, float *weights)
{
    const size_t k = how->n_active;
    float sum = 0;
    choose(how, logits, bias, chosen, weights);
    if (how->sigmoid) {
        weigh_sigmoids(how, logits, chosen, weights);
        return;
    }
    for (size_t j = 0; j < k; j++) {
        weights[j] = expf(logits[chosen[j]] - logits[chosen[0]]);
        sum += weights[j];
    }
    if (!how->renormalise) {
        sum = 0;
        for (size_t e = 0; e < how->n_experts; e++) sum += expf(logits[e] - logits[chosen[0]]);
    }
    for (size_t j = 0; j < k; j++) weights[j] /= sum;
}
