/**
 * libskv: runs Llama-family models and makes their prompts cheap.
 *
 *   skv_engine    a loaded model: weights, kernels, threads and KV memory.
 *   skv_sequence  a list of tokens and its KV cache.
 *   skv_step      one pass over new tokens of any number of sequences. Prompt chunks and single
 *                 tokens may be mixed. skv_prompt, skv_generate and skv_score are built on it.
 *
 * Thread safety: use an engine and its sequences from one thread at a time. The engine spreads its
 * work over threads of its own. skv_model_info and skv_vocab (text.h) are immutable and may be
 * shared. skv_cancel may be called from any thread and from a signal handler.
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
#include "skv/speculation.h"
#include "skv/team.h"
#include "skv/version.h"
#include "skv/work.h"

SKV_BEGIN

typedef struct skv_engine skv_engine;
typedef struct skv_sequence skv_sequence;

/* ---- options ---- */

/* The type in which weights are stored and multiplied. AUTO: FILE for quantised files, f32 for f32
 * files, bf16 for others. */
typedef enum skv_weights {
    SKV_WEIGHTS_AUTO,
    SKV_WEIGHTS_F32,
    SKV_WEIGHTS_BF16,
    SKV_WEIGHTS_INT8, /* one scale per output row and group of 128 inputs */
    SKV_WEIGHTS_INT4, /* as FILE, and the others rounded to 4 bits, one scale per 32 inputs */
    SKV_WEIGHTS_FILE, /* quantised matrices with the codes of the file, the others bf16 */
    /* e4m3, with the scales of the file, or one per output row; on a GPU alone */
    SKV_WEIGHTS_FP8
} skv_weights;

/* The type of the KV cache. AUTO: f32 if the weights are f32 or heads are shorter than 32, since
 * such short dot products do not average out rounding errors; bf16 otherwise. */
typedef enum skv_kv { SKV_KV_AUTO, SKV_KV_F32, SKV_KV_BF16, SKV_KV_FP8, SKV_KV_INT8 } skv_kv;

/* The type of the matrices that layers of hybrid models keep. BF16 halves them and rounds them at
 * each 16th token; docs/explanation/numerics.md measures the loss. The newest rows and the inputs
 * of convolutions are f32 with both. */
typedef enum skv_state_type { SKV_STATE_F32, SKV_STATE_BF16 } skv_state_type;

typedef enum skv_prefill {
    SKV_PREFILL_AUTO,         /* SWIFTKV or KVPRED where the model has them, FULL otherwise */
    SKV_PREFILL_FULL,         /* the ordinary transformer */
    SKV_PREFILL_SWIFTKV,      /* prompt tokens stop at layer l (arXiv:2410.03960) */
    SKV_PREFILL_SWIFTKV_FULL, /* the same function with every token through every layer */
    SKV_PREFILL_TEACHER,      /* the original model that a SwiftKV file was made from */
    SKV_PREFILL_KVPRED,       /* an auxiliary model reads the prompt (arXiv:2410.08391) */
    SKV_PREFILL_MERGED        /* Merge-all-Layers: one KV slot for all layers; for timing only */
} skv_prefill;

/* How several GPUs of one program add up. COPIES: each GPU copies the others' parts and adds them
 * up in the order of ranks, to the bits of the host's sum. NCCL: libnccl does, in an order of its
 * own, and sends less. AUTO: NCCL where it is installed. */
typedef enum skv_sums { SKV_SUMS_AUTO, SKV_SUMS_NCCL, SKV_SUMS_COPIES } skv_sums;

/* The names that the command line uses ("bf16", "swiftkv-full"). *_name returns NULL for a value
 * out of range, *_parse returns false for an unknown name. */
