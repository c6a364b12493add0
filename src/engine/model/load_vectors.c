/* The tensors of a source as a model must have them, and its small vectors, in one area: see
 * load_impl.h. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "model/load_impl.h"

bool skv_load_is_swiftkv(const skv_loader *ld, size_t i)
{
    return ld->config->swiftkv && i >= ld->config->kv_layers;
}

static uint64_t hash_name(const char *name, uint64_t seed)
{
    uint64_t hash = skv_mix64(seed);
    for (; *name; name++) hash = skv_mix64(hash ^ (unsigned char)*name);
    return hash;
}

/* The matrix of "name.weight" or "name.bias" with the shape it must have. */
skv_status skv_load_find_matrix(const skv_loader *ld, const char *name, size_t n_rows,
                                size_t n_columns, skv_matrix *out, skv_error *err)
{
    *out = (skv_matrix){.n_rows = n_rows, .n_columns = n_columns};
    if (!ld->source) {
        bool is_norm = strstr(name, "norm") || strstr(name, "scale");
        out->seed = hash_name(name, ld->options->seed);
        out->center = is_norm && !ld->config->norm_offset_one ? 1 : 0;
        out->scale = is_norm ? 0.1f : 0.035f;
        return SKV_OK;
    }
    const skv_tensor *t = skv_source_find(ld->source, name);
    const char *path = skv_source_path(ld->source);
    SKV_REQUIRE(t, err, SKV_FORMAT, "%s: tensor %s is missing", path, name);
    size_t rows = skv_tensor_rows(t), columns = skv_tensor_columns(t);
    bool vector = n_rows == 1 && t->n_dims == 1;
    SKV_REQUIRE(columns == n_columns && (vector || (t->n_dims == 2 && rows == n_rows)), err,
                SKV_FORMAT, "%s: %s: shape [%zu, %zu], expected [%zu, %zu]", path, name, rows,
                columns, n_rows, n_columns);
    out->tensor = t;
    return SKV_OK;
}

/* A vector `name` of n_all numbers, whole: those from `first` on are moved to its beginning. */
skv_status skv_load_read_vector(const skv_loader *ld, const char *name, size_t first, size_t n_all,
                                float **out, skv_error *err)
{
    skv_matrix vector;
    SKV_TRY(skv_load_find_matrix(ld, name, 1, n_all, &vector, err));
    float *host = skv_alloc(n_all, sizeof *host);
    SKV_REQUIRE(host, err, SKV_MEMORY, "weights: no memory for %s", name);
    skv_status status = skv_matrix_fetch_row(&vector, 0, host, err);
    if (status != SKV_OK) {
        skv_free(host);
        return status;
    }
    memmove(host, host + first, (n_all - first) * sizeof *host);
    *out = host;
    return SKV_OK;
}

typedef struct vector_cursor {
    skv_vec next;
    size_t n_left; /* floats */
} vector_cursor;

static skv_mapped map_vector(const skv_loader *ld, skv_vec vec, size_t n, skv_map_access access)
{
    const skv_rows row = {ld->model->vectors, vec.at, n};
    return ld->be->map(ld->be, row, 1, n, access);
}

/* Numbers [first, first + n) of a vector of `part`. */
static skv_status load_part_of(const skv_loader *ld, vector_cursor *cursor, const char *name,
                               const skv_ranks_ids *ids, skv_vec *out, skv_error *err)
{
    float *host = NULL;
    SKV_TRY(skv_load_read_vector(ld, name, ids->first, ids->part, &host, err));
    assert(ids->n <= cursor->n_left);
    const skv_mapped to = map_vector(ld, cursor->next, ids->n, SKV_MAP_WRITE);
    memcpy(to.at, host, ids->n * sizeof *host);
    ld->be->unmap(ld->be, to);
    skv_free(host);
    *out = cursor->next;
    cursor->next.at += ids->n;
    cursor->n_left -= ids->n;
    return SKV_OK;
}

