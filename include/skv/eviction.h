/**
 * Eviction: after a prompt, every KV head keeps only some of its rows. Later tokens attend to the
 * rows that were kept. Positions still count all tokens.
 *
 * A method defines which queries vote, how their attention becomes a score for each row, and how
 * many rows each head keeps. Every method keeps the last `window` rows of a prompt and the order of
 * rows, and prefers the earlier of two rows with equal scores. A prompt that is not longer than the
 * capacity is run as without eviction.
 */
#ifndef SKV_EVICTION_H
#define SKV_EVICTION_H

#include <stdbool.h>
#include <stddef.h>

#include "skv/api.h"
#include "skv/error.h"

SKV_BEGIN

/*
 * One row makes a method: SKV_EVICT_SNAPKV, its name "snapkv", skv_evict_snapkv in
 * src/engine/kv/snapkv.c, and the features it combines with (src/engine/combine.c).
 *
 *     BY_QUERY_HEAD  each query head may keep rows of its own;  BY_KV_HEAD: only each KV head
 *     HEADS_APART    a head chooses by itself;  HEADS_TOGETHER: the heads of a layer share its rows
 *
 * SnapKV: arXiv:2404.14469. PyramidKV (arXiv:2406.02069) is SnapKV with more rows for early layers,
 * AdaKV (arXiv:2407.11550) with more rows for heads that spread their attention. H2O
 * (arXiv:2306.14048) and StreamingLLM (arXiv:2309.17453), which keeps the first and the last rows,
 * are applied once, after the prompt.
 */
#define SKV_EVICTOR_LIST(X)                                                                        \
    X(SNAPKV, snapkv, BY_QUERY_HEAD, HEADS_APART)                                                  \
    X(PYRAMIDKV, pyramidkv, BY_QUERY_HEAD, HEADS_APART)                                            \
    X(ADAKV, adakv, BY_QUERY_HEAD, HEADS_TOGETHER)                                                 \
    X(H2O, h2o, BY_QUERY_HEAD, HEADS_APART)                                                        \
    X(STREAMING, streaming, BY_KV_HEAD, HEADS_APART)

typedef enum skv_evictor {
    SKV_EVICT_NONE,
#define SKV_EVICTOR_ENUM(id, name, rows, heads) SKV_EVICT_##id,
    SKV_EVICTOR_LIST(SKV_EVICTOR_ENUM)
#undef SKV_EVICTOR_ENUM
        SKV_EVICTOR_COUNT
} skv_evictor;

typedef struct skv_eviction {
    skv_evictor method;
    size_t
        capacity;  /* C: rows that a KV head keeps of a prompt, on average over heads and layers */
    size_t window; /* w: the last rows. They are always kept, and vote except with H2O; < C */
    size_t kernel; /* k: votes are smoothed over this many adjacent rows; 1: not */
    bool average;  /* by their mean instead of their maximum */
    bool by_query_head; /* each query head keeps its own rows, as in the paper */
    bool last_only;     /* SwiftKV: in the deep layers only the prompt's last row votes */
    size_t sinks;       /* STREAMING: number of first rows to keep */
    double beta;        /* PYRAMIDKV: the last layer has 1 / beta of the mean budget */
    double floor;       /* ADAKV: guaranteed share of a head's equal budget, 0..1 */
} skv_eviction;

enum { SKV_EVICTION_TEXT = 96, SKV_EVICT_WINDOW_MAX = 4096, SKV_EVICT_KERNEL_MAX = 1023 };

/**
 * Parses "METHOD:C,..." in the form of skv_eviction_form, for example "snapkv:1024,32,7,avg".
 * Omitted numbers get their defaults. "none" means no eviction. Fails with SKV_ARGUMENT; the
 * message names the faulty part.
 */
SKV_CHECKED skv_status skv_eviction_parse(const char *text, skv_eviction *out, skv_error *err);
/** Checks options that were not made by skv_eviction_parse. */
SKV_CHECKED skv_status skv_eviction_check(const skv_eviction *eviction, skv_error *err);
/** Writes all options in the form that skv_eviction_parse reads. */
SKV_API void skv_eviction_print(const skv_eviction *eviction, char out[SKV_EVICTION_TEXT]);
/** Describes the i-th method: its name ("snapkv"), its form ("C[,w[,k]]...") and one line of help.
 * Returns false after the last. */
SKV_API bool skv_eviction_form(size_t i, const char **name, const char **form, const char **about);
/** Returns the number of tokens at the end of a prompt that vote and therefore cannot come from a
 * cached prompt. SIZE_MAX: all of them. */
SKV_API size_t skv_eviction_voters(const skv_eviction *eviction);

SKV_END

#endif
