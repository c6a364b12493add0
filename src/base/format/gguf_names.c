/*
 * GGUF tensor names -> published names, by architecture: see source_impl.h.
 *
 * Two conversions of llama.cpp's are undone here or noted in the configuration: the rows of Llama's
 * q and k are in pair order (SKV_NAME_INTERLEAVE), and Gemma's norm weights already contain the 1
 * that the published ones lack (norm_offset_one is false).
 */
#include "format/source_impl.h"

#include <string.h>

#define LINEAR(from, to)                                                                           \
    {from ".weight", to ".weight", SKV_NAME_KEEP},                                                 \
    {                                                                                              \
        from ".bias", to ".bias", SKV_NAME_KEEP                                                    \
    }
#define INTERLEAVED(from, to)                                                                      \
    {from ".weight", to ".weight", SKV_NAME_INTERLEAVE},                                           \
    {                                                                                              \
        from ".bias", to ".bias", SKV_NAME_INTERLEAVE                                              \
    }
#define NORM(from, to)                                                                             \
    {                                                                                              \
        from ".weight", to ".weight", SKV_NAME_KEEP                                                \
    }
#define END                                                                                        \
    {                                                                                              \
        NULL, NULL, SKV_NAME_KEEP                                                                  \
    }
/* The rows that most architectures share, around those in which they differ. */
#define COMMON_ATTENTION                                                                           \
    LINEAR("attn_v", "self_attn.v_proj"), LINEAR("attn_output", "self_attn.o_proj"),               \
        NORM("attn_norm", "input_layernorm"), NORM("attn_q_norm", "self_attn.q_norm"),             \
        NORM("attn_k_norm", "self_attn.k_norm"), {"attn_qkv.weight", NULL, SKV_NAME_QKV},          \
    {                                                                                              \
        "attn_qkv.bias", NULL, SKV_NAME_QKV_BIAS                                                   \
    }
#define COMMON_FFN LINEAR("ffn_gate", "mlp.gate_proj"), LINEAR("ffn_down", "mlp.down_proj")
/* Of older files a tensor for each expert. */
#define EXPERTS                                                                                    \
    {"ffn_gate_inp.weight", "mlp.gate.weight", SKV_NAME_KEEP},                                     \
        {"ffn_gate_inp.bias", "mlp.gate.bias", SKV_NAME_KEEP},                                     \
        {"ffn_gate_exps.weight", "gate_proj.weight", SKV_NAME_EXPERTS},                            \
        {"ffn_up_exps.weight", "up_proj.weight", SKV_NAME_EXPERTS},                                \
        {"ffn_down_exps.weight", "down_proj.weight", SKV_NAME_EXPERTS},                            \
        {"ffn_gate_exps.bias", "gate_proj.bias", SKV_NAME_EXPERTS},                                \
        {"ffn_up_exps.bias", "up_proj.bias", SKV_NAME_EXPERTS},                                    \
        {"ffn_down_exps.bias", "down_proj.bias", SKV_NAME_EXPERTS},                                \
        {"ffn_gate.#.weight", "mlp.experts.#.gate_proj.weight", SKV_NAME_KEEP},                    \
        {"ffn_up.#.weight", "mlp.experts.#.up_proj.weight", SKV_NAME_KEEP},                        \
    {                                                                                              \
        "ffn_down.#.weight", "mlp.experts.#.down_proj.weight", SKV_NAME_KEEP                       \
    }
#define SHARED_EXPERT                                                                              \
    NORM("ffn_gate_shexp", "mlp.shared_expert.gate_proj"),                                         \
        NORM("ffn_up_shexp", "mlp.shared_expert.up_proj"),                                         \
        NORM("ffn_down_shexp", "mlp.shared_expert.down_proj")
#define CHOICE_BIAS                                                                                \
    {                                                                                              \
        "exp_probs_b.bias", "mlp.choice_bias.weight", SKV_NAME_KEEP                                \
    }
