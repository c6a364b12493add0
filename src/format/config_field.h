/* What the fields of a configuration are called in the file that they came from, for errors. */
#ifndef SKV_FORMAT_CONFIG_FIELD_H
#define SKV_FORMAT_CONFIG_FIELD_H

#include "format/config.h"

/* name, in config.json, in OpenELM's config.json, in GGUF (a key without the architecture, or a
 * whole one where it has no such prefix) */
#define SKV_FIELD_LIST(X)                                                                          \
    X(LAYERS, "num_hidden_layers", "num_transformer_layers", "block_count")                        \
    X(HIDDEN, "hidden_size", "model_dim", "embedding_length")                                      \
    X(HEAD_DIM, "head_dim", "head_dim", "attention.key_length")                                    \
    X(VOCAB, "vocab_size", "vocab_size", "/token_embd.weight")                                     \
    X(CONTEXT, "max_position_embeddings", "max_context_length", "context_length")                  \
    X(HEADS, "num_attention_heads", "num_query_heads", "attention.head_count")                     \
    X(KV_HEADS, "num_key_value_heads", "num_kv_heads", "attention.head_count_kv")                  \
    X(FFN, "intermediate_size", "ffn_multipliers", "feed_forward_length")                          \
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
#define SKV_FIELD_ENUM(name, json, openelm, gguf) SKV_FIELD_##name,
    SKV_FIELD_LIST(SKV_FIELD_ENUM)
#undef SKV_FIELD_ENUM
        SKV_FIELD_COUNT
} skv_config_field;

typedef struct skv_field_name {
    char text[80];
} skv_field_name;

/** "num_hidden_layers", or "llama.block_count". */
skv_field_name skv_config_field_name(const skv_config *c, skv_config_field field);

#endif