SKV_API const char *skv_weights_name(skv_weights value);
SKV_API const char *skv_kv_name(skv_kv value);
SKV_API const char *skv_state_type_name(skv_state_type value);
SKV_API const char *skv_prefill_name(skv_prefill value);
SKV_API const char *skv_sums_name(skv_sums value);
SKV_API bool skv_weights_parse(const char *name, skv_weights *value);
SKV_API bool skv_kv_parse(const char *name, skv_kv *value);
SKV_API bool skv_state_type_parse(const char *name, skv_state_type *value);
SKV_API bool skv_prefill_parse(const char *name, skv_prefill *value);
SKV_API bool skv_sums_parse(const char *name, skv_sums *value);

/* Token pruning, a baseline for comparison: docs/reference/kvpred.md. */
typedef enum skv_prune {
    SKV_PRUNE_NONE,
    SKV_PRUNE_RANDOM, /* keeps a random share of the tokens */
    SKV_PRUNE_STATIC, /* keeps those that a quarter of the layers attends to most */
    SKV_PRUNE_LAZY    /* keeps fewer from layer to layer: LazyLLM (arXiv:2407.14057) */
} skv_prune;

typedef struct skv_pruning {
    skv_prune kind;
    double keep; /* share of the tokens to keep, in (0, 1] */
    double end;  /* LAZY: share in the last layer, in (0, keep] */
} skv_pruning;

/** Parses "random:0.5", "static:0.25", "lazy:0.75,0.10" or "none". Returns false for other text. */
SKV_API bool skv_pruning_parse(const char *text, skv_pruning *out);

/* The defaults that a 0 in skv_engine_options selects. */
#define SKV_CONTEXT_DEFAULT 8192 /* at most: the model's context may be shorter */
#define SKV_STEP_TOKENS_DEFAULT 512

