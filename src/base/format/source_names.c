/*
 * Published names -> ours: see skv_name_scheme.
 *
 * Fused matrices are split into their parts by rows: the same mapped bytes at an offset.
 */
#include <stdio.h>
#include <string.h>

#include "format/dtype.h"
#include "format/source_impl.h"

/* Fused experts, as transformers 5 holds them; older files have a tensor for each. */
static const skv_name_rule moe_layer[] = {
    {"mlp.experts.gate_up_proj", "weight", SKV_NAME_EXPERTS_GATE_UP},
    {"mlp.experts.down_proj", "down_proj.weight", SKV_NAME_EXPERTS},
    {"block_sparse_moe.gate.weight", "mlp.gate.weight", SKV_NAME_KEEP},
    {"block_sparse_moe.experts.#.w1.weight", "mlp.experts.#.gate_proj.weight", SKV_NAME_KEEP},
    {"block_sparse_moe.experts.#.w2.weight", "mlp.experts.#.down_proj.weight", SKV_NAME_KEEP},
    {"block_sparse_moe.experts.#.w3.weight", "mlp.experts.#.up_proj.weight", SKV_NAME_KEEP},
    {NULL, NULL, SKV_NAME_KEEP},
};

static const skv_name_rule gpt_oss_layer[] = {
    {"mlp.router.weight", "mlp.gate.weight", SKV_NAME_KEEP},
    {"mlp.router.bias", "mlp.gate.bias", SKV_NAME_KEEP},
    {"mlp.experts.gate_up_proj", "weight", SKV_NAME_EXPERTS_PAIRS},
    {"mlp.experts.gate_up_proj_bias", "bias", SKV_NAME_EXPERTS_PAIRS},
    {"mlp.experts.down_proj", "down_proj.weight", SKV_NAME_EXPERTS},
    {"mlp.experts.down_proj_bias", "down_proj.bias", SKV_NAME_EXPERTS},
    {NULL, NULL, SKV_NAME_KEEP},
};

static const skv_name_rule nothing[] = {{NULL, NULL, SKV_NAME_KEEP}};

static const skv_name_rule phi3_layer[] = {
    {"self_attn.qkv_proj.weight", NULL, SKV_NAME_QKV},
    {"mlp.gate_up_proj.weight", NULL, SKV_NAME_GATE_UP},
    {NULL, NULL, SKV_NAME_KEEP},
};

static const skv_name_rule openelm_layer[] = {
    {"attn.qkv_proj.weight", NULL, SKV_NAME_QKV},
    {"attn.out_proj.weight", "self_attn.o_proj.weight", SKV_NAME_KEEP},
    {"attn.q_norm.weight", "self_attn.q_norm.weight", SKV_NAME_KEEP},
    {"attn.k_norm.weight", "self_attn.k_norm.weight", SKV_NAME_KEEP},
    {"attn_norm.weight", "input_layernorm.weight", SKV_NAME_KEEP},
    {"ffn_norm.weight", "post_attention_layernorm.weight", SKV_NAME_KEEP},
    {"ffn.proj_1.weight", NULL, SKV_NAME_GATE_UP},
    {"ffn.proj_2.weight", "mlp.down_proj.weight", SKV_NAME_KEEP},
    {NULL, NULL, SKV_NAME_KEEP},
};

static const skv_name_rule openelm_global[] = {
    {"transformer.token_embeddings.weight", "model.embed_tokens.weight", SKV_NAME_KEEP},
    {"transformer.norm.weight", "model.norm.weight", SKV_NAME_KEEP},
    {NULL, NULL, SKV_NAME_KEEP},
};

static const skv_name_rule gemma4_layer[] = {
    {"layer_scalar", "layer_scalar.weight", SKV_NAME_KEEP},
    {"router.proj.weight", "mlp.gate.weight", SKV_NAME_KEEP},
    {"router.scale", "router.norm.weight", SKV_NAME_KEEP},
    {"router.per_expert_scale", "router.expert_scale.weight", SKV_NAME_KEEP},
    {"experts.gate_up_proj", "weight", SKV_NAME_EXPERTS_GATE_UP},
    {"experts.down_proj", "down_proj.weight", SKV_NAME_EXPERTS},
    {"experts.#.gate_proj.weight", "mlp.experts.#.gate_proj.weight", SKV_NAME_KEEP},
    {"experts.#.up_proj.weight", "mlp.experts.#.up_proj.weight", SKV_NAME_KEEP},
    {"experts.#.down_proj.weight", "mlp.experts.#.down_proj.weight", SKV_NAME_KEEP},
    {NULL, NULL, SKV_NAME_KEEP},
};

