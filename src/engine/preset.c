/* Presets: the shapes of published models, to be filled with random weights for measuring. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "engine/engine.h"
#include "format/config_build.h"
#include "prefill/layer_maps.h"

/* The additions of Gemma 4: the head of full layers is 512. */
typedef struct gemma4_shape {
    const char *name;
    size_t period; /* every n-th layer sees all rows */
    size_t n_shared, window;
    bool wide;         /* the layers that share keys and values have twice the block */
    size_t per_layer;  /* the embeddings' width in a layer */
    size_t full_heads; /* KV heads of full layers, whose V is K; 0: as the others */
    size_t beside;     /* F of the dense block beside the experts */
} gemma4_shape;

static const gemma4_shape gemma4_shapes[] = {{"gemma-4-e2b", 5, 20, 512, true, 256, 0, 0},
                                             {"gemma-4-e4b", 6, 18, 512, false, 256, 0, 0},
                                             {"gemma-4-12b", 6, 0, 1024, false, 0, 1, 0},
                                             {"gemma-4-31b", 6, 0, 1024, false, 0, 4, 0},
                                             {"gemma-4-26b-a4b", 6, 0, 1024, false, 0, 2, 2112},
                                             {"gemma-4-26b-a4b-6", 6, 0, 1024, false, 0, 2, 2112}};

/* The additions of Qwen 3.5 and 3.6: all layers but each fourth keep a state. */
typedef struct delta_shape {
    const char *name;
    size_t n_value_heads; /* of 128; there are 16 key heads */
    size_t shared;        /* F of the expert that every token meets; 0: the block is dense */
} delta_shape;

static const delta_shape delta_shapes[] = {
    {"qwen3.5-0.8b", 16, 0},  {"qwen3.5-2b", 16, 0},        {"qwen3.6-27b", 48, 0},
    {"qwen3.6-27b-8", 48, 0}, {"qwen3.6-35b-a3b", 32, 512}, {"qwen3.6-35b-a3b-8", 32, 512}};

enum { TIED = 1, BIAS = 2 /* of q, k and v */, NORM = 4 /* of q and k */ };

typedef struct preset {
    const char *name, *architecture;
    size_t layers, hidden, heads, kv_heads, head_dim, ffn, vocab, context;
    double theta;
    unsigned flags;
    double llama3_factor;   /* of Llama 3's RoPE scaling; 0: plain RoPE */
    size_t experts, active; /* 0: dense; else ffn is the width of an expert */
} preset;

