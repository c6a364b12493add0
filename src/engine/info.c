/* The shape of a model and the cost of a token, from its configuration alone. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/size.h"
#include "common/sampling_fields.h"
#include "engine/engine.h"
#include "format/coded.h"
#include "skv/tools.h"

/* A configuration, with the files that it describes where there are any. */
typedef struct model_view {
    skv_source *source; /* owned or NULL */
    skv_config *bare;   /* owned or NULL: of a preset, or of a folder without weights */
    const skv_config *config;
    skv_source *auxiliary_source; /* owned or NULL, and so is the next */
    skv_config *auxiliary_preset;
    const skv_config *auxiliary; /* NULL: no KV Prediction */
} model_view;

static const char PRESET_PREFIX[] = "preset:";

static skv_status open_auxiliary(const char *path, model_view *view, skv_error *err)
{
    if (!view->config->kv_prediction) return SKV_OK;
    if (view->bare) {
        const char *name = path + sizeof PRESET_PREFIX - 1;
        SKV_TRY(skv_preset_auxiliary(name, view->config, &view->auxiliary_preset, err));
        view->auxiliary = view->auxiliary_preset;
    } else {
        char *folder = skv_path_join(path, view->config->auxiliary);
        skv_status status = folder ? skv_source_open(folder, &view->auxiliary_source, err)
                                   : skv_fail(err, SKV_MEMORY, "%s: no memory", path);
        skv_free(folder);
        SKV_TRY(status);
        view->auxiliary = skv_source_config(view->auxiliary_source);
    }
    return skv_kvpred_check(view->config, view->auxiliary, path, err);
}

const char *skv_preset_of(const char *path)
{
    const size_t n = sizeof PRESET_PREFIX - 1;
    return strncmp(path, PRESET_PREFIX, n) == 0 ? path + n : NULL;
}

/* A folder that has config.json and no weights, unless it is a part of a model in several. */
static skv_status read_bare(const char *path, skv_config **out, skv_error *err)
{
    skv_config *config = skv_alloc_zero(1, sizeof *config);
    SKV_REQUIRE(config, err, SKV_MEMORY, "%s: no memory", path);
    const skv_status status = skv_config_read(path, config, err);
    if (status == SKV_OK && !config->kv_prediction && !config->base[0]) {
        *out = config;
    } else {
        skv_preset_free(config);
    }
    return status;
}

skv_status skv_model_files_open(const char *path, skv_source **source, skv_config **bare,
                                skv_error *err)
{
    if (skv_file_is_folder(path) && !skv_safetensors_are_in(path)) {
        SKV_TRY(read_bare(path, bare, err));
        if (*bare) return SKV_OK;
    }
    return skv_source_open(path, source, err);
}

static skv_status view_model(const char *path, model_view *view, skv_error *err)
{
    *view = (model_view){0};
    const char *preset = skv_preset_of(path);
    if (preset) {
        SKV_TRY(skv_preset_config(preset, 0, 0, &view->bare, err));
    } else {
        SKV_TRY(skv_model_files_open(path, &view->source, &view->bare, err));
    }
    view->config = view->bare ? view->bare : skv_source_config(view->source);
    return SKV_OK;
}

static void view_close(model_view *view)
{
    skv_source_close(view->source);
    skv_preset_free(view->bare);
    skv_source_close(view->auxiliary_source);
    skv_preset_free(view->auxiliary_preset);
}

static skv_status view_open(const char *path, model_view *view, skv_error *err)
{
    skv_status status = view_model(path, view, err);
    if (status == SKV_OK) status = open_auxiliary(path, view, err);
    if (status != SKV_OK) view_close(view);
    return status;
}

