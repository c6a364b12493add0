/*
 * The families of config.json: their default values, and the rules in which they differ. Defaults
 * are those of transformers' configuration classes.
 */
#ifndef SKV_FORMAT_CONFIG_FAMILY_H
#define SKV_FORMAT_CONFIG_FAMILY_H

#include "format/config_build.h"

/* Which layers see a window of the last rows only. */
typedef enum skv_window_rule {
    SKV_WINDOW_NEVER,
    SKV_WINDOW_EVERY,   /* Mistral, Phi-3 */
    SKV_WINDOW_UPPER,   /* Qwen: layers from max_window_layers on, if use_sliding_window */
    SKV_WINDOW_PATTERN, /* Gemma, OLMo 3: all but every window_period-th */
    SKV_WINDOW_STILL,   /* SmolLM3: layers without RoPE, if use_sliding_window */
    SKV_WINDOW_SWITCHED /* Qwen3-MoE: all, if use_sliding_window */
} skv_window_rule;

typedef enum skv_bias_rule {
    SKV_BIAS_NEVER,
    SKV_BIAS_QKV,
    SKV_BIAS_BY_KEY,
    SKV_BIAS_QKV_BY_KEY
} skv_bias_rule;

typedef struct skv_family {
    const char *model_type; /* without _swiftkv */
    size_t vocab, hidden, ffn, n_layers, n_heads;
    size_t n_kv_heads; /* 0: equal to the number of heads */
    size_t head_dim;   /* 0: hidden / heads */
    size_t context, window;
    double norm_eps, theta; /* 0: 1e-6, 1e4 */
    int bos, eos;           /* -1: none */
    bool tied;
    skv_window_rule windows;
    skv_bias_rule bias;
    bool mlp_bias; /* by key */
    bool biased;   /* the default of attention_bias; routers and experts always */
    bool sinks;
    bool qk_norm;
    bool gemma;
    bool gemma4; /* beside gemma */
    double attention_softcap, final_softcap;
    size_t window_period; /* SKV_WINDOW_PATTERN */
    size_t still_period;  /* every n-th layer has no RoPE; 0: all have it */
    bool two_ropes;       /* layers with a window have a rope of their own */
    double local_theta;   /* its theta, 0: as theta */
    const char *local_theta_key;
    bool growing_queries;    /* Ministral 3 */
    bool olmo;               /* norms only after the blocks, and over whole q and k */
    bool glm;                /* norms before and after the blocks */
    bool multipliers;        /* Granite */
    double partial;          /* share of a head's dimensions that rotate; 0: all */
    size_t attention_period; /* every n-th layer has attention, the others the gated delta rule; 0:
                              * all have it */
    bool short_convs;        /* LFM2: the other layers are short convolutions */
    skv_moe_defaults moe;
    /* Reads the family's own keys; NULL: it has none. */
    void (*more)(skv_json_reader *r, skv_config *c);
} skv_family;

/** Finds the family of a model_type [n], without its _swiftkv suffix; NULL: not in the table. */
const skv_family *skv_family_find(const char *model_type, size_t n);
/** Returns the feature that this engine lacks for an unsupported model_type or GGUF architecture
 * [n], or NULL. */
const char *skv_family_refusal(const char *name, size_t n);

#endif