/* From the models' published configurations. */
static const preset presets[] = {
    {"llama-3.2-1b", "llama", 16, 2048, 32, 8, 64, 8192, 128256, 131072, 5e5, TIED, 32, 0, 0},
    {"llama-3.2-3b", "llama", 28, 3072, 24, 8, 128, 8192, 128256, 131072, 5e5, TIED, 32, 0, 0},
    {"llama-3.1-8b", "llama", 32, 4096, 32, 8, 128, 14336, 128256, 131072, 5e5, 0, 8, 0, 0},
    {"llama-3.1-70b", "llama", 80, 8192, 64, 8, 128, 28672, 128256, 131072, 5e5, 0, 8, 0, 0},
    {"llama-3.1-405b", "llama", 126, 16384, 128, 8, 128, 53248, 128256, 131072, 5e5, 0, 8, 0, 0},
    {"llama-2-7b", "llama", 32, 4096, 32, 32, 128, 11008, 32000, 4096, 1e4, 0, 0, 0, 0},
    {"mistral-7b", "mistral", 32, 4096, 32, 8, 128, 14336, 32768, 32768, 1e6, 0, 0, 0, 0},
    {"smollm2-135m", "llama", 30, 576, 9, 3, 64, 1536, 49152, 8192, 1e5, TIED, 0, 0, 0},
    {"smollm2-360m", "llama", 32, 960, 15, 5, 64, 2560, 49152, 8192, 1e5, TIED, 0, 0, 0},
    {"smollm2-1.7b", "llama", 24, 2048, 32, 32, 64, 8192, 49152, 8192, 1.3e5, TIED, 0, 0, 0},
    {"qwen2.5-0.5b", "qwen2", 24, 896, 14, 2, 64, 4864, 151936, 32768, 1e6, TIED | BIAS, 0, 0, 0},
    {"qwen2.5-1.5b", "qwen2", 28, 1536, 12, 2, 128, 8960, 151936, 32768, 1e6, TIED | BIAS, 0, 0, 0},
    {"qwen2.5-7b", "qwen2", 28, 3584, 28, 4, 128, 18944, 152064, 32768, 1e6, BIAS, 0, 0, 0},
    {"qwen2.5-14b", "qwen2", 48, 5120, 40, 8, 128, 13824, 152064, 32768, 1e6, BIAS, 0, 0, 0},
    {"qwen3-0.6b", "qwen3", 28, 1024, 16, 8, 128, 3072, 151936, 40960, 1e6, TIED | NORM, 0, 0, 0},
    {"qwen3-8b", "qwen3", 36, 4096, 32, 8, 128, 12288, 151936, 40960, 1e6, NORM, 0, 0, 0},
    {"qwen3-30b-a3b", "qwen3_moe", 48, 2048, 32, 4, 128, 768, 151936, 40960, 1e6, NORM, 0, 128, 8},
    /* Of which 8 layers, for machines that do not hold it. */
    {"qwen3-30b-a3b-8", "qwen3_moe", 8, 2048, 32, 4, 128, 768, 151936, 40960, 1e6, NORM, 0, 128, 8},
    {"qwen3-235b-a22b", "qwen3_moe", 94, 4096, 64, 4, 128, 1536, 151936, 40960, 1e6, NORM, 0, 128,
     8},
    /* 0.8B: from the config.json of oopere/Qwen3.5-0.65B-Base-Rearchitected, which was cut from it,
     * and the block count in ggml's files. 2B: llama.cpp confirms the 24 layers; its width, heads
     * and F are as remembered, and no file was at hand to check them. */
    {"qwen3.5-0.8b", "qwen3_5_text", 24, 1024, 8, 2, 256, 3584, 248320, 262144, 1e7, TIED | NORM, 0,
     0, 0},
    {"qwen3.5-2b", "qwen3_5_text", 24, 2048, 8, 2, 256, 6144, 248320, 262144, 1e7, TIED | NORM, 0,
     0, 0},
    {"qwen3.6-27b", "qwen3_5_text", 64, 5120, 24, 4, 256, 17408, 248320, 262144, 1e7, NORM, 0, 0,
     0},
    {"qwen3.6-27b-8", "qwen3_5_text", 8, 5120, 24, 4, 256, 17408, 248320, 262144, 1e7, NORM, 0, 0,
     0},
    {"qwen3.6-35b-a3b", "qwen3_5_moe_text", 40, 2048, 16, 2, 256, 512, 248320, 262144, 1e7, NORM, 0,
     256, 8},
    {"qwen3.6-35b-a3b-8", "qwen3_5_moe_text", 8, 2048, 16, 2, 256, 512, 248320, 262144, 1e7, NORM,
     0, 256, 8},
    {"mixtral-8x7b", "mixtral", 32, 4096, 32, 8, 128, 14336, 32000, 32768, 1e6, 0, 0, 8, 2},
    {"gemma-4-e2b", "gemma4_text", 35, 1536, 8, 1, 256, 6144, 262144, 131072, 1e6, TIED | NORM, 0,
     0, 0},
    {"gemma-4-e4b", "gemma4_text", 42, 2560, 8, 2, 256, 10240, 262144, 131072, 1e6, TIED | NORM, 0,
     0, 0},
    {"gemma-4-12b", "gemma4_text", 48, 3840, 16, 8, 256, 15360, 262144, 262144, 1e6, TIED | NORM, 0,
     0, 0},
    {"gemma-4-31b", "gemma4_text", 60, 5376, 32, 16, 256, 21504, 262144, 262144, 1e6, TIED | NORM,
     0, 0, 0},
    {"gemma-4-26b-a4b", "gemma4_text", 30, 2816, 16, 8, 256, 704, 262144, 262144, 1e6, TIED | NORM,
     0, 128, 8},
    {"gemma-4-26b-a4b-6", "gemma4_text", 6, 2816, 16, 8, 256, 704, 262144, 262144, 1e6, TIED | NORM,
     0, 128, 8},
    {"gpt-oss-20b", "gpt_oss", 24, 2880, 64, 8, 64, 2880, 201088, 131072, 1.5e5, BIAS, 0, 32, 4},
    {"gpt-oss-20b-8", "gpt_oss", 8, 2880, 64, 8, 64, 2880, 201088, 131072, 1.5e5, BIAS, 0, 32, 4},
    {"gpt-oss-120b", "gpt_oss", 36, 2880, 64, 8, 64, 2880, 201088, 131072, 1.5e5, BIAS, 0, 128, 4},
    /* recipes/mini. */
    {"mini", "llama", 12, 192, 6, 3, 32, 640, 3072, 8192, 5e4, TIED | BIAS, 0, 0, 0},
    /* Heads and FFN widths of OpenELM grow with depth: those of the last layer. */
    {"openelm-270m", "openelm", 16, 1280, 20, 5, 64, 5120, 32000, 2048, 1e4, TIED | NORM, 0, 0, 0},
    {"openelm-450m", "openelm", 20, 1536, 24, 6, 64, 6144, 32000, 2048, 1e4, TIED | NORM, 0, 0, 0},
    {"openelm-1.1b", "openelm", 28, 2048, 32, 8, 64, 8192, 32000, 2048, 1e4, TIED | NORM, 0, 0, 0},
    {"openelm-3b", "openelm", 36, 3072, 24, 6, 128, 12288, 32000, 2048, 1e4, TIED | NORM, 0, 0, 0},
    /* Small enough to read its whole context of 128K tokens in a minute. */
    {"tiny-128k", "llama", 2, 128, 4, 2, 32, 256, 512, 131072, 5e5, TIED, 0, 0, 0},
};