/* Fused as Phi-3, with pairs that turn as neighbours, and norms named otherwise. */
static const skv_name_rule glm4_layer[] = {
    {"self_attn.q_proj.weight", "self_attn.q_proj.weight", SKV_NAME_INTERLEAVE},
    {"self_attn.k_proj.weight", "self_attn.k_proj.weight", SKV_NAME_INTERLEAVE},
    {"self_attn.q_proj.bias", "self_attn.q_proj.bias", SKV_NAME_INTERLEAVE},
    {"self_attn.k_proj.bias", "self_attn.k_proj.bias", SKV_NAME_INTERLEAVE},
    {"mlp.gate_up_proj.weight", NULL, SKV_NAME_GATE_UP},
    {"post_self_attn_layernorm.weight", "post_attention_layernorm.weight", SKV_NAME_KEEP},
    {"post_attention_layernorm.weight", "pre_feedforward_layernorm.weight", SKV_NAME_KEEP},
    {"post_mlp_layernorm.weight", "post_feedforward_layernorm.weight", SKV_NAME_KEEP},
    {NULL, NULL, SKV_NAME_KEEP},
};

/* Qwen 3.5 and Qwen3-Next, dense or not. */
static const skv_name_rule delta_layer[] = {
    {"self_attn.q_proj.weight", "weight", SKV_NAME_GATED},
    {"self_attn.q_proj.bias", "bias", SKV_NAME_GATED},
    {"linear_attn.in_proj_qkv.weight", "weight", SKV_NAME_DELTA_QKV},
    {"linear_attn.in_proj_qkvz.weight", "weight", SKV_NAME_DELTA_QKVZ},
    {"linear_attn.in_proj_ba.weight", "weight", SKV_NAME_DELTA_BA},
    {"linear_attn.conv1d.weight", "linear_attn.conv1d.weight", SKV_NAME_CONV},
    {"mlp.experts.gate_up_proj", "weight", SKV_NAME_EXPERTS_GATE_UP},
    {"mlp.experts.down_proj", "down_proj.weight", SKV_NAME_EXPERTS},
    {NULL, NULL, SKV_NAME_KEEP},
};

/* LFM2, and its mixtures. */
static const skv_name_rule lfm2_layer[] = {
    {"operator_norm.weight", "input_layernorm.weight", SKV_NAME_KEEP},
    {"ffn_norm.weight", "post_attention_layernorm.weight", SKV_NAME_KEEP},
    {"self_attn.out_proj.weight", "self_attn.o_proj.weight", SKV_NAME_KEEP},
    {"self_attn.q_layernorm.weight", "self_attn.q_norm.weight", SKV_NAME_KEEP},
    {"self_attn.k_layernorm.weight", "self_attn.k_norm.weight", SKV_NAME_KEEP},
    {"conv.conv.weight", "conv.conv.weight", SKV_NAME_CONV},
    {"feed_forward.w1.weight", "mlp.gate_proj.weight", SKV_NAME_KEEP},
    {"feed_forward.w2.weight", "mlp.down_proj.weight", SKV_NAME_KEEP},
    {"feed_forward.w3.weight", "mlp.up_proj.weight", SKV_NAME_KEEP},
    {"feed_forward.gate.weight", "mlp.gate.weight", SKV_NAME_KEEP},
    {"feed_forward.expert_bias", "mlp.choice_bias.weight", SKV_NAME_KEEP},
    {"feed_forward.experts.#.w1.weight", "mlp.experts.#.gate_proj.weight", SKV_NAME_KEEP},
    {"feed_forward.experts.#.w2.weight", "mlp.experts.#.down_proj.weight", SKV_NAME_KEEP},
    {"feed_forward.experts.#.w3.weight", "mlp.experts.#.up_proj.weight", SKV_NAME_KEEP},
    {"feed_forward.experts.gate_up_proj", "weight", SKV_NAME_EXPERTS_GATE_UP},
    {"feed_forward.experts.down_proj", "down_proj.weight", SKV_NAME_EXPERTS},
    {NULL, NULL, SKV_NAME_KEEP},
};

