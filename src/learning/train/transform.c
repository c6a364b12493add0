/*
 * The SwiftKV transform: any supported model to a checkpoint in the published SwiftKV layout,
 * initialised as its authors do (before any training):
 *     norm_swiftkv              the input norm of layer l
 *     q_proj_swiftkv, layer i   a copy of the layer's own q_proj
 *     k,v_proj_swiftkv          of a group's first layer: the mean over the group's layers
 *     of a layer with a state   copies of all that makes the state: the projections of q, k, v, a
 *                               and b, the convolution, A_log and dt_bias
 * or in closed form, where k and v (and a and b) are first fitted to their new input (ridge.h). The
 * model's own
 * projections stay in the file: the teacher can still be run from it.
 *
 * Also makes a model without some of its layers (layer_maps.h), written the same way, and a SwiftKV
 * model whose exit head keeps only some rows (exit_words.h). LoRA adapters are added to any of
 * these matrices, or to a model that keeps its form.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/size.h"
#include "format/companions.h"
#include "format/config.h"
#include "format/dtype.h"
#include "format/safetensors.h"
#include "format/source.h"
#include "prefill/layer_maps.h"
#include "skv/tools.h"
#include "train/exit_words.h"
#include "train/merge.h"
#include "train/ridge.h"

#define EXIT_HEAD "lm_head_swiftkv.weight"
#define EXIT_IDS "lm_head_swiftkv.ids"

enum { NAME_BYTES = 128, CONFIG_BYTES_MAX = 16 << 20, FIT_ROWS = 64 };

struct transform;

/* A tensor to write: the mean of one or more tensors of the source. */
typedef struct mean_tensor {
    struct transform *of; /* borrowed */
    char name[NAME_BYTES];
    const skv_tensor **from; /* owned, [n_from] */
    size_t n_from;
    float offset; /* added to every element: -1 for Gemma's norms from GGUF */

    /* Keys and values in closed form: the tensors are fitted before they are averaged. */
    const skv_ridge *ridge;  /* borrowed; NULL: copied */
    size_t i_layer;          /* of the first of `from` */
    const skv_tensor **read; /* owned, [n_from]: of biases, the weights beside them; else NULL */
} mean_tensor;

typedef struct transform {
    const skv_source *source;
    const skv_ridge *ridge; /* borrowed; NULL: projections are copied */
    skv_kept_layers choice;
    const skv_kept_layers *kept; /* `choice`; NULL: all layers */
    const skv_exit_words *words; /* borrowed; NULL: the exit head is not cut */
    bool keeps_form;             /* but for adapters, or for the exit head's rows */
    skv_adapters adapters;       /* that are added to the source's matrices */
    skv_config config;           /* the source's, with l and g; layers are borrowed */
    skv_layer_shape *layers;     /* owned: those of `kept`; or NULL */
    mean_tensor *tensors;        /* owned, [n_max] */
    skv_tensor_out *outs;        /* owned, [n_max] */
    size_t n, n_max;
    const skv_transform_options *options; /* borrowed */
    size_t n_written;
} transform;

/* Reports progress: by the text if a fit reads one, else by the tensors. */
static void tell_written(transform *t)
{
    t->n_written++;
    if (!t->options->progress || t->ridge) return;
    t->options->progress(t->options->user, (double)t->n_written / (double)t->n);
}

/* Returns the type in which a tensor is written: its own, or bf16 if it is quantised. */
static skv_dtype written_type(const skv_tensor *t)
{
    const bool stays =
        t->type == SKV_DTYPE_F32 || t->type == SKV_DTYPE_F16 || t->type == SKV_DTYPE_I32; /* ids */
    return stays ? t->type : SKV_DTYPE_BF16;
}

