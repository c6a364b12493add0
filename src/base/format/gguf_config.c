/*
 * GGUF metadata -> skv_config: see source_impl.h. Keys are "{architecture}.name". Values without a
 * key (the vocabulary's size, biases, a tied head, rotation factors) are derived from the tensors.
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "format/config_build.h"
#include "format/config_family.h"
#include "format/dtype.h"
#include "format/source_impl.h"

typedef struct family {
    const char *gguf;       /* general.architecture */
    const char *model_type; /* skv_config's */
    double theta;
    bool qk_norm, gemma;
    size_t window_period; /* every n-th layer sees all rows; 0: none, in models with a window */
    const char *mixture;  /* its name when it has experts; NULL: no such form */
    bool dense_too;       /* `mixture` is model_type, and yet files without experts are of it */
    size_t still_period;  /* every n-th layer does not rotate; 0: all do */
    bool olmo;            /* norms only after the blocks, and over whole q and k */
    bool glm;             /* norms before and after the blocks */
    bool multipliers;     /* Granite's */
    bool growing;         /* queries turn by a rope that grows with the position */
    size_t
        attention_period; /* every n-th layer has attention, the others keep a state; 0: all do */
    bool short_convs;     /* layers without KV heads have a short convolution alone */
    bool tiled;           /* value heads of these stand in the order of files by llama.cpp */
    bool mamba;           /* layers without KV heads are Mamba-2 */
    bool beside;          /* all layers are Mamba-2 and attention */
    bool single;          /* a layer mixes or has a block */
    double sigmoid_eps;   /* routers are of that kind: skv_config.router_eps; 0: they are not */
} family;

#define FAMILY(of_gguf, type, base) .gguf = (of_gguf), .model_type = (type), .theta = (base)

static const family families[] = {
    {FAMILY("llama", "llama", 1e4), .mixture = "mixtral"},
    {FAMILY("qwen2", "qwen2", 1e4)},
    {FAMILY("qwen3", "qwen3", 1e4), .qk_norm = true},
    {FAMILY("qwen3moe", "qwen3_moe", 1e4), .qk_norm = true, .mixture = "qwen3_moe"},
    {FAMILY("gpt-oss", "gpt_oss", 150000.0), .window_period = 2, .mixture = "gpt_oss"},
    {FAMILY("phi3", "phi3", 1e4)},
    {FAMILY("gemma2", "gemma2", 1e4), .gemma = true, .window_period = 2},
    {FAMILY("gemma3", "gemma3_text", 1e6), .qk_norm = true, .gemma = true, .window_period = 6},
    {FAMILY("openelm", "openelm", 1e4), .qk_norm = true},
    {FAMILY("gemma4", "gemma4_text", 1e6), .qk_norm = true, .gemma = true, .window_period = 6,
     .mixture = "gemma4_text", .dense_too = true},
    {FAMILY("smollm3", "smollm3", 1e4), .still_period = 4},
    {FAMILY("mistral3", "ministral3", 1e4), .growing = true},
    /* OLMo 3 as well, which has windows. */
    {FAMILY("olmo2", "olmo2", 1e4), .qk_norm = true, .window_period = 4, .olmo = true},
    {FAMILY("granite", "granite", 1e4), .multipliers = true},
    {FAMILY("glm4", "glm4", 1e4), .glm = true},
    {FAMILY("granitehybrid", "granitemoehybrid", 1e4), .mixture = "granitemoehybrid",
     .dense_too = true, .multipliers = true, .mamba = true},
    {FAMILY("nemotron_h", "nemotron_h", 1e4), .mamba = true, .single = true},
    {FAMILY("nemotron_h_moe", "nemotron_h", 1e4), .mixture = "nemotron_h", .dense_too = true,
     .mamba = true, .single = true, .sigmoid_eps = 1e-20},
    {FAMILY("falcon-h1", "falcon_h1", 1e4), .mamba = true, .beside = true},
    {FAMILY("lfm2moe", "lfm2_moe", 1e6), .qk_norm = true, .mixture = "lfm2_moe", .dense_too = true,
     .short_convs = true, .sigmoid_eps = 1e-6},
    {FAMILY("lfm2", "lfm2", 1e6), .qk_norm = true, .short_convs = true},
    {FAMILY("qwen35", "qwen3_5_text", 1e7), .qk_norm = true, .attention_period = 4, .tiled = true},
    {FAMILY("qwen35moe", "qwen3_5_moe_text", 1e7), .qk_norm = true, .mixture = "qwen3_5_moe_text",
     .attention_period = 4, .tiled = true},
    {FAMILY("qwen3next", "qwen3_next", 1e7), .qk_norm = true, .mixture = "qwen3_next",
     .attention_period = 4},
};