static skv_status check_swiftkv(const skv_config *c, const char *path, size_t l, size_t g,
                                skv_error *err)
{
    SKV_REQUIRE(l >= 1 && l <= c->n_layers, err, SKV_RANGE, "%s: kv-layers %zu, expected 1 to %zu",
                path, l, c->n_layers);
    SKV_REQUIRE(!c->v_norm || l == c->n_layers, err, SKV_UNSUPPORTED,
                "%s: kv-layers %zu: SwiftKV does not fit %s", path, l, c->architecture);
    SKV_REQUIRE(c->n_shared == 0 || l == c->n_layers, err, SKV_UNSUPPORTED,
                "%s: kv-layers %zu: its last %zu layers share keys and values already", path, l,
                c->n_shared);
    SKV_REQUIRE(g >= 1 && (c->n_layers - l) % g == 0, err, SKV_RANGE,
                "%s: group %zu does not divide the %zu layers from %zu on", path, g,
                c->n_layers - l, l);
    if (!skv_config_is_hybrid(c) || l == c->n_layers) return SKV_OK;
    skv_config form = *c; /* some families have no such form */
    form.swiftkv = true;
    form.kv_layers = l;
    form.kv_group = g;
    return skv_config_check(&form, path, err);
}

/* True when layer i makes its own K and V, with SwiftKV from layer l in groups of g. */
static bool owns_kv(const skv_config *c, size_t i, size_t l, size_t g)
{
    if (!skv_config_attends(c, i)) return false;
    if (i < l) return skv_config_donor(c, i) == i;
    return (i - l) % g == 0;
}

/* How far back the layers see that read the slot of layer i; 0: all the way. */
static size_t slot_window(const skv_config *c, size_t i, size_t l, size_t g)
{
    size_t window = c->layers[i].window;
    for (size_t j = i + 1; window > 0 && i >= l && j < i + g; j++) {
        window = c->layers[j].window > 0 ? skv_max_size(window, c->layers[j].window) : 0;
    }
    return window;
}

static bool layers_differ(const skv_config *c)
{
    for (size_t i = 1; i < c->n_layers; i++) {
        if (c->layers[i].n_heads != c->layers[0].n_heads ||
            c->layers[i].n_kv_heads != c->layers[0].n_kv_heads ||
            c->layers[i].ffn != c->layers[0].ffn ||
            skv_config_head_dim(c, i) != skv_config_head_dim(c, 0)) {
            return true;
        }
    }
    return false;
}

/* Weights and biases of the feed-forward block of a layer, with n of its experts. */
static uint64_t block_parameters(const skv_config *c, size_t i, size_t n)
{
    const skv_layer_shape *s = &c->layers[i];
    const uint64_t D = c->hidden, F = s->ffn, E = s->n_experts, bias = 2 * F + D;
    if (E == 0) return skv_config_block_weights(c, i) + (c->mlp_bias && F > 0 ? bias : 0);
    /* beside a dense block: three norms, the router's norm and the experts' scales */
    const uint64_t beside = s->ffn_beside > 0 ? 4 * D + E : 0;
    const uint64_t others =
        skv_config_block_weights(c, i) - c->n_active * skv_config_expert_weights(c, i);
    return others + beside + (c->router_bias ? E : 0) + (c->choice_bias ? E : 0) +
           n * (skv_config_expert_weights(c, i) + (c->expert_bias ? bias : 0));
}

/* Norms of a layer. */
static uint64_t n_norms(const skv_config *c, size_t i)
{
    if (c->post_norms && !c->no_pre_norms) return 4;
    return (c->layers[i].mixer != SKV_MIXER_NONE ? 1u : 0u) + (c->layers[i].ffn > 0 ? 1u : 0u);
}

/* Weights of one layer, norms and biases included. */
static uint64_t layer_parameters(const skv_config *c, size_t i, size_t l, size_t g)
{
    const skv_layer_shape *s = &c->layers[i];
    const uint64_t D = c->hidden, P = c->per_layer, Dh = skv_config_head_dim(c, i);
    const uint64_t q = skv_config_q_columns(c, i), kv = skv_config_kv_columns(c, i);
    uint64_t n = n_norms(c, i) * D + block_parameters(c, i, s->n_experts) +
                 skv_config_state_weights(c, i) + skv_config_mixer_numbers(c, i);
    if (!skv_config_attends(c, i)) return n;
    n += (c->attention_gate ? 3 : 2) * q * D;
    if (P > 0) n += 2 * P * D + D + P * D; /* gate, projection, norm; and its part of the one */
    if (c->qkv_bias) n += q;
    if (c->sinks) n += s->n_heads;
    if (c->qk_norm) n += c->qk_norm_joined ? q : Dh;
    if (c->o_bias) n += D;
    if (!owns_kv(c, i, l, g)) return n;
    if (c->qk_norm) n += c->qk_norm_joined ? s->n_kv_heads * Dh : Dh;
    return n + kv * D + (c->qkv_bias ? kv : 0);
}

