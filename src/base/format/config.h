/*
 * What a model is: every supported architecture as a table of choices over one transformer block.
 *
 * One block, with the choices in capitals:
 *     a  = NORM(x, attn_norm)
 *     q  = Wq a [+ bq]   k = Wk a [+ bk]   v = Wv a [+ bv]        one head count per LAYER
 *     q, k = [head-wise NORM]  then RoPE (per layer: which table)
 *     o  = Wo attention(q, k, v; SCALE, SOFTCAP, WINDOW per layer) [+ bo]
 *     x += [NORM](o)
 *     m  = Wdown (ACT(Wgate b) * Wup b),  b = NORM(x, ffn_norm)   one width per LAYER
 *     x += [NORM](m)
 * NORM is RMSNorm with weight w + norm_offset.
 */
#ifndef SKV_FORMAT_CONFIG_H
#define SKV_FORMAT_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/fail.h"

enum { SKV_LAYERS_MAX = 512, SKV_EOS_MAX = 16, SKV_ROPE_FACTORS_MAX = 256 };

typedef enum skv_activation { SKV_ACT_SILU, SKV_ACT_GELU_TANH } skv_activation;

typedef enum skv_rope_scaling {
    SKV_ROPE_PLAIN,
    SKV_ROPE_LINEAR,   /* frequencies / factor */
    SKV_ROPE_LLAMA3,   /* by wavelength: kept, divided by factor, or blended */
    SKV_ROPE_LONGROPE, /* Phi-3: one factor a frequency, a short and a long set */
    SKV_ROPE_FACTORS   /* GGUF rope_freqs: one divisor a frequency (long_factor) */
} skv_rope_scaling;

/* How positions become angles. A model has up to two: for full and for windowed layers. */
typedef struct skv_rope {
    skv_rope_scaling scaling;
    double theta;
    size_t n_rot; /* dims that turn, even, <= head_dim */
    double factor;
    double low_freq_factor, high_freq_factor; /* llama3 */
    size_t original_context;                  /* llama3, longrope */
    double attention_factor;                  /* longrope: cos and sin are multiplied by it */
    size_t n_factors;                         /* n_rot / 2 where used */
    float short_factor[SKV_ROPE_FACTORS_MAX];
    float long_factor[SKV_ROPE_FACTORS_MAX];
} skv_rope;

typedef struct skv_layer_shape {
    size_t n_heads;    /* H */
    size_t n_kv_heads; /* Hk, divides H */
    size_t ffn;        /* F */
    size_t window;     /* rows a token sees, itself included; 0: all */
    size_t i_rope;     /* 0 or 1: which skv_rope */
} skv_layer_shape;

typedef struct skv_config {
    char architecture[64];   /* model_type: "llama", "qwen2_swiftkv", "gemma3_text", ... */
    const char *gguf;        /* constant: GGUF's name of it, where that was read; else NULL */
    char dtype[16];          /* the weights' type as config.json says it, or "" */
    char base[64];           /* the folder beside this one that holds the weights this one leaves
                              * out, or "" (swiftkv_base) */
    size_t n_layers;         /* L */
    size_t hidden;           /* D */
    size_t head_dim;         /* Dh, the same in every layer */
    size_t vocab;            /* V: rows of the embedding */
    size_t context;          /* max_position_embeddings */
    skv_layer_shape *layers; /* [n_layers], owned */
    skv_rope ropes[2];

    double norm_eps;
    bool norm_offset_one; /* Gemma: weight + 1 */
    bool qkv_bias;        /* biases on q, k, v */
    bool o_bias;          /* bias on o (Llama with attention_bias) */
    bool mlp_bias;        /* biases on gate, up, down (Llama with mlp_bias) */
    bool qk_norm;         /* RMSNorm over each head of q and k before RoPE */
    bool post_norms;      /* Gemma 2, 3: norms after attention and after the MLP */
    bool tied;            /* the head is the embedding */
    skv_activation activation;
    double attention_scale;   /* usually 1 / sqrt(Dh) */
    double attention_softcap; /* 0: none */
    double final_softcap;     /* 0: none */
    double embedding_scale;   /* 1 but for Gemma: sqrt(D) rounded to the weights' type */

    /* Models born with shared keys and values (Gemma 3n, Gemma 4): the last n_shared layers have no
     * projections for them. Each reads those of its donor, see skv_config_donor. 0: none shares. */
    size_t n_shared; /* num_kv_shared_layers */

    /* SwiftKV (arXiv:2410.03960): layers >= kv_layers take K,V from the output of layer
     * kv_layers - 1, and groups of kv_group of them share one. kv_layers == n_layers: not used. */
    bool swiftkv;     /* the model type ends in _swiftkv */
    size_t kv_layers; /* l, 1..L */
    size_t kv_group;  /* g >= 1, divides L - l */
    bool early_exit;  /* lm_head_swiftkv.weight [V, D]: logits from norm_swiftkv(x_l), B.4 */

    /* KV Prediction (arXiv:2410.08391): an auxiliary model reads prompts, and layer i's keys and
     * values are predicted from those of its layer kvp_layers[i]. */
    bool kv_prediction;
    char auxiliary[64]; /* the folder inside this one that holds the auxiliary model */
    uint16_t kvp_layers[SKV_LAYERS_MAX];

    int32_t bos;              /* -1: none */
    int32_t eos[SKV_EOS_MAX]; /* ids that end an answer */
    size_t n_eos;
    bool has_sampling; /* generation_config named the four below */
    double temperature, top_p;
    size_t top_k;
    double repetition_penalty;
} skv_config;

