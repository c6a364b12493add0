/* Writing config.json: see config.h. The keys are those of transformers 4, which 5 reads. */
#include "format/config_build.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "format/json_doc.h"

enum { CONFIG_BYTES_MAX = 16 << 20 };

/* A JSON object being filled; the first failure stays. */
typedef struct filler {
    json_t *object;
    bool failed;
} filler;

static void put(filler *f, const char *key, json_t *value)
{
    if (json_object_set_new(f->object, key, value) != 0) f->failed = true;
}

static void put_size(filler *f, const char *key, size_t value)
{
    put(f, key, json_integer((json_int_t)value));
}

static void put_bool(filler *f, const char *key, bool value)
{
    put(f, key, json_boolean(value));
}

static void append(filler *f, json_t *list, json_t *value)
{
    if (json_array_append_new(list, value) != 0) f->failed = true;
}

/* A cap whose absence is written as null. */
static void put_cap(filler *f, const char *key, double value)
{
    put(f, key, value > 0.0 ? json_real(value) : json_null());
}

/* The model type without "_swiftkv"; false when it does not fit. */
static bool base_type(const char *architecture, char out[64])
{
    size_t n = strlen(architecture), n_suffix = strlen("_swiftkv");
    if (n > n_suffix && strcmp(architecture + n - n_suffix, "_swiftkv") == 0) n -= n_suffix;
    return snprintf(out, 64, "%.*s", (int)n, architecture) < 64;
}

static const char *class_name(const char *base)
{
    static const char *const names[][2] = {
        {"llama", "Llama"},
        {"mistral", "Mistral"},
        {"qwen2", "Qwen2"},
        {"qwen3", "Qwen3"},
        {"phi3", "Phi3"},
        {"gemma2", "Gemma2"},
        {"qwen3_moe", "Qwen3Moe"},
        {"mixtral", "Mixtral"},
        {"gpt_oss", "GptOss"},
        {"gemma3_text", "Gemma3"},
        {"openelm", "OpenELM"},
        {"smollm3", "SmolLM3"},
        {"ministral3", "Ministral3"},
        {"olmo2", "Olmo2"},
        {"olmo3", "Olmo3"},
        {"glm4", "Glm4"},
        {"granite", "Granite"},
        {"qwen3_next", "Qwen3Next"},
        {"qwen3_5_text", "Qwen3_5"},
        {"qwen3_5_moe_text", "Qwen3_5Moe"},
        {"granitemoehybrid", "GraniteMoeHybrid"},
        {"nemotron_h", "NemotronH"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(names[i][0], base) == 0) return names[i][1];
    }
    return "";
}

/* Writes the keys that depend on the kind of checkpoint: model type, class, and SwiftKV's own
 * keys. */
static void put_identity(filler *f, const skv_config *c, const char *base, bool swiftkv)
{
    char type[80], class_text[80];
    (void)snprintf(type, sizeof type, "%s%s", base, swiftkv ? "_swiftkv" : "");
    (void)snprintf(class_text, sizeof class_text, "%s%sForCausalLM", class_name(base),
                   swiftkv ? "SwiftKV" : "");
    put(f, "model_type", json_string(type));
    put(f, "architectures", json_pack("[s]", class_text));
    put_bool(f, "tie_word_embeddings", c->tied);
    if (strcmp(base, "openelm") == 0) put_bool(f, "share_input_output_layers", c->tied);
    if (c->dtype[0]) {
        bool has_new = json_object_get(f->object, "dtype");
        put(f, has_new ? "dtype" : "torch_dtype", json_string(c->dtype));
    }
    (void)json_object_del(f->object, "swiftkv_base");
    if (c->base[0]) put(f, "swiftkv_base", json_string(c->base));
    /* The weights are written as floats, whatever their original type. */
    (void)json_object_del(f->object, "quantization_config");
    if (!swiftkv) return;
    (void)json_object_del(f->object, "kv_prediction"); /* of the model that this one was */
    put_bool(f, "swiftkv", true);
    put_size(f, "num_key_value_layers", c->kv_layers);
    put_size(f, "key_value_group_size", c->kv_group);
    if (c->early_exit) put_bool(f, "swiftkv_early_exit", true);
    (void)json_object_del(f->object, "swiftkv_exit_words");
    if (c->exit_words > 0) put_size(f, "swiftkv_exit_words", c->exit_words);
}

