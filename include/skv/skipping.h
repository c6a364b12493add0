/**
 * What a token leaves out on its way through the layers, by what it looks like there: comparators
 * of SwiftKV's paper. See docs/comparators.md.
 */
#ifndef SKV_SKIPPING_H
#define SKV_SKIPPING_H

#include <stdbool.h>
#include <stddef.h>

#include "skv/api.h"

SKV_BEGIN

/*
 * FFN-SkipLLM (arXiv:2404.03865): attention always runs. In the layers from share `from` to share
 * `to` of the depth, a feed-forward block that leaves a token's hidden state as it was (the cosine
 * of the two is `similarity` or more) makes the token leave out the next n_skip blocks.
 */
typedef struct skv_ffn_skip {
    bool on;
    double similarity; /* in (-1, 1] */
    size_t warm_up;    /* so many first tokens of a sequence leave out nothing */
    size_t n_skip;     /* 0: all up to the end of these layers */
    double from, to;   /* 0 <= from < to <= 1 */
} skv_ffn_skip;

/** "0.95", "0.95,32,0,0.35,0.85", "none"; what is not said: warm_up 32, all, 0.35, 0.85. False for
 * anything else. */
SKV_API bool skv_ffn_skip_parse(const char *text, skv_ffn_skip *out);
enum { SKV_FFN_SKIP_TEXT = 128 };
/** The same with every number, or "none". */
SKV_API void skv_ffn_skip_print(const skv_ffn_skip *how, char out[SKV_FFN_SKIP_TEXT]);
/** Layers [*first, *end) of n, whose blocks may be left out. */
SKV_API void skv_ffn_skip_layers(const skv_ffn_skip *how, size_t n_layers, size_t *first,
                                 size_t *end);

SKV_END

#endif