enum { N_PRESETS = sizeof presets / sizeof *presets };

const char *skv_preset_name(size_t i)
{
    return i < N_PRESETS ? presets[i].name : NULL;
}

static void fill_rope(skv_rope *rope, const preset *p)
{
    *rope = (skv_rope){.theta = p->theta, .n_rot = p->head_dim, .factor = 1, .attention_factor = 1};
    if (p->llama3_factor == 0) return;
    rope->scaling = SKV_ROPE_LLAMA3;
    rope->factor = p->llama3_factor;
    rope->low_freq_factor = 1;
    rope->high_freq_factor = 4;
    rope->original_context = 8192;
}

static void fill_gemma4(skv_config *c, const gemma4_shape *shape)
{
    for (size_t i = 0; i < c->n_layers; i++) {
        skv_layer_shape *l = &c->layers[i];
        const bool windowed = (i + 1) % shape->period != 0;
        l->window = windowed ? shape->window : 0;
        l->i_rope = windowed;
        l->head_dim = windowed ? 256 : 512;
        if (shape->wide && i + shape->n_shared >= c->n_layers) l->ffn *= 2;
        l->ffn_beside = shape->beside;
        l->k_is_v = !windowed && shape->full_heads > 0;
        if (l->k_is_v) l->n_kv_heads = shape->full_heads;
    }
    c->ropes[1].theta = 1e4;
    c->ropes[0].n_rot = 512;
    skv_rope_set_proportional(&c->ropes[0], 64, 1);
    c->head_dim = 512;
    c->n_shared = shape->n_shared;
    c->per_layer = shape->per_layer;
    c->per_layer_scale = 16;
    c->embedding_scale = skv_gemma_embedding_scale(c->hidden, "bfloat16");
    c->attention_scale = 1;
    c->final_softcap = 30;
    c->norm_eps = 1e-6;
    c->activation = SKV_ACT_GELU_TANH;
    c->post_norms = c->v_norm = c->layer_scalar = true;
}