static const skv_name_rule lfm2_global[] = {
    {"model.embedding_norm.weight", "model.norm.weight", SKV_NAME_KEEP},
    {NULL, NULL, SKV_NAME_KEEP},
};

/* A layer of Mamba-2 under the prefix `name`. */
#define MAMBA(name)                                                                                \
    {name "in_proj.weight", "weight", SKV_NAME_MAMBA_IN},                                          \
        {name "conv1d.weight", "linear_attn.conv1d.weight", SKV_NAME_CONV},                        \
        {name "conv1d.bias", "linear_attn.conv1d.bias", SKV_NAME_KEEP},                            \
        {name "dt_bias", "linear_attn.dt_bias", SKV_NAME_KEEP},                                    \
        {name "A_log", "linear_attn.A_log", SKV_NAME_KEEP},                                        \
        {name "D", "linear_attn.D", SKV_NAME_KEEP},                                                \
        {name "norm.weight", "linear_attn.norm.weight", SKV_NAME_KEEP},                            \
    {                                                                                              \
        name "out_proj.weight", "linear_attn.out_proj.weight", SKV_NAME_KEEP                       \
    }

/* Granite 4 H. The shared expert is the block itself where there are no other experts. */
static const skv_name_rule granite_h_layer[] = {
    MAMBA("mamba."),
    {"shared_mlp.input_linear.weight", NULL, SKV_NAME_GATE_UP},
    {"shared_mlp.output_linear.weight", "mlp.down_proj.weight", SKV_NAME_KEEP},
    {NULL, NULL, SKV_NAME_KEEP},
};

static const skv_name_rule granite_h_moe_layer[] = {
    MAMBA("mamba."),
    {"shared_mlp.input_linear.weight", "mlp.shared_expert", SKV_NAME_GATE_UP},
    {"shared_mlp.output_linear.weight", "mlp.shared_expert.down_proj.weight", SKV_NAME_KEEP},
    {"block_sparse_moe.router.layer.weight", "mlp.gate.weight", SKV_NAME_KEEP},
    {"block_sparse_moe.router.weight", "mlp.gate.weight", SKV_NAME_KEEP},
    {"block_sparse_moe.input_linear.weight", "weight", SKV_NAME_EXPERTS_GATE_UP},
    {"block_sparse_moe.output_linear.weight", "down_proj.weight", SKV_NAME_EXPERTS},
    {"block_sparse_moe.experts.gate_up_proj", "weight", SKV_NAME_EXPERTS_GATE_UP},
    {"block_sparse_moe.experts.down_proj", "down_proj.weight", SKV_NAME_EXPERTS},
    {NULL, NULL, SKV_NAME_KEEP},
};

/* A layer has one norm, before its mixer or its block. */
static const skv_name_rule nemotron_h_layer[] = {
    {"norm.weight", NULL, SKV_NAME_ONLY_NORM},
    MAMBA("mixer."),
    {"mixer.q_proj.weight", "self_attn.q_proj.weight", SKV_NAME_KEEP},
    {"mixer.k_proj.weight", "self_attn.k_proj.weight", SKV_NAME_KEEP},
    {"mixer.v_proj.weight", "self_attn.v_proj.weight", SKV_NAME_KEEP},
    {"mixer.o_proj.weight", "self_attn.o_proj.weight", SKV_NAME_KEEP},
    {"mixer.up_proj.weight", "mlp.up_proj.weight", SKV_NAME_KEEP},
    {"mixer.down_proj.weight", "mlp.down_proj.weight", SKV_NAME_KEEP},
    {"mixer.gate.weight", "mlp.gate.weight", SKV_NAME_KEEP},
    {"mixer.gate.e_score_correction_bias", "mlp.choice_bias.weight", SKV_NAME_KEEP},
    {"mixer.experts.#.up_proj.weight", "mlp.experts.#.up_proj.weight", SKV_NAME_KEEP},
    {"mixer.experts.#.down_proj.weight", "mlp.experts.#.down_proj.weight", SKV_NAME_KEEP},
    {"mixer.experts.up_proj", "up_proj.weight", SKV_NAME_EXPERTS},
    {"mixer.experts.down_proj", "down_proj.weight", SKV_NAME_EXPERTS},
    {"mixer.shared_experts.up_proj.weight", "mlp.shared_expert.up_proj.weight", SKV_NAME_KEEP},
    {"mixer.shared_experts.down_proj.weight", "mlp.shared_expert.down_proj.weight", SKV_NAME_KEEP},
    {"mixer.fc1_latent_proj.weight", "mlp.latent_in.weight", SKV_NAME_KEEP},
    {"mixer.fc2_latent_proj.weight", "mlp.latent_out.weight", SKV_NAME_KEEP},
    {NULL, NULL, SKV_NAME_KEEP},
};