/* Reads "{architecture}.KEY"; keeps the first failure, as skv_json_reader does. */
typedef struct reader {
    const skv_gguf *g;
    const family *f;
    skv_error *err;
    skv_status status;
} reader;

static const skv_gguf_value *get(const reader *r, const char *key)
{
    char full[128];
    (void)snprintf(full, sizeof full, "%s.%s", r->f->gguf, key);
    return skv_gguf_find(r->g, full);
}

static void keep(reader *r, skv_status status)
{
    if (r->status == SKV_OK) r->status = status;
}

/* Fails with the file's name and the text unless something failed before. */
SKV_PRINTF(3, 4) static void refuse(reader *r, skv_status status, const char *format, ...)
{
    char text[SKV_ERROR_TEXT_MAX];
    va_list args;
    if (r->status != SKV_OK) return;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    r->status = skv_fail(r->err, status, "%s: %s", skv_gguf_name(r->g), text);
}

/* A failed read must not overwrite the first message, so nothing is read after one. */
static size_t get_size(reader *r, const char *key, size_t fallback)
{
    const skv_gguf_value *v = get(r, key);
    if (!v || r->status != SKV_OK) return fallback;
    uint64_t value = 0;
    keep(r, skv_gguf_u64(v, &value, r->err));
    return value < SIZE_MAX / 2 ? (size_t)value : SIZE_MAX / 2;
}

static size_t need_size(reader *r, const char *key)
{
    if (!get(r, key)) refuse(r, SKV_FORMAT, "%s.%s: missing", r->f->gguf, key);
    return get_size(r, key, 0);
}

static double get_double(reader *r, const char *key, double fallback)
{
    const skv_gguf_value *v = get(r, key);
    if (!v || r->status != SKV_OK) return fallback;
    double value = fallback;
    keep(r, skv_gguf_f64(v, &value, r->err));
    return value;
}

static bool is_integer_array(const skv_gguf_value *v)
{
    return v->type == SKV_GGUF_ARRAY && v->element != SKV_GGUF_STRING &&
           v->element != SKV_GGUF_F32 && v->element != SKV_GGUF_F64;
}

/* Returns the number of extra layers after the model's own, which predict further tokens. */
static size_t n_extra_layers(reader *r)
{
    return get_size(r, "nextn_predict_layers", 0);
}

/* Whether they are left out. */
static bool leaves_extra_out(const reader *r)
{
    return r->f->attention_period > 0 || r->f->single;
}

/* One number for all layers, or an array with one a layer. */
static size_t size_of_layer(reader *r, const char *key, size_t i, size_t n_layers, size_t fallback)
{
    const skv_gguf_value *v = get(r, key);
    if (!v || !is_integer_array(v)) return get_size(r, key, fallback);
    const size_t n_all = n_layers + (leaves_extra_out(r) ? n_extra_layers(r) : 0);
    if (v->count != n_layers && v->count != n_all) {
        refuse(r, SKV_FORMAT, "%s: %zu values, expected %zu", v->key, v->count, n_layers);
        return fallback;
    }
    int64_t value = skv_gguf_integer_at(v, i);
    return value > 0 ? (size_t)value : 0;
}

/* A list of the layers that keep a state, or 0 for their KV heads, or every n-th has attention. */
static skv_mixer mixer_of(reader *r, const skv_config *c, size_t i)
{
    static const char listed[] = "attention.recurrent_layers";
    bool attends = c->layers[i].n_kv_heads > 0;
    if (get(r, listed)) {
        attends = size_of_layer(r, listed, i, c->n_layers, 0) == 0;
    } else if (attends && !is_integer_array(get(r, "attention.head_count_kv"))) {
        const size_t period = get_size(r, "full_attention_interval", r->f->attention_period);
        attends = period > 0 && (i + 1) % period == 0;
    }
    return attends ? SKV_MIXER_ATTENTION : SKV_MIXER_DELTA;
}

static void read_state_shape(reader *r, skv_mixer_shape *m)
{
    m->n_key_heads = need_size(r, "ssm.group_count");
    m->n_value_heads = need_size(r, "ssm.time_step_rank");
    m->key_dim = need_size(r, "ssm.state_size");
    m->conv_rows = need_size(r, "ssm.conv_kernel");
    const size_t inner = need_size(r, "ssm.inner_size");
    m->value_dim = m->n_value_heads > 0 ? inner / m->n_value_heads : 0;
    m->norm_eps = get_double(r, "attention.layer_norm_rms_epsilon", 1e-6);
    m->write_max = 1;
    if (m->value_dim * m->n_value_heads != inner) {
        refuse(r, SKV_RANGE, "%s.ssm.inner_size: %zu, expected a multiple of time_step_rank %zu",
               r->f->gguf, inner, m->n_value_heads);
    }
}

