/* SwiftKV's early exit (skv/skv.h), as a hook of a step. */
#ifndef SKV_PREFILL_EARLY_EXIT_H
#define SKV_PREFILL_EARLY_EXIT_H

#include "model/hook.h"

/** Ends rows above a probability, which is borrowed. */
skv_hook skv_early_exit_hook(double *above);

#endif