static const skv_name_rule nemotron_h_global[] = {
    {"backbone.embeddings.weight", "model.embed_tokens.weight", SKV_NAME_KEEP},
    {"backbone.norm_f.weight", "model.norm.weight", SKV_NAME_KEEP},
    {"model.embeddings.weight", "model.embed_tokens.weight", SKV_NAME_KEEP},
    {"model.norm_f.weight", "model.norm.weight", SKV_NAME_KEEP},
    {NULL, NULL, SKV_NAME_KEEP},
};

static const skv_name_rule falcon_h1_layer[] = {
    MAMBA("mamba."),
    {"pre_ff_layernorm.weight", "post_attention_layernorm.weight", SKV_NAME_KEEP},
    {"feed_forward.gate_proj.weight", "mlp.gate_proj.weight", SKV_NAME_KEEP},
    {"feed_forward.up_proj.weight", "mlp.up_proj.weight", SKV_NAME_KEEP},
    {"feed_forward.down_proj.weight", "mlp.down_proj.weight", SKV_NAME_KEEP},
    {NULL, NULL, SKV_NAME_KEEP},
};

static const skv_name_rule falcon_h1_global[] = {
    {"model.final_layernorm.weight", "model.norm.weight", SKV_NAME_KEEP},
    {NULL, NULL, SKV_NAME_KEEP},
};

/* Published files name norms otherwise, and have a convolution for each of q, k and v. */
static const skv_name_rule olmo_hybrid_layer[] = {
    {"attention_layer_norm.weight", "input_layernorm.weight", SKV_NAME_KEEP},
    {"feedforward_layer_norm.weight", "post_attention_layernorm.weight", SKV_NAME_KEEP},
    {"linear_attn.q_proj.weight", "linear_attn.in_proj_q.weight", SKV_NAME_KEEP},
    {"linear_attn.k_proj.weight", "linear_attn.in_proj_k.weight", SKV_NAME_KEEP},
    {"linear_attn.v_proj.weight", "linear_attn.in_proj_v.weight", SKV_NAME_KEEP},
    {"linear_attn.g_proj.weight", "linear_attn.in_proj_z.weight", SKV_NAME_KEEP},
    {"linear_attn.a_proj.weight", "linear_attn.in_proj_a.weight", SKV_NAME_KEEP},
    {"linear_attn.b_proj.weight", "linear_attn.in_proj_b.weight", SKV_NAME_KEEP},
    {"linear_attn.o_proj.weight", "linear_attn.out_proj.weight", SKV_NAME_KEEP},
    {"linear_attn.o_norm.weight", "linear_attn.norm.weight", SKV_NAME_KEEP},
    {"linear_attn.conv1d.weight", "linear_attn.conv1d.weight", SKV_NAME_CONV},
    {"linear_attn.q_conv1d.weight", "linear_attn.q_conv1d.weight", SKV_NAME_CONV},
    {"linear_attn.k_conv1d.weight", "linear_attn.k_conv1d.weight", SKV_NAME_CONV},
    {"linear_attn.v_conv1d.weight", "linear_attn.v_conv1d.weight", SKV_NAME_CONV},
    {NULL, NULL, SKV_NAME_KEEP},
};

static const skv_name_scheme plain = {"model.layers.", nothing, nothing, true, false};
static const skv_name_scheme phi3 = {"model.layers.", phi3_layer, nothing, true, false};
static const skv_name_scheme glm4 = {"model.layers.", glm4_layer, nothing, true, false};
static const skv_name_scheme openelm = {"transformer.layers.", openelm_layer, openelm_global, true,
                                        false};
static const skv_name_scheme moe = {"model.layers.", moe_layer, nothing, true, false};
static const skv_name_scheme lfm2 = {"model.layers.", lfm2_layer, lfm2_global, true, false};
static const skv_name_scheme granite_h = {"model.layers.", granite_h_layer, nothing, true, false};
static const skv_name_scheme granite_h_moe = {"model.layers.", granite_h_moe_layer, nothing, true,
                                              false};
static const skv_name_scheme nemotron_h = {"backbone.layers.", nemotron_h_layer, nemotron_h_global,
                                           true, false};