static skv_status print(filler *f, skv_buf *out, const char *name, skv_error *err)
{
    bool ok = !f->failed && skv_json_print(out, f->object);
    SKV_REQUIRE(ok, err, SKV_MEMORY, "%s: no memory, or no room, for config.json", name);
    return SKV_OK;
}

/* Returns the text part of a model with images, with its inherited keys; returns any other object
 * unchanged. */
static filler text_part(json_t *root)
{
    const char *type = json_string_value(json_object_get(root, "model_type"));
    if (!type || !skv_config_text_part(type)) return (filler){json_incref(root), false};
    json_t *text = json_object_get(root, "text_config"); /* skv_config_parse demands it */
    filler f = {json_incref(text), false};
    static const char *const inherited[] = {"torch_dtype", "dtype", "eos_token_id", "bos_token_id",
                                            "transformers_version"};
    for (size_t i = 0; i < sizeof inherited / sizeof *inherited; i++) {
        json_t *value = json_object_get(root, inherited[i]);
        if (value && !json_object_get(text, inherited[i])) {
            put(&f, inherited[i], json_incref(value));
        }
    }
    return f;
}

/* Rewrites config.json's identity: as a SwiftKV model, or as the ordinary one it is. */
static skv_status rewrite(const char *json, size_t n, const char *name, const skv_config *c,
                          bool swiftkv, skv_buf *out, skv_error *err)
{
    char base[64];
    json_t *root = NULL;
    SKV_TRY(skv_json_load(json, n, CONFIG_BYTES_MAX, name, &root, err));
    if (!json_is_object(root) || !base_type(c->architecture, base)) {
        json_decref(root);
        return skv_fail(err, SKV_FORMAT, "%s: expected a JSON object", name);
    }
    filler f = text_part(root);
    put_identity(&f, c, base, swiftkv);
    skv_status status = print(&f, out, name, err);
    json_decref(f.object);
    json_decref(root);
    return status;
}

skv_status skv_config_json_for_swiftkv(const char *json, size_t n, const char *name,
                                       const skv_config *c, skv_buf *out, skv_error *err)
{
    skv_config form = *c;
    form.swiftkv = true;
    SKV_TRY(skv_config_check(&form, name, err)); /* some families have no such form */
    return rewrite(json, n, name, c, true, out, err);
}

skv_status skv_config_json_in_floats(const char *json, size_t n, const char *name,
                                     const skv_config *c, skv_buf *out, skv_error *err)
{
    char base[64] = "";
    (void)base_type(c->architecture, base);
    SKV_REQUIRE(*class_name(base) && !skv_config_is_hybrid(c), err, SKV_UNSUPPORTED,
                "config.json: model_type %s", base);
    return rewrite(json, n, name, c, c->swiftkv, out, err);
}

/* ---- quantised weights ---- */

static json_t *ignored_list(filler *f, const skv_quantization *form)
{
    json_t *list = json_array();
    bool has_head = false;
    for (size_t i = 0; i < form->n_ignored; i++) {
        const char *name = form->ignored[i];
        const size_t n = strlen(name), n_suffix = strlen(".weight");
        const bool is_weight = n > n_suffix && strcmp(name + n - n_suffix, ".weight") == 0;
        has_head = has_head || strcmp(name, "lm_head.weight") == 0;
        append(f, list, json_stringn(name, is_weight ? n - n_suffix : n));
    }
    if (!has_head) append(f, list, json_string("lm_head")); /* tied: it is a module all the same */
    return list;
}

skv_status skv_config_json_quantized(const char *json, size_t n, const char *name,
                                     const skv_quantization *form, skv_buf *out, skv_error *err)
{
    json_t *root = NULL;
    SKV_TRY(skv_json_load(json, n, CONFIG_BYTES_MAX, name, &root, err));
    filler f = {root, !json_is_object(root)};
    json_t *group =
        json_pack("{s:[s], s:n, s:n, s:{s:I, s:s, s:b, s:s, s:I, s:b, s:n, s:n, s:s, s:{}}}",
                  "targets", "Linear", "input_activations", "output_activations", "weights",
                  "num_bits", (json_int_t)form->bits, "type", "int", "symmetric", 1, "strategy",
                  "group", "group_size", (json_int_t)form->group, "dynamic", 0, "actorder",
                  "block_structure", "observer", "minmax", "observer_kwargs");
    if (!f.failed) {
        put(&f, "quantization_config",
            json_pack("{s:s, s:s, s:s, s:n, s:n, s:{s:o}, s:o}", "quant_method",
                      "compressed-tensors", "format", "pack-quantized", "quantization_status",
                      "compressed", "global_compression_ratio", "kv_cache_scheme", "config_groups",
                      "group_0", group, "ignore", ignored_list(&f, form)));
    }
    skv_status status = print(&f, out, name, err);
    json_decref(root);
    return status;
}