static void read_mixers(reader *r, skv_config *c)
{
    read_state_shape(r, &c->mixer);
    c->mixer.tiled = r->f->tiled;
    c->attention_gate = true;
    for (size_t i = 0; i < c->n_layers && r->status == SKV_OK; i++) {
        skv_layer_shape *l = &c->layers[i];
        l->mixer = mixer_of(r, c, i);
        if (l->mixer == SKV_MIXER_DELTA && l->n_kv_heads == 0) l->n_kv_heads = l->n_heads;
    }
}

/* Layers without KV heads. */
static void set_mixers(skv_config *c, skv_mixer mixer)
{
    for (size_t i = 0; i < c->n_layers; i++) {
        skv_layer_shape *l = &c->layers[i];
        if (l->n_kv_heads > 0) continue;
        l->mixer = mixer;
        l->n_kv_heads = l->n_heads;
    }
}

static void read_convs(reader *r, skv_config *c)
{
    c->mixer.conv_rows = need_size(r, "shortconv.l_cache");
    set_mixers(c, SKV_MIXER_CONV);
}

/* Whether some layer has a tensor. */
static bool some_layer_has(const reader *r, const skv_config *c, const char *what)
{
    bool has = false;
    for (size_t i = 0; i < c->n_layers; i++) {
        char name[64];
        (void)snprintf(name, sizeof name, "blk.%zu.%s", i, what);
        has = has || skv_gguf_tensor_find(r->g, name);
    }
    return has;
}

/* A bias of the convolution, and a norm, are in all layers of Mamba-2 or in none. */
static void read_mamba(reader *r, skv_config *c)
{
    read_state_shape(r, &c->mixer);
    c->mixer.gate_first = true;
    c->mixer.conv_bias = some_layer_has(r, c, "ssm_conv1d.bias");
    c->mixer.no_norm = !some_layer_has(r, c, "ssm_norm.weight");
    for (size_t i = 0; r->f->single && i < c->n_layers; i++) {
        skv_layer_shape *l = &c->layers[i];
        if (l->n_kv_heads > 0) l->ffn = 0;
        if (l->ffn == 0) continue;
        l->mixer = SKV_MIXER_NONE;
        l->n_kv_heads = l->n_heads;
    }
    set_mixers(c, SKV_MIXER_MAMBA);
    for (size_t i = 0; r->f->beside && i < c->n_layers; i++) c->layers[i].mixer = SKV_MIXER_BOTH;
}

static bool get_bool(reader *r, const char *key, bool fallback)
{
    const skv_gguf_value *v = get(r, key);
    bool value = fallback;
    if (v && r->status == SKV_OK) keep(r, skv_gguf_bool(v, &value, r->err));
    return value;
}

/* Routers that give each expert a sigmoid. */
static void read_sigmoids(reader *r, skv_config *c)
{
    enum { SIGMOID = 2 };
    const size_t function = get_size(r, "expert_gating_func", SIGMOID);
    const size_t n_groups = get_size(r, "expert_group_count", 1);
    c->router_sigmoid = true;
    c->router_eps = r->f->sigmoid_eps;
    c->router_scale = get_double(r, "expert_weights_scale", 1.0);
    c->norm_topk = get_bool(r, "expert_weights_norm", true);
    c->choice_bias = some_layer_has(r, c, "exp_probs_b.bias");
    c->moe_latent = get_size(r, "moe_latent_size", 0);
    if ((function != SIGMOID || n_groups > 1) && r->status == SKV_OK) {
        const bool grouped = n_groups > 1;
        refuse(r, SKV_UNSUPPORTED, "%s.%s: %zu is not supported", r->f->gguf,
               grouped ? "expert_group_count" : "expert_gating_func",
               grouped ? n_groups : function);
    }
}