/* Of one layer, in f32: its matrices, and the last inputs of its convolution. */
static void add_state_bytes(const skv_config *c, size_t i, skv_model_info *out)
{
    const skv_mixer_shape *m = &c->mixer;
    const size_t matrices = sizeof(float) * skv_mixer_value_columns(m) * m->key_dim;
    out->state_layers++;
    out->matrix_bytes += matrices;
    out->state_bytes +=
        matrices + sizeof(float) * (m->conv_rows - 1) * skv_config_conv_columns(c, i);
}

/* Values that no sampler takes are as good as absent. */
static void describe_sampling(const skv_config *c, skv_model_info *out)
{
    out->sampling = skv_sampling_default();
    if (!c->has_sampling) return;
    skv_sampling own = out->sampling;
    own.temperature = c->temperature;
    own.top_k = c->top_k;
    own.top_p = c->top_p;
    own.repetition_penalty = c->repetition_penalty;
    out->has_sampling = skv_sampling_check(&own, NULL) == SKV_OK;
    if (out->has_sampling) out->sampling = own;
}

/* original_max_position_embeddings is the length before a scaling; without one, the length itself.
 */
static size_t trained_context(const skv_config *c)
{
    const skv_rope *rope = &c->ropes[0];
    const size_t original = rope->original_context;
    if (original == 0) return c->context;
    if (rope->scaling == SKV_ROPE_PLAIN) return skv_min_size(original, c->context);
    if (rope->scaling != SKV_ROPE_YARN) return c->context;
    const double stretched = rope->factor * (double)original;
    return stretched < (double)SIZE_MAX / 2 ? skv_max_size(c->context, (size_t)stretched)
                                            : c->context;
}

static void describe(const skv_config *c, size_t l, size_t g, bool swiftkv, skv_model_info *out)
{
    *out = (skv_model_info){.layers = c->n_layers,
                            .hidden = c->hidden,
                            .head_dim = skv_config_head_dim(c, 0),
                            .vocab = c->vocab,
                            .context = c->context,
                            .trained = trained_context(c),
                            .heads = c->layers[0].n_heads,
                            .kv_heads = c->layers[0].n_kv_heads,
                            .ffn = c->layers[0].ffn,
                            .per_layer = layers_differ(c),
                            .tied = c->tied,
                            .traits = skv_model_traits_of(c, NULL),
                            .swiftkv = swiftkv,
                            .swiftkv_layers = l,
                            .group = g};
    describe_sampling(c, out);
    if (swiftkv) out->traits.kind = g > 1 ? SKV_MODEL_ACROSSKV : SKV_MODEL_SWIFTKV;
    if (swiftkv && skv_config_is_hybrid(c)) out->traits.kind = SKV_MODEL_HYBRID_SWIFTKV;
    if (out->traits.exit_head) out->exit_words = c->exit_words > 0 ? c->exit_words : c->vocab;
    if (swiftkv) out->traits.exit_head = true; /* random weights, where one is requested */
    memcpy(out->architecture, c->architecture, sizeof out->architecture);
    out->parameters = (uint64_t)c->vocab * c->hidden * (c->tied ? 1 : 2) + c->hidden;
    if (swiftkv && l < c->n_layers) out->parameters += c->hidden; /* norm_swiftkv */
    if (c->per_layer) out->parameters += (c->vocab * c->n_layers + 1) * (uint64_t)c->per_layer;
    uint64_t idle = 0;
    for (size_t i = 0; i < c->n_layers; i++) {
        out->parameters += layer_parameters(c, i, l, g);
        if (skv_config_keeps_state(c, i)) add_state_bytes(c, i, out);
        out->experts = skv_max_size(out->experts, c->layers[i].n_experts);
        idle +=
            block_parameters(c, i, c->layers[i].n_experts) - block_parameters(c, i, c->n_active);
        if (!owns_kv(c, i, l, g)) continue;
        out->kv_slots++;
        const uint64_t n = 2 * (uint64_t)c->layers[i].n_kv_heads * skv_config_head_dim(c, i);
        const size_t window = slot_window(c, i, l, g);
        out->kv_elements += n;
        out->kv_window_elements += window > 0 ? n : 0;
        out->kv_window = skv_max_size(out->kv_window, window);
    }
    out->active_experts = out->experts ? c->n_active : 0;
    out->active_parameters = out->parameters - idle;
}

