/*
 * The configuration of a model: every supported architecture as a table of choices over one
 * transformer block.
 *
 * One block, with the choices in capitals:
 *     a  = NORM(x, attn_norm)
 *     q  = Wq a [+ bq]   k = Wk a [+ bk]   v = Wv a [+ bv]        one head count per LAYER
 *     q, k = [head-wise NORM]  then RoPE (per layer: which table)
 *     o  = Wo attention(q, k, v; SCALE, SOFTCAP, WINDOW per layer) [* sigmoid(Wgate a)] [+ bo]
 *          or, in a LAYER that keeps a state, its MIXER applied to a
 *     x += [NORM](o)
 *     m  = Wdown (ACT(Wgate b) * Wup b),  b = NORM(x, ffn_norm)   one width per LAYER
 *          or, in a LAYER with experts, the weighted sum of those that a router chooses
 *          [+ m' of one that every token meets, or sigmoid(w b) m'],
 *          or, in one with both, NORM(m) of the first + NORM(m) of the second
 *     x += [NORM](m)
 *     x += NORM(Wproj (ACT(Wpig x) * e))                          e: the token's, of this LAYER
 *     x *= s                                                      one number per LAYER
 * NORM is RMSNorm with weight w + norm_offset.
 */
#ifndef SKV_FORMAT_CONFIG_H
#define SKV_FORMAT_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/fail.h"
#include "format/coded.h"

enum { SKV_LAYERS_MAX = 512, SKV_EOS_MAX = 16, SKV_ROPE_FACTORS_MAX = 256 };

typedef enum skv_activation {
    SKV_ACT_SILU,
    SKV_ACT_GELU_TANH,
    SKV_ACT_SWIGLU_CLAMPED, /* gpt-oss: see skv_config.swiglu_limit */
    SKV_ACT_RELU2           /* Nemotron-H: relu(Wup b)^2, without a gate, in experts too */
} skv_activation;

typedef enum skv_rope_scaling {
    SKV_ROPE_PLAIN,
    SKV_ROPE_LINEAR,   /* frequencies / factor */
    SKV_ROPE_LLAMA3,   /* by wavelength: kept, divided by factor, or blended */
    SKV_ROPE_LONGROPE, /* Phi-3: one factor a frequency, a short and a long set */
    SKV_ROPE_FACTORS,  /* GGUF rope_freqs: one divisor a frequency (long_factor) */
    SKV_ROPE_YARN,     /* arXiv:2309.00071: low frequencies / factor, high ones kept, a ramp */
    SKV_ROPE_NONE      /* nothing turns (SmolLM3's layers without positions) */
} skv_rope_scaling;

/* How positions become angles. A model has up to two: for full and for windowed layers. */
typedef struct skv_rope {
    skv_rope_scaling scaling;
    double theta;
    size_t n_rot; /* dims that turn, even, <= head_dim */
    double factor;
    double low_freq_factor, high_freq_factor; /* llama3 */
    size_t original_context;                  /* llama3, longrope, yarn; with position_growth */
    double attention_factor;                  /* longrope, yarn: factor of cos and sin */
    double beta_fast, beta_slow;              /* yarn: the ramp's ends, turns in original_context */
    bool ramp_exact;                          /* yarn: its ends are not rounded to whole dims */
    bool within_context; /* "dynamic": beyond the model's context, angles would change with it */
    /* cos and sin at position p are also multiplied by
     * 1 + position_growth * ln(1 + floor(p / original_context)): Ministral 3's queries. 0: never.
     */
    double position_growth;
    size_t n_factors; /* n_rot / 2 where used */
    float short_factor[SKV_ROPE_FACTORS_MAX];
    float long_factor[SKV_ROPE_FACTORS_MAX];
} skv_rope;

/** Applies Llama 3.1's scaling to a frequency: divides by factor if the wavelength exceeds the
 * original context, keeps the frequency if it is well within it, and blends in between. */
double skv_rope_llama3(const skv_rope *rope, double frequency);

