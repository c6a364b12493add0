/* FFN-SkipLLM's state in a pass (skv/skipping.h): the feed-forward blocks that rows leave out by
 * their own values. Neither chunks nor other rows of a step change anything. */
#ifndef SKV_MODEL_FFN_SKIP_H
#define SKV_MODEL_FFN_SKIP_H

#include "base/fail.h"
#include "format/source.h"
#include "model/hook.h"
#include "skv/skipping.h"

typedef struct skv_ffn_skipper {
    const skv_ffn_skip *how;       /* borrowed */
    size_t first_layer, end_layer; /* blocks of other layers are never left out */
    uint16_t *left;                /* owned, [max_rows]: of the rows of x in the pass that runs */
    skv_backend *be;               /* borrowed */
    skv_area *rows;                /* owned, [max_rows, hidden]: those that run a block */
    size_t hidden;
} skv_ffn_skipper;

skv_bytes skv_ffn_skipper_bytes(const skv_config *config, const skv_backend *be, size_t max_rows);
SKV_MUST_CHECK skv_status skv_ffn_skipper_init(skv_ffn_skipper *skipper, const skv_ffn_skip *how,
                                               const skv_config *config, skv_backend *be,
                                               size_t max_rows, skv_error *err);
void skv_ffn_skipper_release(skv_ffn_skipper *skipper);

/** Begins a pass that has a skipper: no row has left out a block yet. */
void skv_ffn_skip_start(const skv_pass *p);
/** Copies the rows of x that run the next block to *rows, and returns how many these are. */
size_t skv_ffn_skip_take(const skv_pass *p, skv_rows *rows);
/** Copies those n rows back to x, and decides which of them leave out the blocks after it. */
void skv_ffn_skip_put(const skv_pass *p, size_t n);

/** How alike two vectors point: x.y / (|x| |y|) of x[n] and y[n], summed in double; 0 where one of
 * them is zero. */
double skv_cosine(const float *x, const float *y, size_t n);

#endif
