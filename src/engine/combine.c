/*
 * The rules of combinations: see skv/combine.h. A method that does not go with another gets
 * a row here, and nothing else: whoever runs models asks this table.
 */
#include "skv/combine.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "engine/engine.h"

#define COUNT(table) ((unsigned)(sizeof(table) / sizeof *(table)))
#define BIT(value) (UINT32_C(1) << (value))

enum { EVICTORS = SKV_EVICTOR_COUNT };

/* ---- axes ---- */

static const char *const kinds[] = {"ordinary model",
                                    "SwiftKV model",
                                    "AcrossKV model",
                                    "SwiftKV model without its teacher",
                                    "KV Prediction model",
                                    "model with shared keys and values",
                                    "hybrid model",
                                    "SwiftKV hybrid model",
                                    "SwiftKV hybrid model without its teacher"};
static const char *const windows[] = {"no sliding windows", "sliding windows in some layers"};
static const char *const kv_heads[] = {"as many KV heads in all layers",
                                       "KV heads that differ by layer"};
static const char *const exit_heads[] = {"no exit head", "an exit head",
                                         "an exit head of some tokens"};
static const char *const switches[] = {"none", "on"};
static const char *const prunes[] = {"none", "random", "static", "lazy"};
static const char *const drafts[] = {
    "none",      "text",     "self",       "aux",      "model", "mtp",
    "text+self", "text+aux", "text+model", "text+mtp", "auto"}; /* in the order of skv_drafting */
static const char *const devices[] = {"cpu", "that only repeats", "with --gpu-layers"};
static const char *const places[] = {"generate",
                                     "chat",
                                     "bench",
                                     "compare",
                                     "eval",
                                     "eval --reference MODEL",
                                     "eval --reference teacher",
                                     "score",
                                     "similarity",
                                     "serve",
                                     "serve --cache-shift",
                                     "serve --role read",
                                     "several ranks",
                                     "a request's own method",
                                     "batch invariance"};