typedef struct skv_engine_options {
    size_t threads; /* 0: one for each processor allowed */
    skv_weights weights;
    skv_kv kv;
    skv_state_type state; /* BF16 is refused where no layer keeps a matrix */
    skv_prefill prefill;
    /* "best", "ref", "avx2", "avxvnni", "avx512", "amx", "neon"; NULL: best. Products with AMX have
     * the forms "amx-strided", "amx-paired", "amx-few" and "amx-whole". "amx", and "best" where
     * that is AMX, take the fastest of the first three when the engine opens, which give the same
     * results. The last one has one int8 scale for a row, so it rounds differently. So does
     * "amx-attention", which computes the attention of prompts with AMX too. "amx-q" computes
     * products of quantised weights with AMX, to the same results as without, and so does
     * "amx-q-once", which unpacks weights once for all rows of a task; "amx" does so where that is
     * faster. */
    const char *cpu;
    /* Where it computes: a name that skv_device_describe tells (skv/tools.h). NULL: "cpu". */
    const char *device;
    /* With a device that is not the processor, if `by_layer` is set: only the first device_layers
     * layers are computed there, and the others, embeddings and outputs on the processor; at least
     * as many as the model has: all of it is on the device, as without `by_layer`. */
    bool by_layer;
    size_t device_layers;
    /* The most tokens of a sequence; 0: the model's context, at most SKV_CONTEXT_DEFAULT. A
     * value above the model's own context is accepted, because some files state less than the model
     * can do. */
    size_t context;
    size_t kv_tokens; /* KV memory for all sequences together, in tokens; 0: `context` */
    /* The most sequences at once; 0: any number. In models with sliding windows each sequence needs
     * only the rows that its windows and a step reach, so less memory is reserved for few. In
     * hybrid models memory for this many states is reserved, one for each sequence; 0: as many as
     * kv_tokens holds whole contexts. */
    size_t kv_sequences;
    /* Hybrid models: the most states that a scheduler's prefix cache keeps, each as large as that
     * of a sequence. A prompt continues a known one only behind a token whose state was kept. 0:
     * none, and so no prefix cache. */
    size_t kv_checkpoints;
    /* Hybrid models: the most tokens of a draft that sequences may have beside what `speculation`
     * says. States have room for so many that are taken back. */
    size_t draft_tokens;
    size_t step_tokens; /* the most tokens of one step; 0: SKV_STEP_TOKENS_DEFAULT */
    /* INT4 and FILE: multiplies codes with f32 activations instead of rounding these to int8. Slow;
     * for measuring the error of that rounding. */
    bool f32_activations;
    bool no_skip; /* run every token through every layer, to check that skipping is exact */
    /* Makes a sequence's logits bit-identical for every chunking and every batch. Slower when a few
     * long sequences decode on many threads. */
    bool batch_invariant;
    /* Computes only the keys and values of prompts. Weights needed only for outputs are not loaded:
     * the head and, with SwiftKV, everything in layers >= l except their K,V projections. Steps may
     * request no output (SKV_WANT_NONE). */
    bool prompt_only;
    skv_eviction eviction;       /* for new sequences: see skv_sequence_set_eviction */
    skv_speculation speculation; /* for new sequences: see skv_sequence_set_speculation */
    /* A model with the same vocabulary that drafts, for SKV_DRAFT_MODEL: a folder, a GGUF file or
     * "preset:NAME". It takes weights and KV memory of its own. NULL: none. */
    const char *draft_model;
    bool mtp;            /* load the head for SKV_DRAFT_MTP, as `speculation` does if it says so */
    bool with_teacher;   /* SwiftKV files: also load the teacher, for sequences that run it */
    skv_pruning pruning; /* with FULL */
    skv_ffn_skip ffn_skip; /* FFN-SkipLLM; FULL and TEACHER sequences skip nothing */
    double early_exit;     /* probability above which the exit head's token is taken; 0: no exit */
    /* LoRA adapters, "NAME=PATH,...": PEFT folders or GGUF files, which sequences choose by name
     * (skv_sequence_set_adapters). NULL: none. */
    const char *adapters;
    /* Processes that hold a part of the model each (skv/ranks.h); borrowed as long as the engine.
     * The memory figures are those of this process. NULL, or a team of one: the whole model is
     * here. */
    const skv_team *team;
    skv_sums sums; /* of ranks that are GPUs of this program */
    /* Bytes of weights, KV cache and workspace, of a device's own memory if it has some; 0: all
     * that is available. */
    size_t memory_max;
    size_t *memory_needed;   /* receives how many these are, also if they do not fit; may be NULL */
    uint64_t random_seed;    /* for the random weights of presets and for random pruning */
    size_t preset_kv_layers; /* presets: SwiftKV form with this l; 0: the unmodified model */
    size_t preset_group;     /* presets: AcrossKV group g; 0: 1 */
    /* Presets with speculation by their exit head: the number of tokens of the exit head, as after
     * skv_transform_options.exit_words; 0: the whole vocabulary. */
    size_t preset_exit_words;
    void (*progress)(void *user,
                     double share); /* called while loading, share in 0..1; may be NULL */
    /* Asked while loading; true: opening ends with SKV_CANCELLED. May be NULL. */
    bool (*stopped)(void *user);
    void *user; /* for both */
} skv_engine_options;

SKV_API skv_engine_options skv_engine_options_default(void);

/* ---- engines ---- */

/**
 * Opens a Hugging Face folder or a GGUF file. If the machine has too little memory, it fails with
 * SKV_MEMORY before allocating any; the message states how much is needed and available.
 */
SKV_CHECKED skv_status skv_engine_open(const char *path, const skv_engine_options *options,
                                       skv_engine **out, skv_error *err);
/** Opens the shape of a published model with random weights ("llama-3.2-1b", ...: skv_preset_name).
 */
SKV_CHECKED skv_status skv_engine_open_preset(const char *preset, const skv_engine_options *options,
                                              skv_engine **out, skv_error *err);
/** Frees the engine. Free its sequences first. NULL is allowed. */
SKV_API void skv_engine_close(skv_engine *engine);

