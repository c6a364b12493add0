/* Blocks that rows leave out by their own values (skv/skipping.h), as hooks of a step. */
#ifndef SKV_PREFILL_HOOKS_H
#define SKV_PREFILL_HOOKS_H

#include "base/fail.h"
#include "format/source.h"
#include "model/hook.h"
#include "skv/skipping.h"

/* FFN-SkipLLM. A row's own way through the layers decides, so neither chunks nor other rows of a
 * step change anything. */
typedef struct skv_ffn_skipper {
    const skv_ffn_skip *how;       /* borrowed */
    size_t first_layer, end_layer; /* blocks of other layers are never left out */
    uint16_t *left;                /* owned, [max_rows]: of the rows of the step that is running */
    skv_backend *be;               /* borrowed */
    skv_area *rows;                /* owned, [max_rows, hidden]: those that run a block */
    size_t hidden;
    skv_hook hook; /* its state is this struct, which stays where it is */
} skv_ffn_skipper;

skv_bytes skv_ffn_skipper_bytes(const skv_config *config, const skv_backend *be, size_t max_rows);
SKV_MUST_CHECK skv_status skv_ffn_skipper_init(skv_ffn_skipper *skipper, const skv_ffn_skip *how,
                                               const skv_config *config, skv_backend *be,
                                               size_t max_rows, skv_error *err);
void skv_ffn_skipper_release(skv_ffn_skipper *skipper);

/** How alike two vectors point: x.y / (|x| |y|) of x[n] and y[n], summed in double; 0 where one of
 * them is zero. */
double skv_cosine(const float *x, const float *y, size_t n);

/** SwiftKV's early exit above a probability, which is borrowed. */
skv_hook skv_early_exit_hook(double *above);

#endif
