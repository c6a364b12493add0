/**
 * libskv: running Llama-family models, with prompts at a fraction of their cost.
 *
 *   skv_engine    a loaded model: weights, kernels, threads, KV memory.
 *   skv_sequence  one timeline of tokens with its KV cache.
 *   skv_step      one pass over new tokens of any number of sequences, prompts and single tokens
 *                 mixed. Everything else (skv_prompt, skv_generate, skv_score) is built on it.
 *
 * Threads: an engine and its sequences are used by one thread at a time (the engine itself
 * spreads the work over its own threads). skv_model_info and skv_vocab (text.h) are immutable and
 * may be shared. Only skv_cancel may be called from anywhere, a signal handler included.
 */
#ifndef SKV_SKV_H
#define SKV_SKV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "skv/api.h"
#include "skv/error.h"
#include "skv/eviction.h"
#include "skv/grammar.h"
#include "skv/skipping.h"
#include "skv/version.h"
#include "skv/work.h"

SKV_BEGIN

typedef struct skv_engine skv_engine;
typedef struct skv_sequence skv_sequence;

/* ---- options ---- */

/* How weights are held and multiplied. AUTO: f32 models as f32, all others as bf16. */
typedef enum skv_weights {
    SKV_WEIGHTS_AUTO,
    SKV_WEIGHTS_F32,
    SKV_WEIGHTS_BF16,
    SKV_WEIGHTS_INT8 /* a scale for each output row and group of 128 inputs */
} skv_weights;

/* How the KV cache is held. AUTO: f32 with f32 weights and for heads shorter than
 * 32, whose scores average too little rounding out; bf16 otherwise. */
typedef enum skv_kv { SKV_KV_AUTO, SKV_KV_F32, SKV_KV_BF16, SKV_KV_FP8, SKV_KV_INT8 } skv_kv;

typedef enum skv_prefill {
    SKV_PREFILL_AUTO,         /* SWIFTKV or KVPRED where the model has them, FULL otherwise */
    SKV_PREFILL_FULL,         /* the ordinary transformer */
    SKV_PREFILL_SWIFTKV,      /* prompt tokens stop at layer l (arXiv:2410.03960) */
    SKV_PREFILL_SWIFTKV_FULL, /* the same function with every token through every layer */
    SKV_PREFILL_TEACHER,      /* a SwiftKV file run as the model it was made from */
    SKV_PREFILL_KVPRED,       /* an auxiliary model reads prompts (arXiv:2410.08391) */
    SKV_PREFILL_MERGED        /* Merge-all-Layers: one KV slot for all layers, to be timed */
} skv_prefill;

/* Names as the command line spells them ("bf16", "swiftkv-full"); NULL for a value out of range,
 * false for an unknown name. */
SKV_API const char *skv_weights_name(skv_weights value);
SKV_API const char *skv_kv_name(skv_kv value);
SKV_API const char *skv_prefill_name(skv_prefill value);
SKV_API bool skv_weights_parse(const char *name, skv_weights *value);
SKV_API bool skv_kv_parse(const char *name, skv_kv *value);
SKV_API bool skv_prefill_parse(const char *name, skv_prefill *value);

/* Prompts without some of their tokens, to compare with: docs/kvpred.md. */
typedef enum skv_prune {
    SKV_PRUNE_NONE,
    SKV_PRUNE_RANDOM, /* a random share of the tokens stays */
    SKV_PRUNE_STATIC, /* those that a quarter of the layers attends to most */
    SKV_PRUNE_LAZY    /* fewer from layer to layer: LazyLLM (arXiv:2407.14057) */
} skv_prune;

typedef struct skv_pruning {
    skv_prune kind;
    double keep; /* share of the tokens that stay, in (0, 1] */
    double end;  /* LAZY: share at the end, in (0, keep] */
} skv_pruning;

/** "random:0.5", "static:0.25", "lazy:0.75,0.10", "none"; false for anything else. */
SKV_API bool skv_pruning_parse(const char *text, skv_pruning *out);
/** Share of a prompt's tokens that layer i of n runs. */
SKV_API double skv_pruning_share(const skv_pruning *pruning, size_t i, size_t n);

