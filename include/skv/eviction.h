/**
 * Eviction: after a prompt was read, every KV head keeps only some of its rows. What is kept
 * attends and is attended to as before; positions go on counting all tokens.
 *
 * A method says who votes (which queries' attention counts), what the votes become (scores), and
 * how many rows each head may keep. Whatever it is, the last `window` rows of a prompt stay, kept
 * rows stay in order, and of equal scores the earlier row is kept. A prompt that is not longer than
 * the capacity loses nothing, and is run as if nothing had been asked for.
 */
#ifndef SKV_EVICTION_H
#define SKV_EVICTION_H

#include <stdbool.h>
#include <stddef.h>

#include "skv/api.h"
#include "skv/error.h"

SKV_BEGIN

typedef enum skv_evictor {
    SKV_EVICT_NONE,
    SKV_EVICT_SNAPKV,    /* arXiv:2404.14469 */
    SKV_EVICT_PYRAMIDKV, /* arXiv:2406.02069: the same with more rows for early layers */
    SKV_EVICT_ADAKV,     /* arXiv:2407.11550: the same with more rows for heads that spread */
    SKV_EVICT_H2O,       /* arXiv:2306.14048, at the end of the prompt */
    SKV_EVICT_STREAMING  /* arXiv:2309.17453: the first rows and the last, at the prompt's end */
} skv_evictor;

typedef struct skv_eviction {
    skv_evictor method;
    size_t
        capacity;  /* C: rows that a KV head keeps of a prompt, on average over heads and layers */
    size_t window; /* w: the last rows, which always stay and (but with H2O) are who votes; < C */
    size_t kernel; /* k: votes are pooled over this many neighbours; 1: not at all */
    bool average;  /* by their mean; else by their maximum */
    bool by_query_head; /* each query head keeps rows of its own, as published */
    bool last_only;     /* SwiftKV: in the deep layers only the prompt's last row votes */
    size_t sinks;       /* STREAMING: first rows that stay */
    double beta;        /* PYRAMIDKV: the last layer has 1 / beta of the mean budget */
    double floor;       /* ADAKV: share of its equal budget that a head has for certain, 0..1 */
} skv_eviction;

enum { SKV_EVICTION_TEXT = 96, SKV_EVICT_WINDOW_MAX = 4096, SKV_EVICT_KERNEL_MAX = 1023 };

/**
 * Reads "METHOD:C,..." as skv_eviction_form gives it: "snapkv:1024,32,7,avg". What is left out gets
 * its default. "none" is no eviction. SKV_ARGUMENT: the text names what is wrong.
 */
SKV_CHECKED skv_status skv_eviction_parse(const char *text, skv_eviction *out, skv_error *err);
/** Checks what was put together without skv_eviction_parse. */
SKV_CHECKED skv_status skv_eviction_check(const skv_eviction *eviction, skv_error *err);
/** Writes it so that skv_eviction_parse reads it again, every field said. */
SKV_API void skv_eviction_print(const skv_eviction *eviction, char out[SKV_EVICTION_TEXT]);
/** The name and the form of the i-th method: "snapkv", "C[,w[,k]]...", and a line about it; false:
 * there are no more. */
SKV_API bool skv_eviction_form(size_t i, const char **name, const char **form, const char **about);
/** Tokens at the end of a prompt that have to be computed with it: their queries vote. SIZE_MAX:
 * all of them. */
SKV_API size_t skv_eviction_voters(const skv_eviction *eviction);

SKV_END

#endif
