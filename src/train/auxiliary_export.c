/*
 * What training for KV Prediction writes: the auxiliary, the predictor and, but for a delta, the
 * base (docs/kvpred.md). config.json is written last, so that a folder without it is no model.
 */
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "format/companions.h"
#include "format/config_write.h"
#include "prefill/kvpred.h"
#include "train/trainer.h"

enum { CONFIG_BYTES_MAX = 16 << 20 };
static const char FOLDER[] = "auxiliary";

static bool is_any(const skv_trainer *t, const skv_param *p)
{
    (void)t;
    (void)p;
    return true;
}

static bool is_map(const skv_trainer *t, const skv_param *p)
{
    (void)t;
    return strncmp(p->name, "predictor.", 10) == 0;
}

static bool is_own(const skv_trainer *t, const skv_param *p)
{
    return !is_map(t, p);
}

static skv_status write_text(const char *folder, const char *text, size_t n, skv_error *err)
{
    char *path = skv_path_join(folder, "config.json");
    skv_status status = path ? skv_file_write(path, text, n, err)
                             : skv_fail(err, SKV_MEMORY, "%s: no memory", folder);
    skv_free(path);
    return status;
}

/* auxiliary/: a model like any other. Its configuration is as it was given, but that files of
 * other names are presented under Llama's. */
static skv_status write_auxiliary(const skv_trainer *t, const char *folder, skv_error *err)
{
    const skv_auxiliary *a = t->auxiliary;
    const skv_source *types = a->pruned ? t->source : a->source;
    const skv_export_set set = {skv_net_params(t->net), types, is_own, false};
    skv_buf json;
    SKV_TRY(skv_folder_create(folder, err));
    SKV_TRY(skv_export_params(t, &set, folder, err));
    SKV_TRY(skv_companions_write(t->source, folder, err));
    if (!a->pruned) return write_text(folder, a->text, a->n_text, err);
    skv_buf_init(&json, CONFIG_BYTES_MAX);
    skv_status status = skv_config_json_from_config(a->config, &json, err);
    if (status == SKV_OK) status = write_text(folder, json.data, json.size, err);
    skv_buf_release(&json);
    return status;
}

/* config.json of the folder: the base's, and what is new. */
static skv_status write_config(const skv_trainer *t, skv_error *err)
{
    const char *out = t->options->out, *model = t->options->model;
    skv_config c = t->config;
    skv_buf json;
    char *path = skv_path_join(model, "config.json"), *text = NULL;
    size_t n = 0;
    c.base[0] = 0;
    if (t->options->delta) skv_export_folder_name(model, c.base);
    memcpy(c.auxiliary, FOLDER, sizeof FOLDER);
    memcpy(c.kvp_layers, t->auxiliary->layers, sizeof c.kvp_layers);
    skv_buf_init(&json, CONFIG_BYTES_MAX);
    skv_status status = path ? skv_file_read(path, CONFIG_BYTES_MAX, &text, &n, err)
                             : skv_fail(err, SKV_MEMORY, "%s: no memory", model);
    if (status == SKV_OK) status = skv_config_json_for_kvp(text, n, path, &c, &json, err);
    if (status == SKV_OK) status = write_text(out, json.data, json.size, err);
    skv_free(text);
    skv_free(path);
    skv_buf_release(&json);
    return status;
}

static skv_status write_predictor(const skv_trainer *t, skv_error *err)
{
    char *path = skv_path_join(t->options->out, SKV_KVPRED_FILE);
    SKV_REQUIRE(path, err, SKV_MEMORY, "%s: no memory", t->options->out);
    const skv_export_set set = {skv_net_params(t->net), t->source, is_map, true};
    skv_status status = skv_export_params(t, &set, path, err);
    skv_free(path);
    return status;
}

skv_status skv_auxiliary_export(const skv_trainer *t, skv_error *err)
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
        const skv_export_set set = {params, t->source, is_any, false};
        SKV_TRY(skv_export_params(t, &set, out, err));
    }
    SKV_TRY(skv_companions_write(t->source, out, err));
    return write_config(t, err);
}