static skv_status load_vector(const skv_loader *ld, vector_cursor *cursor, const char *name,
                              size_t n, skv_vec *out, skv_error *err)
{
    return load_part_of(ld, cursor, name, &(skv_ranks_ids){0, n, n}, out, err);
}

/* A vector that was loaded. */
static void divide_vector(const skv_loader *ld, skv_vec vector, size_t n, double divisor)
{
    const skv_mapped host = map_vector(ld, vector, n, SKV_MAP_BOTH);
    for (size_t i = 0; i < n; i++) host.at[i] = (float)((double)host.at[i] / divisor);
    ld->be->unmap(ld->be, host);
}

static skv_status load_layer_vector(const skv_loader *ld, vector_cursor *cursor, size_t i,
                                    const char *what, size_t n, skv_vec *out, skv_error *err)
{
    char name[SKV_LOAD_NAME_BYTES];
    (void)snprintf(name, sizeof name, "model.layers.%zu.%s.weight", i, what);
    return load_vector(ld, cursor, name, n, out, err);
}

static skv_status load_head_norms(const skv_loader *ld, vector_cursor *cursor, size_t i,
                                  skv_layer *layer, skv_error *err)
{
    const skv_config *c = ld->config;
    if (!c->qk_norm) return SKV_OK;
    const size_t n_q = skv_config_head_dim(c, i) * (c->qk_norm_joined ? c->layers[i].n_heads : 1);
    const size_t n_k =
        skv_config_head_dim(c, i) * (c->qk_norm_joined ? c->layers[i].n_kv_heads : 1);
    if (!skv_load_is_swiftkv(ld, i) || ld->options->teacher) {
        SKV_TRY(load_layer_vector(ld, cursor, i, "self_attn.q_norm", n_q, &layer->own.q_norm, err));
        if (skv_config_donor(c, i) == i) {
            SKV_TRY(
                load_layer_vector(ld, cursor, i, "self_attn.k_norm", n_k, &layer->own.k_norm, err));
        }
    }
    if (!skv_load_is_swiftkv(ld, i) || !ld->options->student) return SKV_OK;
    SKV_TRY(load_layer_vector(ld, cursor, i, "self_attn.q_norm_swiftkv", n_q,
                              &layer->stacked.q_norm, err));
    if ((i - c->kv_layers) % c->kv_group != 0) return SKV_OK;
    return load_layer_vector(ld, cursor, i, "self_attn.k_norm_swiftkv", n_k, &layer->stacked.k_norm,
                             err);
}

/* The number that a layer ends with; GGUF may leave it out. */
static skv_status load_scalar(const skv_loader *ld, size_t i, float *out, skv_error *err)
{
    char name[SKV_LOAD_NAME_BYTES];
    skv_matrix matrix;
    (void)snprintf(name, sizeof name, "model.layers.%zu.layer_scalar.weight", i);
    if (!ld->source || !skv_source_find(ld->source, name)) return SKV_OK;
    SKV_TRY(skv_load_find_matrix(ld, name, 1, 1, &matrix, err));
    return skv_matrix_fetch_row(&matrix, 0, out, err);
}

/* A number for each of a layer's experts. */
static skv_status load_expert_numbers(const skv_loader *ld, vector_cursor *cursor, size_t i,
                                      const char *what, skv_vec *out, skv_error *err)
{
    const size_t E = ld->config->layers[i].n_experts;
    SKV_TRY(load_layer_vector(ld, cursor, i, what, E, out, err));
    const skv_mapped numbers = map_vector(ld, *out, E, SKV_MAP_READ);
    size_t e = 0;
    while (e < E && isfinite(numbers.at[e])) e++;
    const double first = e < E ? (double)numbers.at[e] : 0;
    ld->be->unmap(ld->be, numbers);
    SKV_REQUIRE(e == E, err, SKV_FORMAT,
                "model.layers.%zu.%s.weight: expert %zu: %g, expected finite weights", i, what, e,
                first);
    return SKV_OK;
}