typedef struct skv_engine_options {
    size_t threads; /* 0: one for each processor */
    skv_weights weights;
    skv_kv kv;
    skv_prefill prefill;
    const char *cpu; /* "best", "ref", "avx2", "avx512", "neon"; NULL: best */
    /* Tokens a sequence may have; 0: the model's context, at most 8192. More than the model was
     * made for is taken as said: some files state less than the model can do. */
    size_t context;
    size_t kv_tokens;   /* tokens of KV memory for all sequences together; 0: `context` */
    size_t step_tokens; /* most tokens of one step; 0: 512 */
    bool no_skip;       /* every token through every layer: to prove that skipping is exact */
    /* A sequence's logits are the same to the bit whatever chunks it comes in and whatever runs
     * beside it. Costs time where a few long sequences decode on many threads. */
    bool batch_invariant;
    skv_eviction eviction;   /* of new sequences: see skv_sequence_set_eviction */
    bool with_teacher;       /* SwiftKV files: load the teacher too, for sequences that run as it */
    skv_pruning pruning;     /* with FULL */
    skv_ffn_skip ffn_skip;   /* FFN-SkipLLM; sequences that run as FULL or TEACHER skip nothing */
    double early_exit;       /* a token is taken from the exit's head above it; 0: no exit */
    uint64_t random_seed;    /* of presets' random weights, and of random pruning */
    size_t preset_kv_layers; /* presets: SwiftKV form with this l; 0: the unmodified model */
    size_t preset_group;     /* presets: AcrossKV group g; 0: 1 */
    void (*progress)(void *user, double share); /* while loading; share in 0..1; may be NULL */
    void *user;
} skv_engine_options;

SKV_API skv_engine_options skv_engine_options_default(void);

/* ---- engines ---- */

/**
 * Opens a Hugging Face folder or a GGUF file. Fails with SKV_MEMORY, figures in the text, before
 * memory is taken that the machine does not have.
 */
SKV_CHECKED skv_status skv_engine_open(const char *path, const skv_engine_options *options,
                                       skv_engine **out, skv_error *err);
/** A published model's shape with random weights ("llama-3.2-1b", ...: skv_preset_name). */
SKV_CHECKED skv_status skv_engine_open_preset(const char *preset, const skv_engine_options *options,
                                              skv_engine **out, skv_error *err);
/** Frees it; its sequences must have been freed. NULL is allowed. */
SKV_API void skv_engine_close(skv_engine *engine);

/** The i-th preset's name, NULL at the end. */
SKV_API const char *skv_preset_name(size_t i);

typedef struct skv_engine_stats {
    size_t weight_bytes;    /* packed weights */
    size_t workspace_bytes; /* of a step */
    size_t kv_bytes_max;    /* the page pool, when all of it is in use */
    size_t kv_bytes;        /* pages in use */
    size_t kv_pages, kv_pages_free;
    size_t context, step_tokens, threads;
    skv_weights weights;
    skv_kv kv;
    skv_prefill prefill; /* what AUTO became */
    skv_eviction eviction;
    bool swiftkv;     /* it runs SwiftKV weights */
    bool has_teacher; /* its sequences may run as the teacher */
    skv_pruning pruning;
    skv_ffn_skip ffn_skip;
    double early_exit;
    bool kv_prediction; /* it has an auxiliary model, which is in the figures above */
    const char *cpu;    /* the level of kernels in use */
} skv_engine_stats;

SKV_API void skv_engine_get_stats(const skv_engine *engine, skv_engine_stats *out);
/** All arithmetic of its steps since it was opened. */
SKV_API skv_work skv_engine_get_work(const skv_engine *engine);
SKV_API size_t skv_engine_vocab(const skv_engine *engine);
/** D, the length of a hidden state. */
SKV_API size_t skv_engine_hidden(const skv_engine *engine);
/** The ids that end an answer, by the model's configuration: [*n], valid as long as the engine. */
SKV_API const int32_t *skv_engine_eos(const skv_engine *engine, size_t *n);
/** True for these. */
SKV_API bool skv_engine_is_eos(const skv_engine *engine, int32_t id);
/** The id that begins a text, -1 when the model names none. */
SKV_API int32_t skv_engine_bos(const skv_engine *engine);