/** Returns the i-th preset's name, or NULL after the last. */
SKV_API const char *skv_preset_name(size_t i);

typedef struct skv_engine_stats {
    size_t weight_bytes;    /* packed weights */
    size_t workspace_bytes; /* buffers of a step */
    size_t kv_bytes_max;    /* all pages and states */
    size_t kv_bytes;        /* those in use */
    /* Of layers that keep a state instead of keys and values: bytes of one sequence's, and how many
     * sequences may have one. 0: there are no such layers. */
    size_t state_bytes, states, states_free;
    size_t checkpoints, checkpoints_free; /* states that a prefix cache may keep beside these */
    size_t kv_pages, kv_pages_free;
    size_t kv_tokens; /* total capacity of all pages, over all sequences */
    size_t context, step_tokens, threads;
    skv_weights weights;
    skv_kv kv;
    skv_state_type state;
    skv_prefill prefill; /* the method that AUTO chose */
    skv_eviction eviction;
    bool swiftkv;     /* runs SwiftKV weights */
    bool has_teacher; /* its sequences may run the teacher */
    skv_pruning pruning;
    skv_ffn_skip ffn_skip;
    double early_exit;
    bool kv_prediction; /* has an auxiliary model, which the sizes above include */
    const char *device; /* where it computes */
    const char *cpu;    /* the level of kernels in use */
    const char *form;   /* of its products, each choice: "amx-few, amx-q"; NULL: there was none */
} skv_engine_stats;

SKV_API void skv_engine_get_stats(const skv_engine *engine, skv_engine_stats *out);
/** Returns the arithmetic of all steps since the engine was opened. */
SKV_API skv_work skv_engine_get_work(const skv_engine *engine);
SKV_API size_t skv_engine_vocab(const skv_engine *engine);
/** D, the length of a hidden state. */
SKV_API size_t skv_engine_hidden(const skv_engine *engine);
/** Returns the end-of-sequence ids of the model's configuration, [*n], valid as long as the engine.
 */
SKV_API const int32_t *skv_engine_eos(const skv_engine *engine, size_t *n);
/** Returns true for the ids of skv_engine_eos. */
SKV_API bool skv_engine_is_eos(const skv_engine *engine, int32_t id);
/** Returns the id that begins a text, or -1 if the model has none. */
SKV_API int32_t skv_engine_bos(const skv_engine *engine);

/* ---- sequences ---- */

/** Creates an empty sequence of at most max_tokens tokens (0: the engine's context). It allocates
 * KV pages only as it grows. */
SKV_CHECKED skv_status skv_sequence_create(skv_engine *engine, size_t max_tokens,
                                           skv_sequence **out, skv_error *err);
/**
 * Creates a sequence with another prefill method than the engine's: FULL skips nothing, TEACHER
 * runs the model that a SwiftKV file was made from. Sequences of different methods may be in one
 * step but cannot share pages. Fails with SKV_UNSUPPORTED if the engine does not support the
 * method.
 */
SKV_CHECKED skv_status skv_sequence_create_as(skv_engine *engine, skv_prefill prefill,
                                              size_t max_tokens, skv_sequence **out,
                                              skv_error *err);
SKV_API void skv_sequence_free(skv_sequence *sequence);
/** Returns the number of tokens, which is the position of the next one. */
SKV_API size_t skv_sequence_length(const skv_sequence *sequence);
SKV_API const int32_t *skv_sequence_ids(const skv_sequence *sequence); /* [length] */
/**
 * Removes token n and all later ones; n <= length. Returns the new length: n, or 0. In models with
 * sliding windows rows that no later token can attend to are freed as a sequence grows. Going back
 * by up to 64 tokens is always possible; where token n would attend to freed rows, all tokens are
 * removed.
 */
SKV_API size_t skv_sequence_truncate(skv_sequence *sequence, size_t n);
/** Makes an empty sequence a copy of the first n tokens of another of the same engine. Full pages
 * of the cache are shared, not copied. The sequence stays empty where skv_sequence_truncate would
 * remove all tokens. */
