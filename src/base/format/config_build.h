/* The code that config.json and GGUF metadata share to build a skv_config, and the names of its
 * fields in either format, for errors. */
#ifndef SKV_FORMAT_CONFIG_BUILD_H
#define SKV_FORMAT_CONFIG_BUILD_H

#include "format/config.h"
#include "format/json_doc.h"

/** c->layers = n_layers copies of `shape`; n_layers is checked. */
SKV_MUST_CHECK skv_status skv_config_set_layers(skv_config *c, size_t n_layers,
                                                skv_layer_shape shape, const char *name,
                                                skv_error *err);

/** Adds an id that ends an answer; ignores repeated ids and ids outside the vocabulary. */
void skv_config_add_eos(skv_config *c, int64_t id);
/** Sets bos; ids outside the vocabulary (some files give -1 or 2^32 - 1) mean none. */
void skv_config_set_bos(skv_config *c, int64_t id);

/** Gemma multiplies embeddings by sqrt(hidden), rounded to the type its weights are used in:
 * "bfloat16", "float16", anything else for none. */
double skv_gemma_embedding_scale(size_t hidden, const char *dtype);

/** Granite's multipliers, all positive; c->norm_eps is the file's. */
void skv_config_set_multipliers(skv_config *c, double embedding, double residual, double logits);

/** For a model type with images and its text part in `text_config`: returns the default type of
 * that part. NULL: the type has none. */
const char *skv_config_text_part(const char *model_type);

/* A family's defaults for mixtures of experts, used when the file lacks a value. */
typedef struct skv_moe_defaults {
    size_t n_experts, n_active; /* 0 experts: the family has none */
    size_t ffn;        /* of an expert; 0: intermediate_size, and every layer has experts */
    bool by_key;       /* norm_topk_prob decides about norm_topk; false: it is true */
    bool normed;       /* the default of norm_topk_prob */
    size_t ffn_shared; /* of the expert that every token meets; 0: the family has none */
} skv_moe_defaults;

/** Reads quantization_config into c, except for facts that the tensors give: format/coded.h. */
void skv_config_read_quantization(skv_json_reader *r, skv_config *c);

/** linear_* -> c->mixer, and layer_types or full_attention_interval -> the mixers of c's layers;
 * `period` is the family's. */
void skv_config_read_mixers(skv_json_reader *r, size_t period, skv_config *c);
/** As skv_config_read_mixers, for LFM2: layers with attention, or with a short convolution alone;
 * reads the width of all. */
void skv_config_read_convs(skv_json_reader *r, skv_config *c);
/** Read the layers of hybrid families, their kinds and blocks: config_mamba.c; OLMo Hybrid and
 * LFM2's mixtures: config_mixers.c. */
void skv_config_read_granite_h(skv_json_reader *r, skv_config *c);
void skv_config_read_nemotron_h(skv_json_reader *r, skv_config *c);
void skv_config_read_falcon_h1(skv_json_reader *r, skv_config *c);
void skv_config_read_olmo_hybrid(skv_json_reader *r, skv_config *c);
void skv_config_read_lfm2_moe(skv_json_reader *r, skv_config *c);
/** Checks the ranges of c's values for layers without attention. */
SKV_MUST_CHECK skv_status skv_config_check_mixers(const skv_config *c, const char *name,
                                                  skv_error *err);

/** Reads num_experts and the related keys into c, whose layers are known and dense. */
void skv_config_read_moe(skv_json_reader *r, const skv_moe_defaults *defaults, skv_config *c);
/** Checks the ranges of c's values for mixtures of experts. */
SKV_MUST_CHECK skv_status skv_config_check_moe(const skv_config *c, const char *name,
                                               skv_error *err);

/** Reads "kv_prediction" of config.json into c, whose layers are known, and checks its
 * references. */
void skv_config_read_kvp(skv_json_reader *r, skv_config *c);

/** Heads and FFN width of layer i in the published OpenELM models; hidden, head_dim and n_layers
 * are c's. */
void skv_openelm_shape(const skv_config *c, size_t i, skv_layer_shape *out);

/** OpenELM's config.json -> c; `r` reads its top level. */
void skv_config_from_openelm(skv_json_reader *r, skv_config *c);

/* name, in config.json, in OpenELM's config.json, in GGUF (a key without the architecture, or a
 * whole one where it has no such prefix) */