/* ---- sequences ---- */

/** max_tokens: how long it may become; 0: the engine's context. Takes no KV pages yet. */
SKV_CHECKED skv_status skv_sequence_create(skv_engine *engine, size_t max_tokens,
                                           skv_sequence **out, skv_error *err);
/**
 * The same for a sequence that is run by another method than the engine's own: FULL skips nothing,
 * TEACHER runs the model that a SwiftKV file was made from. Sequences of different methods share
 * steps, not pages. Fails with SKV_UNSUPPORTED when the engine cannot.
 */
SKV_CHECKED skv_status skv_sequence_create_as(skv_engine *engine, skv_prefill prefill,
                                              size_t max_tokens, skv_sequence **out,
                                              skv_error *err);
SKV_API void skv_sequence_free(skv_sequence *sequence);
/** Tokens seen: the position of the next one. */
SKV_API size_t skv_sequence_length(const skv_sequence *sequence);
SKV_API const int32_t *skv_sequence_ids(const skv_sequence *sequence); /* [length] */
/** Forgets everything from token n on; n <= length. */
SKV_API void skv_sequence_truncate(skv_sequence *sequence, size_t n);
/** An empty sequence becomes the first n tokens of another of the same engine; full pages of the
 * cache are shared, not copied. */
SKV_CHECKED skv_status skv_sequence_share(skv_sequence *sequence, const skv_sequence *from,
                                          size_t n, skv_error *err);
/** Bytes of KV pages it refers to. */
SKV_API size_t skv_sequence_kv_bytes(const skv_sequence *sequence);

/* ---- eviction (skv/eviction.h has the methods) ---- */

/**
 * From the next prompt on rows are evicted like this; copied. skv_prompt and skv_generate do the
 * rest. Who gives a prompt to skv_step in pieces tells its length before (skv_sequence_expect) and
 * has rows evicted behind it (skv_sequence_evict).
 *
 * A later prompt of the same sequence attends to the rows that were kept, and is followed by
 * another eviction, of all rows there are. Generated tokens are not evicted before.
 * skv_sequence_truncate does not bring rows back. SKV_UNSUPPORTED: this engine cannot do it.
 */
SKV_CHECKED skv_status skv_sequence_set_eviction(skv_sequence *sequence,
                                                 const skv_eviction *eviction, skv_error *err);
/** The next n tokens are a prompt: its end votes. No more than that where nothing is evicted. */
SKV_CHECKED skv_status skv_sequence_expect(skv_sequence *sequence, size_t n, skv_error *err);
/** Evicts rows, when the expected prompt is complete and too long. SKV_FULL: pages that others
 * use too cannot be copied; nothing has changed. */
SKV_CHECKED skv_status skv_sequence_evict(skv_sequence *sequence, skv_error *err);
/** Positions of the rows that KV head i_head of layer i_layer has, ascending: at most max of them
 * in out; returns how many there are, 0 for heads and layers that do not exist. */
SKV_API size_t skv_sequence_kept(const skv_sequence *sequence, size_t i_layer, size_t i_head,
                                 size_t *out, size_t max);

/* ---- steps ---- */

typedef enum skv_want {
    SKV_WANT_NONE, /* only the cache: with SwiftKV these tokens never enter the deep layers */
    SKV_WANT_LAST, /* logits after the last token of the span */
    SKV_WANT_ALL,  /* logits after every token; nothing is skipped for them */
    /* The same with the hidden state [D] that the logits are made from, the final norm applied, in
     * place of the logits. */
    SKV_WANT_LAST_HIDDEN,
    SKV_WANT_ALL_HIDDEN
} skv_want;

/* New tokens of one sequence. A sequence appears in a step once. */
typedef struct skv_span {
    skv_sequence *sequence;
    const int32_t *ids; /* [n] */
    size_t n;           /* >= 1 */
    skv_want want;
} skv_span;

/* Gets logits [vocab], or the hidden state [D], after token i_token of span i_span, in order; valid
 * during the call. With an early exit those come first that took it. */
typedef void skv_logits_fn(void *user, size_t i_span, size_t i_token, const float *logits);