SKV_CHECKED skv_status skv_sequence_share(skv_sequence *sequence, const skv_sequence *from,
                                          size_t n, skv_error *err);
/** Returns the bytes of the KV pages that the sequence refers to. */
SKV_API size_t skv_sequence_kv_bytes(const skv_sequence *sequence);

/* ---- eviction (skv/eviction.h has the methods) ---- */

enum { SKV_ADAPTERS_TOGETHER = 8 };

/* An adapter in use: y = W x + scale s B A x, where s is the adapter's own scale. */
typedef struct skv_adapter_use {
    const char *name;
    float scale; /* finite; 0: as if it were not there */
} skv_adapter_use;

/**
 * Chooses up to SKV_ADAPTERS_TOGETHER of the engine's adapters by name for an empty sequence; their
 * products are added. New sequences have the first of skv_engine_options.adapters. Sequences with
 * different adapters may be in one step but cannot share pages. Fails with SKV_ARGUMENT if a name
 * is unknown or repeated, or if the sequence has tokens.
 */
SKV_CHECKED skv_status skv_sequence_set_adapters(skv_sequence *sequence,
                                                 const skv_adapter_use *uses, size_t n,
                                                 skv_error *err);
/** Returns the name of the i-th adapter of an engine, or NULL after the last. */
SKV_API const char *skv_engine_adapter(const skv_engine *engine, size_t i);
/**
 * Sets how rows are evicted, starting with the next prompt. The options are copied. skv_prompt and
 * skv_generate need nothing else. Callers that feed a prompt to skv_step in chunks must call
 * skv_sequence_expect before the first chunk and skv_sequence_evict after the last.
 *
 * A later prompt of the same sequence attends to the kept rows. The eviction after it considers all
 * rows of the cache. Generated tokens are not evicted before that. skv_sequence_truncate does not
 * restore evicted rows. Fails with SKV_UNSUPPORTED if the engine does not support the method.
 */
SKV_CHECKED skv_status skv_sequence_set_eviction(skv_sequence *sequence,
                                                 const skv_eviction *eviction, skv_error *err);
/** Announces that the next n tokens are a prompt. The last of them vote on the rows to keep. Has no
 * effect without eviction. */
SKV_CHECKED skv_status skv_sequence_expect(skv_sequence *sequence, size_t n, skv_error *err);
/** Evicts rows if the announced prompt is complete and longer than the capacity. Fails with
 * SKV_FULL, and changes nothing, if shared pages would have to be copied and no page is free. */
SKV_CHECKED skv_status skv_sequence_evict(skv_sequence *sequence, skv_error *err);
/** Writes the positions of the rows that KV head i_head of layer i_layer holds to out, ascending
 * and at most max of them. Returns how many there are; 0 for a head or layer that does not exist.
 */
SKV_API size_t skv_sequence_kept(const skv_sequence *sequence, size_t i_layer, size_t i_head,
                                 size_t *out, size_t max);

/* ---- speculation (skv/speculation.h has the sources) ---- */

/**
 * Sets the source of drafted tokens for the sequence. skv_generate needs nothing else. Callers that
 * run steps themselves call skv_sequence_draft before a step, append the draft to the next token in
 * a span that wants DRAFTED, and call skv_sequence_settle after the step. Fails with
 * SKV_UNSUPPORTED if the engine's methods do not support speculation.
 */
SKV_CHECKED skv_status skv_sequence_set_speculation(skv_sequence *sequence,
                                                    const skv_speculation *how, skv_error *err);
/** Writes tokens that may follow `next`, which follows the sequence's tokens, to out [most].
 * Returns how many: 0 without a source. */
