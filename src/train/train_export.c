/*
 * The trained model as a folder: the published layout of SwiftKV checkpoints, or the model's own.
 * config.json is written last, so that a folder without it is no model.
 */
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "format/companions.h"
#include "format/config_write.h"
#include "train/trainer.h"

enum { CONFIG_BYTES_MAX = 16 << 20 };

/* The projections of a deep layer that only the teacher computes with. */
static bool is_dead(const skv_trainer *t, const skv_param *p)
{
    return t->config.swiftkv && p->layer >= t->config.kv_layers && strstr(p->name, "self_attn.") &&
           !strstr(p->name, "o_proj") && !strstr(p->name, "_swiftkv");
}

/* A source that came without its teacher has none to write. */
static bool is_absent(const skv_trainer *t, const skv_param *p)
{
    return is_dead(t, p) && t->source && skv_source_config(t->source)->swiftkv &&
           !skv_source_find(t->source, p->name);
}

/* What the model beside the result holds already. */
static bool is_in_base(const skv_trainer *t, const skv_param *p)
{
    return t->options->delta && !p->trainable && skv_source_find(t->source, p->name);
}

static bool is_exported(const skv_trainer *t, const skv_param *p)
{
    if ((t->options->drop_teacher && is_dead(t, p)) || is_absent(t, p)) return false;
    return !is_in_base(t, p);
}

static skv_status write_weights(const skv_trainer *t, const char *out, skv_error *err)
{
    const skv_export_set set = {skv_net_params(t->net), t->source, is_exported, false};
    return skv_export_params(t, &set, out, err);
}

static skv_status check_beside(const skv_trainer *t, const char *name, skv_error *err)
{
    char *beside = skv_path_join(t->options->out, "..");
    char *base = beside ? skv_path_join(beside, name) : NULL;
    char *config = base ? skv_path_join(base, "config.json") : NULL;
    const bool found = config && skv_file_exists(config);
    skv_free(config);
    skv_free(base);
    skv_free(beside);
    SKV_REQUIRE(found, err, SKV_ARGUMENT, "delta: %s does not lie beside %s", t->options->model,
                t->options->out);
    return SKV_OK;
}

skv_status skv_trainer_check_export(const skv_trainer *t, skv_error *err)
{
    const skv_train_options *o = t->options;
    char name[64];
    if (!o->delta) return SKV_OK;
    SKV_REQUIRE(t->source && !skv_source_gguf(t->source) && !t->config.base[0], err, SKV_ARGUMENT,
                "delta: %s is no folder with weights of its own", o->model);
    SKV_REQUIRE(t->config.swiftkv || t->auxiliary, err, SKV_ARGUMENT,
                "delta: %s gets no SwiftKV weights", o->model);
    skv_export_folder_name(o->model, name);
    SKV_REQUIRE(name[0], err, SKV_ARGUMENT, "delta: %s: expected the name of a folder", o->model);
    return check_beside(t, name, err);
}

/* What config.json says of the weights' type and of where they lie. */
static skv_config described(const skv_trainer *t)
{
    skv_config c = t->config;
    c.base[0] = 0;
    if (t->options->delta) skv_export_folder_name(t->options->model, c.base);
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
    char *path = skv_path_join(out, "config.json");
    skv_status status = make_config(t, &json, err);
    if (status == SKV_OK && (json.failed || !path)) {
        status = skv_fail(err, SKV_MEMORY, "%s: no memory for config.json", out);
    }
    if (status == SKV_OK) status = skv_file_write(path, json.data, json.size, err);
    skv_free(path);
    skv_buf_release(&json);
    return status;
}

skv_status skv_trainer_export(const skv_trainer *t, skv_error *err)
{
    const char *out = t->options->out;
    if (t->auxiliary) return skv_auxiliary_export(t, err);
    SKV_TRY(write_weights(t, out, err));
    SKV_TRY(t->source ? skv_companions_write(t->source, out, err)
                      : skv_companions_copy(t->options->model, out, err));
    return write_config(t, out, err);
}