/* How the tokens of a layer learn of each other. */
typedef enum skv_mixer {
    SKV_MIXER_ATTENTION,
    SKV_MIXER_DELTA, /* the gated delta rule after a short convolution (arXiv:2412.06464) */
    SKV_MIXER_CONV,  /* a short convolution of D channels between two gates (LFM2) */
    SKV_MIXER_MAMBA, /* Mamba-2 after a short convolution (arXiv:2405.21060) */
    SKV_MIXER_BOTH,  /* attention and Mamba-2 in parallel: both are added to x (Falcon-H1) */
    SKV_MIXER_NONE   /* the layer is its block alone (Nemotron-H) */
} skv_mixer;

/* Products whose results are multiplied by a number of the configuration: see part_scales. */
typedef enum skv_part_scale {
    SKV_SCALE_Z, /* of a Mamba-2 layer's in_proj: z, */
    SKV_SCALE_V, /* x, */
    SKV_SCALE_K, /* B, */
    SKV_SCALE_Q, /* C, */
    SKV_SCALE_DT,
    SKV_SCALE_STATE_OUT, /* its out_proj */
    SKV_SCALE_ATTENTION_OUT,
    SKV_SCALE_GATE, /* of the block */
    SKV_SCALE_DOWN,
    SKV_SCALE_COUNT
} skv_part_scale;

/* The state of a sequence in a layer that keeps one: a matrix [key_dim, value_dim] for each value
 * head, and the last conv_rows - 1 inputs of its convolution. All such layers have one shape.
 * CONV: conv_rows alone. MAMBA: groups, heads, d_state and d_head; C is q, B is k, x is v. */
typedef struct skv_mixer_shape {
    size_t n_key_heads, n_value_heads; /* nk divides nv */
    size_t key_dim, value_dim;
    size_t conv_rows; /* K of the convolution, its own row included */
    bool tiled;      /* value head h has key head h % nk, as GGUF stores them; else h / (nv / nk) */
    bool conv_bias;  /* MAMBA */
    bool no_norm;    /* the output is gated, not normed */
    bool gate_first; /* the gate comes before the norm, not after it */
    double dt_min, dt_max; /* MAMBA: limits of a row's time step; dt_max 0: no upper one */
    double norm_eps;       /* of the output's norm: over a value head; MAMBA: a group */
    double write_max;      /* DELTA: beta is at most this, 1 or 2 */
} skv_mixer_shape;

typedef struct skv_layer_shape {
    skv_mixer mixer;
    size_t n_heads;    /* H */
    size_t n_kv_heads; /* Hk, divides H */
    size_t ffn;        /* F; of each expert in layers with experts; 0: the layer has no block */
    size_t n_experts;  /* E; 0: the block is one, and dense */
    size_t ffn_beside; /* F of a dense block beside the experts (Gemma 4); 0: there is none */
    size_t ffn_shared; /* F of the expert that every token meets; 0: there is none */
    size_t window;     /* rows a token sees, itself included; 0: all */
    size_t i_rope;     /* 0 or 1: which skv_rope */
    size_t head_dim;   /* Dh of this layer; 0: the configuration's */
    bool k_is_v;       /* no projection of its own makes V: it is K before norm and rotation */
    size_t i_rope_q;   /* queries use ropes[i_rope + i_rope_q]; 0 except in Ministral 3 */
} skv_layer_shape;