/* Adds a fit's share to a mean of biases: sum [n], the share of tensor i. */
static skv_status add_bias_fit(const mean_tensor *m, size_t i, float *sum, skv_error *err)
{
    const skv_tensor *w = m->read[i];
    size_t n = skv_tensor_rows(w), D = skv_tensor_columns(w);
    float *rows = skv_alloc(FIT_ROWS * D, sizeof *rows);
    SKV_REQUIRE(rows, err, SKV_MEMORY, "%s: no memory for %d rows", m->name, FIT_ROWS);
    skv_status status = SKV_OK;
    for (size_t row = 0; row < n; row += FIT_ROWS) {
        size_t n_rows = skv_min_size(FIT_ROWS, n - row);
        status = skv_tensor_read_checked(w, row, n_rows, rows, err);
        if (status != SKV_OK) break;
        skv_ridge_add_bias(m->ridge, m->i_layer + i, rows, n_rows, 1.0f / (float)m->n_from,
                           sum + row);
    }
    skv_free(rows);
    return status;
}

/* Rows [row0, row0 + n) of the mean. Rows of a vector: the whole of it is one row. */
static skv_status mean_rows(void *arg, size_t row0, size_t n, unsigned char *out, skv_error *err)
{
    const mean_tensor *m = arg;
    const skv_tensor *first = m->from[0];
    size_t n_elements = n * skv_tensor_columns(first);
    float *sum = skv_alloc_zero(n_elements, sizeof *sum);
    float *rows = skv_alloc(n_elements, sizeof *rows);
    skv_status status = SKV_OK;
    if (!sum || !rows) {
        status = skv_fail(err, SKV_MEMORY, "%s: no memory for %zu rows", m->name, n);
    }
    for (size_t i = 0; status == SKV_OK && i < m->n_from; i++) {
        status = skv_tensor_read_checked(m->from[i], row0, n, rows, err);
        if (status == SKV_OK) {
            status = skv_merge_rows(&m->of->adapters, m->from[i]->name, row0, n, rows, err);
        }
        if (status != SKV_OK) break;
        for (size_t j = 0; j < n_elements; j++) rows[j] /= (float)m->n_from;
        for (size_t j = 0; j < n_elements; j++) sum[j] += rows[j];
        if (m->ridge && m->read) {
            status = add_bias_fit(m, i, sum, err);
        } else if (m->ridge) {
            skv_ridge_add(m->ridge, m->i_layer + i, rows, n, sum);
        }
    }
    if (status == SKV_OK) {
        for (size_t j = 0; m->offset != 0.0f && j < n_elements; j++) sum[j] += m->offset;
        skv_dtype_from_f32(written_type(first), out, sum, n_elements);
        if (row0 + n == skv_tensor_rows(first)) tell_written(m->of);
    }
    skv_free(sum);
    skv_free(rows);
    return status;
}

/* Rows [row0, row0 + n) of the cut exit head. */
static skv_status exit_rows(void *arg, size_t row0, size_t n, unsigned char *out, skv_error *err)
{
    const mean_tensor *m = arg;
    const skv_tensor *head = m->from[0];
    const int32_t *ids = m->of->words->ids + row0;
    const size_t D = skv_tensor_columns(head);
    float *rows = skv_alloc(n * D, sizeof *rows);
    SKV_REQUIRE(rows, err, SKV_MEMORY, "%s: no memory for %zu rows", m->name, n);
    skv_status status = SKV_OK;
    for (size_t i = 0; i < n && status == SKV_OK; i++) {
        status = skv_tensor_read_checked(head, (size_t)ids[i], 1, rows + i * D, err);
    }
    if (status == SKV_OK) skv_dtype_from_f32(written_type(head), out, rows, n * D);
    if (status == SKV_OK && row0 + n == m->of->words->n) tell_written(m->of);
    skv_free(rows);
    return status;
}

/* ---- the list of tensors ---- */

