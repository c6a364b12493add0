/*
 * KV Prediction in config.json (arXiv:2410.08391), in addition to the base model's own keys:
 *
 *     "swiftkv_base": "our-base",                        where the base's weights are not here
 *     "kv_prediction": {"auxiliary": "auxiliary",        a folder inside this one
 *                       "layers": [0, 0, 1, 1, ...]}     of the auxiliary, one for each of the base
 *
 * The predictor's weights are in predictor.safetensors (src/engine/prefill/kvpred.h).
 */
#include <stdio.h>
#include <string.h>

#include "format/config.h"
#include "format/config_build.h"

enum { CONFIG_BYTES_MAX = 16 << 20 };

static void read_layers(skv_json_reader *r, skv_config *c)
{
    const json_t *list = skv_json_get(r, "layers");
    if (!json_is_array(list) || json_array_size(list) != c->n_layers) {
        char expected[64];
        (void)snprintf(expected, sizeof expected, "a list of %zu layers", c->n_layers);
        skv_json_refuse(r, "kv_prediction.layers", list, expected);
        return;
    }
    for (size_t i = 0; i < c->n_layers; i++) {
        const json_t *item = json_array_get(list, i);
        size_t j = skv_json_size_of(r, item, "kv_prediction.layers", SKV_LAYERS_MAX - 1);
        c->kvp_layers[i] = (uint16_t)j;
    }
}

void skv_config_read_kvp(skv_json_reader *outer, skv_config *c)
{
    if (!skv_json_get(outer, "kv_prediction")) return;
    skv_json_reader r = skv_json_child(outer, "kv_prediction");
    const char *folder = skv_json_text(&r, "auxiliary", "auxiliary");
    const bool plain = folder[0] && folder[0] != '.' && !strchr(folder, '/') &&
                       strlen(folder) < sizeof c->auxiliary;
    if (!plain) {
        skv_json_refuse(&r, "kv_prediction.auxiliary", skv_json_get(&r, "auxiliary"),
                        "the name of a folder inside this one");
    }
    if (r.status == SKV_OK) {
        c->kv_prediction = true;
        (void)snprintf(c->auxiliary, sizeof c->auxiliary, "%s", folder);
        read_layers(&r, c);
    }
    if (c->swiftkv && r.status == SKV_OK) {
        r.status = skv_fail(r.err, SKV_UNSUPPORTED,
                            "%s: kv_prediction: the base is a SwiftKV model (%s), which already "
                            "says where deep layers take their keys and values from",
                            r.name, c->architecture);
    }
    if (outer->status == SKV_OK) outer->status = r.status;
}

static json_t *layer_list(const skv_config *c)
{
    json_t *list = json_array();
    for (size_t i = 0; i < c->n_layers; i++) {
        (void)json_array_append_new(list, json_integer(c->kvp_layers[i]));
    }
    return list;
}

skv_status skv_config_json_for_kvp(const char *json, size_t n, const char *name,
                                   const skv_config *c, skv_buf *out, skv_error *err)
{
    json_t *root = NULL;
    SKV_TRY(skv_json_load(json, n, CONFIG_BYTES_MAX, name, &root, err));
    if (!json_is_object(root)) {
        json_decref(root);
        return skv_fail(err, SKV_FORMAT, "%s: expected a JSON object", name);
    }
    json_t *kvp = json_pack("{s:s, s:o}", "auxiliary", c->auxiliary, "layers", layer_list(c));
    bool ok = kvp && json_object_set_new(root, "kv_prediction", kvp) == 0;
    if (ok && c->base[0]) {
        ok = json_object_set_new(root, "swiftkv_base", json_string(c->base)) == 0;
    }
    ok = ok && skv_json_print(out, root);
    json_decref(root);
    SKV_REQUIRE(ok, err, SKV_MEMORY, "%s: no memory, or no room, for config.json", name);
    return SKV_OK;
}