void skv_config_release(skv_config *c);
/** True when the architecture is `model_type` or its SwiftKV form, model_type_swiftkv. */
bool skv_config_is(const skv_config *c, const char *model_type);
/** The layer whose keys and values layer i reads: i itself, or, for one of the last n_shared
 * layers, the last layer before all of these that is windowed as layer i is. i when there is
 * none, which skv_config_check refuses. */
size_t skv_config_donor(const skv_config *c, size_t i);

/** config.json (`name` is for errors). Tells transformers 4 and 5 spellings alike. */
SKV_MUST_CHECK skv_status skv_config_parse(const char *json, size_t n, const char *name,
                                           skv_config *out, skv_error *err);
/** Adds what generation_config.json says (eos ids, sampling defaults). */
SKV_MUST_CHECK skv_status skv_config_parse_generation(const char *json, size_t n, const char *name,
                                                      skv_config *c, skv_error *err);
/** The checks every source of a configuration ends with: ranges, divisibility, sizes. */
SKV_MUST_CHECK skv_status skv_config_check(const skv_config *c, const char *name, skv_error *err);

/* ---- config_write.c: back to config.json ---- */

/**
 * Appends the config.json of a SwiftKV checkpoint: the original's JSON with model_type,
 * architectures, swiftkv, num_key_value_layers and key_value_group_size as the published layout
 * has them, and tie_word_embeddings; kv_layers, kv_group, tied and dtype (where not "") are c's.
 * Of a model with images the text part is written. `name` is for errors.
 */
SKV_MUST_CHECK skv_status skv_config_json_for_swiftkv(const char *json, size_t n, const char *name,
                                                      const skv_config *c, skv_buf *out,
                                                      skv_error *err);

/* How the projections of a model are quantised, as compressed-tensors says it. */
typedef struct skv_quantization {
    unsigned bits;
    size_t group;
    const char **ignored; /* [n_ignored], owned: "X.weight" of modules X that are not */
    size_t n_ignored;
} skv_quantization;

/** Appends the model's JSON with a quantization_config of the layout pack-quantized. `name` is for
 * errors. */
SKV_MUST_CHECK skv_status skv_config_json_quantized(const char *json, size_t n, const char *name,
                                                    const skv_quantization *form, skv_buf *out,
                                                    skv_error *err);

/** Appends the base model's JSON with what c says of KV Prediction: auxiliary, kvp_layers, and the
 * folder of the base where c->base is not "". */
SKV_MUST_CHECK skv_status skv_config_json_for_kvp(const char *json, size_t n, const char *name,
                                                  const skv_config *c, skv_buf *out,
                                                  skv_error *err);

/**
 * Appends a config.json that skv_config_parse reads back as c (with the SwiftKV fields where
 * c->swiftkv): for sources that had none. GGUF's rope_freqs become a longrope with equal factors,
 * which is the same rotation. Gemma's published norm weights lack the 1 that GGUF's contain
 * (c->norm_offset_one is false): whoever writes such tensors beside this file subtracts it.
 */
SKV_MUST_CHECK skv_status skv_config_json_from_config(const skv_config *c, skv_buf *out,
                                                      skv_error *err);

#endif
