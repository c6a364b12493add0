/*
 * The trained model as a folder: the published layout of SwiftKV checkpoints, the model's own, or,
 * of KV Prediction, the auxiliary, the predictor and, but for a delta, the base. config.json is
 * written last, so that a folder without it is no model.
 */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "format/companions.h"
#include "format/config.h"
#include "format/dtype.h"
#include "format/safetensors.h"
#include "prefill/kvpred.h"
#include "train/trainer.h"

enum { CONFIG_BYTES_MAX = 16 << 20 };
static const char FOLDER[] = "auxiliary";

/* Which parameters go into a file or folder. */
typedef struct export_set {
    skv_params *params;
    const skv_source *source; /* the source of their types; may be NULL */
    bool (*wants)(const skv_trainer *trainer, const skv_param *param);
    bool single; /* the path is that of one file, not of a folder */
    bool head;   /* and the head for further tokens that the source has */
} export_set;

/* ---- parameters, in the types that their model's files have ---- */

typedef struct row_writer {
    const skv_param *param;
    const skv_tensor *file; /* where the values are read from; NULL: they are the parameter's */
    skv_dtype type;
    char name[SKV_PARAM_NAME_MAX];
} row_writer;

/* Frozen matrices may exist only in their file, and frozen norms only there to the last bit. */
static const skv_tensor *file_of(const skv_source *source, const skv_param *p)
{
    if (p->file || p->trainable || !(p->offset > 0) || !source) return p->file;
    return skv_source_find(source, p->name);
}

/* A vector is one row. */
static skv_status write_rows(void *arg, size_t row0, size_t n, unsigned char *out, skv_error *err)
{
    const row_writer *w = arg;
    size_t n_elements = n * w->param->n_columns;
    const bool differs = w->param->offset > 0;
    if (!w->file && !differs) {
        skv_dtype_from_f32(w->type, out, w->param->w + row0 * w->param->n_columns, n_elements);
        return SKV_OK;
    }
    float *x = skv_alloc(n_elements, sizeof *x);
    SKV_REQUIRE(x, err, SKV_MEMORY, "%s: no memory for %zu rows", w->param->name, n);
    skv_status status = SKV_OK;
    if (w->file) {
        status = skv_tensor_read_checked(w->file, row0, n, x, err);
    } else { /* the file has a norm's weight less 1 */
        for (size_t i = 0; i < n_elements; i++) x[i] = w->param->w[i] - w->param->offset;
    }
    if (status == SKV_OK) skv_dtype_from_f32(w->type, out, x, n_elements);
    skv_free(x);
    return status;
}

/* The name of the parameter that one of SwiftKV is first a copy of. */
static const char *first_form(const char *name, char out[SKV_PARAM_NAME_MAX])
{
    static const char mark[] = "_swiftkv";
    (void)snprintf(out, SKV_PARAM_NAME_MAX, "%s", name);
    char *at = strstr(out, mark);
    if (at) memmove(at, at + sizeof mark - 1, strlen(at + sizeof mark - 1) + 1);
    return out;
}

/* The type of the model's file: f32 and f16 stay; everything else is written as bf16. */
static skv_dtype type_of(const skv_trainer *t, const skv_source *source, const skv_param *p)
{
    char name[SKV_PARAM_NAME_MAX];
    if (t->options->f32_weights) return SKV_DTYPE_F32;
    if (!source) return strcmp(t->config.dtype, "float32") == 0 ? SKV_DTYPE_F32 : SKV_DTYPE_BF16;
    const skv_tensor *from = skv_source_find(source, p->name);
    if (!from) from = skv_source_find(source, first_form(p->name, name));
    if (!from) from = skv_source_find(source, "model.layers.0.self_attn.q_proj.weight");
    if (from && (from->type == SKV_DTYPE_F32 || from->type == SKV_DTYPE_F16)) return from->type;
    return SKV_DTYPE_BF16;
}

/* The model is itself written as a difference, and the result has the same base. */
static bool is_delta(const skv_trainer *t)
{
    return t->source && skv_source_config(t->source)->base[0] && !t->auxiliary;
}

