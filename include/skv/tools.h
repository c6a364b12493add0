/** Inspecting and converting models: shapes and costs, layer similarity, the SwiftKV transform, and
 * the machine's peak rates. */
#ifndef SKV_TOOLS_H
#define SKV_TOOLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "skv/combine.h"
#include "skv/skv.h"

SKV_BEGIN

/* ---- models ---- */

typedef struct skv_model_info {
    char architecture[64];
    size_t layers, hidden, head_dim, vocab, context;
    /* The longest text that it was trained for, if its files state it: less than `context` if they
     * allow more, more than it if RoPE scaling stretches it (YaRN); otherwise `context`. */
    size_t trained;
    size_t heads, kv_heads, ffn; /* of layer 0; other layers may differ if `per_layer` */
    bool per_layer;
    bool tied;
    skv_model_traits traits;
    bool swiftkv;          /* has SwiftKV weights */
    size_t swiftkv_layers; /* l; equal to `layers` without SwiftKV */
    size_t group;          /* g */
    size_t kv_slots;       /* l + (L - l) / g */
    size_t exit_words;     /* tokens of the exit head: `vocab`, or fewer; 0: it has none */
    bool mtp;              /* has a head for further tokens (SKV_DRAFT_MTP), which is read */
    uint64_t parameters;   /* of the model that runs, without those of a teacher */
    /* Mixtures of experts: experts of a layer, active experts for each token, and the parameters
     * without the inactive experts'. For other models 0, 0 and all parameters. */
    size_t experts, active_experts;
    uint64_t active_parameters;
    /* The types and numbers of the file's tensors except those in `codes`, like "BF16 (26), F32
     * (3)"; "" without a file. */
    char stored[160];
    /* The storage of 8-bit and 4-bit matrices with separate scales, and the precision lost by it;
     * "" for other files. */
    char codes[320];
    uint64_t kv_elements;        /* elements of K and V per token, over all slots */
    uint64_t kv_window_elements; /* those of them that only layers with sliding windows read, */
    size_t kv_window;            /* which keep this many tokens; 0: there are none */
    /* Hybrid models: layers that keep a state instead of keys and values, and the bytes of a
     * sequence's states: matrices and inputs of convolutions, beside which an engine holds the rows
     * that it has not added yet. 0: there are none. */
    size_t state_layers;
    size_t state_bytes;  /* in f32 */
    size_t matrix_bytes; /* the part of them that SKV_STATE_BF16 halves */
    /* How the model's makers draw tokens (generation_config.json); the library's default where
     * `has_sampling` is false. */
    bool has_sampling;
    skv_sampling sampling;
    /* KV Prediction: the auxiliary model and the linear maps from its cache. */
    bool kv_prediction;
    size_t auxiliary_layers;
    uint64_t auxiliary_parameters, predictor_parameters;
    uint64_t auxiliary_kv_elements; /* of the auxiliary's own cache */
} skv_model_info;

/** Reads the configuration only, no weights. path may be "preset:NAME". */
SKV_CHECKED skv_status skv_model_info_read(const char *path, skv_model_info *out, skv_error *err);
/** Describes the model in SwiftKV form. Fails if l or g do not fit the model. */
SKV_CHECKED skv_status skv_model_info_swiftkv(const char *path, size_t l, size_t g,
                                              skv_model_info *out, skv_error *err);

/** Returns the bytes of KV cache per token, including the scales of 8-bit rows. */
SKV_API size_t skv_model_kv_bytes_per_token(const skv_model_info *info, skv_kv kv);
/** Returns the bytes of KV cache that a sequence of n_tokens needs, with its states: layers with
 * sliding windows keep the rows of one window. Memory is taken in pages of 64 rows, with up to 128
 * rows more, and those of a step, in front of a window. */
SKV_API size_t skv_model_kv_bytes(const skv_model_info *info, skv_kv kv, size_t n_tokens);