static void fill_delta(skv_config *c, const delta_shape *shape)
{
    for (size_t i = 0; i < c->n_layers; i++) {
        c->layers[i].mixer = (i + 1) % 4 == 0 ? SKV_MIXER_ATTENTION : SKV_MIXER_DELTA;
        c->layers[i].ffn_shared = shape->shared;
    }
    c->norm_eps = 1e-6;
    c->norm_offset_one = c->attention_gate = true;
    c->ropes[0].n_rot = c->head_dim / 4;
    c->mixer = (skv_mixer_shape){.n_key_heads = 16,
                                 .n_value_heads = shape->n_value_heads,
                                 .key_dim = 128,
                                 .value_dim = 128,
                                 .conv_rows = 4,
                                 .norm_eps = c->norm_eps,
                                 .write_max = 1};
}

/* The additions of gpt-oss beside its sizes. */
static void fill_gpt_oss(skv_config *c)
{
    skv_rope_default_yarn(&c->ropes[0]);
    c->o_bias = c->router_bias = c->expert_bias = c->sinks = true;
    c->activation = SKV_ACT_SWIGLU_CLAMPED;
    c->swiglu_limit = 7;
    c->swiglu_alpha = 1.702;
    for (size_t i = 0; i < c->n_layers; i += 2) c->layers[i].window = 128;
}

static void fill_config(skv_config *c, const preset *p)
{
    *c = (skv_config){.n_layers = p->layers,
                      .hidden = p->hidden,
                      .head_dim = p->head_dim,
                      .vocab = p->vocab,
                      .context = p->context,
                      .layers = c->layers,
                      .norm_eps = 1e-5,
                      .qkv_bias = p->flags & BIAS,
                      .qk_norm = p->flags & NORM,
                      .tied = p->flags & TIED,
                      .n_active = p->active,
                      .norm_topk = true,
                      .attention_scale = 1 / sqrt((double)p->head_dim),
                      .embedding_scale = 1,
                      .kv_layers = p->layers,
                      .kv_group = 1,
                      .bos = -1};
    memcpy(c->architecture, p->architecture, strlen(p->architecture) + 1);
    for (size_t i = 0; i < p->layers; i++) {
        c->layers[i] = (skv_layer_shape){
            .n_heads = p->heads, .n_kv_heads = p->kv_heads, .ffn = p->ffn, .n_experts = p->experts};
    }
    for (size_t i = 0; strcmp(p->architecture, "openelm") == 0 && i < p->layers; i++) {
        c->norm_eps = 1e-6;
        skv_openelm_shape(c, i, &c->layers[i]);
    }
    fill_rope(&c->ropes[0], p);
    if (strcmp(p->architecture, "gpt_oss") == 0) fill_gpt_oss(c);
    for (size_t i = 0; i < sizeof delta_shapes / sizeof *delta_shapes; i++) {
        if (strcmp(delta_shapes[i].name, p->name) == 0) fill_delta(c, &delta_shapes[i]);
    }
    c->ropes[1] = c->ropes[0];
    for (size_t i = 0; i < sizeof gemma4_shapes / sizeof *gemma4_shapes; i++) {
        if (strcmp(gemma4_shapes[i].name, p->name) == 0) fill_gemma4(c, &gemma4_shapes[i]);
    }
}

/* The preset of the first n characters of a name. */
static const preset *find_preset(const char *name, size_t n)
{
    for (size_t i = 0; i < N_PRESETS; i++) {
        const char *known = presets[i].name;
        if (strlen(known) == n && memcmp(known, name, n) == 0) return &presets[i];
    }
    return NULL;
}