static skv_status add_tensor(transform *t, const char *name, const skv_tensor *const *from,
                             size_t n_from, float offset, skv_error *err)
{
    mean_tensor *m = &t->tensors[t->n];
    SKV_REQUIRE(skv_source_written_name(&t->config, name, m->name, sizeof m->name), err, SKV_RANGE,
                "tensor name %s is too long", name);
    m->from = skv_alloc(n_from, sizeof(const skv_tensor *));
    SKV_REQUIRE(m->from, err, SKV_MEMORY, "transform: no memory for %s", name);
    memcpy(m->from, from, n_from * sizeof *from);
    m->of = t;
    m->n_from = n_from;
    m->offset = offset;
    skv_tensor_out *out = &t->outs[t->n++];
    *out = (skv_tensor_out){.name = m->name,
                            .type = written_type(from[0]),
                            .n_dims = from[0]->n_dims,
                            .rows = mean_rows,
                            .arg = m};
    memcpy(out->dims, from[0]->dims, sizeof out->dims);
    return SKV_OK;
}

/* GGUF's norm weights of Gemma hold the 1 that published ones leave out. */
static float norm_offset(const transform *t, const char *name)
{
    bool gemma_gguf = skv_source_gguf(t->source) && !t->config.norm_offset_one &&
                      strncmp(t->config.architecture, "gemma", 5) == 0;
    return gemma_gguf && strstr(name, "norm") ? -1.0f : 0.0f;
}

static skv_status add_originals(transform *t, skv_error *err)
{
    for (size_t i = 0; i < skv_source_count(t->source); i++) {
        const skv_tensor *tensor = skv_source_at(t->source, i);
        char name[NAME_BYTES];
        SKV_REQUIRE(strlen(tensor->name) < NAME_BYTES, err, SKV_RANGE, "tensor name %s is too long",
                    tensor->name);
        if (!t->kept) {
            memcpy(name, tensor->name, strlen(tensor->name) + 1);
        } else if (!skv_kept_layers_name(t->kept, tensor->name, name, sizeof name)) {
            continue;
        }
        SKV_TRY(add_tensor(t, name, &tensor, 1, norm_offset(t, tensor->name), err));
    }
    return SKV_OK;
}

/* Makes the last added tensor a fitted one; `what` is k_proj or v_proj. */
static skv_status fit_last(transform *t, size_t i, const char *what, const char *suffix,
                           skv_error *err)
{
    mean_tensor *m = &t->tensors[t->n - 1];
    char name[NAME_BYTES];
    m->ridge = t->ridge;
    m->i_layer = i;
    if (strcmp(suffix, "bias") != 0) return SKV_OK;
    m->read = skv_alloc(m->n_from, sizeof(const skv_tensor *));
    SKV_REQUIRE(m->read, err, SKV_MEMORY, "transform: no memory for %s", m->name);
    for (size_t j = 0; j < m->n_from; j++) {
        (void)snprintf(name, sizeof name, "model.layers.%zu.self_attn.%s.weight", i + j, what);
        m->read[j] = skv_source_find(t->source, name);
        SKV_REQUIRE(m->read[j], err, SKV_FORMAT, "%s: tensor %s is missing",
                    skv_source_path(t->source), name);
    }
    return SKV_OK;
}

/* Adds "model.layers.{i}.self_attn.{what}_swiftkv.{suffix}" as the mean of the corresponding
 * original tensors over n_layers layers. Adds nothing if the source has no such tensor (no
 * biases). */
static skv_status add_mean(transform *t, size_t i, size_t n_layers, const char *what,
                           const char *suffix, skv_error *err)
{
    const skv_tensor *from[SKV_LAYERS_MAX];
    char name[NAME_BYTES];
    size_t j = 0;
    do {
        (void)snprintf(name, sizeof name, "model.layers.%zu.self_attn.%s.%s", i + j, what, suffix);
        from[j] = skv_source_find(t->source, name);
        if (!from[j]) return SKV_OK;
    } while (++j < n_layers);
    (void)snprintf(name, sizeof name, "model.layers.%zu.self_attn.%s_swiftkv.%s", i, what, suffix);
    SKV_TRY(add_tensor(t, name, from, n_layers, norm_offset(t, name), err));
    /* q still reads its own layer's input: there is nothing to fit. */
    return t->ridge && (strcmp(what, "k_proj") == 0 || strcmp(what, "v_proj") == 0)
               ? fit_last(t, i, what, suffix, err)
               : SKV_OK;
}