static void read_layers(reader *r, skv_config *c)
{
    const char *ffn = r->f->attention_period && !get(r, "feed_forward_length")
                          ? "expert_feed_forward_length"
                          : "feed_forward_length";
    size_t n_layers = need_size(r, "block_count");
    (void)(get(r, "attention.head_count") ? 0 : need_size(r, "attention.head_count"));
    (void)(get(r, ffn) ? 0 : need_size(r, ffn));
    if (r->status != SKV_OK) return;
    /* The extra layers are no part of the model: source_mtp.c reads those of some. */
    if (leaves_extra_out(r)) n_layers -= skv_min_size(n_layers, n_extra_layers(r));
    keep(r, skv_config_set_layers(c, n_layers, (skv_layer_shape){0}, skv_gguf_name(r->g), r->err));
    for (size_t i = 0; i < c->n_layers && r->status == SKV_OK; i++) {
        skv_layer_shape *l = &c->layers[i];
        l->n_heads = size_of_layer(r, "attention.head_count", i, n_layers, 0);
        l->n_kv_heads = size_of_layer(r, "attention.head_count_kv", i, n_layers, l->n_heads);
        l->ffn = size_of_layer(r, ffn, i, n_layers, 0);
    }
    if (r->f->attention_period && r->status == SKV_OK) read_mixers(r, c);
    if (r->f->short_convs && r->status == SKV_OK) read_convs(r, c);
    if (r->f->mamba && r->status == SKV_OK) read_mamba(r, c);
}

/* Gemma's sliding_window_pattern: a period, or one bool a layer (true: windowed). */
static bool is_windowed(reader *r, size_t i, size_t n_layers)
{
    const skv_gguf_value *v = get(r, "attention.sliding_window_pattern");
    size_t period = r->f->window_period;
    if (v && is_integer_array(v)) {
        return size_of_layer(r, "attention.sliding_window_pattern", i, n_layers, 0) != 0;
    }
    if (v) period = get_size(r, "attention.sliding_window_pattern", period);
    return !period || (i + 1) % period != 0;
}

static bool is_gemma4(const skv_config *c)
{
    return strcmp(c->architecture, "gemma4_text") == 0;
}

/* Windowed layers have a rope of their own. */
static bool has_two_ropes(const reader *r, const skv_config *c)
{
    return strcmp(c->architecture, "gemma3_text") == 0 || is_gemma4(c) || r->f->olmo;
}

static void read_windows(reader *r, skv_config *c)
{
    size_t window = get_size(r, "attention.sliding_window", r->f->gemma ? 4096 : 0);
    bool two_ropes = has_two_ropes(r, c);
    const size_t still = r->f->still_period;
    for (size_t i = 0; i < c->n_layers; i++) {
        bool windowed = window && is_windowed(r, i, c->n_layers);
        c->layers[i].window = windowed ? window : 0;
        c->layers[i].i_rope = (two_ropes && windowed) || (still && (i + 1) % still == 0);
    }
    if (r->f->olmo && window) (void)snprintf(c->architecture, sizeof c->architecture, "olmo3");
}

/* A vector of n_rot / 2 positive numbers, stored as f32. */
static bool read_factors(reader *r, const char *name, skv_rope *rope, float *out)
{
    const skv_tensor *t = skv_gguf_tensor_find(r->g, name);
    if (!t || r->status != SKV_OK) return false;
    size_t n = rope->n_rot / 2;
    if (t->n_dims != 1 || t->dims[0] != n || n > SKV_ROPE_FACTORS_MAX ||
        skv_dtype_block_elements(t->type) != 1) {
        refuse(r, SKV_FORMAT, "%s: %zu values, expected %zu (at most %d)", name, t->dims[0], n,
               SKV_ROPE_FACTORS_MAX);
        return false;
    }
    skv_tensor_read_rows(t, 0, 1, out);
    rope->n_factors = n;
    return true;
}

static bool scaling_is(reader *r, const skv_gguf_value *v, const char *name)
{
    const char *text = "";
    size_t n = 0;
    if (r->status == SKV_OK) keep(r, skv_gguf_string(v, &text, &n, r->err));
    return n == strlen(name) && memcmp(text, name, n) == 0;
}