/* By skv_evictor, then the same by query head, where that can be. */
#define BY_QUERY_HEAD_NAME(name) #name ",query"
#define BY_KV_HEAD_NAME(name) NULL
#define EVICTOR(id, name, rows, heads)                                                             \
    [SKV_EVICT_##id] = #name, [EVICTORS + SKV_EVICT_##id] = rows##_NAME(name),
static const char *const evicts[2 * EVICTORS] = {[SKV_EVICT_NONE] = "none",
                                                 SKV_EVICTOR_LIST(EVICTOR)};

static const struct {
    const char *name;
    const char *const *values; /* NULL: a function of the library names them */
    unsigned n;
} axes[SKV_AXIS_COUNT] = {
    [SKV_AXIS_MODEL] = {"model", kinds, COUNT(kinds)},
    [SKV_AXIS_WINDOW] = {"sliding windows", windows, COUNT(windows)},
    [SKV_AXIS_KV_HEADS] = {"KV heads", kv_heads, COUNT(kv_heads)},
    [SKV_AXIS_EXIT_HEAD] = {"exit head", exit_heads, COUNT(exit_heads)},
    [SKV_AXIS_PREFILL] = {"--prefill", NULL, SKV_PREFILL_MERGED + 1},
    [SKV_AXIS_PRUNE] = {"--prune", prunes, COUNT(prunes)},
    [SKV_AXIS_EVICT] = {"--evict", evicts, COUNT(evicts)},
    [SKV_AXIS_FFN_SKIP] = {"--ffn-skip", switches, COUNT(switches)},
    [SKV_AXIS_EARLY_EXIT] = {"--early-exit", switches, COUNT(switches)},
    [SKV_AXIS_LORA] = {"--lora", switches, COUNT(switches)},
    [SKV_AXIS_SPECULATE] = {"--speculate", drafts, COUNT(drafts)},
    [SKV_AXIS_KV] = {"--kv", NULL, SKV_KV_INT8 + 1},
    /* Without those that the processor does not have: fp8, of which no rule tells anything. */
    [SKV_AXIS_WEIGHTS] = {"--weights", NULL, SKV_WEIGHTS_FILE + 1},
    [SKV_AXIS_DEVICE] = {"--device", devices, COUNT(devices)},
    [SKV_AXIS_WHERE] = {"where", places, COUNT(places)},
};

const char *skv_axis_name(skv_axis axis)
{
    static_assert(2 * EVICTORS < 32, "rules have a bit for each value");
    static_assert(COUNT(drafts) == SKV_DRAFT_COUNT, "each source has a name");
    return axes[axis].name;
}

unsigned skv_axis_values(skv_axis axis)
{
    return axes[axis].n;
}

/* Whether this build has such a device; each but the processor can have the first layers alone. */
static bool has_device(unsigned value)
{
    const skv_backend_kind *kind;
    for (size_t i = 0; (kind = skv_backend_kind_at(i)); i++) {
        if (skv_device_value(kind->promises) == (value > 0)) return true;
    }
    return false;
}

const char *skv_axis_value(skv_axis axis, unsigned i)
{
    if (i >= axes[axis].n) return NULL;
    if (axis == SKV_AXIS_DEVICE && !has_device(i)) return NULL;
    if (axes[axis].values) return axes[axis].values[i];
    if (i == 0) return NULL; /* AUTO becomes one of the others */
    switch (axis) {
    case SKV_AXIS_PREFILL: return skv_prefill_name((skv_prefill)i);
    case SKV_AXIS_KV: return skv_kv_name((skv_kv)i);
    default: return skv_weights_name((skv_weights)i);
    }
}

/* ---- rules ---- */

#define STUDENTS (BIT(SKV_MODEL_STUDENT) | BIT(SKV_MODEL_HYBRID_STUDENT))
#define ALL_SWIFTKV                                                                                \
    (BIT(SKV_MODEL_SWIFTKV) | BIT(SKV_MODEL_ACROSSKV) | BIT(SKV_MODEL_HYBRID_SWIFTKV) | STUDENTS)
#define NO_TEACHER                                                                                 \
    (BIT(SKV_MODEL_ORDINARY) | BIT(SKV_MODEL_SHARED) | BIT(SKV_MODEL_HYBRID) | STUDENTS)
#define FED (BIT(SKV_MODEL_HYBRID_SWIFTKV) | BIT(SKV_MODEL_HYBRID_STUDENT))
#define HYBRIDS (BIT(SKV_MODEL_HYBRID) | FED)
/* Of the evictors, those by query head, and those that deal rows to the heads of a layer: a column
 * of the list that has no bits here does not compile. */
#define BY_QUERY_HEAD_BITS(id) | BIT(EVICTORS + SKV_EVICT_##id)
#define BY_KV_HEAD_BITS(id)
#define QUERY_BITS(id, name, rows, heads) rows##_BITS(id)
#define SPREAD (UINT32_C(0) SKV_EVICTOR_LIST(QUERY_BITS))
#define HEADS_TOGETHER_BITS(id) | BIT(SKV_EVICT_##id) | BIT(EVICTORS + SKV_EVICT_##id)
#define HEADS_APART_BITS(id)
#define TOGETHER_BITS(id, name, rows, heads) heads##_BITS(id)
#define TOGETHER (UINT32_C(0) SKV_EVICTOR_LIST(TOGETHER_BITS))
#define EVICTED (BIT(2 * EVICTORS) - 1 - BIT(SKV_EVICT_NONE) - BIT(EVICTORS + SKV_EVICT_NONE))
#define PRUNED (BIT(SKV_PRUNE_RANDOM) | BIT(SKV_PRUNE_STATIC) | BIT(SKV_PRUNE_LAZY))
#define NOT_FULL                                                                                   \
    (BIT(SKV_PREFILL_SWIFTKV) | BIT(SKV_PREFILL_SWIFTKV_FULL) | BIT(SKV_PREFILL_TEACHER) |         \
     BIT(SKV_PREFILL_KVPRED) | BIT(SKV_PREFILL_MERGED))
/* AUTO takes a value that the others allow. */
#define DRAFTED (BIT(SKV_DRAFT_AUTO) - 1 - BIT(SKV_DRAFT_NONE))
#define BY_EXIT (BIT(SKV_DRAFT_SELF) | BIT(SKV_DRAFT_TEXT_SELF))
#define BY_AUX (BIT(SKV_DRAFT_AUX) | BIT(SKV_DRAFT_TEXT_AUX))
#define SOME BIT(2) /* of the exit head's tokens */
#define OFF BIT(0)
#define ON BIT(1)
#define BY_MTP (BIT(SKV_DRAFT_MTP) | BIT(SKV_DRAFT_TEXT_MTP))
#define BY_MODEL (BIT(SKV_DRAFT_MODEL) | BIT(SKV_DRAFT_TEXT_MODEL) | BY_EXIT | BY_AUX | BY_MTP)
#define DIVIDED BIT(2) /* devices, as the next */
#define INEXACT (ON | DIVIDED)
#define SERVED (BIT(SKV_WHERE_SERVE) | BIT(SKV_WHERE_SHIFT) | BIT(SKV_WHERE_READ))
#define AGREES (BIT(SKV_WHERE_REFERENCE) | BIT(SKV_WHERE_TEACHER))

/* The first rule that matches gives the reason: what the model lacks comes first, what a command
 * does not support last. */
static const skv_refusal rules[] = {
    {{[SKV_AXIS_MODEL] = ~ALL_SWIFTKV,
      [SKV_AXIS_PREFILL] = BIT(SKV_PREFILL_SWIFTKV) | BIT(SKV_PREFILL_SWIFTKV_FULL)},
     "the model has no SwiftKV weights (swiftkv transform creates them)"},
    {{[SKV_AXIS_MODEL] = ~BIT(SKV_MODEL_KVPRED), [SKV_AXIS_PREFILL] = BIT(SKV_PREFILL_KVPRED)},
     "the model has no auxiliary model (swiftkv train creates one)"},
    {{[SKV_AXIS_MODEL] = STUDENTS, [SKV_AXIS_PREFILL] = BIT(SKV_PREFILL_TEACHER)},
     "the model was saved without its teacher's weights"},
    {{[SKV_AXIS_MODEL] = ALL_SWIFTKV, [SKV_AXIS_PREFILL] = BIT(SKV_PREFILL_MERGED)},
     "SwiftKV models share keys and values with AcrossKV instead (--group)"},
    {{[SKV_AXIS_KV_HEADS] = ON, [SKV_AXIS_PREFILL] = BIT(SKV_PREFILL_MERGED)},
     "all layers use one KV slot, so they need the same number of KV heads"},
    {{[SKV_AXIS_MODEL] = HYBRIDS, [SKV_AXIS_PREFILL] = BIT(SKV_PREFILL_MERGED)},
     "all layers use one KV slot, and layers with states have none"},
    {{[SKV_AXIS_MODEL] = ~ALL_SWIFTKV, [SKV_AXIS_EARLY_EXIT] = ON},
     "only SwiftKV models have an exit head, at the start of their deep layers"},
    {{[SKV_AXIS_MODEL] = FED, [SKV_AXIS_EARLY_EXIT] = ON},
     "models whose layers keep a state have no exit head"},
    {{[SKV_AXIS_EXIT_HEAD] = OFF, [SKV_AXIS_EARLY_EXIT] = ON},
     "the model has no exit head (distill --early-exit yes trains one)"},
    {{[SKV_AXIS_EXIT_HEAD] = SOME, [SKV_AXIS_EARLY_EXIT] = ON},
     "answers could not have the tokens that were cut from the exit head (--speculate self can)"},
    {{[SKV_AXIS_PREFILL] = BIT(SKV_PREFILL_TEACHER), [SKV_AXIS_EARLY_EXIT] = ON},
     "the teacher has no exit head"},
    {{[SKV_AXIS_PREFILL] = BIT(SKV_PREFILL_FULL) | BIT(SKV_PREFILL_SWIFTKV_FULL),
      [SKV_AXIS_EARLY_EXIT] = ON},
     "this method runs every token through every layer"},
    {{[SKV_AXIS_MODEL] = ALL_SWIFTKV | BIT(SKV_MODEL_SHARED), [SKV_AXIS_PRUNE] = PRUNED},
     "pruning works only with ordinary models"},
    {{[SKV_AXIS_PREFILL] = NOT_FULL, [SKV_AXIS_PRUNE] = PRUNED},
     "pruning works only with --prefill full"},
    {{[SKV_AXIS_PRUNE] = PRUNED, [SKV_AXIS_EVICT] = EVICTED},
     "eviction needs every prompt row, and pruning has removed some"},
    {{[SKV_AXIS_MODEL] = HYBRIDS, [SKV_AXIS_PRUNE] = PRUNED},
     "each step prunes anew, and a state cannot take tokens back"},
    {{[SKV_AXIS_MODEL] = HYBRIDS, [SKV_AXIS_LORA] = ON},
     "adapters of layers with states, and of queries with a gate, are not read"},
    {{[SKV_AXIS_WINDOW] = ON, [SKV_AXIS_PRUNE] = BIT(SKV_PRUNE_LAZY)},
     "LazyLLM would remove tokens inside the sliding window"},
    {{[SKV_AXIS_PREFILL] = BIT(SKV_PREFILL_KVPRED), [SKV_AXIS_LORA] = ON},
     "the predicted keys and values would be those of the model without its adapter"},
    {{[SKV_AXIS_PRUNE] = PRUNED, [SKV_AXIS_LORA] = ON},
     "pruning scores tokens by the model without an adapter"},
    {{[SKV_AXIS_FFN_SKIP] = ON, [SKV_AXIS_LORA] = ON},
     "skipped blocks run for rows that are collected across sequences, whose adapters differ"},
    {{[SKV_AXIS_PREFILL] = BIT(SKV_PREFILL_MERGED), [SKV_AXIS_SPECULATE] = DRAFTED},
     "the rows a token attends to would depend on what was drafted beside it"},
    {{[SKV_AXIS_PRUNE] = PRUNED, [SKV_AXIS_SPECULATE] = DRAFTED},
     "each step prunes for one token, not for a draft"},
    {{[SKV_AXIS_EARLY_EXIT] = ON, [SKV_AXIS_SPECULATE] = DRAFTED},
     "drafts are judged in order, and early exits finish first"},
    {{[SKV_AXIS_MODEL] = ~ALL_SWIFTKV, [SKV_AXIS_SPECULATE] = BY_EXIT},
     "only SwiftKV models have an exit head, at the start of their deep layers"},
    {{[SKV_AXIS_MODEL] = FED, [SKV_AXIS_SPECULATE] = BY_EXIT},
     "models whose layers keep a state have no exit head"},
    {{[SKV_AXIS_EXIT_HEAD] = OFF, [SKV_AXIS_SPECULATE] = BY_EXIT},
     "the model has no exit head (distill --early-exit yes trains one)"},
    {{[SKV_AXIS_PREFILL] = BIT(SKV_PREFILL_TEACHER), [SKV_AXIS_SPECULATE] = BY_EXIT},
     "the teacher has no exit head"},
    {{[SKV_AXIS_PREFILL] = BIT(SKV_PREFILL_FULL) | BIT(SKV_PREFILL_SWIFTKV_FULL),
      [SKV_AXIS_SPECULATE] = BY_EXIT},
     "this method runs every token through every layer"},
    {{[SKV_AXIS_FFN_SKIP] = ON, [SKV_AXIS_SPECULATE] = BY_EXIT},
     "a drafted token stops between two layers, and which blocks it skips is not kept"},
    {{[SKV_AXIS_MODEL] = ~BIT(SKV_MODEL_KVPRED), [SKV_AXIS_SPECULATE] = BY_AUX},
     "the model has no auxiliary model (swiftkv train creates one)"},
    {{[SKV_AXIS_PREFILL] = ~BIT(SKV_PREFILL_KVPRED), [SKV_AXIS_SPECULATE] = BY_AUX},
     "the auxiliary model has not read the prompt (--prefill kvpred lets it)"},
    {{[SKV_AXIS_MODEL] = ~HYBRIDS, [SKV_AXIS_SPECULATE] = BY_MTP},
     "only Qwen 3.5, 3.6 and Qwen3-Next have an MTP head that is read"},
    {{[SKV_AXIS_PREFILL] = BIT(SKV_PREFILL_KVPRED), [SKV_AXIS_EVICT] = SPREAD},
     "KV Prediction predicts rows per KV head, not per query head"},
    {{[SKV_AXIS_PREFILL] = BIT(SKV_PREFILL_KVPRED), [SKV_AXIS_WHERE] = BIT(SKV_WHERE_SIMILARITY)},
     "the base model never runs the prompt, so it has no hidden states (--prefill full runs the "
     "base model)"},
    {{[SKV_AXIS_PRUNE] = PRUNED, [SKV_AXIS_WHERE] = BIT(SKV_WHERE_SIMILARITY)},
     "this needs the hidden states of every token"},
    {{[SKV_AXIS_EARLY_EXIT] = ON, [SKV_AXIS_WHERE] = BIT(SKV_WHERE_SIMILARITY)},
     "this needs the hidden states of every layer"},
    {{[SKV_AXIS_EVICT] = EVICTED,
      [SKV_AXIS_WHERE] = BIT(SKV_WHERE_SCORE) | BIT(SKV_WHERE_SIMILARITY)},
     "every token needs an output, so there is no prompt to evict from"},
    {{[SKV_AXIS_MODEL] = BIT(SKV_MODEL_ORDINARY) | BIT(SKV_MODEL_SHARED) | BIT(SKV_MODEL_HYBRID),
      [SKV_AXIS_WHERE] = BIT(SKV_WHERE_COMPARE)},
     "the model is not in SwiftKV form (swiftkv transform or distill creates one)"},
    {{[SKV_AXIS_MODEL] = STUDENTS, [SKV_AXIS_WHERE] = BIT(SKV_WHERE_COMPARE)},
     "the comparison needs the teacher's weights, which the model was saved without"},
    {{[SKV_AXIS_PREFILL] = BIT(SKV_PREFILL_TEACHER), [SKV_AXIS_WHERE] = BIT(SKV_WHERE_COMPARE)},
     "the teacher is what the model is compared with"},
    {{[SKV_AXIS_MODEL] = BIT(SKV_MODEL_KVPRED),
      [SKV_AXIS_PREFILL] = ~BIT(SKV_PREFILL_KVPRED),
      [SKV_AXIS_WHERE] = BIT(SKV_WHERE_COMPARE)},
     "the base model is what kvpred is compared with"},
    {{[SKV_AXIS_MODEL] = NO_TEACHER, [SKV_AXIS_WHERE] = BIT(SKV_WHERE_TEACHER)},
     "the model has no separate teacher weights"},
    {{[SKV_AXIS_EVICT] = EVICTED, [SKV_AXIS_WHERE] = AGREES},
     "agreement is measured over whole texts, so there is no prompt to evict from"},
    {{[SKV_AXIS_MODEL] = HYBRIDS, [SKV_AXIS_WHERE] = BIT(SKV_WHERE_SHIFT)},
     "a state has seen all tokens before it, and takes in no rows from another place"},
    {{[SKV_AXIS_WINDOW] = ON, [SKV_AXIS_WHERE] = BIT(SKV_WHERE_SHIFT)},
     "rows in front of the sliding windows are gone, and another place would need them"},
    {{[SKV_AXIS_PREFILL] = BIT(SKV_PREFILL_KVPRED), [SKV_AXIS_WHERE] = SERVED},
     "the prefix cache does not store the auxiliary model's rows (--prefill full serves the "
     "base model)"},
    {{[SKV_AXIS_PREFILL] = BIT(SKV_PREFILL_MERGED), [SKV_AXIS_WHERE] = SERVED},
     "the cached rows of a prompt would depend on how it was split into steps"},
    {{[SKV_AXIS_PRUNE] = PRUNED, [SKV_AXIS_WHERE] = SERVED},
     "the prefix cache needs every token of a prompt"},
    {{[SKV_AXIS_EVICT] = SPREAD, [SKV_AXIS_WHERE] = SERVED},
     "requests share steps, which keep rows per KV head, not per query head"},
    {{[SKV_AXIS_FFN_SKIP] = ON, [SKV_AXIS_WHERE] = SERVED},
     "the prefix cache does not record which blocks were skipped"},
    {{[SKV_AXIS_EARLY_EXIT] = ON, [SKV_AXIS_WHERE] = SERVED},
     "prompt log-probabilities must be in order, and early exits finish first"},
    {{[SKV_AXIS_MODEL] = HYBRIDS, [SKV_AXIS_WHERE] = BIT(SKV_WHERE_READ)},
     "a reader sends keys and values, and an answer needs the states too"},
    {{[SKV_AXIS_MODEL] = HYBRIDS, [SKV_AXIS_WHERE] = BIT(SKV_WHERE_RANKS)},
     "layers with states are not divided between ranks"},
    {{[SKV_AXIS_PREFILL] = BIT(SKV_PREFILL_KVPRED), [SKV_AXIS_WHERE] = BIT(SKV_WHERE_RANKS)},
     "a layer's keys and values are predicted from all heads of the auxiliary model"},
    {{[SKV_AXIS_PRUNE] = PRUNED, [SKV_AXIS_WHERE] = BIT(SKV_WHERE_RANKS)},
     "tokens are chosen by the attention of all heads, and a rank has its own"},
    {{[SKV_AXIS_EVICT] = TOGETHER, [SKV_AXIS_WHERE] = BIT(SKV_WHERE_RANKS)},
     "a layer's rows are dealt to all of its heads, and a rank has its own"},
    {{[SKV_AXIS_EARLY_EXIT] = ON, [SKV_AXIS_WHERE] = BIT(SKV_WHERE_RANKS)},
     "no rank but the first has the exit head's logits of all ids"},
    {{[SKV_AXIS_LORA] = ON, [SKV_AXIS_WHERE] = BIT(SKV_WHERE_RANKS)},
     "adapters are not divided between ranks"},
    {{[SKV_AXIS_SPECULATE] = BY_MODEL, [SKV_AXIS_WHERE] = BIT(SKV_WHERE_RANKS)},
     "the model that drafts is not divided between ranks (--speculate text drafts without one)"},
    {{[SKV_AXIS_MODEL] = ALL_SWIFTKV,
      [SKV_AXIS_PREFILL] = BIT(SKV_PREFILL_FULL) | BIT(SKV_PREFILL_SWIFTKV_FULL),
      [SKV_AXIS_WHERE] = BIT(SKV_WHERE_READ)},
     "this method runs every token through every layer, and a reader has only those below the deep "
     "ones"},
    {{[SKV_AXIS_EVICT] = EVICTED, [SKV_AXIS_WHERE] = BIT(SKV_WHERE_READ)},
     "a reader stores whole prompts; rows are evicted where they are answered"},
    {{[SKV_AXIS_LORA] = ON, [SKV_AXIS_WHERE] = BIT(SKV_WHERE_READ)},
     "a reader has no adapters; their prompts are read where they are answered"},
    {{[SKV_AXIS_SPECULATE] = DRAFTED, [SKV_AXIS_WHERE] = BIT(SKV_WHERE_READ)},
     "a reader writes no answers"},
    {{[SKV_AXIS_MODEL] = NO_TEACHER | BIT(SKV_MODEL_KVPRED),
      [SKV_AXIS_PREFILL] = BIT(SKV_PREFILL_TEACHER),
      [SKV_AXIS_WHERE] = BIT(SKV_WHERE_SEQUENCE)},
     "no separate teacher weights are loaded"},
    {{[SKV_AXIS_PREFILL] = BIT(SKV_PREFILL_MERGED), [SKV_AXIS_WHERE] = BIT(SKV_WHERE_INVARIANT)},
     "the rows a token attends to would depend on how the prompt was split into steps"},
    {{[SKV_AXIS_DEVICE] = INEXACT, [SKV_AXIS_WHERE] = BIT(SKV_WHERE_INVARIANT)},
     "the device's results of a row depend on the rows beside it"},
    {{[SKV_AXIS_DEVICE] = INEXACT, [SKV_AXIS_WHERE] = BIT(SKV_WHERE_READ)},
     "keys and values that a reader stores would not be those that the answering server computes"},
    {{[SKV_AXIS_PREFILL] = BIT(SKV_PREFILL_KVPRED), [SKV_AXIS_DEVICE] = DIVIDED},
     "one product predicts the keys and values of layers on the device and on the processor"},
    {{[SKV_AXIS_DEVICE] = DIVIDED, [SKV_AXIS_WHERE] = BIT(SKV_WHERE_RANKS)},
     "each rank has a part of every layer on its device (--gpus divides weights that do not fit)"},
};

const skv_refusal *skv_refusal_at(size_t i)
{
    return i < COUNT(rules) ? &rules[i] : NULL;
}

static bool fits(const skv_refusal *rule, const skv_combination *c)
{
    for (size_t axis = 0; axis < SKV_AXIS_COUNT; axis++) {
        if (rule->values[axis] != 0 && !(rule->values[axis] >> c->at[axis] & 1U)) return false;
    }
    return true;
}

size_t skv_combination_refused(const skv_combination *c)
{
    for (size_t i = 0; i < COUNT(rules); i++) {
        if (fits(&rules[i], c)) return i;
    }
    return SIZE_MAX;
}

/* The subject of a rule, as the combination has it: "prefill kvpred, serve". */
static void name_values(const skv_refusal *rule, const skv_combination *c, char *out, size_t room)
{
    size_t n = 0;
    out[0] = 0;
    for (unsigned axis = 0; axis < SKV_AXIS_COUNT && n < room; axis++) {
        if (rule->values[axis] == 0) continue;
        const char *name = skv_axis_name(axis), *value = skv_axis_value(axis, c->at[axis]);
        if (axis == SKV_AXIS_DEVICE) value = devices[c->at[axis]]; /* also of another build */
        const bool option = strncmp(name, "--", 2) == 0;
        const int more = snprintf(out + n, room - n, "%s%s%s%s", n > 0 ? ", " : "",
                                  option ? name + 2 : "", option ? " " : "", value ? value : "?");
        n += more > 0 ? (size_t)more : 0;
    }
}

skv_status skv_combination_check(const skv_combination *c, skv_error *err)
{
    const size_t i = skv_combination_refused(c);
    if (i == SIZE_MAX) return SKV_OK;
    char names[160];
    name_values(&rules[i], c, names, sizeof names);
    return skv_fail(err, SKV_UNSUPPORTED, "%s: %s", names, rules[i].why);
}

/* ---- runs ---- */

static unsigned exit_value(const skv_model_traits *model)
{
    if (!model->exit_head) return 0;
    return model->exit_cut ? 2 : 1;
}

static unsigned evict_value(const skv_eviction *how)
{
    return (unsigned)how->method + (how->by_query_head ? EVICTORS : 0U);
}

skv_combination skv_combination_of(const skv_model_traits *model, const skv_engine_options *o,
                                   skv_where where)
{
    const unsigned n_evicts = COUNT(evicts) - 1;
    return (skv_combination){
        {[SKV_AXIS_MODEL] = model->kind,
         [SKV_AXIS_WINDOW] = model->windows,
         [SKV_AXIS_KV_HEADS] = model->kv_heads_differ,
         [SKV_AXIS_EXIT_HEAD] = exit_value(model),
         [SKV_AXIS_PREFILL] = skv_prefill_resolve(o->prefill, model->kind),
         [SKV_AXIS_PRUNE] = o->pruning.kind,
         [SKV_AXIS_EVICT] = (unsigned)skv_min_size(evict_value(&o->eviction), n_evicts),
         [SKV_AXIS_FFN_SKIP] = o->ffn_skip.on,
         [SKV_AXIS_EARLY_EXIT] = o->early_exit > 0,
         [SKV_AXIS_LORA] = !!o->adapters,
         [SKV_AXIS_SPECULATE] = o->speculation.source,
         [SKV_AXIS_KV] = o->kv,
         [SKV_AXIS_WEIGHTS] = o->weights,
         [SKV_AXIS_DEVICE] = skv_device_value_of(o, SIZE_MAX),
         [SKV_AXIS_WHERE] = where}};
}

/* The kinds of the engine's sequences: a teacher that was not loaded is not there. */
static skv_model_kind kind_of_engine(const skv_engine *e)
{
    if (e->kvpred.on) return SKV_MODEL_KVPRED;
    if (e->config->n_shared > 0) return SKV_MODEL_SHARED;
    const bool hybrid = e->plan.n_states > 0;
    if (!e->runs_swiftkv) return hybrid ? SKV_MODEL_HYBRID : SKV_MODEL_ORDINARY;
    if (!e->has_teacher) return hybrid ? SKV_MODEL_HYBRID_STUDENT : SKV_MODEL_STUDENT;
    if (hybrid) return SKV_MODEL_HYBRID_SWIFTKV;
    return e->config->kv_group > 1 ? SKV_MODEL_ACROSSKV : SKV_MODEL_SWIFTKV;
}

/* There, and on ranks where the engine has them. */
static skv_status check_here(const skv_engine *e, const skv_model_traits *model,
                             const skv_engine_options *options, skv_where where, skv_error *err)
{
    skv_combination c = skv_combination_of(model, options, where);
    c.at[SKV_AXIS_DEVICE] = skv_backend_value(e->be);
    SKV_TRY(skv_combination_check(&c, err));
    c.at[SKV_AXIS_WHERE] = SKV_WHERE_RANKS;
    return e->ranks ? skv_combination_check(&c, err) : SKV_OK;
}

skv_status skv_engine_check(const skv_engine *e, skv_where where, skv_prefill prefill,
                            const skv_eviction *eviction, skv_error *err)
{
    const bool own = prefill == SKV_PREFILL_AUTO || prefill == e->options.prefill;
    if (where == SKV_WHERE_SEQUENCE && own) return SKV_OK;
    if (where == SKV_WHERE_SEQUENCE && e->options.prompt_only) {
        SKV_TRY(skv_engine_check(e, SKV_WHERE_READ, prefill, eviction, err));
    }
    skv_engine_options options = e->options;
    options.prefill = prefill;
    if (!own) { /* see skv/combine.h */
        options.ffn_skip.on = false;
        options.early_exit = 0;
        if ((BY_EXIT | BY_AUX) >> options.speculation.source & 1U) {
            options.speculation.source = SKV_DRAFT_NONE;
        }
    }
    if (eviction) options.eviction = *eviction;
    skv_model_traits model = skv_model_traits_of(e->config, NULL);
    model.kind = kind_of_engine(e);
    return check_here(e, &model, &options, where, err);
}

skv_status skv_engine_check_speculation(const skv_engine *e, skv_prefill prefill,
                                        const skv_speculation *how, skv_error *err)
{
    SKV_TRY(skv_engine_check_draft_model(e, how, err));
    const bool undoes = how->source != SKV_DRAFT_NONE && e->states.n > 0;
    SKV_REQUIRE(!undoes || how->most <= e->states.max_undo, err, SKV_UNSUPPORTED,
                "speculation: a draft of %zu tokens, and states have room for %zu that are wrong "
                "(--speculate at the start)",
                how->most, e->states.max_undo);
    skv_engine_options options = e->options;
    options.speculation = *how;
    if (prefill != SKV_PREFILL_AUTO) options.prefill = prefill;
    skv_model_traits model = skv_model_traits_of(e->config, NULL);
    model.kind = kind_of_engine(e);
    return check_here(e, &model, &options, SKV_WHERE_GENERATE, err);
}
