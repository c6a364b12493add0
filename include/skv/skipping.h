/**
 * Methods that skip parts of the layers depending on the token: baselines that SwiftKV's paper
 * compares with. See docs/reference/comparators.md.
 */
#ifndef SKV_SKIPPING_H
#define SKV_SKIPPING_H

#include <stdbool.h>
#include <stddef.h>

#include "skv/api.h"

SKV_BEGIN

/*
 * FFN-SkipLLM (arXiv:2404.03865): attention always runs. Between the fractions `from` and `to` of
 * the depth, a token skips the next n_skip feed-forward blocks after a block that barely changed
 * its hidden state (the cosine similarity of its input and output is `similarity` or more).
 */
typedef struct skv_ffn_skip {
    bool on;
    double similarity; /* in (-1, 1] */
    size_t warm_up;    /* the first tokens of a sequence, which skip nothing */
    size_t n_skip;     /* 0: all blocks up to `to` */
    double from, to;   /* 0 <= from < to <= 1 */
} skv_ffn_skip;

/** Parses "0.95", "0.95,32,0,0.35,0.85" or "none". Omitted numbers are 32, 0, 0.35 and 0.85.
 * Returns false for other text. */
SKV_API bool skv_ffn_skip_parse(const char *text, skv_ffn_skip *out);
enum { SKV_FFN_SKIP_TEXT = 128 };
/** Writes all numbers in that form, or "none". */
SKV_API void skv_ffn_skip_print(const skv_ffn_skip *how, char out[SKV_FFN_SKIP_TEXT]);

SKV_END

#endif