static json_t *factor_list(filler *f, const float *factors, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) append(f, list, json_real((double)factors[i]));
    return list;
}

/* `growth` is the queries' position_growth. */
/* Some families make something else of a file without it. */
static void put_scaling(filler *f, const skv_rope *rope, double growth)
{
    if (rope->scaling == SKV_ROPE_PLAIN && growth == 0.0) {
        put(f, "rope_scaling", json_pack("{s:s}", "rope_type", "default"));
        return;
    }
    filler s = {json_object(), false};
    switch (rope->scaling) {
    case SKV_ROPE_LINEAR: put(&s, "rope_type", json_string("linear")); break;
    case SKV_ROPE_LLAMA3:
        put(&s, "rope_type", json_string("llama3"));
        put(&s, "low_freq_factor", json_real(rope->low_freq_factor));
        put(&s, "high_freq_factor", json_real(rope->high_freq_factor));
        put_size(&s, "original_max_position_embeddings", rope->original_context);
        break;
    case SKV_ROPE_LONGROPE:
    case SKV_ROPE_FACTORS: {
        bool one_set = rope->scaling == SKV_ROPE_FACTORS;
        const float *shorter = one_set ? rope->long_factor : rope->short_factor;
        put(&s, "rope_type", json_string("longrope"));
        put(&s, "short_factor", factor_list(&s, shorter, rope->n_factors));
        put(&s, "long_factor", factor_list(&s, rope->long_factor, rope->n_factors));
        put(&s, "attention_factor", json_real(rope->attention_factor));
        if (rope->original_context) {
            put_size(f, "original_max_position_embeddings", rope->original_context);
        }
        break;
    }
    case SKV_ROPE_YARN:
        put(&s, "rope_type", json_string("yarn"));
        put(&s, "attention_factor", json_real(rope->attention_factor));
        put(&s, "beta_fast", json_real(rope->beta_fast));
        put(&s, "beta_slow", json_real(rope->beta_slow));
        put_bool(&s, "truncate", !rope->ramp_exact);
        put_size(&s, "original_max_position_embeddings", rope->original_context);
        break;
    case SKV_ROPE_NONE:
    case SKV_ROPE_PLAIN:
    default: break;
    }
    if (growth != 0.0) {
        put(&s, "llama_4_scaling_beta", json_real(growth));
        put_size(&s, "original_max_position_embeddings", rope->original_context);
    }
    put(&s, "factor", json_real(rope->factor));
    f->failed |= s.failed;
    put(f, "rope_scaling", s.object);
}

/* Gemma writes 1 / scale^2, an integer in every published model. */
static double query_scalar(double attention_scale)
{
    double scalar = 1.0 / (attention_scale * attention_scale), whole = nearbyint(scalar);
    return fabs(scalar - whole) < 1e-6 * scalar ? whole : scalar;
}

static void put_windows(filler *f, const skv_config *c, const char *base)
{
    size_t window = 0;
    bool all = true;
    json_t *types = json_array();
    for (size_t i = 0; i < c->n_layers; i++) {
        size_t w = c->layers[i].window;
        if (w) window = w;
        all = all && w;
        append(f, types, json_string(w ? "sliding_attention" : "full_attention"));
    }
    put(f, "sliding_window", window ? json_integer((json_int_t)window) : json_null());
    bool by_rule = strcmp(base, "mistral") == 0 || strcmp(base, "ministral3") == 0 ||
                   strcmp(base, "phi3") == 0 || strcmp(base, "llama") == 0 ||
                   strcmp(base, "mixtral") == 0;
    if (strncmp(base, "qwen", 4) == 0 || strcmp(base, "smollm3") == 0)
        put_bool(f, "use_sliding_window", window > 0);
    if (by_rule || (!window && strncmp(base, "gemma", 5) != 0)) {
        json_decref(types);
    } else {
        put(f, "layer_types", types);
    }
}