static void read_scaling(reader *r, skv_config *c, skv_rope *rope)
{
    const skv_gguf_value *kind = get(r, "rope.scaling.type");
    double factor = get_double(r, "rope.scaling.factor", get_double(r, "rope.scale_linear", 1.0));
    rope->original_context = get_size(r, "rope.scaling.original_context_length", c->context);
    if (read_factors(r, "rope_factors_long.weight", rope, rope->long_factor) &&
        read_factors(r, "rope_factors_short.weight", rope, rope->short_factor)) {
        rope->scaling = SKV_ROPE_LONGROPE;
        rope->factor =
            (double)c->context / (double)(rope->original_context + !rope->original_context);
        rope->attention_factor =
            get_double(r, "rope.scaling.attn_factor",
                       skv_longrope_attention(rope->factor, rope->original_context));
    } else if (read_factors(r, "rope_freqs.weight", rope, rope->long_factor)) {
        rope->scaling = SKV_ROPE_FACTORS;
    } else if (!kind ? factor != 1.0 : scaling_is(r, kind, "linear")) {
        rope->scaling = SKV_ROPE_LINEAR;
        rope->factor = factor;
    } else if (kind && scaling_is(r, kind, "yarn")) {
        rope->scaling = SKV_ROPE_YARN;
        rope->factor = factor;
        /* yarn_attn_factor is the published attention_factor, unless llama.cpp itself has saved the
         * file: it then writes both keys, and multiplies by attn_factor alone. */
        rope->attention_factor =
            skv_yarn_attention(factor) * get_double(r, "rope.scaling.attn_factor", 1.0);
        if (!get(r, "rope.scaling.attn_factor")) {
            rope->attention_factor =
                get_double(r, "rope.scaling.yarn_attn_factor", rope->attention_factor);
        }
        rope->beta_fast = get_double(r, "rope.scaling.yarn_beta_fast", 32.0);
        rope->beta_slow = get_double(r, "rope.scaling.yarn_beta_slow", 1.0);
        rope->ramp_exact = strcmp(c->architecture, "gpt_oss") == 0; /* the file lacks it */
    } else if (kind && !scaling_is(r, kind, "none")) {
        refuse(r, SKV_UNSUPPORTED, "%s: %.*s is not supported", kind->key,
               (int)(kind->count < 60 ? kind->count : 60), (const char *)kind->data);
    }
}

/* Ministral 3. Files omit its mscale, which is 1, as is mscale_all_dim in the published ones. */
static void read_growth(reader *r, skv_config *c)
{
    const double all = get_double(r, "rope.scaling.yarn_log_multiplier", 0.0);
    if (c->ropes[0].scaling == SKV_ROPE_YARN && all != 0.0) {
        c->ropes[0].attention_factor /= 1.0 + 0.1 * all * log(c->ropes[0].factor);
    }
    c->ropes[1] = c->ropes[0];
    c->ropes[1].position_growth = get_double(r, "attention.temperature_scale", 0.0);
    for (size_t i = 0; i < c->n_layers && c->ropes[1].position_growth != 0.0; i++) {
        c->layers[i].i_rope_q = 1;
    }
}

static void read_ropes(reader *r, skv_config *c)
{
    skv_rope *rope = &c->ropes[0];
    *rope = (skv_rope){.factor = 1.0, .attention_factor = 1.0};
    rope->theta = get_double(r, "rope.freq_base", r->f->theta);
    rope->n_rot = get_size(r, "rope.dimension_count", c->head_dim);
    c->ropes[1] = *rope;
    const bool two_ropes = has_two_ropes(r, c);
    if (two_ropes) {
        c->ropes[1].theta = get_double(r, "rope.freq_base_swa", r->f->olmo ? rope->theta : 1e4);
    }
    if (is_gemma4(c)) {
        c->ropes[1].n_rot = get_size(r, "rope.dimension_count_swa",
                                     get_size(r, "attention.key_length_swa", c->head_dim));
    }
    read_scaling(r, c, rope);
    if (is_gemma4(c) && rope->scaling != SKV_ROPE_FACTORS) {
        refuse(r, SKV_FORMAT, "rope_freqs.weight: missing");
    }
    const bool turns = !r->f->mamba || get_bool(r, "rope.scaling.finetuned", true);
    if (!turns || r->f->single) rope->scaling = SKV_ROPE_NONE;
    if (!two_ropes) c->ropes[1] = *rope;
    if (r->f->still_period) c->ropes[1].scaling = SKV_ROPE_NONE;
    if (r->f->growing) read_growth(r, c);
    if (strcmp(r->f->gguf, "llama") == 0 && rope->n_rot != c->head_dim) {
        refuse(r, SKV_UNSUPPORTED,
               "llama.rope.dimension_count: %zu, expected the head dimension %zu", rope->n_rot,
               c->head_dim);
    }
}

/* The published query_pre_attn_scalar is not in the file. It equals the head dimension except for
 * the largest model of each family, which uses hidden / heads. */
static double gemma_scale(reader *r, const skv_config *c)
{
    bool largest = strcmp(c->architecture, "gemma2") == 0 ? c->n_layers == 46 : c->n_layers == 62;
    size_t n_heads = c->layers[0].n_heads ? c->layers[0].n_heads : 1;
    size_t scalar = largest ? c->hidden / n_heads : c->head_dim;
    return get_double(r, "attention.scale", scalar ? 1.0 / sqrt((double)scalar) : 0.0);
}