/**
 * Runs the spans, at most step_tokens tokens in all, and appends them to their sequences.
 * On failure (ids out of range, cache full, cancelled) no sequence has changed.
 */
SKV_CHECKED skv_status skv_step(skv_engine *engine, const skv_span *spans, size_t n_spans,
                                skv_logits_fn *on_logits, void *user, skv_error *err);

/** Makes the step that is running, or the next one, end with SKV_CANCELLED. */
SKV_API void skv_cancel(skv_engine *engine);

/**
 * A whole prompt in chunks of step_tokens, logits [vocab] after its last token (NULL: none).
 * progress(user, done, total) is called after each chunk; it may be NULL.
 */
SKV_CHECKED skv_status skv_prompt(skv_engine *engine, skv_sequence *sequence, const int32_t *ids,
                                  size_t n, float *logits,
                                  void (*progress)(void *user, size_t done, size_t total),
                                  void *user, skv_error *err);

/* ---- likelihood ---- */

/**
 * logprobs[t] = log p(ids[t] | ids[0..t)) for 1 <= t < n, logprobs[0] = NaN;
 * argmax[t] = the most likely id after ids[0..t] (first of equals). Either may be NULL.
 * Every token runs every layer, whatever the prefill method skips for prompts. With KV Prediction
 * all keys and values are predicted, those of the token itself included, as in its training.
 */
SKV_CHECKED skv_status skv_score(skv_engine *engine, const int32_t *ids, size_t n, double *logprobs,
                                 int32_t *argmax, skv_error *err);

/* ---- sampling and generation ---- */

typedef struct skv_sampling {
    double temperature; /* 0: the most likely token */
    size_t top_k;       /* 0: all */
    double top_p;       /* in (0, 1]; 1: all */
    double min_p;       /* in [0, 1): at least this share of the most likely one's probability */
    double repetition_penalty; /* > 0; 1: none. Divides positive, multiplies negative logits */
    double presence_penalty;   /* subtracted once from tokens that were generated */
    double frequency_penalty;  /* subtracted for each time a token was generated */
    uint64_t seed;
} skv_sampling;

SKV_API skv_sampling skv_sampling_default(void); /* greedy, no penalties, seed 0 */

typedef struct skv_sampler skv_sampler;

SKV_CHECKED skv_status skv_sampler_create(const skv_sampling *sampling, size_t vocab,
                                          skv_sampler **out, skv_error *err);
SKV_API void skv_sampler_free(skv_sampler *sampler);
/** Counts a token for the penalties: prompt tokens for repetition, generated ones for all. */
SKV_API void skv_sampler_accept(skv_sampler *sampler, int32_t id, bool generated);
/** Chooses from logits [vocab], which it changes. Equal logits: the lowest id. */
SKV_API int32_t skv_sampler_choose(skv_sampler *sampler, float *logits);

typedef struct skv_generation {
    size_t max_tokens;
    bool ignore_eos;
    /* What the answer has to follow, borrowed; NULL: nothing. It ends the answer where nothing
     * more can follow, whatever ignore_eos says. */
    skv_matcher *matcher;
    /* Gets each token as it is chosen (an ending id is not reported); false stops. May be NULL. */
    bool (*on_token)(void *user, int32_t id);
    void (*on_progress)(void *user, size_t done, size_t total); /* of the prompt; may be NULL */
    void *user;
} skv_generation;

typedef struct skv_generation_stats {
    size_t prompt_tokens, completion_tokens;
    uint64_t ttft_ns;           /* from the call to the first token */
    uint64_t decode_ns;         /* from the first token to the last */
    bool ended;                 /* by an ending id, not by max_tokens or the callback */
    skv_work prompt_work, work; /* up to the first token, and of all */
} skv_generation_stats;

/** Appends the prompt (n >= 1) and generates. Generated tokens are appended too, the last one
 * excepted, which no step has needed yet. */
SKV_CHECKED skv_status skv_generate(skv_engine *engine, skv_sequence *sequence, const int32_t *ids,
                                    size_t n, skv_sampler *sampler,
                                    const skv_generation *generation, skv_generation_stats *stats,
                                    skv_error *err);

SKV_END

#endif