typedef struct skv_config {
    char architecture[64];   /* model_type: "llama", "qwen2_swiftkv", "gemma3_text", ... */
    const char *gguf;        /* constant: GGUF's name of it, where that was read; else NULL */
    char dtype[16];          /* the weights' type in config.json, or "" */
    skv_quant_config quant;  /* of 8-bit or 4-bit weights, from config.json */
    char base[64];           /* the folder beside this one that holds the weights this one leaves
                              * out, or "" (swiftkv_base) */
    size_t n_layers;         /* L */
    size_t hidden;           /* D */
    size_t head_dim;         /* Dh, the largest of any layer: see skv_config_head_dim */
    size_t vocab;            /* V: rows of the embedding */
    size_t context;          /* max_position_embeddings */
    skv_layer_shape *layers; /* [n_layers], owned */
    skv_rope ropes[2];
    skv_mixer_shape mixer; /* of layers without attention; zeros: all have it */

    double norm_eps;
    bool norm_offset_one; /* Gemma: weight + 1 */
    bool qkv_bias;        /* biases on q, k, v */
    bool o_bias;          /* bias on o (Llama with attention_bias) */
    bool mlp_bias;        /* biases on gate, up, down (Llama with mlp_bias) */
    bool qk_norm;         /* RMSNorm over each head of q and k before RoPE */
    bool qk_norm_joined;  /* qk_norm is over all heads together (OLMo 2, 3) */
    bool post_norms;      /* Gemma 2, 3, OLMo, GLM-4: norms after attention and after the MLP */
    bool no_pre_norms;    /* OLMo 2, 3: none before attention and the MLP */
    bool state_pre_norms; /* OLMo Hybrid: layers that keep a state have those alone */
    bool single_blocks;   /* Nemotron-H: a layer mixes or has a block, and one norm */
    bool tied;            /* the head is the embedding */
    bool attention_gate;  /* the output of attention is multiplied by sigmoid(Wgate a) */
    bool sinks;           /* a logit for each head that takes part in attention's softmax, without
                           * keys or values (gpt-oss) */
    skv_activation activation;
    double attention_scale;              /* usually 1 / sqrt(Dh) */
    double attention_softcap;            /* 0: none */
    double final_softcap;                /* 0: none */
    double embedding_scale;              /* 1 but for Gemma: sqrt(D) rounded to the weights' type */
    double logit_divisor;                /* 0: none. Granite: logits are divided by it */
    double part_scales[SKV_SCALE_COUNT]; /* 0: 1 */
    /* Granite adds r times a block's result to x. This engine keeps x / r and adds results
     * unscaled: embedding_scale is divided by r, norm_eps by r^2, and nothing else differs, since x
     * is only read through a norm. 0: 1. */
    double residual_scale; /* r */

    /* Gemma 4. */
    bool v_norm;            /* RMSNorm without a weight over each head of v */
    bool layer_scalar;      /* each layer ends with x *= s */
    size_t per_layer;       /* P: width of the token's own embedding added in each layer; 0: none */
    double per_layer_scale; /* of that embedding: sqrt(P) rounded to the weights' type */
    /* Mixtures of experts (layers with n_experts > 0): a token's weights are the softmax of its
     * n_active largest router logits, or those of the softmax of all. */
    size_t n_active; /* experts that a token meets, 1..E */
    bool norm_topk;  /* the first of the two: the weights add up to 1 */
    /* Or they are the sigmoids of logits, divided by their sum + router_eps where norm_topk, times
     * router_scale (0: 1). The choice is by the sigmoid plus a number of the expert. */
    bool router_sigmoid;
    bool choice_bias; /* there is such a number */
    double router_eps, router_scale;
    size_t moe_latent;   /* columns of the experts' input and output, between two products; 0: D */
    double router_loss;  /* router_aux_loss_coef: in training, of the loss that balances experts */
    bool shared_plain;   /* the expert that every token meets has no gate: it counts 1 */
    bool router_bias;    /* bias on the router */
    bool expert_bias;    /* biases on gate, up, down of every expert */
    double swiglu_limit; /* SWIGLU_CLAMPED: g = min(gate, limit), u = up clamped to +-limit, */
    double swiglu_alpha; /* then (u + 1) g / (1 + exp(-alpha g)) */

    /* Models born with shared keys and values (Gemma 3n, Gemma 4): the last n_shared layers have no
     * projections for them. Each reads those of its donor, see skv_config_donor. 0: none shares. */
    size_t n_shared; /* num_kv_shared_layers */

    /* SwiftKV (arXiv:2410.03960): layers >= kv_layers take K,V from the output of layer
     * kv_layers - 1, and groups of kv_group of them share one. kv_layers == n_layers: not used. */
    bool swiftkv;     /* the model type ends in _swiftkv */
    size_t kv_layers; /* l, 1..L */
    size_t kv_group;  /* g >= 1, divides L - l */
    bool early_exit;  /* lm_head_swiftkv.weight [V, D]: logits from norm_swiftkv(x_l), B.4 */
    /* The exit head has W rows, those of the ids lm_head_swiftkv.ids [W] alone (FR-Spec,
     * arXiv:2502.14856). 0: a row for each id. */
    size_t exit_words;

    /* The one layer is a head that predicts further tokens: it reads
     * mtp.fc [NORM(embedding of the next token), NORM(h)], and has the embedding and the head of
     * the model that h is of. */
    bool mtp;

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
/** Dh of layer i. */
static inline size_t skv_config_head_dim(const skv_config *c, size_t i)
{
    return c->layers[i].head_dim ? c->layers[i].head_dim : c->head_dim;
}
/** Whether layer i has a dense block, and F of it: alone, or beside experts. */
static inline size_t skv_config_dense_ffn(const skv_config *c, size_t i)
{
    return c->layers[i].n_experts ? c->layers[i].ffn_beside : c->layers[i].ffn;
}
/** Whether layer i has attention, and so keys and values. */
static inline bool skv_config_attends(const skv_config *c, size_t i)
{
    const skv_mixer mixer = c->layers[i].mixer;
    return mixer == SKV_MIXER_ATTENTION || mixer == SKV_MIXER_BOTH;
}
/** Whether layer i keeps a state. */
static inline bool skv_config_keeps_state(const skv_config *c, size_t i)
{
    const skv_mixer mixer = c->layers[i].mixer;
    return mixer != SKV_MIXER_ATTENTION && mixer != SKV_MIXER_NONE;
}
/** Whether that is Mamba-2's. */
static inline bool skv_config_is_mamba(const skv_config *c, size_t i)
{
    return c->layers[i].mixer == SKV_MIXER_MAMBA || c->layers[i].mixer == SKV_MIXER_BOTH;
}
/** Whether layer i has norms before attention and its block, and whether after them. */
static inline bool skv_config_pre_normed(const skv_config *c, size_t i)
{
    return !c->no_pre_norms || (c->state_pre_norms && skv_config_keeps_state(c, i));
}
static inline bool skv_config_post_normed(const skv_config *c, size_t i)
{
    return c->post_norms && !(c->state_pre_norms && skv_config_keeps_state(c, i));
}
/** Columns of an expert's input and output. */
static inline size_t skv_config_expert_columns(const skv_config *c)
{
    return c->moe_latent > 0 ? c->moe_latent : c->hidden;
}
/** Matrices of a block or an expert: gate, up and down, or the last two. */
static inline size_t skv_config_block_matrices(const skv_config *c)
{
    return c->activation == SKV_ACT_RELU2 ? 2 : 3;
}
/** Columns of layer i's products: those of q, and those of k and v together as it makes them; 0
 * without attention. */
static inline size_t skv_config_q_columns(const skv_config *c, size_t i)
{
    return skv_config_attends(c, i) ? c->layers[i].n_heads * skv_config_head_dim(c, i) : 0;
}
static inline size_t skv_config_kv_columns(const skv_config *c, size_t i)
{
    const size_t n_heads = skv_config_attends(c, i) ? c->layers[i].n_kv_heads : 0;
    return (c->layers[i].k_is_v ? 1 : 2) * n_heads * skv_config_head_dim(c, i);
}
/** Columns of the products of layers without attention: q or k, v or z, and the convolution's
 * input, q|k|v. */
static inline size_t skv_mixer_key_columns(const skv_mixer_shape *m)
{
    return m->n_key_heads * m->key_dim;
}
static inline size_t skv_mixer_value_columns(const skv_mixer_shape *m)
{
    return m->n_value_heads * m->value_dim;
}
static inline size_t skv_mixer_conv_columns(const skv_mixer_shape *m)
{
    return 2 * skv_mixer_key_columns(m) + skv_mixer_value_columns(m);
}
/** Channels of the convolution of layer i, which keeps a state. */
static inline size_t skv_config_conv_columns(const skv_config *c, size_t i)
{
    return c->layers[i].mixer == SKV_MIXER_CONV ? c->hidden : skv_mixer_conv_columns(&c->mixer);
}
/** Columns of the numbers of a token and value head in layer i: DELTA's b and a, MAMBA's dt. */
static inline size_t skv_config_gate_columns(const skv_config *c, size_t i)
{
    const size_t n = c->mixer.n_value_heads;
    return c->layers[i].mixer == SKV_MIXER_DELTA ? 2 * n : skv_config_is_mamba(c, i) ? n : 0;
}
/** Weights of the products of layer i's mixer, without biases and norms. */
uint64_t skv_config_mixer_weights(const skv_config *c, size_t i);
/** The part of them that is not attention's. */
uint64_t skv_config_state_weights(const skv_config *c, size_t i);
/** Numbers of layer i, which keeps a state, beside those products: taps, rates, biases, norm. */
size_t skv_config_mixer_numbers(const skv_config *c, size_t i);
/** Operations of a token in layer i's convolution and recurrence, which comes out or not; 0 in one
 * without a state. */
double skv_config_state_work(const skv_config *c, size_t i, bool comes_out);
/** Whether some layer keeps a state. */
bool skv_config_is_hybrid(const skv_config *c);
/** Models whose files may have a head that predicts further tokens (MTP). */
bool skv_config_may_predict(const skv_config *c);
/** Whether SwiftKV's boundary feeds the state of some layer above it. */
bool skv_config_feeds_states(const skv_config *c);
/** Returns the layer whose keys and values layer i reads: i itself or, for one of the last n_shared
 * layers, the last layer before them with the same kind of window. Returns i if there is none,
 * which skv_config_check refuses. */
size_t skv_config_donor(const skv_config *c, size_t i);

/** Weights of an expert of layer i, without biases. */
uint64_t skv_config_expert_weights(const skv_config *c, size_t i);
/** Weights of the feed-forward block of layer i that one token meets, without biases. */
uint64_t skv_config_block_weights(const skv_config *c, size_t i);

/** config.json (`name` is for errors). Tells transformers 4 and 5 spellings alike. */
SKV_MUST_CHECK skv_status skv_config_parse(const char *json, size_t n, const char *name,
                                           skv_config *out, skv_error *err);
/** Applies generation_config.json (eos ids, sampling defaults). */
SKV_MUST_CHECK skv_status skv_config_parse_generation(const char *json, size_t n, const char *name,
                                                      skv_config *c, skv_error *err);
/** The checks every source of a configuration ends with: ranges, divisibility, sizes. */
SKV_MUST_CHECK skv_status skv_config_check(const skv_config *c, const char *name, skv_error *err);

/* ---- config_write.c: back to config.json ---- */

/**
 * Appends the config.json of a SwiftKV checkpoint: the original's JSON with model_type,
 * architectures, swiftkv, num_key_value_layers and key_value_group_size as the published layout
 * has them, and tie_word_embeddings; kv_layers, kv_group, tied and dtype (where not "") are c's.
 * Of a model with images the text part is written. Fails where the family has no SwiftKV form.
 * `name` is for errors.
 */
SKV_MUST_CHECK skv_status skv_config_json_for_swiftkv(const char *json, size_t n, const char *name,
                                                      const skv_config *c, skv_buf *out,
                                                      skv_error *err);

/** Appends the config.json of the same model, its weights written as floats in one folder. `name`
 * is for errors. */
SKV_MUST_CHECK skv_status skv_config_json_in_floats(const char *json, size_t n, const char *name,
                                                    const skv_config *c, skv_buf *out,
                                                    skv_error *err);

/* How the projections of a model are quantised, in compressed-tensors' terms. */
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

/** Appends the base model's JSON with c's KV Prediction settings: auxiliary, kvp_layers, and the
 * base's folder unless c->base is "". */
SKV_MUST_CHECK skv_status skv_config_json_for_kvp(const char *json, size_t n, const char *name,
                                                  const skv_config *c, skv_buf *out,
                                                  skv_error *err);

/**
 * Appends a config.json that skv_config_parse reads back as c (with the SwiftKV fields if
 * c->swiftkv), for sources without one. GGUF's rope_freqs become a longrope with equal factors,
 * which is the same rotation. Gemma's published norm weights lack the 1 that GGUF's contain
 * (c->norm_offset_one is false): code that writes such tensors beside this file must subtract it.
 */
SKV_MUST_CHECK skv_status skv_config_json_from_config(const skv_config *c, skv_buf *out,
                                                      skv_error *err);

#endif
