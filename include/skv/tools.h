/** Looking at models and changing them: shapes and costs, similarity, the SwiftKV transform, and
 * what the machine can do. */
#ifndef SKV_TOOLS_H
#define SKV_TOOLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "skv/skv.h"

SKV_BEGIN

/* ---- what a model is ---- */

typedef struct skv_model_info {
    char architecture[64];
    size_t layers, hidden, head_dim, vocab, context;
    size_t heads, kv_heads, ffn; /* of layer 0; they differ by layer where `per_layer` */
    bool per_layer;
    bool tied;
    bool swiftkv;          /* it holds SwiftKV weights */
    size_t swiftkv_layers; /* l; `layers` when not SwiftKV */
    size_t group;          /* g */
    size_t kv_slots;       /* l + (L - l) / g */
    uint64_t parameters;   /* of the model as it runs: SwiftKV's own without the teacher's */
    uint64_t kv_elements;  /* K and V numbers of a token over all slots */
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

/* ---- SimScore (arXiv:2410.03960, equation 1) ---- */

/**
 * scores[l] for l < L - 1: mean over j > l of the mean cosine similarity between the input of
 * layer l and the input of layer j, over the n tokens (in windows of the engine's context).
 * layers: L. The engine must have been opened with no_skip.
 */
SKV_CHECKED skv_status skv_similarity(skv_engine *engine, const int32_t *ids, size_t n,
                                      double *scores, skv_error *err);

/* ---- the SwiftKV transform ---- */

/**
 * Writes `out` (a new folder) as a SwiftKV checkpoint of the model at `path`, in the published
 * layout, initialised as its authors do: norm_swiftkv from layer l's input norm, q copied, k and
 * v averaged over each group of g layers. Tokenizer files are copied.
 */
SKV_CHECKED skv_status skv_transform(const char *path, const char *out, size_t l, size_t g,
                                     skv_error *err);

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