/* Adds SwiftKV's copy of a tensor that makes a state; nothing if the source has no such tensor.
 * `fits`: it reads the boundary alone. */
static skv_status add_state_part(transform *t, size_t i, const char *part, const char *suffix,
                                 bool fits, skv_error *err)
{
    char name[NAME_BYTES];
    (void)snprintf(name, sizeof name, "model.layers.%zu.linear_attn.%s%s", i, part, suffix);
    const skv_tensor *from = skv_source_find(t->source, name);
    if (!from) return SKV_OK;
    (void)snprintf(name, sizeof name, "model.layers.%zu.linear_attn.%s_swiftkv%s", i, part, suffix);
    SKV_TRY(add_tensor(t, name, &from, 1, 0, err));
    return t->ridge && fits ? fit_last(t, i, part, "weight", err) : SKV_OK;
}

static skv_status add_state(transform *t, size_t i, skv_error *err)
{
    static const struct {
        const char *name, *suffix;
        bool fits;
    } parts[] = {{"in_proj_q", ".weight", false}, {"in_proj_k", ".weight", true},
                 {"in_proj_v", ".weight", true},  {"in_proj_a", ".weight", true},
                 {"in_proj_b", ".weight", true},  {"conv1d", ".weight", false},
                 {"conv1d", ".bias", false},      {"A_log", "", false},
                 {"dt_bias", "", false}};
    for (size_t j = 0; j < sizeof parts / sizeof *parts; j++) {
        SKV_TRY(add_state_part(t, i, parts[j].name, parts[j].suffix, parts[j].fits, err));
    }
    return SKV_OK;
}

/* The first layer from l on that mixes tokens: norm_swiftkv is a copy of its input norm. */
static size_t first_mixing(const skv_config *c, size_t l)
{
    while (c->layers[l].mixer == SKV_MIXER_NONE) l++; /* skv_config_check: there is one */
    return l;
}

static skv_status add_swiftkv(transform *t, skv_error *err)
{
    size_t l = t->config.kv_layers, g = t->config.kv_group;
    char name[NAME_BYTES];
    if (l < t->config.n_layers) {
        (void)snprintf(name, sizeof name, "model.layers.%zu.input_layernorm.weight",
                       first_mixing(&t->config, l));
        const skv_tensor *norm = skv_source_find(t->source, name);
        SKV_REQUIRE(norm, err, SKV_FORMAT, "%s: tensor %s is missing", skv_source_path(t->source),
                    name);
        SKV_TRY(add_tensor(t, "model.norm_swiftkv.weight", &norm, 1, norm_offset(t, name), err));
    }
    for (size_t i = l; i < t->config.n_layers; i++) {
        if (skv_config_keeps_state(&t->config, i)) SKV_TRY(add_state(t, i, err));
        SKV_TRY(add_mean(t, i, 1, "q_proj", "weight", err));
        SKV_TRY(add_mean(t, i, 1, "q_proj", "bias", err));
        SKV_TRY(add_mean(t, i, 1, "q_norm", "weight", err));
        if ((i - l) % g != 0) continue;
        SKV_TRY(add_mean(t, i, g, "k_proj", "weight", err));
        SKV_TRY(add_mean(t, i, g, "k_proj", "bias", err));
        SKV_TRY(add_mean(t, i, g, "v_proj", "weight", err));
        SKV_TRY(add_mean(t, i, g, "v_proj", "bias", err));
        SKV_TRY(add_mean(t, i, g, "k_norm", "weight", err));
    }
    return SKV_OK;
}