static const skv_name_scheme falcon_h1 = {"model.layers.", falcon_h1_layer, falcon_h1_global, true,
                                          false};
static const skv_name_scheme olmo_hybrid = {"model.layers.", olmo_hybrid_layer, nothing, true,
                                            false};
static const skv_name_scheme delta = {"model.layers.", delta_layer, nothing, true, false};
static const skv_name_scheme gpt_oss = {"model.layers.", gpt_oss_layer, nothing, true, true};
static const skv_name_scheme gemma4 = {"model.layers.", gemma4_layer, nothing, true, false};

const skv_name_scheme *skv_folder_scheme(const skv_config *c, bool renamed)
{
    if (renamed) return &plain;
    if (skv_config_is(c, "phi3")) return &phi3;
    if (skv_config_is(c, "openelm")) return &openelm;
    if (skv_config_is(c, "gemma4_text")) return &gemma4;
    if (skv_config_is(c, "glm4")) return &glm4;
    if (skv_config_is(c, "gpt_oss")) return &gpt_oss;
    if (skv_config_is(c, "lfm2") || skv_config_is(c, "lfm2_moe")) return &lfm2;
    if (skv_config_is(c, "nemotron_h")) return &nemotron_h;
    if (skv_config_is(c, "falcon_h1")) return &falcon_h1;
    if (skv_config_is(c, "olmo_hybrid")) return &olmo_hybrid;
    if (skv_config_is(c, "granitemoehybrid")) {
        return c->layers[0].n_experts > 0 ? &granite_h_moe : &granite_h;
    }
    if (skv_config_is_hybrid(c) || c->mtp) return &delta;
    for (size_t i = 0; i < c->n_layers; i++) {
        if (c->layers[i].n_experts > 0) return &moe;
    }
    return &plain;
}

bool skv_config_has_images(const skv_config *c)
{
    return skv_config_is(c, "gemma3_text") || skv_config_is(c, "gemma4_text") ||
           skv_config_is(c, "ministral3") || skv_config_is(c, "qwen3_5_text") ||
           skv_config_is(c, "qwen3_5_moe_text") || skv_config_is(c, "lfm2");
}

const char *skv_text_part_name(const char *name, bool has_images, char *buffer, size_t size)
{
    if (!has_images) return name;
    static const char *const prefixes[][2] = {
        {"model.language_model.", "model."}, /* transformers >= 4.52 */
        {"language_model.", ""},             /* before: language_model.model., .lm_head. */
    };
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        size_t n = strlen(prefixes[i][0]);
        if (strncmp(name, prefixes[i][0], n) != 0) continue;
        int length = snprintf(buffer, size, "%s%s", prefixes[i][1], name + n);
        return length >= 0 && (size_t)length < size ? buffer : NULL;
    }
    static const char *const others[] = {"vision_tower.", "multi_modal_projector.", "audio_tower.",
                                         "embed_vision.", "embed_audio.",           "visual."};
    const char *part = strncmp(name, "model.", 6) == 0 ? name + 6 : name;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (strncmp(part, others[i], strlen(others[i])) == 0) return NULL;
    }
    return name;
}

/* Splits "PREFIX{i}.REST"; false when the name has another form or i is no layer. */
static bool split_layer_name(const char *name, const char *prefix, size_t n_layers, size_t *i_layer,
                             const char **rest)
{
    size_t n = strlen(prefix), i = 0;
    if (strncmp(name, prefix, n) != 0) return false;
    const char *at = name + n;
    if (*at < '0' || *at > '9' || (*at == '0' && at[1] != '.')) return false;
    for (; *at >= '0' && *at <= '9'; at++) {
        i = i * 10 + (size_t)(*at - '0');
        if (i >= n_layers) return false;
    }
    if (*at != '.') return false;
    *i_layer = i;
    *rest = at + 1;
    return true;
}

/* Whether a name matches a rule; *number [n_number] becomes the digits that # stands for. */
static bool is_like(const char *name, const char *from, const char **number, size_t *n_number)
{
    const char *hash = strchr(from, '#');
    if (!hash) return strcmp(name, from) == 0;
    const size_t n = (size_t)(hash - from);
    if (strncmp(name, from, n) != 0) return false;
    *number = name + n;
    *n_number = strspn(*number, "0123456789");
    return *n_number > 0 && strcmp(*number + *n_number, hash + 1) == 0;
}