/* Whether tensor i of the source belongs to its head for further tokens, and is written with it. */
static bool is_kept_head(const skv_trainer *t, const export_set *set, size_t i)
{
    const skv_tensor *tensor = skv_source_at(set->source, i);
    if (!set->head || strncmp(tensor->name, "mtp.", 4) != 0) return false;
    return !t->options->delta || (is_delta(t) && !skv_source_in_base(t->source, tensor));
}

static skv_status write_params(const skv_trainer *t, const export_set *set, const char *out,
                               skv_error *err)
{
    const skv_params *params = set->params;
    const size_t n_kept = set->head && set->source ? skv_source_count(set->source) : 0;
    skv_tensor_out *outs = skv_alloc_zero(params->n + n_kept, sizeof *outs);
    row_writer *writers = skv_alloc_zero(params->n, sizeof *writers);
    size_t n = 0;
    skv_status status = SKV_OK;
    if (!outs || !writers) status = skv_fail(err, SKV_MEMORY, "%s: no memory", out);
    for (size_t i = 0; status == SKV_OK && i < params->n; i++) {
        const skv_param *p = &params->at[i];
        if (!set->wants(t, p)) continue;
        writers[n] = (row_writer){
            .param = p, .file = file_of(set->source, p), .type = type_of(t, set->source, p)};
        if (!skv_source_written_name(&t->config, p->name, writers[n].name, SKV_PARAM_NAME_MAX)) {
            status = skv_fail(err, SKV_RANGE, "tensor name %s is too long", p->name);
            break;
        }
        outs[n] = (skv_tensor_out){.name = writers[n].name,
                                   .type = writers[n].type,
                                   .n_dims = p->vector ? 1 : 2,
                                   .dims = {p->n_rows, p->n_columns},
                                   .rows = write_rows,
                                   .arg = &writers[n]};
        if (p->vector) outs[n].dims[0] = p->n_columns;
        n++;
    }
    for (size_t i = 0; status == SKV_OK && i < n_kept; i++) {
        if (is_kept_head(t, set, i)) outs[n++] = skv_trainer_copied(skv_source_at(set->source, i));
    }
    if (status == SKV_OK) {
        status = set->single ? skv_safetensors_write(out, outs, n, err)
                             : skv_safetensors_write_folder(out, outs, n, SKV_SHARD_BYTES_MAX, err);
    }
    skv_free(outs);
    skv_free(writers);
    return status;
}

/* ---- the other files ---- */

/* The last part of a folder's path; "" when it has none that fits. */
static void folder_name(const char *path, char out[64])
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    size_t at = n;
    while (at > 0 && path[at - 1] != '/') at--;
    const bool fits = n > at && n - at < 64 && path[at] != '.';
    (void)snprintf(out, 64, "%.*s", fits ? (int)(n - at) : 0, path + at);
}

/* Returns the folder with the tensors that a difference leaves out. */
static void base_name(const skv_trainer *t, char out[64])
{
    if (is_delta(t)) {
        (void)snprintf(out, 64, "%s", skv_source_config(t->source)->base);
    } else {
        folder_name(t->options->model, out);
    }
}

static skv_status write_config_text(const char *folder, const char *text, size_t n, skv_error *err)
{
    char *path = skv_path_join(folder, "config.json");
    skv_status status = path ? skv_file_write(path, text, n, err)
                             : skv_fail(err, SKV_MEMORY, "%s: no memory", folder);
    skv_free(path);
    return status;
}

/* The files beside the weights; a delta leaves its tokenizer with the base. */
static skv_status write_companions(const skv_trainer *t, const char *folder, skv_error *err)
{
    if (t->options->delta) return skv_companions_write_delta(t->source, folder, err);
    return t->source ? skv_companions_write(t->source, folder, err)
                     : skv_companions_copy(t->options->model, folder, err);
}

/* ---- KV Prediction ---- */

static bool is_any(const skv_trainer *t, const skv_param *p)
{
    (void)t;
    (void)p;
    return true;
}

static bool is_map(const skv_trainer *t, const skv_param *p)
{
    (void)t;
    return p->role == SKV_ROLE_PREDICTOR;
}

static bool is_own(const skv_trainer *t, const skv_param *p)
{
    return !is_map(t, p);
}