SKV_API size_t skv_sequence_draft(skv_sequence *sequence, int32_t next, int32_t *out, size_t most);
/* A draft that is asked for, as by skv_sequence_draft. */
typedef struct skv_draft_request {
    skv_sequence *sequence;
    int32_t next;
    int32_t *out; /* [most] */
    size_t most;
    size_t n; /* the result: how many tokens were written */
} skv_draft_request;

/** Drafts for several sequences of one engine. Those that a model drafts for share its steps. */
SKV_API void skv_sequences_draft(skv_draft_request *requests, size_t n);
/** After the step: the first n_right of n_drafted tokens stay, and the others are removed. */
SKV_API void skv_sequence_settle(skv_sequence *sequence, size_t n_drafted, size_t n_right);
/** Returns the sequence's draft counts for a source. */
SKV_API skv_draft_counts skv_sequence_drafts(const skv_sequence *sequence, skv_drafting source);

/* ---- steps ---- */

typedef enum skv_want {
    SKV_WANT_NONE, /* no output: with SwiftKV these tokens never enter the deep layers */
    SKV_WANT_LAST, /* logits after the last token of the span */
    SKV_WANT_ALL,  /* logits after every token, which therefore run every layer */
    /* As above with the hidden state [D] after the final norm instead of the logits. */
    SKV_WANT_LAST_HIDDEN,
    SKV_WANT_ALL_HIDDEN,
    /* As ALL, for a token followed by drafts: attention computes each token as if it had a step of
     * its own, so the logits are bit-identical to those of single steps. */
    SKV_WANT_DRAFTED
} skv_want;

/* New tokens of one sequence. A sequence may appear only once in a step. */
typedef struct skv_span {
    skv_sequence *sequence;
    const int32_t *ids; /* [n] */
    size_t n;           /* >= 1 */
    skv_want want;
} skv_span;

/* Receives the logits [vocab], or the hidden state [D], after token i_token of span i_span. They
 * are valid during the call. Calls come in order, except that tokens that exited early come first.
 */
typedef void skv_logits_fn(void *user, size_t i_span, size_t i_token, const float *logits);

/**
 * Runs the spans, at most step_tokens tokens in total, and appends them to their sequences. If it
 * fails (an id out of range, cache full, cancelled), no sequence has changed.
 */
SKV_CHECKED skv_status skv_step(skv_engine *engine, const skv_span *spans, size_t n_spans,
                                skv_logits_fn *on_logits, void *user, skv_error *err);

/** Cancels the running step, or the next one if none is running: it returns SKV_CANCELLED. */
SKV_API void skv_cancel(skv_engine *engine);
/** Withdraws a cancellation that no step has noticed, so the next step runs. */
SKV_API void skv_uncancel(skv_engine *engine);

/* The results and progress of skv_prompt. All fields may be zero. */
typedef struct skv_prompt_options {
    float *logits; /* [vocab], receives the logits after the last token; may be NULL */
    void (*progress)(void *user, size_t done, size_t total); /* after each chunk; may be NULL */
    void *user;
} skv_prompt_options;

/** Appends a whole prompt, ids [n], n >= 1, in chunks of step_tokens. options may be NULL. On
 * failure the prompt's tokens are removed as by skv_sequence_truncate. */
SKV_CHECKED skv_status skv_prompt(skv_engine *engine, skv_sequence *sequence, const int32_t *ids,
                                  size_t n, const skv_prompt_options *options, skv_error *err);

/* ---- likelihood ---- */

/**
 * logprobs[t] = log p(ids[t] | ids[0..t)) for 1 <= t < n, logprobs[0] = NaN;
 * argmax[t] = the most likely id after ids[0..t] (the lowest of equals). Either may be NULL.
 * Every token runs every layer, also with prefill methods that skip layers for prompts. With KV
 * Prediction all keys and values are predicted, as in training, including those of the token
 * itself.
 */
SKV_CHECKED skv_status skv_score(skv_engine *engine, const int32_t *ids, size_t n, double *logprobs,
                                 int32_t *argmax, skv_error *err);