/* The norms around the experts, which only Gemma 4 has. Its router's input is normed without a
 * weight, then multiplied by a vector and by 1 / sqrt(D): one norm. */
static skv_status load_expert_norms(const skv_loader *ld, vector_cursor *cursor, size_t i,
                                    skv_layer *layer, skv_error *err)
{
    const skv_config *c = ld->config;
    const size_t D = c->hidden;
    layer->router_norm = layer->expert_norm = layer->ffn_norm;
    if (c->layers[i].n_experts > 0 && c->choice_bias) {
        SKV_TRY(load_expert_numbers(ld, cursor, i, "mlp.choice_bias", &layer->choice_bias, err));
    }
    if (c->layers[i].ffn_beside == 0) return SKV_OK;
    SKV_TRY(load_layer_vector(ld, cursor, i, "pre_feedforward_layernorm_2", D, &layer->expert_norm,
                              err));
    SKV_TRY(load_layer_vector(ld, cursor, i, "post_feedforward_layernorm_1", D,
                              &layer->post_dense_norm, err));
    SKV_TRY(load_layer_vector(ld, cursor, i, "post_feedforward_layernorm_2", D,
                              &layer->post_expert_norm, err));
    SKV_TRY(load_layer_vector(ld, cursor, i, "router.norm", D, &layer->router_norm, err));
    divide_vector(ld, layer->router_norm, D, sqrt((double)D));
    return load_expert_numbers(ld, cursor, i, "router.expert_scale", &layer->expert_scale, err);
}

/* How fast the heads of layer i forget: -exp(A_log), which GGUF has done already. */
static skv_status load_rate(const skv_loader *ld, vector_cursor *cursor, size_t i, bool fed,
                            skv_vec *out, skv_error *err)
{
    const size_t n = ld->config->mixer.n_value_heads;
    char name[SKV_LOAD_NAME_BYTES];
    (void)snprintf(name, sizeof name, "model.layers.%zu.linear_attn.rate", i);
    const bool ready = !fed && ld->source && skv_source_find(ld->source, name); /* GGUF */
    if (!ready) {
        (void)snprintf(name, sizeof name, "model.layers.%zu.linear_attn.A_log%s", i,
                       fed ? "_swiftkv" : "");
    }
    SKV_TRY(load_vector(ld, cursor, name, n, out, err));
    const skv_mapped rate = map_vector(ld, *out, n, SKV_MAP_BOTH);
    bool falls = true;
    for (size_t h = 0; h < n; h++) {
        if (!ready) rate.at[h] = -expf(rate.at[h]);
        falls = falls && rate.at[h] <= 0 && isfinite(rate.at[h]);
    }
    ld->be->unmap(ld->be, rate);
    SKV_REQUIRE(falls, err, SKV_FORMAT, "%s: a state would grow without bounds", name);
    return SKV_OK;
}

/* Channels of a convolution as a file has them: those from c0 on, then those from c1 on. */
typedef struct channels {
    size_t c0, n0, c1, n1;
} channels;

/* Numbers [*, K] of some channels, tap by tap; K is 1 for their biases. */
static skv_vec put_channels(const skv_loader *ld, vector_cursor *cursor, const float *numbers,
                            size_t K, channels which)
{
    const size_t n = which.n0 + which.n1;
    const skv_vec out = cursor->next;
    assert(n * K <= cursor->n_left);
    const skv_mapped to = map_vector(ld, out, n * K, SKV_MAP_WRITE);
    for (size_t k = 0; k < K; k++) {
        float *tap = to.at + k * n;
        for (size_t c = 0; c < which.n0; c++) tap[c] = numbers[(which.c0 + c) * K + k];
        tap += which.n0;
        for (size_t c = 0; c < which.n1; c++) tap[c] = numbers[(which.c1 + c) * K + k];
    }
    ld->be->unmap(ld->be, to);
    cursor->next.at += n * K;
    cursor->n_left -= n * K;
    return out;
}