/* A layer of Mamba-2. */
#define MAMBA                                                                                      \
    {"ssm_in.weight", "weight", SKV_NAME_MAMBA_IN},                                                \
        {"ssm_conv1d.weight", "linear_attn.conv1d.weight", SKV_NAME_CONV},                         \
        {"ssm_conv1d.bias", "linear_attn.conv1d.bias", SKV_NAME_KEEP},                             \
        {"ssm_dt.bias", "linear_attn.dt_bias", SKV_NAME_KEEP},                                     \
        {"ssm_a", "linear_attn.rate", SKV_NAME_FLAT}, {"ssm_d", "linear_attn.D", SKV_NAME_FLAT},   \
        {"ssm_norm.weight", "linear_attn.norm.weight", SKV_NAME_FLAT},                             \
        NORM("ssm_out", "linear_attn.out_proj")
#define PLAIN_QK LINEAR("attn_q", "self_attn.q_proj"), LINEAR("attn_k", "self_attn.k_proj")

static const skv_name_rule global[] = {
    {"token_embd.weight", "model.embed_tokens.weight", SKV_NAME_KEEP},
    {"output_norm.weight", "model.norm.weight", SKV_NAME_KEEP},
    {"output.weight", "lm_head.weight", SKV_NAME_KEEP},
    END,
};

static const skv_name_rule llama_layer[] = {
    INTERLEAVED("attn_q", "self_attn.q_proj"),
    INTERLEAVED("attn_k", "self_attn.k_proj"),
    COMMON_ATTENTION,
    COMMON_FFN,
    LINEAR("ffn_up", "mlp.up_proj"),
    EXPERTS,
    NORM("ffn_norm", "post_attention_layernorm"),
    END,
};

/* Qwen 2 and 3, OpenELM. */
static const skv_name_rule plain_layer[] = {
    PLAIN_QK,   COMMON_ATTENTION,
    COMMON_FFN, LINEAR("ffn_up", "mlp.up_proj"),
    EXPERTS,    NORM("ffn_norm", "post_attention_layernorm"),
    END,
};

static const skv_name_rule gpt_oss_layer[] = {
    PLAIN_QK,
    COMMON_ATTENTION,
    EXPERTS,
    {"attn_sinks.weight", "self_attn.sinks", SKV_NAME_KEEP},
    NORM("post_attention_norm", "post_attention_layernorm"),
    NORM("ffn_norm", "post_attention_layernorm"), /* earlier files */
    END,
};

/* ffn_up holds gate and up. */
static const skv_name_rule phi3_layer[] = {
    PLAIN_QK,
    COMMON_ATTENTION,
    {"ffn_up.weight", NULL, SKV_NAME_GATE_UP},
    LINEAR("ffn_down", "mlp.down_proj"),
    NORM("ffn_norm", "post_attention_layernorm"),
    END,
};

static const skv_name_rule olmo_layer[] = {
    PLAIN_QK,
    COMMON_ATTENTION,
    COMMON_FFN,
    LINEAR("ffn_up", "mlp.up_proj"),
    NORM("post_attention_norm", "post_attention_layernorm"),
    NORM("post_ffw_norm", "post_feedforward_layernorm"),
    END,
};

/* Pairs turn as neighbours, and ffn_up holds gate and up. */
static const skv_name_rule glm4_layer[] = {
    INTERLEAVED("attn_q", "self_attn.q_proj"),
    INTERLEAVED("attn_k", "self_attn.k_proj"),
    COMMON_ATTENTION,
    {"ffn_up.weight", NULL, SKV_NAME_GATE_UP},
    LINEAR("ffn_down", "mlp.down_proj"),
    NORM("post_attention_norm", "post_attention_layernorm"),
    NORM("ffn_norm", "pre_feedforward_layernorm"),
    NORM("post_ffw_norm", "post_feedforward_layernorm"),
    END,
};

/* Qwen 3.5 and Qwen3-Next. Their attn_q holds a gate beside each head; the value heads of Qwen 3.5
 * are tiled, see skv_config.mixer. */