/* The memory that an engine needs, in bytes, and the sizes that would fit. */
typedef struct skv_memory_plan {
    size_t weight_bytes, kv_bytes, workspace_bytes;
    size_t state_bytes; /* the part of kv_bytes for states, in hybrid models */
    size_t needed;      /* their sum; SIZE_MAX: more than can be counted */
    size_t available;   /* that they may take */
    /* A device with memory of its own: the two above are bytes of it, and these of the host's
     * memory. Else 0. */
    size_t host_needed, host_available;
    bool fits;
    /* The options, with the defaults filled in. */
    size_t context, kv_tokens, step_tokens, threads;
    skv_weights weights;
    skv_kv kv;
    size_t kv_tokens_max; /* the most kv_tokens that fit with this context; 0: none */
    size_t context_max;   /* the longest context that fits with as many kv_tokens; 0: none */
} skv_memory_plan;

/**
 * Computes the memory that skv_engine_open would allocate with these options, using the same code,
 * without allocating it. path may be "preset:NAME", or a folder without weights. available: the
 * memory that the engine may use; 0: this process's limit. Does not count the text of prompts, nor
 * the memory of threads and of the program itself, some ten MiB. options: NULL for the defaults;
 * `team` must be a single process.
 */
SKV_CHECKED skv_status skv_memory_plan_make(const char *path, const skv_engine_options *options,
                                            size_t available, skv_memory_plan *out, skv_error *err);

/*
 * Floating-point operations of the average token of a prompt of `context` tokens, by part; a
 * multiply-add counts as two. The average token attends to half of the prompt, so attention takes
 * 4 * H * Dh * (context + 1) / 2 per layer. Table 1 of the papers counts the same except that it
 * counts the vocabulary twice (embedding and head) and attention in units of 2^30.
 */
typedef struct skv_cost {
    double vocabulary; /* the head */
    double kv;         /* K and V projections */
    double q, o;       /* query and output projections */
    double mlp;
    double attention; /* scores and weighted sum */
    double total;
} skv_cost;

/** The cost of a token that runs the layers before l and only produces K and V for the others. */
SKV_CHECKED skv_status skv_model_cost(const char *path, size_t l, size_t g, size_t context,
                                      skv_cost *out, skv_error *err);

/**
 * KV Prediction: the cost of the average prompt token in the auxiliary model and in the linear
 * maps. The last layer of the auxiliary produces only K and V, and its head does not run
 * (`vocabulary` is 0).
 */
SKV_CHECKED skv_status skv_kvpred_cost(const char *path, size_t context, skv_cost *auxiliary,
                                       double *predictor, skv_error *err);

/* ---- SimScore (arXiv:2410.03960, equation 1) ---- */

/* The text that is read. */
typedef struct skv_similarity_text {
    const int32_t *ids; /* [n] */
    size_t n;
    void (*progress)(void *user, size_t done, size_t total); /* after each step; may be NULL */
    void *user;
} skv_similarity_text;

/**
 * scores[l] for l < L - 1: mean over j > l of the mean cosine similarity between the input of
 * layer l and the input of layer j, over the tokens of a text (in windows of the engine's context).
 * layers: L. The engine must have been opened with no_skip.
 */
SKV_CHECKED skv_status skv_similarity(skv_engine *engine, const skv_similarity_text *text,
                                      double *scores, skv_error *err);

/* ---- hidden states ---- */

/* Receives x [n_rows, D], the input of layer i_layer for the rows of a step; for i_layer = L, the
 * output of the last layer. Valid during the call. */
typedef void skv_hidden_fn(void *user, size_t i_layer, const float *x, size_t n_rows);

/** Runs a step like skv_step and reports the hidden states before and after every layer instead of
 * logits. The engine must have been opened with no_skip. */
SKV_CHECKED skv_status skv_step_hidden(skv_engine *engine, const skv_span *spans, size_t n_spans,
                                       skv_hidden_fn *on_hidden, void *user, skv_error *err);

/* The products of a layer that share an input. */
typedef enum skv_product {
    SKV_PRODUCT_QKV,   /* queries, with or without keys and values, of the layer's own input */
    SKV_PRODUCT_KV,    /* keys and values only: fewer rows need queries */
    SKV_PRODUCT_STACK, /* SwiftKV: keys and values of many layers, maybe in several products */
    SKV_PRODUCT_O,     /* of the output of attention */
    SKV_PRODUCT_GATE_UP,
    SKV_PRODUCT_DOWN,
    SKV_PRODUCT_EMBED /* of a layer's own embedding of the token */
} skv_product;