/* The exit head, which has been listed whole, with the rows of some ids, and these ids. */
static skv_status cut_exit(transform *t, skv_error *err)
{
    skv_tensor_out *out = t->outs;
    while (out < t->outs + t->n && strcmp(out->name, EXIT_HEAD) != 0) out++;
    SKV_REQUIRE(out < t->outs + t->n, err, SKV_FORMAT, "%s: tensor %s is missing",
                skv_source_path(t->source), EXIT_HEAD);
    out->dims[0] = t->words->n;
    out->rows = exit_rows;
    t->outs[t->n++] = (skv_tensor_out){.name = EXIT_IDS,
                                       .type = SKV_DTYPE_I32,
                                       .n_dims = 1,
                                       .dims = {t->words->n},
                                       .data = t->words->ids};
    t->n_written++; /* it makes no call */
    return SKV_OK;
}

static skv_status list_tensors(transform *t, skv_error *err)
{
    t->n_max = skv_source_count(t->source) + 9 * t->config.n_layers + 1;
    t->tensors = skv_alloc_zero(t->n_max, sizeof *t->tensors);
    t->outs = skv_alloc_zero(t->n_max, sizeof *t->outs);
    SKV_REQUIRE(t->tensors && t->outs, err, SKV_MEMORY, "transform: no memory for %zu tensors",
                t->n_max);
    SKV_TRY(add_originals(t, err));
    if (t->words) return cut_exit(t, err);
    return t->kept || t->keeps_form ? SKV_OK : add_swiftkv(t, err);
}

static void release_tensors(transform *t)
{
    for (size_t i = 0; t->tensors && i < t->n; i++) {
        skv_free(t->tensors[i].from);
        skv_free(t->tensors[i].read);
    }
    skv_free(t->tensors);
    skv_free(t->outs);
}

/* ---- files beside the weights ---- */

static skv_status write_config(const transform *t, const char *out, skv_error *err)
{
    skv_buf json;
    skv_buf_init(&json, CONFIG_BYTES_MAX);
    skv_status status;
    if (skv_source_gguf(t->source) || t->kept) {
        status = skv_config_json_from_config(&t->config, &json, err);
    } else {
        char *text = NULL, *from = skv_path_join(skv_source_path(t->source), "config.json");
        size_t n;
        status = from ? skv_file_read(from, CONFIG_BYTES_MAX, &text, &n, err)
                      : skv_fail(err, SKV_MEMORY, "transform: no memory");
        if (status == SKV_OK) {
            status = t->keeps_form
                         ? skv_config_json_in_floats(text, n, from, &t->config, &json, err)
                         : skv_config_json_for_swiftkv(text, n, from, &t->config, &json, err);
        }
        skv_free(text);
        skv_free(from);
    }
    char *path = skv_path_join(out, "config.json");
    if (status == SKV_OK && (json.failed || !path)) {
        status = skv_fail(err, SKV_MEMORY, "transform: no memory for config.json");
    }
    if (status == SKV_OK) status = skv_file_write(path, json.data, json.size, err);
    skv_free(path);
    skv_buf_release(&json);
    return status;
}

/* config.json is written last: without it the folder is no model, so one that was not finished
 * cannot be mistaken for one that was. */
static skv_status write_files(transform *t, const char *out, skv_error *err)
{
    SKV_TRY(skv_safetensors_write_folder(out, t->outs, t->n, SKV_SHARD_BYTES_MAX, err));
    SKV_TRY(skv_companions_write(t->source, out, err));
    return write_config(t, out, err);
}

static skv_status check_free(const char *out, skv_error *err)
{
    SKV_REQUIRE(!skv_folder_has(out, "config.json"), err, SKV_ARGUMENT,
                "%s: already contains a model", out);
    return SKV_OK;
}

/* ---- the transform ---- */

/* The configuration as a SwiftKV model's. */
static skv_status set_swiftkv(transform *t, const char *path, size_t l, size_t g, skv_error *err)
{
    size_t n = strlen(t->config.architecture);
    SKV_REQUIRE(!t->config.swiftkv, err, SKV_ARGUMENT,
                "%s: model_type %s: it is a SwiftKV model already", path, t->config.architecture);
    if (!skv_source_gguf(t->source)) n = 0; /* the folder's own config.json is rewritten */
    t->config.base[0] = 0;                  /* all weights are written */
    t->config.swiftkv = true;
    t->config.kv_layers = l;
    t->config.kv_group = g;
    if (n > 0 && n + sizeof "_swiftkv" <= sizeof t->config.architecture) {
        memcpy(t->config.architecture + n, "_swiftkv", sizeof "_swiftkv");
    }
    return skv_config_check(&t->config, path, err);
}