static const skv_name_rule delta_layer[] = {
    {"attn_q.weight", "weight", SKV_NAME_GATED},
    {"attn_qkv.weight", "weight", SKV_NAME_DELTA_QKV},
    LINEAR("attn_k", "self_attn.k_proj"),
    COMMON_ATTENTION,
    NORM("attn_gate", "linear_attn.in_proj_z"),
    {"ssm_in.weight", "weight", SKV_NAME_DELTA_QKVZ}, /* earlier files */
    {"ssm_ba.weight", "weight", SKV_NAME_DELTA_BA},
    NORM("ssm_beta", "linear_attn.in_proj_b"),
    NORM("ssm_alpha", "linear_attn.in_proj_a"),
    {"ssm_conv1d.weight", "linear_attn.conv1d.weight", SKV_NAME_CONV},
    {"ssm_a", "linear_attn.rate", SKV_NAME_KEEP},
    {"ssm_dt.bias", "linear_attn.dt_bias", SKV_NAME_KEEP},
    NORM("ssm_norm", "linear_attn.norm"),
    NORM("ssm_out", "linear_attn.out_proj"),
    NORM("post_attention_norm", "post_attention_layernorm"),
    COMMON_FFN,
    LINEAR("ffn_up", "mlp.up_proj"),
    EXPERTS,
    {"ffn_gate_up_exps.weight", "weight", SKV_NAME_EXPERTS_GATE_UP},
    NORM("ffn_gate_inp_shexp", "mlp.shared_expert_gate"),
    SHARED_EXPERT,
    END,
};

/* Granite 4 H. */
static const skv_name_rule granite_h_layer[] = {
    INTERLEAVED("attn_q", "self_attn.q_proj"),
    INTERLEAVED("attn_k", "self_attn.k_proj"),
    COMMON_ATTENTION,
    MAMBA,
    COMMON_FFN,
    LINEAR("ffn_up", "mlp.up_proj"),
    EXPERTS,
    SHARED_EXPERT,
    NORM("ffn_norm", "post_attention_layernorm"),
    END,
};

static const skv_name_rule nemotron_h_layer[] = {
    {"attn_norm.weight", NULL, SKV_NAME_ONLY_NORM},
    PLAIN_QK,
    COMMON_ATTENTION,
    MAMBA,
    LINEAR("ffn_up", "mlp.up_proj"),
    LINEAR("ffn_down", "mlp.down_proj"),
    EXPERTS,
    SHARED_EXPERT,
    CHOICE_BIAS,
    NORM("ffn_latent_down", "mlp.latent_in"),
    NORM("ffn_latent_up", "mlp.latent_out"),
    END,
};

static const skv_name_rule falcon_h1_layer[] = {
    PLAIN_QK,
    COMMON_ATTENTION,
    MAMBA,
    COMMON_FFN,
    LINEAR("ffn_up", "mlp.up_proj"),
    NORM("ffn_norm", "post_attention_layernorm"),
    END,
};

static const skv_name_rule lfm2_layer[] = {
    PLAIN_QK,
    COMMON_ATTENTION,
    COMMON_FFN,
    LINEAR("ffn_up", "mlp.up_proj"),
    NORM("ffn_norm", "post_attention_layernorm"),
    NORM("shortconv.in_proj", "conv.in_proj"),
    NORM("shortconv.out_proj", "conv.out_proj"),
    {"shortconv.conv.weight", "conv.conv.weight", SKV_NAME_CONV},
    EXPERTS,
    CHOICE_BIAS,
    END,
};

/* The last norm has the name of the first one of other models. */
static const skv_name_rule lfm2_global[] = {
    {"token_embd.weight", "model.embed_tokens.weight", SKV_NAME_KEEP},
    {"token_embd_norm.weight", "model.norm.weight", SKV_NAME_KEEP},
    {"output.weight", "lm_head.weight", SKV_NAME_KEEP},
    END,
};