/* Receives the input of a product, x [n_rows, n], after the norm before it. Valid during the
 * call. */
typedef void skv_product_fn(void *user, size_t i_layer, skv_product product, const float *x,
                            size_t n_rows, size_t n);

/** As skv_step_hidden, with the inputs of the layers' products, except those of experts. */
SKV_CHECKED skv_status skv_step_products(skv_engine *engine, const skv_span *spans, size_t n_spans,
                                         skv_product_fn *on_product, void *user, skv_error *err);

/* ---- the SwiftKV transform ---- */

/**
 * Writes a SwiftKV checkpoint of the model at `path` to the new folder `out`, in the published
 * layout and with the authors' initialisation: norm_swiftkv is the input norm of layer l, q is
 * copied, and k and v are averaged over each group of g layers. Tokenizer files are copied.
 */
SKV_CHECKED skv_status skv_transform(const char *path, const char *out, size_t l, size_t g,
                                     skv_error *err);

typedef enum skv_transform_init {
    SKV_TRANSFORM_COPY, /* the authors' initialisation: see skv_transform */
    /*
     * A closed-form solution instead of training: each k and v projection is the ridge regression,
     * over a text, from norm_swiftkv of layer l's input to the keys or values that the original
     * projection computes from its own layer's input (before rotation and head norms). Projections
     * shared by a group fit the mean over its layers. Biases, if any, are part of the solution. q
     * is copied, because it still reads its own layer's input.
     */
    SKV_TRANSFORM_RIDGE
} skv_transform_init;

typedef struct skv_transform_options {
    size_t kv_layers, group; /* l and g; l 0 with `adapters`: the model keeps its form */
    skv_transform_init init;
    /* LoRA adapters to add to the weights, as in skv_engine_options; all of them. COPY only. NULL:
     * none. */
    const char *adapters;
    /* Makes a smaller ordinary model with these layers instead: "0,2,4", or "lp-0.25", "lp-0.50",
     * "lp-0.75" for the layers that KV Prediction's paper keeps. All other options but adapters
     * are then ignored. NULL: make a SwiftKV model. */
    const char *keep_layers;

    /*
     * Cuts the exit head of a SwiftKV model instead, so that drafting reads less of it (FR-Spec,
     * arXiv:2502.14856). It then has only this many tokens: the ids that end an answer and the most
     * frequent tokens of `data`. As in training, only the answers in a .jsonl file count, not its
     * questions. Ties, and tokens that `data` (which may be absent) lacks, are ordered by id. The
     * result can draft (SKV_DRAFT_SELF) but not exit early. `adapters` and
     * `keep_layers` must be NULL; all other options except data and seed are ignored. 0: does not
     * cut.
     */
    size_t exit_words;

    /* For RIDGE and exit_words. */
    const char *const *data; /* text, .jsonl, or token ids (.u16, .u32, .json) */
    size_t n_data;
    /* For RIDGE. */
    size_t tokens; /* most tokens to read; 0: 32 per column of x, within 2^15..2^17 */
    size_t seq;    /* the longest sequence; 0: the model's context, at most 1024 */
    /* Weight of the penalty, in units of the mean square of x. Negative: 0.1, and more for short
     * texts (4 * columns of x / tokens; measured: docs/explanation/training.md). */
    double ridge;
    bool toward_zero;    /* penalise the projections themselves, not their distance to the copies */
    uint64_t seed;       /* for the order in which the text is read */
    size_t threads;      /* 0: one for each processor allowed */
    const char *cpu;     /* as in skv_engine_options, and so is the next */
    skv_weights weights; /* weight type while the model reads the text */
    /* Share in 0..1 of the text that is read, or, without one, of the tensors that are written; may
     * be NULL. */
    void (*progress)(void *user, double share);
    void *user;
} skv_transform_options;

/** COPY with l = 1 and g = 1, and automatic values for RIDGE. */
SKV_API skv_transform_options skv_transform_options_default(void);

/* The result of the regression, or of counting tokens; zero for COPY. */
typedef struct skv_transform_report {
    size_t tokens; /* tokens of the text that were used */
    size_t width;  /* columns of x; with fewer tokens than this the penalty dominates */
    double ridge;  /* the weight that was used */
    /* Relative squared error of the keys and values of the layers from l on, compared with the
     * original model: for the copied projections, and for the solution. */
    double copied_error, ridge_error;
    uint64_t counted, covered; /* tokens of the text, and those that the cut exit head has */
} skv_transform_report;