/* As llama.cpp: sqrt(hidden) in f32, unless the embedding itself is a 16-bit float. */
static double gemma_embedding_scale(const skv_gguf *g, const char *name, size_t hidden)
{
    const skv_tensor *t = skv_gguf_tensor_find(g, name);
    const char *dtype = !t                          ? ""
                        : t->type == SKV_DTYPE_BF16 ? "bfloat16"
                        : t->type == SKV_DTYPE_F16  ? "float16"
                                                    : "";
    return skv_gemma_embedding_scale(hidden, dtype);
}

static bool has_tensor(const skv_gguf *g, const char *name)
{
    return skv_gguf_tensor_find(g, name);
}

/* Norms are plain, windowed layers have heads of their own size, and a layer without attn_v
 * has K for V. */
static void read_gemma4(reader *r, skv_config *c)
{
    c->attention_scale = 1.0;
    c->v_norm = true;
    c->layer_scalar = true;
    c->n_shared = get_size(r, "attention.shared_kv_layers", 0);
    c->per_layer = get_size(r, "embedding_length_per_layer_input", 0);
    c->per_layer_scale = gemma_embedding_scale(r->g, "per_layer_token_embd.weight", c->per_layer);
    const size_t small = get_size(r, "attention.key_length_swa", c->head_dim);
    const size_t value = get_size(r, "attention.value_length_swa", small);
    if (value != small || small > c->head_dim) {
        refuse(r, SKV_UNSUPPORTED,
               "gemma4.attention.key_length_swa %zu, value_length_swa %zu: expected the same, at "
               "most key_length %zu",
               small, value, c->head_dim);
    }
    for (size_t i = 0; i < c->n_layers; i++) {
        char name[64];
        (void)snprintf(name, sizeof name, "blk.%zu.attn_v.weight", i);
        if (is_windowed(r, i, c->n_layers)) c->layers[i].head_dim = small;
        c->layers[i].k_is_v = i + c->n_shared < c->n_layers && !has_tensor(r->g, name);
    }
}

/* Layers without a router have a dense block, and those of Gemma 4 have one beside the experts.
 * llama.cpp divides the weights of the chosen experts by their sum, whatever the family. */
static void read_experts(reader *r, skv_config *c)
{
    size_t n_experts = get_size(r, "expert_count", 0);
    bool is_mixture =
        r->f->mixture && !r->f->dense_too && strcmp(r->f->mixture, r->f->model_type) == 0;
    if (is_mixture) n_experts = need_size(r, "expert_count");
    if (r->status != SKV_OK || (n_experts <= 1 && !is_mixture)) return;
    if (!r->f->mixture || n_experts == 0) {
        refuse(r, SKV_UNSUPPORTED, "%s.expert_count: %zu is not supported", r->f->gguf, n_experts);
        return;
    }
    (void)snprintf(c->architecture, sizeof c->architecture, "%s", r->f->mixture);
    c->n_active = need_size(r, "expert_used_count");
    c->norm_topk = true;
    if (r->f->sigmoid_eps > 0) read_sigmoids(r, c);
    c->router_bias = has_tensor(r->g, "blk.0.ffn_gate_inp.bias");
    c->expert_bias = has_tensor(r->g, "blk.0.ffn_gate_exps.bias");
    for (size_t i = 0; i < c->n_layers; i++) {
        char name[64];
        (void)snprintf(name, sizeof name, "blk.%zu.ffn_gate%s.weight", i,
                       r->f->dense_too ? "_inp" : "");
        if (has_tensor(r->g, name) != r->f->dense_too) continue;
        if (is_gemma4(c)) c->layers[i].ffn_beside = c->layers[i].ffn;
        c->layers[i].n_experts = n_experts;
        c->layers[i].ffn = get_size(r, "expert_feed_forward_length", c->layers[i].ffn);
        (void)snprintf(name, sizeof name, "blk.%zu.ffn_up_shexp.weight", i);
        if (!has_tensor(r->g, name)) continue;
        (void)snprintf(name, sizeof name, "blk.%zu.ffn_gate_inp_shexp.weight", i);
        c->shared_plain = !has_tensor(r->g, name);
        c->layers[i].ffn_shared =
            get_size(r, "expert_shared_feed_forward_length", c->layers[i].ffn);
    }
}

