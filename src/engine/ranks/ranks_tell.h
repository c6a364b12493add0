/*
 * The calls that rank 0 tells the others (skv/ranks.h): every call that opens an engine, or that
 * changes a sequence, its cache or the index of known prompts. They make the same calls in the same
 * order on their own engines, so page tables and free pages are the same everywhere without being
 * sent.
 *
 * Engines and sequences are named by their addresses on rank 0. A call is told when it has
 * succeeded, a step when its caches have grown, which is the last thing in it that may fail on one
 * rank alone. Without ranks, and on the others, nothing is done.
 *
 * A message is a block of SKV_TOLD_BLOCK bytes, which most fit in, and the rest:
 *
 *     | skv_told | text, ids or spans .. | .. |
 */
#ifndef SKV_ENGINE_RANKS_TELL_H
#define SKV_ENGINE_RANKS_TELL_H

#include "engine/engine.h"
#include "kv/prefix_index.h"

enum {
    SKV_TOLD_BLOCK = 512,
    SKV_TOLD_TEXT = 4096,
    SKV_TOLD_BYTES_MAX = 1 << 30 /* of a message: far more than the ids of any context */
};

#define SKV_TOLD_VERSION                                                                           \
    ((uint64_t)SKV_VERSION_MAJOR << 48 | (uint64_t)SKV_VERSION_MINOR << 32 |                       \
     (uint64_t)SKV_VERSION_PATCH << 16 | sizeof(skv_engine_options))

typedef enum skv_told_what {
    SKV_TOLD_END,
    SKV_TOLD_OPEN, /* skv_told_open, then the path or the name of a preset, the level and the device
                    */
    SKV_TOLD_CLOSE,
    SKV_TOLD_CREATE,   /* n: max_tokens; mark: skv_prefill */
    SKV_TOLD_FREE,     /* */
    SKV_TOLD_TRUNCATE, /* n */
    SKV_TOLD_SHARE,    /* other, n */
    SKV_TOLD_EVICTION, /* skv_eviction */
    SKV_TOLD_EXPECT,   /* n */
    SKV_TOLD_EVICT,    /* */
    SKV_TOLD_STEP,     /* n spans, m ids; mark: the caches have grown */
    SKV_TOLD_INDEX,    /* n: max_blocks, m: seed */
    SKV_TOLD_MATCH,    /* n ids, of domain m; other: tokens that were found */
    SKV_TOLD_REMEMBER, /* n ids, of domain m */
    SKV_TOLD_TOUCH,    /* n ids, of domain m */
    SKV_TOLD_FORGET    /* n pages */
} skv_told_what;

typedef struct skv_told {
    uint32_t what, mark;
    uint64_t engine, sequence, other;
    uint64_t n, m;
    uint64_t n_bytes; /* of the rest of the message */
} skv_told;

typedef struct skv_told_span {
    uint64_t sequence, n, n_seen;
    uint64_t want;
} skv_told_span;

typedef struct skv_told_open {
    skv_engine_options options;         /* pointers are NULL */
    uint64_t n_path, n_level, n_device; /* of a level and a device 0: none */
    uint64_t version;                   /* SKV_TOLD_VERSION: options have the same form */
} skv_told_open;

/** Of an engine that is about to open; `preset`: by the name of one. */
SKV_MUST_CHECK skv_status skv_tell_open(skv_engine *e, const char *path, bool preset,
                                        skv_error *err);
/** All ranks have come to the end of opening: one that failed ends it for all, and so does one that
 * computes with another device, other kernels or other types, which the error names. */
SKV_MUST_CHECK skv_status skv_ranks_agree(skv_engine *e, skv_status mine, skv_error *err);
void skv_tell_close(skv_engine *e);

void skv_tell_create(const skv_sequence *s, skv_prefill prefill);
void skv_tell_free(const skv_sequence *s);
void skv_tell_truncate(const skv_sequence *s, size_t n);
void skv_tell_share(const skv_sequence *s, const skv_sequence *from, size_t n);
void skv_tell_eviction(const skv_sequence *s, const skv_eviction *eviction);
void skv_tell_expect(const skv_sequence *s, size_t n);
void skv_tell_evict(const skv_sequence *s);
SKV_MUST_CHECK skv_status skv_tell_step(skv_engine *e, const skv_span *spans, size_t n_spans,
                                        bool grown, skv_error *err);

/* ---- the index of known prompts, which is the scheduler's ---- */

void skv_tell_index(skv_engine *e, size_t max_blocks, uint64_t seed);
void skv_tell_match(const skv_sequence *s, uint64_t domain, const int32_t *ids, size_t n,
                    size_t n_found);
/** n tokens of the sequence. */
void skv_tell_remember(const skv_sequence *s, uint64_t domain, size_t n);
/** skv_prefix_index_touch */
void skv_tell_touch(skv_engine *e, uint64_t domain, const int32_t *ids, size_t n);
void skv_tell_forget(skv_engine *e, size_t n_pages);

#endif