static const skv_name_rule *find_rule(const skv_name_rule *rules, const char *name)
{
    const char *number;
    size_t n_number;
    for (; rules->from; rules++) {
        if (is_like(name, rules->from, &number, &n_number)) return rules;
    }
    return NULL;
}

/* Renames by a rule: `to`, with the number that # stands for. */
static void rule_name(const skv_name_rule *rule, const char *name, char *out, size_t size)
{
    const char *number = "", *hash = strchr(rule->to, '#');
    size_t n_number = 0;
    if (!hash || !is_like(name, rule->from, &number, &n_number)) {
        (void)snprintf(out, size, "%s", rule->to);
    } else {
        (void)snprintf(out, size, "%.*s%.*s%s", (int)(hash - rule->to), rule->to, (int)n_number,
                       number, hash + 1);
    }
}

static skv_status add_in_layer(skv_source *source, size_t i_layer, const char *to,
                               const skv_tensor *tensor, skv_error *err)
{
    char name[128];
    (void)snprintf(name, sizeof name, "model.layers.%zu.%s", i_layer, to);
    return skv_source_add(source, name, tensor, err);
}

/* Marks the rows of q or k as stored in pair order; whether they fit is for the shape check. */
static skv_status add_interleaved(skv_source *source, size_t i_layer, const char *to,
                                  const skv_tensor *tensor, skv_error *err)
{
    const skv_config *c = skv_source_config(source);
    const skv_layer_shape *l = &c->layers[i_layer];
    skv_tensor marked = *tensor;
    size_t n_heads = strncmp(to, "self_attn.q", 11) == 0 ? l->n_heads : l->n_kv_heads;
    bool fits = (tensor->n_dims == 1 || tensor->n_dims == 2) &&
                tensor->dims[0] == n_heads * c->head_dim && c->head_dim % 2 == 0;
    bool by_element = tensor->n_dims != 1 || skv_dtype_block_elements(tensor->type) == 1;
    if (fits && by_element) {
        marked.n_rope_heads = n_heads;
        marked.n_rope_dims = c->ropes[0].n_rot;
    }
    SKV_REQUIRE(by_element, err, SKV_UNSUPPORTED, "%s: %s: a bias of type %s is not supported",
                skv_source_path(source), tensor->name, skv_dtype_name(tensor->type));
    return add_in_layer(source, i_layer, to, &marked, err);
}

/* Adds a part of fused rows, in the order that the scheme uses for separate tensors. */
static skv_status add_part(skv_source *source, const skv_name_scheme *scheme, size_t i_layer,
                           const char *to, const skv_tensor *part, skv_error *err)
{
    for (const skv_name_rule *rule = scheme->layer; rule->from; rule++) {
        if (rule->action == SKV_NAME_INTERLEAVE && strcmp(rule->to, to) == 0) {
            return add_interleaved(source, i_layer, to, part, err);
        }
    }
    return add_in_layer(source, i_layer, to, part, err);
}

/* Rows [gate | up] of the layer's block, or of the expert that every token meets. */
static skv_status add_gate_up(skv_source *source, size_t i_layer, const char *to,
                              const skv_tensor *tensor, skv_error *err)
{
    const skv_config *c = skv_source_config(source);
    const skv_layer_shape *l = &c->layers[i_layer];
    const size_t n = to ? l->ffn_shared : l->ffn;
    SKV_TRY(skv_source_check_fused(source, tensor, 2 * n, c->hidden, err));
    for (size_t i = 0; i < 2; i++) {
        const skv_tensor part = skv_tensor_slice(tensor, i * n, n);
        char name[48];
        (void)snprintf(name, sizeof name, "%.24s.%s_proj.weight", to ? to : "mlp",
                       i ? "up" : "gate");
        SKV_TRY(add_in_layer(source, i_layer, name, &part, err));
    }
    return SKV_OK;
}