/* Something is divided by each of them here. */
static double positive(reader *r, const char *key)
{
    const double value = get_double(r, key, 1.0);
    if (!(value > 0.0)) {
        refuse(r, SKV_RANGE, "%s.%s: %g, expected a positive number", r->f->gguf, key, value);
    }
    return value > 0.0 ? value : 1.0;
}

static void read_multipliers(reader *r, skv_config *c)
{
    if (!get(r, "logit_scale")) refuse(r, SKV_FORMAT, "%s.logit_scale: missing", r->f->gguf);
    skv_config_set_multipliers(c, positive(r, "embedding_scale"), positive(r, "residual_scale"),
                               positive(r, "logit_scale"));
}

/* Refuses features of the file that this library does not support. */
static void refuse_others(reader *r)
{
    const bool may_turn = r->f->multipliers && !r->f->mamba;
    const skv_gguf_value *turns = may_turn ? get(r, "rope.scaling.finetuned") : NULL;
    const skv_gguf_value *sections = get(r, "rope.dimension_sections");
    bool does_turn = true;
    if (turns && r->status == SKV_OK) keep(r, skv_gguf_bool(turns, &does_turn, r->err));
    const bool hybrid =
        r->f->attention_period > 0; /* positions of text are alike in all sections */
    const bool is_mrope = !hybrid && sections && is_integer_array(sections) &&
                          sections->count >= 2 && skv_gguf_integer_at(sections, 0) > 0 &&
                          skv_gguf_integer_at(sections, 1) > 0;
    const size_t n_extra = leaves_extra_out(r) ? 0 : n_extra_layers(r);
    const char *key = !does_turn ? "rope.scaling.finetuned: false (no rotation)"
                      : is_mrope ? "rope.dimension_sections: rotation by several positions"
                      : n_extra  ? "nextn_predict_layers: layers that predict further tokens"
                                 : NULL;
    if (!key || r->status != SKV_OK) return;
    refuse(r, SKV_UNSUPPORTED, "%s.%s: not supported", r->f->gguf, key);
}

static void read_choices(reader *r, skv_config *c)
{
    c->norm_eps = get_double(r, "attention.layer_norm_rms_epsilon", 1e-6);
    c->attention_scale = get_double(r, "attention.scale", 1.0 / sqrt((double)c->head_dim));
    c->embedding_scale = 1.0;
    c->qkv_bias = has_tensor(r->g, "blk.0.attn_q.bias") || has_tensor(r->g, "blk.0.attn_qkv.bias");
    c->o_bias = has_tensor(r->g, "blk.0.attn_output.bias");
    c->mlp_bias = has_tensor(r->g, "blk.0.ffn_gate.bias");
    c->qk_norm = r->f->qk_norm;
    c->tied = !has_tensor(r->g, "output.weight");
    c->activation = r->f->gemma ? SKV_ACT_GELU_TANH : r->f->single ? SKV_ACT_RELU2 : SKV_ACT_SILU;
    c->single_blocks = r->f->single;
    c->qk_norm_joined = c->no_pre_norms = r->f->olmo;
    c->post_norms = r->f->olmo || r->f->glm || r->f->gemma;
    if (r->f->multipliers) read_multipliers(r, c);
    if (strcmp(c->architecture, "gpt_oss") == 0) {
        c->sinks = true;
        c->activation = SKV_ACT_SWIGLU_CLAMPED;
        c->swiglu_limit = 7.0; /* llama.cpp's: the file lacks it */
        c->swiglu_alpha = 1.702;
    }
    if (!r->f->gemma) return;
    bool capped = strcmp(c->architecture, "gemma2") == 0;
    c->attention_softcap = get_double(r, "attn_logit_softcapping", capped ? 50.0 : 0.0);
    c->final_softcap = get_double(r, "final_logit_softcapping", capped ? 30.0 : 0.0);
    c->attention_scale = gemma_scale(r, c);
    c->embedding_scale = gemma_embedding_scale(r->g, "token_embd.weight", c->hidden);
    if (is_gemma4(c)) read_gemma4(r, c);
}

/* The file names one end of an answer; the others are known by their names, as llama.cpp does. */
static void add_gemma4_ends(reader *r, skv_config *c)
{
    static const char *const ends[] = {"<eos>", "<turn|>", "<|tool_response>"};
    const skv_gguf_value *tokens = skv_gguf_find(r->g, "tokenizer.ggml.tokens");
    size_t n = 0, n_text;
    if (!tokens || r->status != SKV_OK) return;
    keep(r, skv_gguf_array(tokens, SKV_GGUF_STRING, &n, r->err));
    for (size_t i = 0; r->status == SKV_OK && i < n; i++) {
        const char *text = skv_gguf_string_at(tokens, i, &n_text);
        for (size_t k = 0; k < sizeof ends / sizeof *ends; k++) {
            if (strlen(ends[k]) == n_text && memcmp(ends[k], text, n_text) == 0)
                skv_config_add_eos(c, (int64_t)i);
        }
    }
}

