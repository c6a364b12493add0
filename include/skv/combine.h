/**
 * Which methods can be combined. One table of rules (src/engine/combine.c) lists the combinations
 * that are not supported, with the reasons; all others work. Engines, sequences, the scheduler and
 * the commands check against it, and docs/reference/methods.md is generated from it.
 *
 * A combination has one value on each axis. A rule lists values on some axes and matches a
 * combination that has one of them on each of these axes. The first rule that matches gives the
 * reason.
 */
#ifndef SKV_COMBINE_H
#define SKV_COMBINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "skv/api.h"
#include "skv/error.h"
#include "skv/skv.h"

SKV_BEGIN

typedef enum skv_axis {
    SKV_AXIS_MODEL,  /* skv_model_kind */
    SKV_AXIS_WINDOW, /* this and the next: traits of a model, 0 or 1 */
    SKV_AXIS_KV_HEADS,
    SKV_AXIS_EXIT_HEAD, /* 0: none; 1: of all tokens; 2: of some */
    SKV_AXIS_PREFILL,
    SKV_AXIS_PRUNE,
    SKV_AXIS_EVICT,      /* skv_evictor, then the same methods by query head */
    SKV_AXIS_FFN_SKIP,   /* 0 or 1 */
    SKV_AXIS_EARLY_EXIT, /* 0 or 1 */
    SKV_AXIS_LORA,       /* 0 or 1: sequences may have an adapter */
    SKV_AXIS_SPECULATE,  /* skv_drafting */
    SKV_AXIS_KV,
    SKV_AXIS_WEIGHTS,
    SKV_AXIS_DEVICE, /* 0: keeps all promises of equal bits, as the processor; 1: only repeats; 2:
                      * such a device has the first layers alone */
    SKV_AXIS_WHERE,  /* skv_where */
    SKV_AXIS_COUNT
} skv_axis;

typedef enum skv_model_kind {
    SKV_MODEL_ORDINARY,
    SKV_MODEL_SWIFTKV,
    SKV_MODEL_ACROSSKV,       /* SwiftKV with groups of layers that share a cache */
    SKV_MODEL_STUDENT,        /* SwiftKV or AcrossKV, saved without the teacher's weights */
    SKV_MODEL_KVPRED,         /* with an auxiliary model */
    SKV_MODEL_SHARED,         /* its last layers read the keys and values of earlier layers */
    SKV_MODEL_HYBRID,         /* some of its layers keep a state instead of keys and values */
    SKV_MODEL_HYBRID_SWIFTKV, /* the same with SwiftKV, */
    SKV_MODEL_HYBRID_STUDENT  /* and without the teacher's weights */
} skv_model_kind;

/* The traits of a model that decide which methods it supports. */
typedef struct skv_model_traits {
    skv_model_kind kind;
    bool windows;         /* some layers attend to a sliding window */
    bool kv_heads_differ; /* between layers */
    bool exit_head;       /* has a head for early exits */
    bool exit_cut;        /* which has only some of the vocabulary's tokens */
} skv_model_traits;

/* Where the model is used. */
typedef enum skv_where {
    SKV_WHERE_GENERATE, /* and anything else that runs prompts and answers with skv_step */
    SKV_WHERE_CHAT,
    SKV_WHERE_BENCH,
    SKV_WHERE_COMPARE,
    SKV_WHERE_EVAL,
    SKV_WHERE_REFERENCE, /* eval --reference MODEL */
    SKV_WHERE_TEACHER,   /* eval --reference teacher */
    SKV_WHERE_SCORE,
    SKV_WHERE_SIMILARITY, /* and anything else that reads the hidden states of every layer */
    SKV_WHERE_SERVE,
    SKV_WHERE_SHIFT,    /* serve --cache-shift: skv_scheduler_options.cache_shift */
    SKV_WHERE_READ,     /* serve --role read, and any other engine with prompt_only */
    SKV_WHERE_RANKS,    /* anywhere, on several processes: skv_engine_options.team */
    SKV_WHERE_SEQUENCE, /* a sequence with another method than its engine's, as a request may have
                         */
    SKV_WHERE_INVARIANT /* skv_engine_options.batch_invariant */
} skv_where;

typedef struct skv_combination {
    unsigned at[SKV_AXIS_COUNT];
} skv_combination;

typedef struct skv_refusal {
    uint32_t values[SKV_AXIS_COUNT]; /* one bit per value; 0: any value */
    const char *why;
} skv_refusal;

/** Returns the option of an axis ("--prune"), or a description if the axis is not an option. */
SKV_API const char *skv_axis_name(skv_axis axis);
/** Returns the i-th value of an axis as users write it ("lazy", "snapkv,query"). NULL after the
 * last, and for a value that no combination has (AUTO, devices that this build does not have). */
SKV_API const char *skv_axis_value(skv_axis axis, unsigned i);
/** Returns the largest value plus one. */
SKV_API unsigned skv_axis_values(skv_axis axis);

/** Returns the i-th rule, or NULL after the last. */
SKV_API const skv_refusal *skv_refusal_at(size_t i);
/** Returns the index of the first rule that matches, or SIZE_MAX if the combination is supported.
 */
SKV_API size_t skv_combination_refused(const skv_combination *combination);
/** Returns SKV_OK, or SKV_UNSUPPORTED with the values that cannot be combined and the reason. */
SKV_CHECKED skv_status skv_combination_check(const skv_combination *combination, skv_error *err);

/** Resolves AUTO for a kind of model. Returns other methods unchanged. */
SKV_API skv_prefill skv_prefill_resolve(skv_prefill prefill, skv_model_kind kind);
/** Returns the combination of a model's traits and an engine's options. */
SKV_API skv_combination skv_combination_of(const skv_model_traits *model,
                                           const skv_engine_options *options, skv_where where);
/** Checks whether sequences of an open engine can run like this; eviction NULL: the engine's own.
 * Sequences with another method than the engine's do not skip blocks, exit early or draft by the
 * exit head. */
SKV_CHECKED skv_status skv_engine_check(const skv_engine *engine, skv_where where,
                                        skv_prefill prefill, const skv_eviction *eviction,
                                        skv_error *err);

SKV_END

#endif