static const skv_name_rule gemma_layer[] = {
    PLAIN_QK,
    COMMON_ATTENTION,
    COMMON_FFN,
    LINEAR("ffn_up", "mlp.up_proj"),
    NORM("post_attention_norm", "post_attention_layernorm"),
    NORM("ffn_norm", "pre_feedforward_layernorm"),
    NORM("post_ffw_norm", "post_feedforward_layernorm"),
    NORM("layer_output_scale", "layer_scalar"),
    NORM("inp_gate", "per_layer_input_gate"),
    NORM("proj", "per_layer_projection"),
    NORM("post_norm", "post_per_layer_input_norm"),
    EXPERTS,
    {"ffn_gate_up_exps.weight", "weight", SKV_NAME_EXPERTS_GATE_UP},
    {"ffn_gate_inp.scale", "router.norm.weight", SKV_NAME_KEEP},
    {"ffn_down_exps.scale", "router.expert_scale.weight", SKV_NAME_KEEP},
    NORM("pre_ffw_norm_2", "pre_feedforward_layernorm_2"),
    NORM("post_ffw_norm_1", "post_feedforward_layernorm_1"),
    NORM("post_ffw_norm_2", "post_feedforward_layernorm_2"),
    END,
};

static const skv_name_rule gemma4_global[] = {
    {"per_layer_token_embd.weight", "model.embed_tokens_per_layer.weight", SKV_NAME_KEEP},
    {"per_layer_model_proj.weight", "model.per_layer_model_projection.weight", SKV_NAME_KEEP},
    {"per_layer_proj_norm.weight", "model.per_layer_projection_norm.weight", SKV_NAME_KEEP},
    {"token_embd.weight", "model.embed_tokens.weight", SKV_NAME_KEEP},
    {"output_norm.weight", "model.norm.weight", SKV_NAME_KEEP},
    {"output.weight", "lm_head.weight", SKV_NAME_KEEP},
    END,
};

static const skv_name_scheme llama = {"blk.", llama_layer, global, false, false};
static const skv_name_scheme plain = {"blk.", plain_layer, global, false, false};
static const skv_name_scheme phi3 = {"blk.", phi3_layer, global, false, false};
static const skv_name_scheme gemma = {"blk.", gemma_layer, global, false, false};
static const skv_name_scheme gemma4 = {"blk.", gemma_layer, gemma4_global, false, false};
static const skv_name_scheme olmo = {"blk.", olmo_layer, global, false, false};
static const skv_name_scheme glm4 = {"blk.", glm4_layer, global, false, false};
static const skv_name_scheme lfm2 = {"blk.", lfm2_layer, lfm2_global, false, false};
static const skv_name_scheme granite_h = {"blk.", granite_h_layer, global, false, false};
static const skv_name_scheme nemotron_h = {"blk.", nemotron_h_layer, global, false, false};
static const skv_name_scheme falcon_h1 = {"blk.", falcon_h1_layer, global, false, false};
static const skv_name_scheme delta = {"blk.", delta_layer, global, false, false};
static const skv_name_scheme gpt_oss = {"blk.", gpt_oss_layer, global, false, false};

const skv_name_scheme *skv_gguf_scheme(const char *architecture)
{
    static const struct {
        const char *architecture;
        const skv_name_scheme *scheme;
    } schemes[] = {{"llama", &llama},        {"mixtral", &llama},
                   {"smollm3", &llama},      {"ministral3", &llama},
                   {"granite", &llama},      {"gpt_oss", &gpt_oss},
                   {"phi3", &phi3},          {"gemma4_text", &gemma4},
                   {"olmo2", &olmo},         {"olmo3", &olmo},
                   {"glm4", &glm4},          {"qwen3_next", &delta},
                   {"qwen3_5_text", &delta}, {"qwen3_5_moe_text", &delta},
                   {"lfm2", &lfm2},          {"granitemoehybrid", &granite_h},
                   {"lfm2_moe", &lfm2},      {"nemotron_h", &nemotron_h},
                   {"falcon_h1", &falcon_h1}};
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        if (strcmp(schemes[i].architecture, architecture) == 0) return schemes[i].scheme;
    }
    return strncmp(architecture, "gemma", 5) == 0 ? &gemma : &plain;
}
