/* Which experts of a mixture a row meets, and their weights. */
#ifndef SKV_KERNELS_EXPERTS_H
#define SKV_KERNELS_EXPERTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct skv_experts_choice {
    size_t n_experts, n_active; /* n_active: of each row, at most n_experts */
    bool sigmoid;               /* scores are sigmoid(logit), and not softmax over all experts */
    bool renormalise;           /* weights are divided by their sum */
    float eps;                  /* sigmoid: added to that sum */
    float scale;                /* sigmoid: times each weight; 0: 1 */
} skv_experts_choice;

float skv_experts_sigmoid(float x);

/** The experts of a row by logits [n_experts]: chosen [n_active], the largest scores first and the
 * lower number of equals, and their weights [n_active]. sigmoid: `bias` [n_experts] is added to
 * scores for the choice alone; or NULL. */
void skv_experts_choose(const skv_experts_choice *how, const float *logits, const float *bias,
                        uint32_t *chosen, float *weights);

#endif