#define SKV_CONFIG_FIELD_LIST(X)                                                                   \
    X(LAYERS, "num_hidden_layers", "num_transformer_layers", "block_count")                        \
    X(HIDDEN, "hidden_size", "model_dim", "embedding_length")                                      \
    X(HEAD_DIM, "head_dim", "head_dim", "attention.key_length")                                    \
    X(VOCAB, "vocab_size", "vocab_size", "/token_embd.weight")                                     \
    X(CONTEXT, "max_position_embeddings", "max_context_length", "context_length")                  \
    X(HEADS, "num_attention_heads", "num_query_heads", "attention.head_count")                     \
    X(KV_HEADS, "num_key_value_heads", "num_kv_heads", "attention.head_count_kv")                  \
    X(FFN, "intermediate_size", "ffn_multipliers", "feed_forward_length")                          \
    X(PER_LAYER, "hidden_size_per_layer_input", "hidden_size_per_layer_input",                     \
      "embedding_length_per_layer_input")                                                          \
    X(EXPERTS, "num_experts", "num_experts", "expert_count")                                       \
    X(EXPERT_FFN, "moe_intermediate_size", "moe_intermediate_size", "expert_feed_forward_length")  \
    X(SHARED_FFN, "shared_expert_intermediate_size", "shared_expert_intermediate_size",            \
      "expert_shared_feed_forward_length")                                                         \
    X(LATENT, "moe_latent_size", "moe_latent_size", "moe_latent_size")                             \
    X(KEY_HEADS, "linear_num_key_heads", "linear_num_key_heads", "ssm.group_count")                \
    X(VALUE_HEADS, "linear_num_value_heads", "linear_num_value_heads", "ssm.time_step_rank")       \
    X(KEY_DIM, "linear_key_head_dim", "linear_key_head_dim", "ssm.state_size")                     \
    X(VALUE_DIM, "linear_value_head_dim", "linear_value_head_dim", "ssm.inner_size")               \
    X(CONV_ROWS, "linear_conv_kernel_dim", "linear_conv_kernel_dim", "ssm.conv_kernel")            \
    X(SHORT_ROWS, "conv_L_cache", "conv_L_cache", "shortconv.l_cache")                             \
    X(ACTIVE, "num_experts_per_tok", "num_experts_per_tok", "expert_used_count")                   \
    X(EPS, "rms_norm_eps", "rms_norm_eps", "attention.layer_norm_rms_epsilon")                     \
    X(THETA, "rope_theta", "rope_freq_constant", "rope.freq_base")                                 \
    X(FACTOR, "rope_scaling.factor", "rope_scaling.factor", "rope.scaling.factor")                 \
    X(ATTENTION_FACTOR, "rope_scaling.attention_factor", "rope_scaling.attention_factor",          \
      "rope.scaling.attn_factor")                                                                  \
    X(ORIGINAL_CONTEXT, "original_max_position_embeddings", "original_max_position_embeddings",    \
      "rope.scaling.original_context_length")                                                      \
    X(ROTATED, "partial_rotary_factor", "partial_rotary_factor", "rope.dimension_count")           \
    X(SCALE, "query_pre_attn_scalar", "head_dim", "attention.scale")                               \
    X(ATTENTION_SOFTCAP, "attn_logit_softcapping", "attn_logit_softcapping",                       \
      "attn_logit_softcapping")                                                                    \
    X(FINAL_SOFTCAP, "final_logit_softcapping", "final_logit_softcapping",                         \
      "final_logit_softcapping")                                                                   \
    X(BOS, "bos_token_id", "bos_token_id", "/tokenizer.ggml.bos_token_id")

typedef enum skv_config_field {
#define SKV_CONFIG_FIELD_ENUM(name, json, openelm, gguf) SKV_CONFIG_FIELD_##name,
    SKV_CONFIG_FIELD_LIST(SKV_CONFIG_FIELD_ENUM)
#undef SKV_CONFIG_FIELD_ENUM
        SKV_CONFIG_FIELD_COUNT
} skv_config_field;

typedef struct skv_field_name {
    char text[80];
} skv_field_name;

/** "num_hidden_layers", or "llama.block_count". */
skv_field_name skv_config_field_name(const skv_config *c, skv_config_field field);

/* The values from the rest of the configuration that rotation depends on. */
typedef struct skv_rope_context {
    size_t head_dim;
    size_t context;          /* max_position_embeddings */
    size_t original_context; /* the model's own default, 0: as `context` */
    double theta;            /* default */
    const char *theta_key;   /* transformers 4: "rope_theta" or "rope_local_base_freq" */
    bool yarn_is_longrope;   /* Phi-3's first files */
    double partial;          /* default partial_rotary_factor, above 0 */
    const char *kind;        /* rope_type's default; NULL: "default" */
} skv_rope_context;

/**
 * Reads a rope. `top` is config.json, `scaling` its rope_scaling or rope_parameters (or that
 * object's member for one kind of layer); empty if absent. Failures go to top->status.
 */
void skv_rope_from_json(skv_json_reader *top, skv_json_reader scaling, const skv_rope_context *in,
                        skv_rope *out);

/** Gemma 4's: of the frequencies of n_rot only the first n_turn turn, divided by factor. n_rot / 2
 * is at most SKV_ROPE_FACTORS_MAX. */
void skv_rope_set_proportional(skv_rope *rope, size_t n_turn, double factor);
/** Sets the default rotation of gpt-oss, for files that lack it; theta and n_rot stay. */
void skv_rope_default_yarn(skv_rope *rope);

/** sqrt(1 + ln(factor) / ln(original)), LongRoPE's factor on cos and sin (1 for factor <= 1). */
double skv_longrope_attention(double factor, size_t original_context);
/** 0.1 ln(factor) + 1, YaRN's factor on cos and sin (1 for factor <= 1). */
double skv_yarn_attention(double factor);

#endif
