/*
 * The auxiliary model of KV Prediction (arXiv:2410.08391, section 4.2): a smaller model of its own
 * (KVP-C) or a copy of the base with fewer layers (KVP-LP). The folder that training writes is
 * train_export.c's.
 */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "format/safetensors.h"
#include "prefill/kvpred.h"
#include "prefill/layer_maps.h"
#include "text/tokenizer.h"
#include "train/trainer.h"

enum { CONFIG_BYTES_MAX = 16 << 20 };

/* ---- which model ---- */

/* Reads the auxiliary's configuration from its folder, or from the file itself. */
static skv_status read_text(skv_auxiliary *a, const char *path, skv_error *err)
{
    const bool folder = skv_file_is_folder(path);
    char *file = folder ? skv_path_join(path, "config.json") : skv_strndup(path, strlen(path));
    SKV_REQUIRE(file, err, SKV_MEMORY, "training: no memory");
    skv_status status = skv_file_read(file, CONFIG_BYTES_MAX, &a->text, &a->n_text, err);
    if (status == SKV_OK && !a->source) {
        status = skv_config_parse(a->text, a->n_text, file, &a->own_config, err);
        a->config = &a->own_config;
    }
    skv_free(file);
    return status;
}

/* Both read the same ids. */
static skv_status compare_tokenizers(const skv_trainer *t, const char *folder, skv_error *err)
{
    skv_tokenizer *base = NULL, *own = NULL;
    const struct skv_gguf *gguf = skv_source_gguf(t->source);
    skv_status status = gguf ? skv_tokenizer_open_gguf(gguf, &base, err)
                             : skv_tokenizer_open_folder(t->options->model, &base, err);
    if (status == SKV_OK) status = skv_tokenizer_open_folder(folder, &own, err);
    if (status == SKV_OK && base && own)
        status = skv_tokenizer_compare(base, own, folder, "auxiliary model", err);
    skv_tokenizer_free(base);
    skv_tokenizer_free(own);
    return status;
}

/* A folder with weights, one with nothing but a configuration, or such a file. */
static skv_status open_model(skv_trainer *t, const char *path, skv_error *err)
{
    skv_auxiliary *a = t->auxiliary;
    const bool folder = skv_file_is_folder(path);
    const bool weights = folder && skv_safetensors_are_in(path);
    if (weights) {
        SKV_TRY(skv_source_open(path, &a->source, err));
        a->config = skv_source_config(a->source);
    }
    if (folder) SKV_TRY(compare_tokenizers(t, path, err));
    return read_text(a, path, err);
}

/* The base without some of its layers. */
static skv_status prune(skv_trainer *t, size_t quarters, skv_error *err)
{
    skv_auxiliary *a = t->auxiliary;
    const skv_config *base = &t->config;
    size_t n = skv_kvpred_kept(base->n_layers, quarters, a->kept);
    SKV_TRY(skv_kept_layers_config(base, a->kept, n, &a->own_config, err));
    a->config = &a->own_config;
    a->pruned = true;
    skv_kvpred_map_pruned(base->n_layers, a->kept, n, a->layers);
    return SKV_OK;
}

/* The auxiliary and the predictor of a folder that training wrote before. */
static skv_status go_on(skv_trainer *t, skv_error *err)
{
    skv_auxiliary *a = t->auxiliary;
    const char *model = t->options->model;
    SKV_REQUIRE(t->config.kv_prediction, err, SKV_ARGUMENT,
                "%s: it has no auxiliary model: say which one is trained", model);
    char *folder = skv_path_join(model, t->config.auxiliary);
    a->path = skv_path_join(model, SKV_KVPRED_FILE);
    skv_status status = folder && a->path ? open_model(t, folder, err)
                                          : skv_fail(err, SKV_MEMORY, "%s: no memory", model);
    if (status == SKV_OK) status = skv_safetensors_open(a->path, &a->file, err);
    if (status == SKV_OK) memcpy(a->layers, t->config.kvp_layers, sizeof a->layers);
    skv_free(folder);
    return status;
}