/* Rows of a convolution's weights, to out [n, K]. */
static skv_status read_rows(const skv_loader *ld, const char *name, size_t n, float *out,
                            skv_error *err)
{
    skv_matrix matrix;
    SKV_TRY(skv_load_find_matrix(ld, name, n, ld->config->mixer.conv_rows, &matrix, err));
    SKV_TRY(skv_matrix_check(&matrix, err));
    skv_matrix_read(&matrix, 0, n, out);
    return skv_matrix_check(&matrix, err);
}

/* The same of q, k and v, each of which has a tensor (OLMo Hybrid), to out [C, K]. */
static skv_status read_parted(const skv_loader *ld, size_t i, float *out, skv_error *err)
{
    const skv_mixer_shape *m = &ld->config->mixer;
    for (size_t part = 0; part < 3; part++) {
        const size_t n = part < 2 ? skv_mixer_key_columns(m) : skv_mixer_value_columns(m);
        char name[SKV_LOAD_NAME_BYTES];
        (void)snprintf(name, sizeof name, "model.layers.%zu.linear_attn.%c_conv1d.weight", i,
                       "qkv"[part]);
        SKV_TRY(read_rows(ld, name, n, out, err));
        out += n * m->conv_rows;
    }
    return SKV_OK;
}

/* The weights [C, K] of a convolution, for skv_free. */
static skv_status read_taps(const skv_loader *ld, size_t i, const char *what, float **out,
                            skv_error *err)
{
    const size_t C = skv_config_conv_columns(ld->config, i), K = ld->config->mixer.conv_rows;
    char name[SKV_LOAD_NAME_BYTES];
    (void)snprintf(name, sizeof name, "model.layers.%zu.%s.weight", i, what);
    float *host = skv_alloc(C * K, sizeof *host);
    SKV_REQUIRE(host, err, SKV_MEMORY, "weights: no memory for %s", name);
    const bool whole = !ld->source || skv_source_find(ld->source, name);
    const skv_status status =
        whole ? read_rows(ld, name, C, host, err) : read_parted(ld, i, host, err);
    if (status == SKV_OK) {
        *out = host;
    } else {
        skv_free(host);
    }
    return status;
}

static skv_status load_conv(const skv_loader *ld, vector_cursor *cursor, size_t i,
                            skv_conv_layer *conv, skv_error *err)
{
    float *taps;
    SKV_TRY(read_taps(ld, i, "conv.conv", &taps, err));
    conv->taps = put_channels(ld, cursor, taps, ld->config->mixer.conv_rows,
                              (channels){.n0 = ld->config->hidden});
    skv_free(taps);
    return SKV_OK;
}

/* Taps and biases of q, and of k and v. Files of Mamba-2 have x, B, C, which are v, k, q. */
static skv_status load_channels(const skv_loader *ld, vector_cursor *cursor, size_t i, bool fed,
                                skv_delta *delta, skv_error *err)
{
    const bool mamba = skv_config_is_mamba(ld->config, i);
    const skv_mixer_shape *m = &ld->config->mixer;
    const size_t n_k = skv_mixer_key_columns(m), n_v = skv_mixer_value_columns(m), K = m->conv_rows;
    const channels q = {.c0 = mamba ? n_v + n_k : 0, .n0 = n_k};
    const channels kv = {mamba ? n_v : n_k, n_k, mamba ? 0 : 2 * n_k, n_v};
    float *numbers;
    SKV_TRY(
        read_taps(ld, i, fed ? "linear_attn.conv1d_swiftkv" : "linear_attn.conv1d", &numbers, err));
    delta->conv_q = put_channels(ld, cursor, numbers, K, q);
    delta->conv_kv = put_channels(ld, cursor, numbers, K, kv);
    skv_free(numbers);
    if (!mamba || !m->conv_bias) return SKV_OK;
    char name[SKV_LOAD_NAME_BYTES];
    (void)snprintf(name, sizeof name, "model.layers.%zu.linear_attn.conv1d%s.bias", i,
                   fed ? "_swiftkv" : "");
    SKV_TRY(skv_load_read_vector(ld, name, 0, skv_mixer_conv_columns(m), &numbers, err));
    delta->conv_q_bias = put_channels(ld, cursor, numbers, 1, q);
    delta->conv_kv_bias = put_channels(ld, cursor, numbers, 1, kv);
    skv_free(numbers);
    return SKV_OK;
}

