/*
 * Task mtp: the head of a model that predicts further tokens (net_mtp.c). A model without one gets
 * a new head of the shape that its configuration gives. The result is the model's folder, its text
 * part tensor by tensor as it was, with the trained head in the published layout: config.json says
 * mtp_num_hidden_layers, and the tensors are mtp.fc, mtp.pre_fc_norm_*, mtp.layers.0.* and
 * mtp.norm.
 */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "format/companions.h"
#include "format/dtype.h"
#include "format/safetensors.h"
#include "train/trainer.h"

enum { CONFIG_BYTES_MAX = 16 << 20, NAME_BYTES = 256 };

/* ---- opening ---- */

static skv_status check_task(const skv_trainer *t, skv_error *err)
{
    const skv_train_options *o = t->options;
    const char *what = NULL;
    if (o->kv_layers > 0) what = "kv-layers: transform or distill the model first: this";
    if (o->early_exit) what = "early-exit";
    if (o->part != SKV_TRAIN_ALL) what = "trainable: all of the head is, not less,";
    if (o->hidden_mult > 0) what = "hidden-loss-mult";
    if (o->drop_teacher) what = "drop-teacher";
    if (o->f32_weights) what = "f32-weights";
    if (o->delta) what = "delta";
    SKV_REQUIRE(!what, err, SKV_UNSUPPORTED,
                "training: task mtp: %s is not supported with this task", what);
    return SKV_OK;
}

/* The result has the model's tensors as they are stored. */
static skv_status check_model(const skv_trainer *t, skv_error *err)
{
    const char *path = t->options->model;
    SKV_REQUIRE(!skv_source_gguf(t->source), err, SKV_UNSUPPORTED,
                "%s: task mtp: a GGUF file: train the folder that it was made from", path);
    SKV_REQUIRE(!t->config.base[0], err, SKV_UNSUPPORTED,
                "%s: task mtp: it has only its differences from %s: train a whole model", path,
                t->config.base);
    SKV_REQUIRE(!t->config.qkv_bias, err, SKV_UNSUPPORTED, "%s: task mtp: attention_bias", path);
    for (size_t i = 0; i < skv_source_count(t->source); i++) {
        const skv_tensor *tensor = skv_source_at(t->source, i);
        SKV_REQUIRE(!skv_tensor_is_quantised(tensor), err, SKV_UNSUPPORTED,
                    "%s: %s: task mtp: quantised weights: train the head of the model that they "
                    "were made from",
                    path, tensor->name);
    }
    return SKV_OK;
}

skv_status skv_train_mtp_open(skv_trainer *t, skv_error *err)
{
    const char *path = t->options->model;
    SKV_TRY(check_task(t, err));
    SKV_TRY(check_model(t, err));
    skv_train_mtp *m = t->mtp = skv_alloc_zero(1, sizeof *m);
    SKV_REQUIRE(m, err, SKV_MEMORY, "training: no memory");
    if (skv_source_has_mtp(t->source)) {
        SKV_TRY(skv_source_open_mtp(path, &m->source, err));
        m->config = skv_source_config(m->source);
        return SKV_OK;
    }
    SKV_TRY(skv_config_read(path, &m->own_config, err));
    m->config = &m->own_config;
    m->own_config.tied = t->config.tied;
    return skv_config_make_mtp(&m->own_config, path, err);
}

void skv_train_mtp_close(skv_train_mtp *m)
{
    if (!m) return;
    skv_source_close(m->source);
    skv_config_release(&m->own_config);
    skv_free(m);
}

skv_status skv_train_mtp_create(skv_trainer *t, skv_net_options *net, skv_error *err)
{
    const skv_train_mtp *m = t->mtp;
    net->student = false;
    net->mtp = (skv_net_mtp_of){.model = &t->config, .source = t->source, .is_new = !m->source};
    return skv_net_create(m->config, m->source ? m->source : t->source, net, &t->net, err);
}

/* ---- the result ---- */

/* A tensor of the head. With `gate` it is q_proj: rows of a head, then those of its gate. */
typedef struct head_tensor {
    const skv_param *param, *gate;
    size_t head_rows; /* with `gate`: rows of a head of either */
    skv_dtype type;
} head_tensor;

typedef struct result {
    const skv_trainer *trainer;
    skv_tensor_out *outs;      /* owned, [n] */
    char (*names)[NAME_BYTES]; /* owned, [n] */
    head_tensor *head;         /* owned */
    size_t n, n_head;
    skv_dtype type; /* of the head: the embedding's, or bf16 */
} result;

static void write_row(const head_tensor *h, const skv_param *p, size_t row, float *x,
                      unsigned char *out)
{
    const size_t n = p->n_columns;
    for (size_t i = 0; i < n; i++) x[i] = p->w[row * n + i] - p->offset;
    skv_dtype_from_f32(h->type, out, x, n);
}