/* auxiliary/: a model like any other. Its configuration is as it was given, but that files of
 * other names are presented under Llama's. */
static skv_status write_auxiliary(const skv_trainer *t, const char *folder, skv_error *err)
{
    const skv_auxiliary *a = t->auxiliary;
    const skv_source *types = a->pruned ? t->source : a->source;
    const export_set set = {skv_net_params(t->net), types, is_own, false, false};
    skv_buf json;
    SKV_TRY(skv_folder_create(folder, err));
    SKV_TRY(write_params(t, &set, folder, err));
    SKV_TRY(write_companions(t, folder, err));
    if (!a->pruned) return write_config_text(folder, a->text, a->n_text, err);
    skv_buf_init(&json, CONFIG_BYTES_MAX);
    skv_status status = skv_config_json_from_config(a->config, &json, err);
    if (status == SKV_OK) status = write_config_text(folder, json.data, json.size, err);
    skv_buf_release(&json);
    return status;
}

/* Writes the folder's config.json: the base's with the new keys. */
static skv_status write_prediction_config(const skv_trainer *t, skv_error *err)
{
    const char *out = t->options->out, *model = t->options->model;
    skv_config c = t->config;
    skv_buf json;
    char *path = skv_path_join(model, "config.json"), *text = NULL;
    size_t n = 0;
    c.base[0] = 0;
    if (t->options->delta) folder_name(model, c.base);
    memcpy(c.auxiliary, FOLDER, sizeof FOLDER);
    memcpy(c.kvp_layers, t->auxiliary->layers, sizeof c.kvp_layers);
    skv_buf_init(&json, CONFIG_BYTES_MAX);
    skv_status status = path ? skv_file_read(path, CONFIG_BYTES_MAX, &text, &n, err)
                             : skv_fail(err, SKV_MEMORY, "%s: no memory", model);
    if (status == SKV_OK) status = skv_config_json_for_kvp(text, n, path, &c, &json, err);
    if (status == SKV_OK) status = write_config_text(out, json.data, json.size, err);
    skv_free(text);
    skv_free(path);
    skv_buf_release(&json);
    return status;
}

static skv_status write_predictor(const skv_trainer *t, skv_error *err)
{
    char *path = skv_path_join(t->options->out, SKV_KVPRED_FILE);
    SKV_REQUIRE(path, err, SKV_MEMORY, "%s: no memory", t->options->out);
    const export_set set = {skv_net_params(t->net), t->source, is_map, true, false};
    skv_status status = write_params(t, &set, path, err);
    skv_free(path);
    return status;
}

static skv_status export_prediction(const skv_trainer *t, skv_error *err)
{
    const char *out = t->options->out;
    char *folder = skv_path_join(out, FOLDER);
    SKV_REQUIRE(folder, err, SKV_MEMORY, "%s: no memory", out);
    skv_status status = write_auxiliary(t, folder, err);
    skv_free(folder);
    SKV_TRY(status);
    SKV_TRY(write_predictor(t, err));
    if (!t->options->delta) {
        skv_params *params = skv_net_params(skv_net_base(t->net));
        const export_set set = {params, t->source, is_any, false, false};
        SKV_TRY(write_params(t, &set, out, err));
    }
    SKV_TRY(write_companions(t, out, err));
    return write_prediction_config(t, err);
}

/* ---- SwiftKV, and the model's own layout ---- */

/* The projections of a deep layer that only the teacher computes with. */
static bool is_dead(const skv_trainer *t, const skv_param *p)
{
    return t->config.swiftkv && p->layer >= t->config.kv_layers && p->role == SKV_ROLE_QKV;
}

/* A source that came without its teacher has none to write. */
static bool is_absent(const skv_trainer *t, const skv_param *p)
{
    return is_dead(t, p) && t->source && skv_source_config(t->source)->swiftkv &&
           !skv_source_find(t->source, p->name);
}

/* Whether the base already holds the parameter. */
static bool is_in_base(const skv_trainer *t, const skv_param *p)
{
    if (!t->options->delta || p->trainable) return false;
    const skv_tensor *found = skv_source_find(t->source, p->name);
    return found && (!is_delta(t) || skv_source_in_base(t->source, found));
}