/* A number for each value head. */
static skv_status load_heads(const skv_loader *ld, vector_cursor *cursor, size_t i,
                             const char *what, skv_vec *out, skv_error *err)
{
    char name[SKV_LOAD_NAME_BYTES];
    (void)snprintf(name, sizeof name, "model.layers.%zu.linear_attn.%s", i, what);
    return load_vector(ld, cursor, name, ld->config->mixer.n_value_heads, out, err);
}

/* The vectors of a layer's state, as SwiftKV has them or the model itself. Norm and skip are the
 * model's. */
static skv_status load_delta(const skv_loader *ld, vector_cursor *cursor, size_t i, bool fed,
                             skv_delta *delta, skv_error *err)
{
    const skv_mixer_shape *m = &ld->config->mixer;
    const bool mamba = skv_config_is_mamba(ld->config, i);
    const size_t n_norm = mamba ? skv_mixer_value_columns(m) : m->value_dim;
    SKV_TRY(load_channels(ld, cursor, i, fed, delta, err));
    if (!m->no_norm) {
        SKV_TRY(load_layer_vector(ld, cursor, i, "linear_attn.norm", n_norm, &delta->norm, err));
    }
    SKV_TRY(load_heads(ld, cursor, i, fed ? "dt_bias_swiftkv" : "dt_bias", &delta->dt_bias, err));
    if (mamba) SKV_TRY(load_heads(ld, cursor, i, "D", &delta->skip, err));
    return load_rate(ld, cursor, i, fed, &delta->rate, err);
}

static skv_status load_deltas(const skv_loader *ld, vector_cursor *cursor, size_t i,
                              skv_layer *layer, skv_error *err)
{
    const bool deep = skv_load_is_swiftkv(ld, i);
    if (!deep || ld->options->teacher) {
        SKV_TRY(load_delta(ld, cursor, i, false, &layer->delta, err));
    }
    if (!deep || !ld->options->student) return SKV_OK;
    return load_delta(ld, cursor, i, true, &layer->fed, err);
}

static skv_status load_layer_norms(const skv_loader *ld, vector_cursor *cursor, size_t i,
                                   skv_error *err)
{
    const skv_config *c = ld->config;
    skv_layer *layer = &ld->model->layers[i];
    size_t D = c->hidden;
    const bool mixes = c->layers[i].mixer != SKV_MIXER_NONE, posts = skv_config_post_normed(c, i);
    if (skv_config_pre_normed(c, i) && mixes) {
        SKV_TRY(load_layer_vector(ld, cursor, i, "input_layernorm", D, &layer->attn_norm, err));
    }
    skv_vec *second = posts ? &layer->post_attn_norm : &layer->ffn_norm;
    if (c->layers[i].ffn > 0) {
        SKV_TRY(load_layer_vector(ld, cursor, i, "post_attention_layernorm", D, second, err));
    }
    if (posts) {
        if (!c->no_pre_norms) {
            SKV_TRY(load_layer_vector(ld, cursor, i, "pre_feedforward_layernorm", D,
                                      &layer->ffn_norm, err));
        }
        SKV_TRY(load_layer_vector(ld, cursor, i, "post_feedforward_layernorm", D,
                                  &layer->post_ffn_norm, err));
    }
    SKV_TRY(load_expert_norms(ld, cursor, i, layer, err));
    layer->scale = 1;
    if (c->layer_scalar) SKV_TRY(load_scalar(ld, i, &layer->scale, err));
    if (c->per_layer > 0) {
        SKV_TRY(load_layer_vector(ld, cursor, i, "post_per_layer_input_norm", D,
                                  &layer->post_embed_norm, err));
    }
    if (c->sinks) {
        char name[SKV_LOAD_NAME_BYTES];
        (void)snprintf(name, sizeof name, "model.layers.%zu.self_attn.sinks", i);
        const size_t n = c->layers[i].n_heads;
        const skv_ranks *ranks = ld->options->ranks;
        const skv_ranks_ids heads = {skv_ranks_rank(ranks) * n, n, skv_ranks_size(ranks) * n};
        SKV_TRY(load_part_of(ld, cursor, name, &heads, &layer->sinks, err));
    }
    if (c->layers[i].mixer == SKV_MIXER_CONV) return load_conv(ld, cursor, i, &layer->conv, err);
    if (skv_config_keeps_state(c, i)) SKV_TRY(load_deltas(ld, cursor, i, layer, err));
    return skv_config_attends(c, i) ? load_head_norms(ld, cursor, i, layer, err) : SKV_OK;
}

