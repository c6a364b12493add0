/* How well a model agrees with another on a text: see docs/eval.md. */
#ifndef SKV_EVAL_AGREE_H
#define SKV_EVAL_AGREE_H

#include "eval/example.h"
#include "skv/skv.h"

/**
 * Runs both over e->right and sets, over the positions from n_right_context on, how often the most
 * likely tokens are the same and the mean KL(reference || model).
 */
SKV_MUST_CHECK skv_status skv_eval_agree(skv_engine *engine, skv_engine *reference,
                                         skv_eval_example *e, skv_error *err);

/** KL(p || q) in nats of two distributions by their logits [n]. */
double skv_eval_divergence(const float *p, const float *q, size_t n);

#endif