static void read_ids(reader *r, skv_config *c)
{
    static const char *const ends[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    int64_t id = -1;
    const skv_gguf_value *v = skv_gguf_find(r->g, "tokenizer.ggml.bos_token_id");
    if (v && r->status == SKV_OK) keep(r, skv_gguf_i64(v, &id, r->err));
    skv_config_set_bos(c, id);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        v = skv_gguf_find(r->g, ends[i]);
        id = -1;
        if (v && r->status == SKV_OK) keep(r, skv_gguf_i64(v, &id, r->err));
        skv_config_add_eos(c, id);
    }
    if (is_gemma4(c)) add_gemma4_ends(r, c);
}

static void read_sizes(reader *r, skv_config *c)
{
    c->hidden = need_size(r, "embedding_length");
    c->context = need_size(r, "context_length");
    read_layers(r, c);
    if (r->status != SKV_OK) return;
    size_t n_heads = c->layers[0].n_heads;
    c->head_dim = get_size(r, "attention.key_length", n_heads ? c->hidden / n_heads : 0);
    size_t value_length = get_size(r, "attention.value_length", c->head_dim);
    if (value_length != c->head_dim) {
        refuse(r, SKV_UNSUPPORTED, "%s.attention.value_length: %zu, expected %zu", r->f->gguf,
               value_length, c->head_dim);
    }
    const skv_tensor *embedding = skv_gguf_tensor_find(r->g, "token_embd.weight");
    if (embedding) {
        c->vocab = embedding->dims[0];
    } else {
        refuse(r, SKV_FORMAT, "token_embd.weight: missing");
    }
    read_experts(r, c);
}

/* A part of a model that was read from memory would lack most of its tensors. */
static skv_status refuse_part(const skv_gguf *g, skv_error *err)
{
    const skv_gguf_value *v = skv_gguf_find(g, "split.count");
    uint64_t count = 0;
    if (v) SKV_TRY(skv_gguf_u64(v, &count, err));
    SKV_REQUIRE(count <= 1 || count == skv_gguf_part_count(g), err, SKV_UNSUPPORTED,
                "%s: split.count: %llu: the other parts of the model are not there",
                skv_gguf_name(g), (unsigned long long)count);
    return SKV_OK;
}

static skv_status find_family(const skv_gguf *g, const family **out, skv_error *err)
{
    const skv_gguf_value *v = skv_gguf_find(g, "general.architecture");
    SKV_REQUIRE(v, err, SKV_FORMAT, "%s: general.architecture: missing", skv_gguf_name(g));
    const char *text;
    size_t n = 0;
    SKV_TRY(skv_gguf_string(v, &text, &n, err));
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        *out = &families[i];
        if (strlen((*out)->gguf) == n && memcmp((*out)->gguf, text, n) == 0) return SKV_OK;
    }
    const char *why = skv_family_refusal(text, n);
    return skv_fail(err, SKV_UNSUPPORTED, "%s: general.architecture: %.*s is not supported%s%s",
                    skv_gguf_name(g), (int)(n < 60 ? n : 60), text, why ? ": " : "",
                    why ? why : "");
}

skv_status skv_config_from_gguf(const skv_gguf *g, skv_config *out, skv_error *err)
{
    reader r = {.g = g, .err = err};
    SKV_TRY(find_family(g, &r.f, err));
    SKV_TRY(refuse_part(g, err));
    skv_config c = {.bos = -1, .gguf = r.f->gguf};
    (void)snprintf(c.architecture, sizeof c.architecture, "%s", r.f->model_type);
    read_sizes(&r, &c);
    if (r.status == SKV_OK) {
        refuse_others(&r);
        read_choices(&r, &c);
        read_windows(&r, &c);
        read_ropes(&r, &c);
        read_ids(&r, &c);
    }
    c.kv_layers = c.n_layers;
    c.kv_group = 1;
    if (r.status == SKV_OK) keep(&r, skv_config_check(&c, skv_gguf_name(g), err));
    if (r.status != SKV_OK) {
        skv_config_release(&c);
        return r.status;
    }
    *out = c;
    return SKV_OK;
}
