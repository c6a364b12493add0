/** Looking at models and changing them: shapes and costs, similarity, the SwiftKV transform, and
 * what the machine can do. */
#ifndef SKV_TOOLS_H
#define SKV_TOOLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "skv/combine.h"
#include "skv/skv.h"

SKV_BEGIN

/* ---- what a model is ---- */

typedef struct skv_model_info {
    char architecture[64];
    size_t layers, hidden, head_dim, vocab, context;
    size_t heads, kv_heads, ffn; /* of layer 0; they differ by layer where `per_layer` */
    bool per_layer;
    bool tied;
    skv_model_traits traits;
    bool swiftkv;          /* it holds SwiftKV weights */
    size_t swiftkv_layers; /* l; `layers` when not SwiftKV */
    size_t group;          /* g */
    size_t kv_slots;       /* l + (L - l) / g */
    uint64_t parameters;   /* of the model as it runs: SwiftKV's own without the teacher's */
    uint64_t kv_elements;  /* K and V numbers of a token over all slots */
    /* KV Prediction: the model that reads prompts for this one, and the maps between. */
    bool kv_prediction;
    size_t auxiliary_layers;
    uint64_t auxiliary_parameters, predictor_parameters;
    uint64_t auxiliary_kv_elements; /* of the auxiliary's own cache */
} skv_model_info;

/** From the configuration alone: no weights are read. path may be "preset:NAME". */
SKV_CHECKED skv_status skv_model_info_read(const char *path, skv_model_info *out, skv_error *err);
/** The same model in SwiftKV form; refuses l and g that do not fit. */
SKV_CHECKED skv_status skv_model_info_swiftkv(const char *path, size_t l, size_t g,
                                              skv_model_info *out, skv_error *err);

/** Bytes of KV cache a token takes, without and with what 8-bit rows add for scales. */
SKV_API size_t skv_model_kv_bytes_per_token(const skv_model_info *info, skv_kv kv);

/*
 * Arithmetic of the average token of a prompt of `context` tokens by part, in floating-point
 * operations (a multiply-add is two). It sees half of the prompt, so attention is
 * 4 * H * Dh * (context + 1) / 2 a layer. The papers' Table 1 counts the same, but for two
 * conventions: the vocabulary twice (embedding and head), and attention in units of 2^30.
 */
typedef struct skv_cost {
    double vocabulary; /* the head */
    double kv;         /* K and V projections */
    double q, o;       /* query and output projections */
    double mlp;
    double attention; /* scores and weighted sum */
    double total;
} skv_cost;

/** Of a token that runs all layers before layer l and only leaves K,V beyond. */
SKV_CHECKED skv_status skv_model_cost(const char *path, size_t l, size_t g, size_t context,
                                      skv_cost *out, skv_error *err);

/**
 * With KV Prediction: of the average prompt token through the auxiliary model, whose last layer
 * leaves only K,V and whose head is not run (`vocabulary` is 0), and through the linear maps.
 */
SKV_CHECKED skv_status skv_kvpred_cost(const char *path, size_t context, skv_cost *auxiliary,
                                       double *predictor, skv_error *err);

/* ---- SimScore (arXiv:2410.03960, equation 1) ---- */

/**
 * scores[l] for l < L - 1: mean over j > l of the mean cosine similarity between the input of
 * layer l and the input of layer j, over the n tokens (in windows of the engine's context).
 * layers: L. The engine must have been opened with no_skip.
 */
SKV_CHECKED skv_status skv_similarity(skv_engine *engine, const int32_t *ids, size_t n,
                                      double *scores, skv_error *err);

/* ---- hidden states ---- */

/* Gets x [n_rows, D] of a step's rows as they enter layer i_layer; with i_layer = L as they leave
 * the last one. Valid during the call. */
typedef void skv_hidden_fn(void *user, size_t i_layer, const float *x, size_t n_rows);

/** skv_step without logits, with the hidden states before and behind every layer. The engine must
 * have been opened with no_skip. */
SKV_CHECKED skv_status skv_step_hidden(skv_engine *engine, const skv_span *spans, size_t n_spans,
                                       skv_hidden_fn *on_hidden, void *user, skv_error *err);