static skv_config *create_config(size_t n_layers, skv_error *err)
{
    skv_config *c = skv_alloc_zero(1, sizeof *c);
    if (c) c->layers = skv_alloc_zero(n_layers, sizeof *c->layers);
    if (c && c->layers) return c;
    skv_free(c);
    (void)skv_fail(err, SKV_MEMORY, "preset: no memory for %zu layers", n_layers);
    return NULL;
}

/* "BASE+AUXILIARY": which of the auxiliary's layers predicts which of the base's. */
static skv_status set_prediction(skv_config *c, const char *name, skv_error *err)
{
    uint16_t kept[SKV_LAYERS_MAX];
    size_t quarters = skv_kvpred_quarters(name);
    c->kv_prediction = true;
    memcpy(c->auxiliary, "auxiliary", sizeof "auxiliary");
    if (quarters) {
        size_t n = skv_kvpred_kept(c->n_layers, quarters, kept);
        skv_kvpred_map_pruned(c->n_layers, kept, n, c->kvp_layers);
        return SKV_OK;
    }
    const preset *p = find_preset(name, strlen(name));
    SKV_REQUIRE(p, err, SKV_ARGUMENT,
                "preset: unknown auxiliary \"%s\", expected a preset or lp-0.25, lp-0.50, lp-0.75",
                name);
    SKV_REQUIRE(p->layers <= c->n_layers, err, SKV_ARGUMENT,
                "preset: the auxiliary %s has %zu layers, more than the base's %zu", name,
                p->layers, c->n_layers);
    skv_kvpred_map_canonical(c->n_layers, p->layers, c->kvp_layers);
    return SKV_OK;
}

/* A copy of the base without the layers that are pruned. */
static skv_status prune(const skv_config *base, size_t quarters, skv_config **out, skv_error *err)
{
    uint16_t kept[SKV_LAYERS_MAX];
    size_t n = skv_kvpred_kept(base->n_layers, quarters, kept);
    skv_config *c = skv_alloc(1, sizeof *c);
    SKV_REQUIRE(c, err, SKV_MEMORY, "preset: no memory for %zu layers", n);
    skv_status status = skv_kept_layers_config(base, kept, n, c, err);
    if (status == SKV_OK) {
        *out = c;
    } else {
        skv_free(c);
    }
    return status;
}

skv_status skv_preset_auxiliary(const char *name, const skv_config *base, skv_config **out,
                                skv_error *err)
{
    const char *auxiliary = strchr(name, '+') + 1;
    size_t quarters = skv_kvpred_quarters(auxiliary);
    if (quarters) return prune(base, quarters, out, err);
    return skv_preset_config(auxiliary, 0, 0, out, err);
}

skv_status skv_preset_config(const char *name, size_t kv_layers, size_t group, skv_config **out,
                             skv_error *err)
{
    const char *plus = strchr(name, '+');
    const preset *p = find_preset(name, plus ? (size_t)(plus - name) : strlen(name));
    SKV_REQUIRE(p, err, SKV_ARGUMENT,
                "preset: unknown name \"%s\" (bench --preset list names them)", name);
    SKV_REQUIRE(!plus || kv_layers == 0, err, SKV_UNSUPPORTED,
                "preset: \"%s\": KV Prediction with a SwiftKV base (--kv-layers)", name);
    skv_config *c = create_config(p->layers, err);
    if (!c) return SKV_MEMORY;
    fill_config(c, p);
    if (kv_layers > 0) {
        c->swiftkv = true;
        c->kv_layers = kv_layers;
        c->kv_group = group ? group : 1;
        size_t n = strlen(c->architecture);
        memcpy(c->architecture + n, "_swiftkv", sizeof "_swiftkv");
    }
    skv_status status = plus ? set_prediction(c, plus + 1, err) : SKV_OK;
    if (status == SKV_OK) status = skv_config_check(c, name, err);
    if (status != SKV_OK) {
        skv_preset_free(c);
        return status;
    }
    *out = c;
    return SKV_OK;
}

void skv_preset_free(skv_config *config)
{
    if (!config) return;
    skv_config_release(config);
    skv_free(config);
}