/* As above, with a progress callback. */
typedef struct skv_scoring {
    const int32_t *ids; /* [n] */
    size_t n;
    double *logprobs;                                        /* [n], or NULL */
    int32_t *argmax;                                         /* [n], or NULL */
    void (*progress)(void *user, size_t done, size_t total); /* after each step; may be NULL */
    void *user;
} skv_scoring;
SKV_CHECKED skv_status skv_score_watched(skv_engine *engine, const skv_scoring *scoring,
                                         skv_error *err);

/* ---- sampling and generation ---- */

enum { SKV_PENALTY_WINDOW_MAX = 1000000 };

typedef struct skv_sampling {
    double temperature; /* 0: greedy */
    size_t top_k;       /* 0: all */
    double top_p;       /* in [0, 1]; 1: all, 0: the most likely token */
    double min_p; /* in [0, 1): smallest probability, relative to that of the most likely token */
    double repetition_penalty; /* > 0; 1: none. Positive logits are divided by it, negative ones
                                  multiplied */
    double presence_penalty;   /* subtracted once from the logit of a generated token */
    double frequency_penalty;  /* subtracted for each occurrence of a generated token */
    int64_t penalty_window;    /* penalties look at this many of the last tokens; -1: at all */
    uint64_t seed;
} skv_sampling;

SKV_API skv_sampling skv_sampling_default(void); /* greedy, no penalties, seed 0 */

typedef struct skv_logit_bias {
    int32_t id;
    float bias; /* added to the token's logit */
} skv_logit_bias;

typedef struct skv_sampler skv_sampler;

SKV_CHECKED skv_status skv_sampler_create(const skv_sampling *sampling, size_t vocab,
                                          skv_sampler **out, skv_error *err);
SKV_API void skv_sampler_free(skv_sampler *sampler);
/** Records a token for the penalties. Prompt tokens count for the repetition penalty only. */
SKV_API void skv_sampler_accept(skv_sampler *sampler, int32_t id, bool generated);
/** Chooses a token from logits [vocab], which it modifies. Of equal logits the lowest id wins. */
SKV_API int32_t skv_sampler_choose(skv_sampler *sampler, float *logits);

typedef struct skv_generation_stats {
    size_t prompt_tokens, completion_tokens;
    uint64_t ttft_ns;           /* time from the call to the first token */
    uint64_t decode_ns;         /* time from the first token to the last */
    bool ended;                 /* an end-of-sequence id ended it, not max_tokens or the callback */
    skv_work prompt_work, work; /* up to the first token, and in total */
    skv_draft_counts drafts[SKV_DRAFT_SOURCES]; /* by source */
} skv_generation_stats;

typedef struct skv_generation {
    size_t max_tokens;
    skv_sampler *sampler; /* chooses the tokens */
    bool ignore_eos;
    /* Constrains the answer to a grammar (borrowed; NULL: none). The answer ends where the grammar
     * allows nothing more, also with ignore_eos. */
    skv_matcher *matcher;
    /* Called with each token except an end-of-sequence id. Return false to stop. May be NULL. */
    bool (*on_token)(void *user, int32_t id);
    /* Called after each step with the number of drafted tokens and of accepted ones. May be
     * NULL. */
    void (*on_draft)(void *user, size_t n_drafted, size_t n_right);
    void (*on_progress)(void *user, size_t done,
                        size_t total); /* while the prompt is read; may be NULL */
    void *user;
    skv_generation_stats *stats; /* filled; may be NULL */
} skv_generation;

/** Appends the prompt (n >= 1) and generates an answer. Generated tokens are appended too, except
 * the last, which no step has read yet. */
SKV_CHECKED skv_status skv_generate(skv_engine *engine, skv_sequence *sequence, const int32_t *ids,
                                    size_t n, const skv_generation *generation, skv_error *err);

SKV_END

#endif