static void add_auxiliary(const model_view *view, skv_model_info *out)
{
    skv_model_info auxiliary;
    if (!view->auxiliary) return;
    describe(view->auxiliary, view->auxiliary->n_layers, 1, false, &auxiliary);
    out->kv_prediction = true;
    out->auxiliary_layers = auxiliary.layers;
    out->auxiliary_parameters = auxiliary.parameters;
    out->auxiliary_kv_elements = auxiliary.kv_elements;
    out->predictor_parameters = skv_kvpred_parameters(view->config, view->auxiliary);
}

/* Each form once, in the order of the tensors, as far as there is room. */
static void tell_codes(const skv_source *source, skv_model_info *out)
{
    size_t n = 0;
    for (size_t i = 0; source && i < skv_source_count(source); i++) {
        const skv_tensor *t = skv_source_at(source, i);
        char text[100], line[160];
        if (!t->coded.layout) continue;
        skv_coded_text(t, text, sizeof text);
        const char *held =
            !skv_tensor_form(t) ? "held as bf16 or int8, which rounds them" : "held as published";
        const int length = snprintf(line, sizeof line, "%s: %s", text, held);
        if (length < 0 || strstr(out->codes, line)) continue;
        const int written =
            snprintf(out->codes + n, sizeof out->codes - n, "%s%s", n > 0 ? "; " : "", line);
        if (written < 0 || (size_t)written >= sizeof out->codes - n) break; /* cut: it is full */
        n += (size_t)written;
    }
}

static void tell_stored(const skv_source *source, skv_model_info *out)
{
    size_t numbers[SKV_DTYPE_COUNT] = {0}, n = 0;
    for (size_t i = 0; source && i < skv_source_count(source); i++) {
        const skv_tensor *t = skv_source_at(source, i);
        if (!t->coded.layout) numbers[t->type]++;
    }
    for (size_t i = 0; i < SKV_DTYPE_COUNT; i++) {
        if (numbers[i] == 0) continue;
        const int written = snprintf(out->stored + n, sizeof out->stored - n, "%s%s (%zu)",
                                     n > 0 ? ", " : "", skv_dtype_name((skv_dtype)i), numbers[i]);
        if (written < 0 || (size_t)written >= sizeof out->stored - n) break; /* cut: it is full */
        n += (size_t)written;
    }
}

skv_status skv_model_info_read(const char *path, skv_model_info *out, skv_error *err)
{
    model_view view;
    SKV_TRY(view_open(path, &view, err));
    describe(view.config, view.config->kv_layers, view.config->kv_group, view.config->swiftkv, out);
    out->traits = skv_model_traits_of(view.config, view.source);
    add_auxiliary(&view, out);
    out->mtp = view.source && skv_source_has_mtp(view.source);
    tell_codes(view.source, out);
    tell_stored(view.source, out);
    view_close(&view);
    return SKV_OK;
}

skv_status skv_model_info_swiftkv(const char *path, size_t l, size_t g, skv_model_info *out,
                                  skv_error *err)
{
    model_view view;
    SKV_TRY(view_open(path, &view, err));
    skv_status status = check_swiftkv(view.config, path, l, g, err);
    if (status == SKV_OK) describe(view.config, l, g, true, out);
    view_close(&view);
    return status;
}

/* Bytes of n elements of K and V. */
static size_t kv_bytes(const skv_model_info *info, skv_kv kv, size_t n)
{
    switch (kv) {
    case SKV_KV_F32: return n * 4;
    case SKV_KV_FP8:
    case SKV_KV_INT8: return n + n / info->head_dim; /* a byte of scale for each row of a head */
    default: return n * 2;
    }
}