static skv_status head_rows(void *arg, size_t row0, size_t n, unsigned char *out, skv_error *err)
{
    const head_tensor *h = arg;
    const size_t D = h->param->n_columns, row_bytes = D * skv_dtype_block_bytes(h->type);
    float *x = skv_alloc(D, sizeof *x);
    SKV_REQUIRE(x, err, SKV_MEMORY, "%s: no memory for a row", h->param->name);
    for (size_t i = row0; i < row0 + n; i++, out += row_bytes) {
        if (!h->gate) {
            write_row(h, h->param, i, x, out);
            continue;
        }
        const size_t i_head = i / (2 * h->head_rows), at = i % (2 * h->head_rows);
        const bool is_gate = at >= h->head_rows;
        write_row(h, is_gate ? h->gate : h->param,
                  i_head * h->head_rows + at - (is_gate ? h->head_rows : 0), x, out);
    }
    skv_free(x);
    return SKV_OK;
}

/* The published name of a parameter of the head; false: it is the model's, or part of another. */
static bool published_name(const skv_param *p, char out[NAME_BYTES])
{
    static const char layers[] = "model.layers.0.", norm[] = "model.norm.";
    if (!p->trainable || strstr(p->name, "self_attn.gate_proj")) return false;
    const char *name = p->name;
    if (strncmp(name, layers, sizeof layers - 1) == 0) {
        (void)snprintf(out, NAME_BYTES, "mtp.layers.0.%s", name + sizeof layers - 1);
    } else if (strncmp(name, norm, sizeof norm - 1) == 0) {
        (void)snprintf(out, NAME_BYTES, "mtp.norm.%s", name + sizeof norm - 1);
    } else {
        (void)snprintf(out, NAME_BYTES, "%s", name);
    }
    return true;
}

static void add_head(result *r)
{
    const skv_trainer *t = r->trainer;
    const skv_params *params = skv_net_params(t->net);
    for (size_t i = 0; i < params->n; i++) {
        const skv_param *p = &params->at[i];
        if (!published_name(p, r->names[r->n])) continue;
        head_tensor *h = &r->head[r->n_head++];
        *h = (head_tensor){.param = p, .head_rows = t->config.head_dim, .type = r->type};
        if (strstr(p->name, "self_attn.q_proj.weight")) {
            h->gate = skv_params_find(params, "model.layers.0.self_attn.gate_proj.weight");
        }
        skv_tensor_out *out = &r->outs[r->n];
        *out = (skv_tensor_out){.name = r->names[r->n],
                                .type = r->type,
                                .n_dims = p->vector ? 1 : 2,
                                .dims = {h->gate ? 2 * p->n_rows : p->n_rows, p->n_columns},
                                .rows = head_rows,
                                .arg = h};
        if (p->vector) out->dims[0] = p->n_columns;
        r->n++;
    }
}

/* The model's own tensors but for a head that it had. */
static void add_stored(result *r)
{
    const skv_source *source = r->trainer->source;
    for (size_t i = 0; i < skv_source_stored_count(source); i++) {
        char buffer[NAME_BYTES];
        const char *name;
        const skv_tensor *t = skv_source_stored_at(source, i, buffer, sizeof buffer, &name);
        if (!name || strncmp(name, "mtp.", 4) == 0) continue;
        (void)snprintf(r->names[r->n], NAME_BYTES, "%s", name);
        r->outs[r->n] = skv_trainer_copied(t);
        r->outs[r->n].name = r->names[r->n];
        if (strcmp(name, "model.embed_tokens.weight") == 0) r->type = r->outs[r->n].type;
        r->n++;
    }
}

static skv_status write_tensors(const skv_trainer *t, skv_error *err)
{
    const size_t n = skv_source_stored_count(t->source) + skv_net_params(t->net)->n;
    result r = {.trainer = t, .type = SKV_DTYPE_BF16};
    skv_status status = SKV_OK;
    r.outs = skv_alloc_zero(n, sizeof *r.outs);
    r.names = skv_alloc_zero(n, sizeof *r.names);
    r.head = skv_alloc_zero(n, sizeof *r.head);
    if (r.outs && r.names && r.head) {
        add_stored(&r);
        add_head(&r);
        status =
            skv_safetensors_write_folder(t->options->out, r.outs, r.n, SKV_SHARD_BYTES_MAX, err);
    } else {
        status = skv_fail(err, SKV_MEMORY, "%s: no memory for %zu tensors", t->options->out, n);
    }
    skv_free(r.outs);
    skv_free(r.names);
    skv_free(r.head);
    return status;
}

static skv_status make_config(const skv_trainer *t, skv_buf *json, skv_error *err)
{
    char *path = skv_path_join(t->options->model, "config.json"), *text = NULL;
    size_t n = 0;
    SKV_REQUIRE(path, err, SKV_MEMORY, "training: no memory");
    skv_status status = skv_file_read(path, CONFIG_BYTES_MAX, &text, &n, err);
    if (status == SKV_OK) status = skv_config_json_with_mtp(text, n, path, &t->config, json, err);
    skv_free(text);
    skv_free(path);
    return status;
}

skv_status skv_train_mtp_export(const skv_trainer *t, skv_error *err)
{
    const char *out = t->options->out;
    skv_buf json;
    SKV_TRY(write_tensors(t, err));
    SKV_TRY(skv_companions_write(t->source, out, err));
    char *path = skv_path_join(out, "config.json");
    SKV_REQUIRE(path, err, SKV_MEMORY, "%s: no memory", out);
    skv_buf_init(&json, CONFIG_BYTES_MAX);
    skv_status status = make_config(t, &json, err);
    if (status == SKV_OK) status = skv_file_write(path, json.data, json.size, err);
    skv_buf_release(&json);
    skv_free(path);
    return status;
}