static void put_openelm(filler *f, const skv_config *c)
{
    json_t *heads = json_array(), *kv_heads = json_array(), *ffn = json_array();
    for (size_t i = 0; i < c->n_layers; i++) {
        const skv_layer_shape *l = &c->layers[i];
        append(f, heads, json_integer((json_int_t)l->n_heads));
        append(f, kv_heads, json_integer((json_int_t)l->n_kv_heads));
        append(f, ffn, json_real((double)l->ffn / (double)c->hidden));
    }
    put(f, "num_query_heads", heads);
    put(f, "num_kv_heads", kv_heads);
    put(f, "ffn_multipliers", ffn);
    put_size(f, "ffn_dim_divisor", 1);
    put_size(f, "num_gqa_groups", c->layers[0].n_heads / c->layers[0].n_kv_heads);
    put_size(f, "model_dim", c->hidden);
    put_size(f, "num_transformer_layers", c->n_layers);
    put_size(f, "max_context_length", c->context);
    put_bool(f, "normalize_qk_projections", c->qk_norm);
    put(f, "rope_freq_constant", json_real(c->ropes[0].theta));
}

/* Returns the layer that represents those with experts, or those without; n_layers: none. */
static size_t first_layer(const skv_config *c, bool experts)
{
    size_t i = 0;
    while (i < c->n_layers && (c->layers[i].n_experts > 0) != experts) i++;
    return i;
}

static void put_moe(filler *f, const skv_config *c, const char *base)
{
    const size_t first = first_layer(c, true), dense = first_layer(c, false);
    if (first == c->n_layers) return;
    const bool listed = strcmp(base, "qwen3_moe") == 0;
    put_size(f, listed ? "num_experts" : "num_local_experts", c->layers[first].n_experts);
    put_size(f, "num_experts_per_tok", c->n_active);
    if (c->router_loss > 0) put(f, "router_aux_loss_coef", json_real(c->router_loss));
    if (!listed) return;
    json_t *layers = json_array();
    for (size_t i = 0; i < c->n_layers; i++) {
        if (c->layers[i].n_experts == 0) append(f, layers, json_integer((json_int_t)i));
    }
    put(f, "mlp_only_layers", layers);
    put_size(f, "decoder_sparse_step", 1);
    put_size(f, "moe_intermediate_size", c->layers[first].ffn);
    if (dense < c->n_layers) put_size(f, "intermediate_size", c->layers[dense].ffn);
    put_bool(f, "norm_topk_prob", c->norm_topk);
}

static void put_still_layers(filler *f, const skv_config *c)
{
    json_t *list = json_array();
    for (size_t i = 0; i < c->n_layers; i++) append(f, list, json_integer(!c->layers[i].i_rope));
    put(f, "no_rope_layers", list);
}

/* Granite's, and the norms' eps of a residual stream that is not divided. */
static void put_multipliers(filler *f, const skv_config *c)
{
    const double r = c->residual_scale;
    put(f, "embedding_multiplier", json_real(c->embedding_scale * r));
    put(f, "residual_multiplier", json_real(r));
    put(f, "logits_scaling", json_real(c->logit_divisor));
    put(f, "attention_multiplier", json_real(c->attention_scale));
    put(f, "rms_norm_eps", json_real(c->norm_eps * r * r));
}

