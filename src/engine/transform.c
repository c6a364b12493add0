/*
 * The SwiftKV transform: any supported model to a checkpoint in the published SwiftKV layout,
 * initialised as its authors do (before any training):
 *     norm_swiftkv              the input norm of layer l
 *     q_proj_swiftkv, layer i   a copy of the layer's own q_proj
 *     k,v_proj_swiftkv          of a group's first layer: the mean over the group's layers
 * The model's own projections stay in the file: the teacher can still be run from it.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/size.h"
#include "engine/engine.h"
#include "format/companions.h"
#include "format/config_write.h"
#include "format/float16.h"
#include "format/safetensors_write.h"
#include "skv/tools.h"

enum { NAME_BYTES = 128, CONFIG_BYTES_MAX = 16 << 20 };

/* A tensor to write: the mean of one or more tensors of the source. */
typedef struct mean_tensor {
    char name[NAME_BYTES];
    const skv_tensor **from; /* owned, [n_from] */
    size_t n_from;
    float offset; /* added to every element: -1 for Gemma's norms from GGUF */
} mean_tensor;

typedef struct transform {
    const skv_source *source;
    skv_config config;    /* the source's, with l and g; layers are borrowed */
    mean_tensor *tensors; /* owned, [n_max] */
    skv_tensor_out *outs; /* owned, [n_max] */
    size_t n, n_max;
} transform;

/* What a tensor is written as: as it is, or bf16 where it is quantised. */
static skv_dtype written_type(const skv_tensor *t)
{
    return t->type == SKV_DTYPE_F32 || t->type == SKV_DTYPE_F16 ? t->type : SKV_DTYPE_BF16;
}

static void store_rows(skv_dtype type, const float *x, size_t n, unsigned char *out)
{
    for (size_t i = 0; i < n; i++) {
        uint16_t half = type == SKV_DTYPE_F16 ? skv_f16_of_float(x[i]) : skv_f32_to_bf16(x[i]);
        if (type == SKV_DTYPE_F32) {
            memcpy(out + 4 * i, &x[i], 4);
        } else {
            memcpy(out + 2 * i, &half, 2);
        }
    }
}

/* Rows [row0, row0 + n) of the mean. Rows of a vector: the whole of it is one row. */
static skv_status mean_rows(void *arg, size_t row0, size_t n, unsigned char *out, skv_error *err)
{
    const mean_tensor *m = arg;
    size_t n_elements = n * skv_tensor_columns(m->from[0]);
    float *sum = skv_alloc_zero(n_elements, sizeof *sum);
    float *rows = skv_alloc(n_elements, sizeof *rows);
    skv_status status = SKV_OK;
    if (!sum || !rows) {
        status = skv_fail(err, SKV_MEMORY, "%s: no memory for %zu rows", m->name, n);
    }
    for (size_t i = 0; status == SKV_OK && i < m->n_from; i++) {
        status = skv_tensor_read_checked(m->from[i], row0, n, rows, err);
        for (size_t j = 0; status == SKV_OK && j < n_elements; j++)
            sum[j] += rows[j] / (float)m->n_from;
    }
    if (status == SKV_OK) {
        for (size_t j = 0; m->offset != 0.0f && j < n_elements; j++) sum[j] += m->offset;
        store_rows(written_type(m->from[0]), sum, n_elements, out);
    }
    skv_free(sum);
    skv_free(rows);
    return status;
}

/* ---- the list of tensors ---- */

static skv_status add_tensor(transform *t, const char *name, const skv_tensor *const *from,
                             size_t n_from, float offset, skv_error *err)
{
    SKV_REQUIRE(strlen(name) < NAME_BYTES, err, SKV_RANGE, "tensor name %s is too long", name);
    mean_tensor *m = &t->tensors[t->n];
    m->from = skv_alloc(n_from, sizeof(const skv_tensor *));
    SKV_REQUIRE(m->from, err, SKV_MEMORY, "transform: no memory for %s", name);
    memcpy(m->from, from, n_from * sizeof *from);
    m->n_from = n_from;
    m->offset = offset;
    (void)snprintf(m->name, sizeof m->name, "%s", name);
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
        SKV_TRY(add_tensor(t, tensor->name, &tensor, 1, norm_offset(t, tensor->name), err));
    }
    return SKV_OK;
}

/* "model.layers.{i}.self_attn.{what}_swiftkv.{suffix}" as the mean over n_layers layers of what
 * has no _swiftkv. A source without such a tensor (no biases) has nothing to add. */
