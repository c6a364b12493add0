/**
 * What goes with what. One table of rules (src/engine/combine.c) says which combinations are
 * refused, and why; all others work. Engines, sequences, the scheduler and the commands ask it, and
 * docs/methods.md is printed from it.
 *
 * A combination has a value on each axis. A rule names values on some axes and refuses whatever has
 * one of them on each; the first rule that fits gives the reason.
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
    SKV_AXIS_WINDOW, /* the other traits of a model, 0 or 1 */
    SKV_AXIS_KV_HEADS,
    SKV_AXIS_EXIT_HEAD,
    SKV_AXIS_PREFILL,
    SKV_AXIS_PRUNE,
    SKV_AXIS_EVICT,      /* skv_evictor; then those by query head, in the same order */
    SKV_AXIS_FFN_SKIP,   /* 0 or 1 */
    SKV_AXIS_EARLY_EXIT, /* 0 or 1 */
    SKV_AXIS_KV,
    SKV_AXIS_WEIGHTS,
    SKV_AXIS_WHERE, /* skv_where */
    SKV_AXIS_COUNT
} skv_axis;

typedef enum skv_model_kind {
    SKV_MODEL_ORDINARY,
    SKV_MODEL_SWIFTKV,
    SKV_MODEL_ACROSSKV, /* SwiftKV with groups of layers that share a cache */
    SKV_MODEL_STUDENT,  /* either, whose teacher's weights are not there */
    SKV_MODEL_KVPRED    /* with an auxiliary model */
} skv_model_kind;

/* What it depends on of a model what goes with it. */
typedef struct skv_model_traits {
    skv_model_kind kind;
    bool windows;         /* some layers see a window of the tokens */
    bool kv_heads_differ; /* by layer */
    bool exit_head;       /* a SwiftKV model's head for early exits */
} skv_model_traits;

/* What is done with it. */
typedef enum skv_where {
    SKV_WHERE_GENERATE, /* and whatever runs prompts and answers by skv_step */
    SKV_WHERE_CHAT,
    SKV_WHERE_BENCH,
    SKV_WHERE_COMPARE,
    SKV_WHERE_EVAL,
    SKV_WHERE_REFERENCE, /* eval --reference MODEL */
    SKV_WHERE_TEACHER,   /* eval --reference teacher */
    SKV_WHERE_SCORE,
    SKV_WHERE_SIMILARITY, /* and whatever wants hidden states of every layer */
    SKV_WHERE_SERVE,
    SKV_WHERE_SEQUENCE, /* one sequence by another method than its engine's: a request of serve */
    SKV_WHERE_INVARIANT /* by programs: skv_engine_options.batch_invariant */
} skv_where;

typedef struct skv_combination {
    unsigned at[SKV_AXIS_COUNT];
} skv_combination;

typedef struct skv_refusal {
    uint32_t values[SKV_AXIS_COUNT]; /* a bit each; 0: any */
    const char *why;
} skv_refusal;

/** What an axis is called as an option ("--prune"); where it is none, its values say themselves. */
SKV_API const char *skv_axis_name(skv_axis axis);
/** The i-th value of an axis as users say it ("lazy", "snapkv,query"), NULL at the end and in gaps
 * that no combination has (AUTO). */
SKV_API const char *skv_axis_value(skv_axis axis, unsigned i);
/** One more than the largest value. */
SKV_API unsigned skv_axis_values(skv_axis axis);

/** The i-th rule, NULL at the end. */
SKV_API const skv_refusal *skv_refusal_at(size_t i);
/** The number of the rule that refuses a combination, SIZE_MAX when it works. */
SKV_API size_t skv_combination_refused(const skv_combination *combination);
/** SKV_UNSUPPORTED with the values that do not go together, and why. */
SKV_CHECKED skv_status skv_combination_check(const skv_combination *combination, skv_error *err);

/** How AUTO reads prompts of such a model; other methods as they are. */
SKV_API skv_prefill skv_prefill_resolve(skv_prefill prefill, skv_model_kind kind);
/** What these options make of a model. */
SKV_API skv_combination skv_combination_of(const skv_model_traits *model,
                                           const skv_engine_options *options, skv_where where);
/** Whether an open engine's sequences can be run like this; eviction NULL: the engine's own. Those
 * that are run by another method than the engine's leave out nothing and never leave early. */
SKV_CHECKED skv_status skv_engine_check(const skv_engine *engine, skv_where where,
                                        skv_prefill prefill, const skv_eviction *eviction,
                                        skv_error *err);

SKV_END

#endif