static skv_status add_parts(skv_source *source, const skv_name_scheme *scheme, size_t i_layer,
                            const skv_name_rule *rule, const skv_tensor *tensor, skv_error *err)
{
    static const char *const weights[] = {"self_attn.q_proj.weight", "self_attn.k_proj.weight",
                                          "self_attn.v_proj.weight"};
    static const char *const biases[] = {"self_attn.q_proj.bias", "self_attn.k_proj.bias",
                                         "self_attn.v_proj.bias"};
    const skv_config *c = skv_source_config(source);
    const skv_layer_shape *l = &c->layers[i_layer];
    const bool is_bias = rule->action == SKV_NAME_QKV_BIAS;
    if (rule->action == SKV_NAME_GATE_UP) {
        return add_gate_up(source, i_layer, rule->to, tensor, err);
    }
    size_t kv = l->n_kv_heads * c->head_dim;
    size_t rows[3] = {l->n_heads * c->head_dim, kv, kv};
    size_t n_parts = 3, total = 0, at = 0;
    for (size_t i = 0; i < n_parts; i++) total += rows[i];
    SKV_TRY(skv_source_check_fused(source, tensor, total, is_bias ? 0 : c->hidden, err));
    for (size_t i = 0; i < n_parts; i++) {
        skv_tensor part = skv_tensor_slice(tensor, at, rows[i]);
        SKV_TRY(add_part(source, scheme, i_layer, is_bias ? biases[i] : weights[i], &part, err));
        at += rows[i];
    }
    return SKV_OK;
}

skv_status skv_source_add_renamed(skv_source *source, const skv_name_scheme *scheme,
                                  const char *name, const skv_tensor *tensor, skv_error *err)
{
    size_t i_layer;
    const char *rest;
    const skv_name_rule *rule = find_rule(scheme->global, name);
    if (rule) return skv_source_add(source, rule->to, tensor, err);
    size_t n_layers = skv_source_config(source)->n_layers;
    const char *prefix = scheme->layer_prefix;
    const bool in_layer = split_layer_name(name, prefix, n_layers, &i_layer, &rest) ||
                          (scheme->keep_others && /* as transformers 5 saves it */
                           split_layer_name(name, plain.layer_prefix, n_layers, &i_layer, &rest));
    if (in_layer) {
        rule = find_rule(scheme->layer, rest);
        char to[80];
        if (rule && rule->action == SKV_NAME_KEEP) {
            rule_name(rule, rest, to, sizeof to);
            return add_in_layer(source, i_layer, to, tensor, err);
        }
        if (rule && rule->action == SKV_NAME_ONLY_NORM) {
            const bool mixes = skv_source_config(source)->layers[i_layer].mixer != SKV_MIXER_NONE;
            rest = mixes ? "input_layernorm.weight" : "post_attention_layernorm.weight";
            return add_in_layer(source, i_layer, rest, tensor, err);
        }
        if (rule && rule->action >= SKV_NAME_GATED) {
            return skv_source_add_mixer(source, i_layer, rule, tensor, err);
        }
        if (rule && rule->action >= SKV_NAME_EXPERTS) {
            return skv_source_add_experts(source, scheme, i_layer, rule, tensor, err);
        }
        if (rule && rule->action == SKV_NAME_INTERLEAVE) {
            return add_interleaved(source, i_layer, rule->to, tensor, err);
        }
        if (rule) return add_parts(source, scheme, i_layer, rule, tensor, err);
    }
    return scheme->keep_others ? skv_source_add(source, name, tensor, err) : SKV_OK;
}

/* ---- our names -> published ones ---- */

/* For families with their own names for mixtures; NULL if the name stays. */
static const skv_name_rule *find_written(const skv_config *c, const char *rest)
{
    const char *number;
    size_t n_number;
    const skv_name_rule *rules = skv_config_is(c, "mixtral")       ? moe_layer
                                 : skv_config_is(c, "gpt_oss")     ? gpt_oss_layer
                                 : skv_config_is(c, "gemma4_text") ? gemma4_layer
                                                                   : nothing;
    for (const skv_name_rule *rule = rules; rule->from; rule++) {
        const bool one = rule->action == SKV_NAME_KEEP;
        if (one && is_like(rest, rule->to, &number, &n_number)) return rule;
    }
    return NULL;
}

bool skv_source_written_name(const skv_config *c, const char *name, char *out, size_t size)
{
    size_t i_layer;
    const char *rest;
    char part[80];
    int n = snprintf(out, size, "%s", name);
    if (split_layer_name(name, moe.layer_prefix, c->n_layers, &i_layer, &rest)) {
        const skv_name_rule *rule = find_written(c, rest);
        if (rule) {
            const skv_name_rule back = {rule->to, rule->from, SKV_NAME_KEEP};
            rule_name(&back, rest, part, sizeof part);
            n = snprintf(out, size, "%.*s%s", (int)(rest - name), name, part);
        }
    }
    return n >= 0 && (size_t)n < size;
}