/** Runs the transform with options; report may be NULL. */
SKV_CHECKED skv_status skv_transform_run(const char *path, const char *out,
                                         const skv_transform_options *options,
                                         skv_transform_report *report, skv_error *err);

/* ---- the machine ---- */

/* The peak rates of a level: its fastest multiply instructions, on registers. */
typedef struct skv_peak {
    double f32_gflops, bf16_gflops;
    double int8_gops, int4_gops; /* exact sums; int4: weights, times int8 activations */
    double read_gbs;             /* reading memory beyond all caches */
    /* The instructions, static text. If bf16 has those of f32, bfloat16 weights are widened. */
    const char *f32_with, *bf16_with, *int8_with, *int4_with;
    size_t threads;
    char cpu[128];
} skv_peak;

/** Measures the peak rates for some seconds, longer on a busy machine. threads 0: one for each
 * processor allowed; cpu: a level as in skv_engine_options, NULL for the best. progress receives
 * the share of the work in 0..1, on the caller's thread; it may be NULL. */
SKV_CHECKED skv_status skv_peak_measure(size_t threads, const char *cpu,
                                        void (*progress)(void *user, double share), void *user,
                                        skv_peak *out, skv_error *err);

/** Measures only the read bandwidth: every thread reads 4 GiB. On a shared machine it varies, so
 * run it right before or after the measurement that you compare it with. */
SKV_CHECKED skv_status skv_read_measure(size_t threads, double *gbs, skv_error *err);

/* The machine as the system reports it, and the limits of this process. */
typedef struct skv_machine {
    char cpu[128];
    const char *level;     /* of kernels: the best that runs here */
    const char *levels[8]; /* [n_levels], of this build, the plainest first */
    bool runs[8];          /* [n_levels], on this processor */
    size_t n_levels;
    size_t threads;          /* that an engine takes by default */
    size_t processors;       /* that this thread may run on */
    size_t quota;            /* skv_processors_quota */
    size_t memory_available; /* bytes that this process may still take */
} skv_machine;

SKV_API void skv_machine_describe(skv_machine *out);

/* Whether the products of its kernels are those of plain integers, bit for bit. */
typedef struct skv_product_check {
    char features[128];            /* instructions of the processor that kernels have a use for */
    char refused[64];              /* of these, those that no engine uses, since they differ here */
    bool f32[8], bf16[8], int8[8]; /* [n_levels]: the products of each level that runs are right */
    /* The best level's products may have several forms, which engines time when they open: the form
     * that one would take now, "" where there is but one, and the time of each beside the first's
     * (0: it was not timed, or some product takes longer than with the first). */
    char form[64];
    char forms[160];
} skv_product_check;

/** Makes the comparison of every opening of an engine, for all levels, in some milliseconds. */
SKV_API void skv_machine_check(const skv_machine *machine, skv_product_check *out);

/* Where models can be computed. */
typedef struct skv_device {
    const char *name; /* for skv_engine_options.device */
    char found[160];  /* the device, or why it cannot be used */
    bool is_there;
    bool exact;               /* keeps all promises of equal bits: skv/combine.h */
    bool has_memory;          /* of its own; else the next two are of the host's */
    size_t memory, available; /* bytes; `available`: that this process may still take */
} skv_device;

/** Looks at the i-th device of this build; false after the last. */
SKV_API bool skv_device_describe(size_t i, skv_device *out);
/** Returns SKV_OK, or SKV_UNSUPPORTED for an unknown name and for a device that cannot be used. */
SKV_CHECKED skv_status skv_device_check(const char *name, skv_error *err);

/** Returns the processor time that control groups allow this process, in processors, rounded up;
 * SIZE_MAX: no limit. */
SKV_API size_t skv_processors_quota(void);
/** Returns the peak resident set size of this process in bytes. */
SKV_API size_t skv_peak_rss(void);
/** A monotonic clock in nanoseconds. */
SKV_API uint64_t skv_now_ns(void);

SKV_END

#endif