/* ---- the SwiftKV transform ---- */

/**
 * Writes `out` (a new folder) as a SwiftKV checkpoint of the model at `path`, in the published
 * layout, initialised as its authors do: norm_swiftkv from layer l's input norm, q copied, k and
 * v averaged over each group of g layers. Tokenizer files are copied.
 */
SKV_CHECKED skv_status skv_transform(const char *path, const char *out, size_t l, size_t g,
                                     skv_error *err);

typedef enum skv_transform_init {
    SKV_TRANSFORM_COPY, /* as the authors do: see skv_transform */
    /*
     * In closed form, before any training: each k and v projection is the ridge regression from
     * norm_swiftkv of layer l's input to the keys or values (before rotation and head norms) that
     * the model's own projection makes of its own layer's input, over a text; those that a group
     * shares go to the mean over its layers. Where the model has biases they are part of the
     * solution. q, which goes on reading its own layer's input, is copied.
     */
    SKV_TRANSFORM_RIDGE
} skv_transform_init;

typedef struct skv_transform_options {
    size_t kv_layers, group; /* l and g */
    skv_transform_init init;
    /* "0,2,4", or "lp-0.25", "lp-0.50", "lp-0.75" as KV Prediction's paper prunes: no SwiftKV form
     * but a smaller ordinary model with these layers, and nothing else here counts. NULL: no. */
    const char *keep_layers;

    /* Of RIDGE. */
    const char *const *data; /* text, .jsonl, or token ids (.u16, .u32, .json) */
    size_t n_data;
    size_t tokens; /* at most so many of the text; 0: 32 a column of x, within 2^15..2^17 */
    size_t seq;    /* the longest sequence; 0: the model's context, at most 1024 */
    /* Weight of the penalty, in units of the mean square of x; below 0: 0.1 and, for short texts, 4
     * for each time that the columns of x go into the tokens (measured: docs/architecture.md). */
    double ridge;
    bool toward_zero;    /* the penalty is on the projections, not on their distance to copies */
    uint64_t seed;       /* of the order in which the text is read */
    size_t threads;      /* 0: one for each processor */
    const char *cpu;     /* as in skv_engine_options, and so is the next */
    skv_weights weights; /* how the model runs over the text */
    void (*progress)(void *user, double share); /* share of the tokens in 0..1; may be NULL */
    void *user;
} skv_transform_options;

/** Copied, with l = 1 and g = 1, and every choice of RIDGE left to it. */
SKV_API skv_transform_options skv_transform_options_default(void);

/* What the regression did; zero for copies. */
typedef struct skv_transform_report {
    size_t tokens; /* of the text that were counted */
    size_t width;  /* columns of x: with fewer tokens the penalty decides the rest */
    double ridge;  /* as given or chosen */
    /* Squared distance between what the projections of the layers behind l read with the model's
     * own inputs and with x, as a share of the former: of copies, and of the solution. */
    double copied_error, ridge_error;
} skv_transform_report;

/** The transform with a choice of initialisation; report may be NULL. */
SKV_CHECKED skv_status skv_transform_run(const char *path, const char *out,
                                         const skv_transform_options *options,
                                         skv_transform_report *report, skv_error *err);

/* ---- the machine ---- */

typedef struct skv_peak {
    double f32_gflops, bf16_gflops, int8_gops; /* with the instructions the kernels use */
    double read_gbs;                           /* reading memory beyond all caches */
    size_t threads;
    char cpu[128];
} skv_peak;

/** Measures for about two seconds. threads 0: one for each processor. */
SKV_CHECKED skv_status skv_peak_measure(size_t threads, const char *cpu, skv_peak *out,
                                        skv_error *err);

/** Only the read bandwidth, in about a quarter of a second: on a shared machine it changes by the
 * minute, so whoever compares with it measures it next to what is compared. */
SKV_CHECKED skv_status skv_read_measure(size_t threads, double *gbs, skv_error *err);

/** The largest resident size of this process so far, in bytes. */
SKV_API size_t skv_peak_rss(void);
/** A monotonic clock in nanoseconds. */
SKV_API uint64_t skv_now_ns(void);

SKV_END

#endif