static bool is_exported(const skv_trainer *t, const skv_param *p)
{
    if ((t->options->drop_teacher && is_dead(t, p)) || is_absent(t, p)) return false;
    return !is_in_base(t, p);
}

static skv_status write_weights(const skv_trainer *t, const char *out, skv_error *err)
{
    const export_set set = {skv_net_params(t->net), t->source, is_exported, false, true};
    return write_params(t, &set, out, err);
}

static skv_status check_beside(const skv_trainer *t, const char *name, skv_error *err)
{
    char *beside = skv_path_join(t->options->out, "..");
    char *base = beside ? skv_path_join(beside, name) : NULL;
    const bool found = base && skv_folder_has(base, "config.json");
    skv_free(base);
    skv_free(beside);
    SKV_REQUIRE(found, err, SKV_ARGUMENT, "delta: %s and %s must be in the same folder",
                t->options->model, t->options->out);
    return SKV_OK;
}

skv_status skv_trainer_check_export(const skv_trainer *t, skv_error *err)
{
    const skv_train_options *o = t->options;
    char name[64];
    SKV_REQUIRE(!o->f32_weights || t->config.swiftkv || !skv_config_is_hybrid(&t->config), err,
                SKV_UNSUPPORTED,
                "f32-weights: %s: of models whose layers keep a state only the SwiftKV form is "
                "written so",
                t->config.architecture);
    if (!o->delta) return SKV_OK;
    const bool own = t->source && !skv_source_gguf(t->source) && !t->config.base[0];
    SKV_REQUIRE(own || is_delta(t), err, SKV_ARGUMENT,
                "delta: %s is not a folder with its own weights", o->model);
    SKV_REQUIRE(t->config.swiftkv || t->auxiliary, err, SKV_ARGUMENT,
                "delta: %s gets no SwiftKV weights", o->model);
    base_name(t, name);
    SKV_REQUIRE(name[0], err, SKV_ARGUMENT, "delta: %s: expected the name of a folder", o->model);
    return check_beside(t, name, err);
}

/* Returns the configuration with the weights' type and location for config.json. */
static skv_config described(const skv_trainer *t)
{
    skv_config c = t->config;
    c.base[0] = 0;
    if (t->options->delta) base_name(t, c.base);
    if (t->options->f32_weights) memcpy(c.dtype, "float32", sizeof "float32");
    return c;
}

static skv_status make_config(const skv_trainer *t, skv_buf *json, skv_error *err)
{
    skv_config c = described(t);
    if (t->source && skv_source_gguf(t->source)) return skv_config_json_from_config(&c, json, err);
    char *from = skv_path_join(t->options->model, "config.json"), *text = NULL;
    size_t n = 0;
    SKV_REQUIRE(from, err, SKV_MEMORY, "training: no memory");
    skv_status status = skv_file_read(from, CONFIG_BYTES_MAX, &text, &n, err);
    if (status == SKV_OK && c.swiftkv) {
        status = skv_config_json_for_swiftkv(text, n, from, &c, json, err);
    } else if (status == SKV_OK && t->options->f32_weights) {
        status = skv_config_json_from_config(&c, json, err);
    } else if (status == SKV_OK) {
        (void)skv_buf_append(json, text, n);
    }
    skv_free(text);
    skv_free(from);
    return status;
}

static skv_status write_config(const skv_trainer *t, const char *out, skv_error *err)
{
    skv_buf json;
    skv_buf_init(&json, CONFIG_BYTES_MAX);
    skv_status status = make_config(t, &json, err);
    if (status == SKV_OK && json.failed) {
        status = skv_fail(err, SKV_MEMORY, "%s: no memory for config.json", out);
    }
    if (status == SKV_OK) status = write_config_text(out, json.data, json.size, err);
    skv_buf_release(&json);
    return status;
}

skv_status skv_trainer_export(const skv_trainer *t, skv_error *err)
{
    const char *out = t->options->out;
    if (t->auxiliary) return export_prediction(t, err);
    if (t->mtp) return skv_train_mtp_export(t, err);
    SKV_TRY(write_weights(t, out, err));
    SKV_TRY(write_companions(t, out, err));
    return write_config(t, out, err);
}