/* With l = L there is nothing to fit. */
static skv_status fit_and_write(transform *t, const char *path, const char *out,
                                const skv_transform_options *o, skv_transform_report *report,
                                skv_error *err)
{
    skv_ridge ridge = {0};
    bool fits = !t->kept && !t->keeps_form && o->init == SKV_TRANSFORM_RIDGE &&
                o->kv_layers < t->config.n_layers;
    if (fits) {
        SKV_TRY(skv_ridge_solve(path, t->source, o, &ridge, report, err));
        t->ridge = &ridge;
    }
    skv_status status = list_tensors(t, err);
    if (status == SKV_OK) status = write_files(t, out, err);
    t->ridge = NULL;
    skv_ridge_release(&ridge);
    return status;
}

/* The configuration of an ordinary model with fewer layers; its layers are t->layers. */
static skv_status set_pruned(transform *t, const char *path, const char *layers, skv_error *err)
{
    const skv_config from = t->config;
    SKV_REQUIRE(!from.swiftkv, err, SKV_UNSUPPORTED,
                "%s: keep layers: its deep layers depend on layer %zu's input: take the "
                "layers from the model that it was made from",
                path, from.kv_layers);
    SKV_REQUIRE(!from.v_norm, err, SKV_UNSUPPORTED, "%s: keep layers: not of a %s", path,
                from.architecture);
    SKV_REQUIRE(from.n_shared == 0, err, SKV_UNSUPPORTED,
                "%s: keep layers: its last %zu layers read the keys and values of others", path,
                from.n_shared);
    SKV_REQUIRE(!from.kv_prediction, err, SKV_UNSUPPORTED,
                "%s: keep layers: its auxiliary predicts all of its layers: take them from the "
                "base alone",
                path);
    SKV_TRY(skv_kept_layers_parse(layers, from.n_layers, &t->choice, err));
    SKV_TRY(skv_kept_layers_config(&from, t->choice.at, t->choice.n, &t->config, err));
    t->layers = t->config.layers;
    t->kept = &t->choice;
    return skv_config_check(&t->config, path, err);
}

/* The configuration of a model that only gets adapters. */
static skv_status set_merged(transform *t, const char *path, skv_error *err)
{
    SKV_REQUIRE(!t->config.kv_prediction, err, SKV_UNSUPPORTED,
                "%s: merging adapters: its auxiliary predicts the keys and values of the model "
                "without them: merge them into the base and train it again",
                path);
    t->keeps_form = true;
    t->config.base[0] = 0; /* all weights are written */
    return SKV_OK;
}

/* Sets the configuration of a model with a cut exit head. */
static skv_status set_cut(transform *t, const char *path, const skv_transform_options *o,
                          skv_error *err)
{
    const skv_config *c = &t->config;
    SKV_REQUIRE(!o->keep_layers && !o->adapters, err, SKV_ARGUMENT,
                "%s: exit words: go with no other change of the model: make that one first", path);
    SKV_REQUIRE(c->early_exit && c->kv_layers < c->n_layers, err, SKV_ARGUMENT,
                "%s: exit words: it has no exit head (distill --early-exit yes trains one)", path);
    SKV_REQUIRE(c->exit_words == 0, err, SKV_ARGUMENT,
                "%s: exit words: its exit head is cut to %zu already", path, c->exit_words);
    t->config.exit_words = o->exit_words;
    t->keeps_form = true;
    t->config.base[0] = 0; /* all weights are written */
    return SKV_OK;
}