static skv_status add_mean(transform *t, size_t i, size_t n_layers, const char *what,
                           const char *suffix, skv_error *err)
{
    const skv_tensor *from[SKV_LAYERS_MAX];
    char name[NAME_BYTES];
    for (size_t j = 0; j < n_layers; j++) {
        (void)snprintf(name, sizeof name, "model.layers.%zu.self_attn.%s.%s", i + j, what, suffix);
        from[j] = skv_source_find(t->source, name);
        if (!from[j]) return SKV_OK;
    }
    (void)snprintf(name, sizeof name, "model.layers.%zu.self_attn.%s_swiftkv.%s", i, what, suffix);
    return add_tensor(t, name, from, n_layers, norm_offset(t, name), err);
}

static skv_status add_swiftkv(transform *t, skv_error *err)
{
    size_t l = t->config.kv_layers, g = t->config.kv_group;
    char name[NAME_BYTES];
    if (l < t->config.n_layers) {
        (void)snprintf(name, sizeof name, "model.layers.%zu.input_layernorm.weight", l);
        const skv_tensor *norm = skv_source_find(t->source, name);
        SKV_REQUIRE(norm, err, SKV_FORMAT, "%s: tensor %s is missing", skv_source_path(t->source),
                    name);
        SKV_TRY(add_tensor(t, "model.norm_swiftkv.weight", &norm, 1, norm_offset(t, name), err));
    }
    for (size_t i = l; i < t->config.n_layers; i++) {
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

static skv_status list_tensors(transform *t, skv_error *err)
{
    t->n_max = skv_source_count(t->source) + 8 * t->config.n_layers + 1;
    t->tensors = skv_alloc_zero(t->n_max, sizeof *t->tensors);
    t->outs = skv_alloc_zero(t->n_max, sizeof *t->outs);
    SKV_REQUIRE(t->tensors && t->outs, err, SKV_MEMORY, "transform: no memory for %zu tensors",
                t->n_max);
    SKV_TRY(add_originals(t, err));
    return add_swiftkv(t, err);
}

static void release_tensors(transform *t)
{
    for (size_t i = 0; t->tensors && i < t->n; i++) skv_free(t->tensors[i].from);
    skv_free(t->tensors);
    skv_free(t->outs);
}

/* ---- files beside the weights ---- */

static skv_status write_config(const transform *t, const char *out, skv_error *err)
{
    skv_buf json;
    skv_buf_init(&json, CONFIG_BYTES_MAX);
    skv_status status;
    if (skv_source_gguf(t->source)) {
        status = skv_config_json_from_config(&t->config, &json, err);
    } else {
        char *text = NULL, *from = skv_path_join(skv_source_path(t->source), "config.json");
        size_t n;
        status = from ? skv_file_read(from, CONFIG_BYTES_MAX, &text, &n, err)
                      : skv_fail(err, SKV_MEMORY, "transform: no memory");
        if (status == SKV_OK) {
            status = skv_config_json_for_swiftkv(text, n, from, &t->config, &json, err);
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
    if (!skv_source_gguf(t->source)) {
        SKV_TRY(skv_companions_copy(skv_source_path(t->source), out, err));
    }
    return write_config(t, out, err);
}

static skv_status write_all(transform *t, const char *out, skv_error *err)
{
    SKV_TRY(list_tensors(t, err));
    char *config = skv_path_join(out, "config.json");
    bool taken = config && skv_file_exists(config);
    skv_free(config);
    SKV_REQUIRE(!taken, err, SKV_ARGUMENT, "%s: already holds a model", out);
    bool is_new = !skv_file_is_folder(out);
    SKV_TRY(skv_folder_create(out, err));
    skv_status status = write_files(t, out, err);
    /* Goes only if nothing was finished in it, and takes nothing that was there before. */
    if (status != SKV_OK && is_new) (void)rmdir(out);
    return status;
}

skv_status skv_transform(const char *path, const char *out, size_t l, size_t g, skv_error *err)
{
    skv_source *source;
    SKV_TRY(skv_source_open(path, &source, err));
    const skv_config *c = skv_source_config(source);
    transform t = {.source = source, .config = *c};
    t.config.base[0] = 0; /* all weights are written */
    skv_status status = SKV_OK;
    if (c->swiftkv) {
        status = skv_fail(err, SKV_ARGUMENT, "%s: model_type %s: it is a SwiftKV model already",
                          path, c->architecture);
    }
    if (status == SKV_OK) {
        size_t n = strlen(t.config.architecture);
        if (!skv_source_gguf(source)) n = 0; /* the folder's own config.json is rewritten */
        t.config.swiftkv = true;
        t.config.kv_layers = l;
        t.config.kv_group = g;
        if (n > 0 && n + sizeof "_swiftkv" <= sizeof t.config.architecture) {
            memcpy(t.config.architecture + n, "_swiftkv", sizeof "_swiftkv");
        }
        status = skv_config_check(&t.config, path, err);
    }
    if (status == SKV_OK) status = write_all(&t, out, err);
    release_tensors(&t);
    skv_source_close(source);
    return status;
}