/* The final norm, divided by the divisor of the logits. */
static skv_status make_head_norm(skv_loader *ld, vector_cursor *cursor, skv_error *err)
{
    skv_model *model = ld->model;
    const size_t n = ld->config->hidden;
    skv_vec norm;
    SKV_TRY(load_vector(ld, cursor, "model.norm.weight", n, &norm, err));
    divide_vector(ld, norm, n, ld->config->logit_divisor);
    model->head_norm = norm;
    return SKV_OK;
}

skv_status skv_load_vectors(skv_loader *ld, skv_error *err)
{
    const skv_config *c = ld->config;
    skv_model *model = ld->model;
    size_t n = (c->mtp ? 5 : 3) * c->hidden + c->per_layer;
    for (size_t i = 0; i < c->n_layers; i++) {
        const size_t n_heads = c->qk_norm_joined ? c->layers[i].n_heads : 1;
        n += (c->layers[i].ffn_beside > 0 ? 9 : 5) * c->hidden + 4 * n_heads * c->head_dim;
        n += 2 * c->layers[i].n_experts;
        if (c->sinks) n += c->layers[i].n_heads;
        if (!skv_config_keeps_state(c, i)) continue;
        n += (skv_load_is_swiftkv(ld, i) ? 2 : 1) * skv_config_mixer_numbers(c, i);
    }
    const skv_area_spec spec = {.kind = SKV_AREA_F32, .n_rows = 1, .n_columns = n, .lasts = true};
    SKV_TRY(ld->be->areas_create(ld->be, &spec, 1, &model->vectors, err));
    vector_cursor cursor = {{model->vectors, 0}, n};
    for (size_t i = 0; i < c->n_layers; i++) SKV_TRY(load_layer_norms(ld, &cursor, i, err));
    if (c->swiftkv && c->kv_layers < c->n_layers && ld->options->student) {
        SKV_TRY(load_vector(ld, &cursor, "model.norm_swiftkv.weight", c->hidden, &model->stack.norm,
                            err));
    }
    if (c->per_layer > 0) {
        SKV_TRY(load_vector(ld, &cursor, "model.per_layer_projection_norm.weight", c->per_layer,
                            &model->embed_norm, err));
    }
    for (size_t i = 0; c->mtp && i < 2; i++) {
        static const char *const names[] = {"mtp.pre_fc_norm_embedding.weight",
                                            "mtp.pre_fc_norm_hidden.weight"};
        SKV_TRY(load_vector(ld, &cursor, names[i], c->hidden, &model->mtp_norms[i], err));
    }
    SKV_TRY(load_vector(ld, &cursor, "model.norm.weight", c->hidden, &model->final_norm, err));
    model->head_norm = model->final_norm;
    return c->logit_divisor != 0.0 ? make_head_norm(ld, &cursor, err) : SKV_OK;
}
