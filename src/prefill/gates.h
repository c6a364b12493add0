/* What rows leave out by what they look like (skv/skipping.h), as a step asks for it. */
#ifndef SKV_PREFILL_GATES_H
#define SKV_PREFILL_GATES_H

#include "model/forward.h"
#include "skv/skipping.h"

/** FFN-SkipLLM in a model of n_layers; `how` is kept. */
skv_mlp_gate skv_ffn_skip_gate(const skv_ffn_skip *how, size_t n_layers);

/** SwiftKV's early exit above a probability, which is kept. */
skv_exit_gate skv_early_exit_gate(const double *above);

#endif