static skv_status open_adapters(transform *t, const char *path, const skv_transform_options *o,
                                skv_error *err)
{
    const skv_config *c = skv_source_config(t->source);
    const skv_adapter_target target = {c, c->swiftkv};
    SKV_REQUIRE(o->init != SKV_TRANSFORM_RIDGE || o->keep_layers, err, SKV_UNSUPPORTED,
                "%s: the closed form reads the model without its adapters: merge them first, then "
                "transform the result",
                path);
    return skv_adapters_open(&t->adapters, o->adapters, &target, err);
}

static skv_status write_model(transform *t, const char *path, const char *out,
                              const skv_transform_options *o, skv_transform_report *report,
                              skv_error *err)
{
    bool is_new = !skv_file_is_folder(out);
    SKV_TRY(skv_folder_create(out, err));
    skv_status status = fit_and_write(t, path, out, o, report, err);
    /* Goes only if nothing was finished in it, and takes nothing that was there before. */
    if (status != SKV_OK && is_new) (void)rmdir(out);
    return status;
}

/* Layers that keep a state are copied as a folder stores them. GGUF stores them in another form, so
 * such a file is refused, as is every form but SwiftKV's. */
static skv_status check_hybrid(const transform *t, const char *path, const skv_transform_options *o,
                               skv_error *err)
{
    SKV_REQUIRE(!skv_source_gguf(t->source), err, SKV_UNSUPPORTED,
                "%s: %s: layers that keep a state are not written from a GGUF file: transform the "
                "folder that it was made from",
                path, t->config.architecture);
    SKV_REQUIRE(!o->keep_layers && !o->adapters && o->exit_words == 0, err, SKV_UNSUPPORTED,
                "%s: %s: models whose layers keep a state can only be given SwiftKV form", path,
                t->config.architecture);
    return SKV_OK;
}

/* Sets the form of the output. */
static skv_status set_form(transform *t, const char *path, const skv_transform_options *o,
                           skv_error *err)
{
    if (skv_config_is_hybrid(&t->config)) SKV_TRY(check_hybrid(t, path, o, err));
    if (o->exit_words > 0) return set_cut(t, path, o, err);
    if (o->adapters) SKV_TRY(open_adapters(t, path, o, err));
    if (o->keep_layers) return set_pruned(t, path, o->keep_layers, err);
    if (o->adapters && o->kv_layers == 0) return set_merged(t, path, err);
    return set_swiftkv(t, path, o->kv_layers, o->group, err);
}

static skv_status run(transform *t, const char *path, const char *out,
                      const skv_transform_options *o, skv_transform_report *report, skv_error *err)
{
    skv_exit_words words = {0};
    SKV_TRY(set_form(t, path, o, err));
    SKV_TRY(check_free(out, err));
    if (o->exit_words > 0) {
        SKV_TRY(skv_exit_words_choose(path, t->source, o, &words, err));
        t->words = &words;
        report->counted = words.counted;
        report->covered = words.covered;
    }
    const skv_status status = write_model(t, path, out, o, report, err);
    t->words = NULL;
    skv_exit_words_release(&words);
    return status;
}

skv_transform_options skv_transform_options_default(void)
{
    return (skv_transform_options){
        .kv_layers = 1, .group = 1, .init = SKV_TRANSFORM_COPY, .ridge = -1};
}

skv_status skv_transform_run(const char *path, const char *out,
                             const skv_transform_options *options, skv_transform_report *report,
                             skv_error *err)
{
    skv_source *source;
    skv_transform_report done = {0};
    SKV_TRY(skv_source_open(path, &source, err));
    transform t = {.source = source, .config = *skv_source_config(source), .options = options};
    skv_status status = run(&t, path, out, options, &done, err);
    release_tensors(&t);
    skv_adapters_release(&t.adapters);
    skv_free(t.layers);
    skv_source_close(source);
    if (status == SKV_OK && report) *report = done;
    return status;
}

skv_status skv_transform(const char *path, const char *out, size_t l, size_t g, skv_error *err)
{
    skv_transform_options options = skv_transform_options_default();
    options.kv_layers = l;
    options.group = g;
    return skv_transform_run(path, out, &options, NULL, err);
}