size_t skv_model_kv_bytes_per_token(const skv_model_info *info, skv_kv kv)
{
    return kv_bytes(info, kv, (size_t)info->kv_elements);
}

size_t skv_model_kv_bytes(const skv_model_info *info, skv_kv kv, size_t n_tokens)
{
    const size_t n_windowed = (size_t)info->kv_window_elements;
    return info->state_bytes +
           n_tokens * kv_bytes(info, kv, (size_t)info->kv_elements - n_windowed) +
           skv_min_size(n_tokens, info->kv_window) * kv_bytes(info, kv, n_windowed);
}

/* Rows that the average token of a prompt of T tokens sees. */
static double average_visible(size_t window, size_t T)
{
    double t = (double)T, w = (double)window;
    if (window == 0 || window >= T) return (t + 1) / 2;
    return (w * (w + 1) / 2 + (t - w) * w) / t;
}

/* Of a layer that keeps a state; no row comes out of one that SwiftKV's boundary feeds. */
static void add_state_cost(const skv_config *c, size_t i, bool fed, skv_cost *out)
{
    const skv_mixer_shape *m = &c->mixer;
    const double D = (double)c->hidden, keys = (double)skv_mixer_key_columns(m);
    const double values = (double)skv_mixer_value_columns(m);
    out->attention += skv_config_state_work(c, i, !fed);
    if (c->layers[i].mixer == SKV_MIXER_CONV) {
        out->kv += 6 * D * D;
        out->o += 2 * D * D;
        return;
    }
    out->kv += 2 * D * (keys + values + (double)skv_config_gate_columns(c, i));
    if (fed) return;
    out->q += 2 * D * (keys + values);
    out->o += 2 * D * values;
}

static void add_layer_cost(const skv_config *c, size_t i, size_t l, size_t g, size_t context,
                           skv_cost *out)
{
    const skv_layer_shape *s = &c->layers[i];
    double D = (double)c->hidden, q = (double)skv_config_q_columns(c, i);
    double kv = (double)skv_config_kv_columns(c, i);
    if (owns_kv(c, i, l, g)) out->kv += 2 * D * kv;
    if (skv_config_keeps_state(c, i)) add_state_cost(c, i, i >= l, out);
    if (i >= l) return;
    out->q += 2 * D * (c->attention_gate ? 2 * q : q);
    out->o += 2 * D * q;
    out->mlp += 2 * ((double)skv_config_block_weights(c, i) + 3 * D * (double)c->per_layer);
    out->attention += 4 * q * average_visible(s->window, context);
}

skv_status skv_model_cost(const char *path, size_t l, size_t g, size_t context, skv_cost *out,
                          skv_error *err)
{
    model_view view;
    SKV_TRY(view_open(path, &view, err));
    const skv_config *c = view.config;
    skv_status status = check_swiftkv(c, path, l, g, err);
    if (status == SKV_OK) {
        *out = (skv_cost){.vocabulary = 2 * (double)c->hidden * (double)c->vocab};
        for (size_t i = 0; i < c->n_layers; i++) add_layer_cost(c, i, l, g, context, out);
        out->total = out->vocabulary + out->kv + out->q + out->o + out->mlp + out->attention;
    }
    view_close(&view);
    return status;
}

skv_status skv_kvpred_cost(const char *path, size_t context, skv_cost *auxiliary, double *predictor,
                           skv_error *err)
{
    model_view view;
    SKV_TRY(view_open(path, &view, err));
    const skv_config *c = view.auxiliary;
    skv_status status =
        c ? SKV_OK : skv_fail(err, SKV_ARGUMENT, "%s: it has no auxiliary model", path);
    if (status == SKV_OK) {
        *auxiliary = (skv_cost){0};
        for (size_t i = 0; i < c->n_layers; i++) {
            add_layer_cost(c, i, c->n_layers - 1, 1, context, auxiliary);
        }
        auxiliary->total =
            auxiliary->kv + auxiliary->q + auxiliary->o + auxiliary->mlp + auxiliary->attention;
        *predictor = 2 * (double)skv_kvpred_parameters(view.config, c);
    }
    view_close(&view);
    return status;
}