/* "0,0,1,1" */
static skv_status parse_layers(const char *text, size_t n, size_t n_own, uint16_t *out,
                               skv_error *err)
{
    const char *at = text;
    for (size_t i = 0; i < n; i++) {
        char *end;
        unsigned long j = strtoul(at, &end, 10);
        const bool separated = i + 1 < n ? *end == ',' : *end == 0;
        SKV_REQUIRE(end > at && *at >= '0' && *at <= '9' && separated && j < n_own, err,
                    SKV_ARGUMENT, "layers: '%.80s', expected %zu numbers below %zu", text, n,
                    n_own);
        out[i] = (uint16_t)j;
        at = end + 1;
    }
    return SKV_OK;
}

static skv_status set_layers(skv_trainer *t, skv_error *err)
{
    skv_auxiliary *a = t->auxiliary;
    const skv_train_options *o = t->options;
    size_t n = t->config.n_layers, n_own = a->config->n_layers;
    if (o->kvp_layers) return parse_layers(o->kvp_layers, n, n_own, a->layers, err);
    if (a->pruned || a->file) return SKV_OK;
    SKV_REQUIRE(n_own <= n, err, SKV_ARGUMENT,
                "training: the auxiliary has %zu layers, more than the base's %zu: say by `layers` "
                "which of them predict",
                n_own, n);
    skv_kvpred_map_canonical(n, n_own, a->layers);
    return SKV_OK;
}

static skv_status check(const skv_trainer *t, skv_error *err)
{
    const skv_train_options *o = t->options;
    const char *what = NULL;
    if (t->config.swiftkv) what = "a SwiftKV base";
    if (skv_source_gguf(t->source)) what = "a GGUF file as the base";
    if (o->early_exit) what = "early-exit";
    if (o->loss != SKV_TRAIN_LM) what = "loss kl";
    if (o->part != SKV_TRAIN_ALL)
        what = "trainable: all of the auxiliary and the predictor are, not less,";
    if (o->drop_teacher) what = "drop-teacher";
    SKV_REQUIRE(!what, err, SKV_UNSUPPORTED,
                "training: task kvpred: %s is not supported with this task", what);
    SKV_REQUIRE(o->base_loss > 0 || o->auxiliary_loss > 0 || o->consistency_loss != 0, err,
                SKV_ARGUMENT, "training: task kvpred: all three losses have weight 0");
    return SKV_OK;
}

skv_status skv_auxiliary_open(skv_trainer *t, skv_error *err)
{
    const skv_train_options *o = t->options;
    SKV_TRY(check(t, err));
    t->auxiliary = skv_alloc_zero(1, sizeof *t->auxiliary);
    SKV_REQUIRE(t->auxiliary, err, SKV_MEMORY, "training: no memory");
    const size_t quarters = o->auxiliary ? skv_kvpred_quarters(o->auxiliary) : 0;
    if (!o->auxiliary) {
        SKV_TRY(go_on(t, err));
    } else if (quarters) {
        SKV_TRY(prune(t, quarters, err));
    } else {
        SKV_TRY(open_model(t, o->auxiliary, err));
    }
    SKV_REQUIRE(!t->auxiliary->config->kv_prediction, err, SKV_ARGUMENT,
                "%s: it has an auxiliary model itself", o->auxiliary ? o->auxiliary : o->model);
    return set_layers(t, err);
}

void skv_auxiliary_close(skv_auxiliary *a)
{
    if (!a) return;
    skv_safetensors_close(a->file);
    skv_source_close(a->source);
    skv_config_release(&a->own_config);
    skv_free(a->text);
    skv_free(a->path);
    skv_free(a);
}

json_t *skv_auxiliary_layers(const skv_trainer *t)
{
    json_t *list = json_array();
    for (size_t i = 0; i < t->config.n_layers; i++) {
        (void)json_array_append_new(list, json_integer(t->auxiliary->layers[i]));
    }
    return list;
}