static void put_family(filler *f, const skv_config *c, const char *base)
{
    bool gemma = strncmp(base, "gemma", 5) == 0;
    put_size(f, "hidden_size", c->hidden);
    put_size(f, "num_hidden_layers", c->n_layers);
    put_size(f, "num_attention_heads", c->layers[0].n_heads);
    put_size(f, "num_key_value_heads", c->layers[0].n_kv_heads);
    put_size(f, "intermediate_size", c->layers[0].ffn);
    put_size(f, "max_position_embeddings", c->context);
    const size_t trained = c->ropes[0].original_context;
    if (c->ropes[0].scaling == SKV_ROPE_PLAIN && trained > 0 && trained < c->context) {
        put_size(f, "original_max_position_embeddings", trained);
    }
    put(f, "rms_norm_eps", json_real(c->norm_eps));
    const bool is_glm = strcmp(base, "glm4") == 0;
    put_bool(f, "attention_bias", is_glm ? c->qkv_bias : c->o_bias);
    if (strcmp(base, "llama") == 0 || c->mlp_bias) put_bool(f, "mlp_bias", c->mlp_bias);
    put(f, gemma ? "hidden_activation" : "hidden_act",
        json_string(c->activation == SKV_ACT_GELU_TANH ? "gelu_pytorch_tanh" : "silu"));
    put(f, "rope_theta", json_real(c->ropes[0].theta));
    if (c->ropes[0].n_rot != c->head_dim || is_glm) {
        double partial = (double)c->ropes[0].n_rot / (double)c->head_dim;
        put(f, "partial_rotary_factor", json_real(partial));
    }
    put_scaling(f, &c->ropes[0], c->layers[0].i_rope_q ? c->ropes[1].position_growth : 0.0);
    if (strcmp(base, "smollm3") == 0) put_still_layers(f, c);
    if (c->residual_scale != 0.0) put_multipliers(f, c);
    put_windows(f, c, base);
    put_moe(f, c, base);
    if (c->activation == SKV_ACT_SWIGLU_CLAMPED) {
        put(f, "swiglu_limit", json_real(c->swiglu_limit));
        put(f, "swiglu_alpha", json_real(c->swiglu_alpha));
    }
    if (c->n_shared > 0) put_size(f, "num_kv_shared_layers", c->n_shared);
    if (!gemma) return;
    put(f, "query_pre_attn_scalar", json_real(query_scalar(c->attention_scale)));
    put_cap(f, "attn_logit_softcapping", c->attention_softcap);
    put_cap(f, "final_logit_softcapping", c->final_softcap);
    if (strcmp(base, "gemma3_text") == 0) {
        put(f, "rope_local_base_freq", json_real(c->ropes[1].theta));
    }
}

static json_t *eos_list(filler *f, const skv_config *c)
{
    json_t *list = json_array();
    for (size_t i = 0; i < c->n_eos; i++) append(f, list, json_integer(c->eos[i]));
    return list;
}

/* Refuses properties that no key of config.json can express. */
static skv_status refuse_unwritable(const skv_config *c, const char *base, skv_error *err)
{
    bool openelm = strcmp(base, "openelm") == 0;
    bool uniform = true;
    for (size_t i = 1; i < c->n_layers; i++) {
        const skv_layer_shape *l = &c->layers[i], *first = &c->layers[0];
        if (strcmp(base, "qwen3_moe") == 0) {
            first = &c->layers[first_layer(c, l->n_experts > 0)]; /* two widths */
        }
        uniform = uniform && l->n_experts == first->n_experts && l->n_heads == first->n_heads &&
                  l->n_kv_heads == first->n_kv_heads && l->ffn == first->ffn;
    }
    SKV_REQUIRE(*class_name(base) && !skv_config_is_hybrid(c), err, SKV_UNSUPPORTED,
                "config.json: model_type %s", base);
    const bool one_theta = c->ropes[1].theta == c->ropes[0].theta;
    SKV_REQUIRE(strcmp(base, "olmo3") != 0 || (one_theta && c->ropes[1].scaling == SKV_ROPE_PLAIN),
                err, SKV_UNSUPPORTED,
                "config.json: olmo3 cannot describe the rotary embeddings of its layers");
    SKV_REQUIRE(openelm ? c->n_layers != 2 : uniform, err, SKV_UNSUPPORTED,
                "config.json: %s cannot say these shapes of its layers", base);
    bool bias_fits = c->qkv_bias == c->o_bias;
    if (strcmp(base, "qwen2") == 0) bias_fits = c->qkv_bias && !c->o_bias;
    if (strcmp(base, "glm4") == 0) bias_fits = !c->o_bias;
    SKV_REQUIRE(bias_fits, err, SKV_UNSUPPORTED, "config.json: %s has no field for these biases",
                base);
    return SKV_OK;
}

skv_status skv_config_json_from_config(const skv_config *c, skv_buf *out, skv_error *err)
{
    char base[64] = "";
    (void)base_type(c->architecture, base);
    SKV_TRY(refuse_unwritable(c, base, err));
    filler f = {json_object(), false};
    put_identity(&f, c, base, c->swiftkv);
    put_size(&f, "vocab_size", c->vocab);
    put_size(&f, "head_dim", c->head_dim);
    put(&f, "bos_token_id", c->bos >= 0 ? json_integer(c->bos) : json_null());
    put(&f, "eos_token_id", c->n_eos ? eos_list(&f, c) : json_null());
    if (strcmp(base, "openelm") == 0) {
        put_openelm(&f, c);
    } else {
        put_family(&f, c, base);
    }
    skv_status status = print(&f, out, "config.json", err);
    json_decref(f.object);
    return status;
}
