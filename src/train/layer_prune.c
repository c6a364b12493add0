/* See layer_prune.h. */
#include "train/layer_prune.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/mem.h"
#include "prefill/kvpred.h"

skv_status skv_kept_layers_parse(const char *text, size_t n_layers, skv_kept_layers *out,
                                 skv_error *err)
{
    const size_t quarters = skv_kvpred_quarters(text);
    *out = (skv_kept_layers){.n = 0};
    if (quarters) {
        out->n = skv_kvpred_kept(n_layers, quarters, out->at);
        return SKV_OK;
    }
    for (const char *at = text;;) {
        char *end;
        const unsigned long i = strtoul(at, &end, 10);
        const bool number = *at >= '0' && *at <= '9' && (*end == ',' || *end == 0);
        SKV_REQUIRE(number && i < n_layers && (out->n == 0 || i > out->at[out->n - 1]), err,
                    SKV_ARGUMENT,
                    "keep layers: '%.80s', expected ascending numbers below %zu, or lp-0.25, "
                    "lp-0.50, lp-0.75",
                    text, n_layers);
        out->at[out->n++] = (uint16_t)i;
        if (*end == 0) return SKV_OK;
        at = end + 1;
    }
}

skv_status skv_kept_layers_config(const skv_config *from, const uint16_t *kept, size_t n,
                                  skv_config *out, skv_error *err)
{
    skv_layer_shape *layers = skv_alloc(n, sizeof *layers);
    SKV_REQUIRE(layers, err, SKV_MEMORY, "layers: no memory for %zu", n);
    for (size_t j = 0; j < n; j++) layers[j] = from->layers[kept[j]];
    *out = *from;
    out->layers = layers;
    out->n_layers = out->kv_layers = n;
    out->kv_group = 1;
    out->kv_prediction = false;
    out->base[0] = 0;
    return SKV_OK;
}

bool skv_kept_layers_name(const skv_kept_layers *kept, const char *name, char *out, size_t n_out)
{
    static const char prefix[] = "model.layers.";
    const size_t n = sizeof prefix - 1;
    if (strncmp(name, prefix, n) != 0) {
        (void)snprintf(out, n_out, "%s", name);
        return true;
    }
    char *rest;
    const unsigned long i = strtoul(name + n, &rest, 10);
    for (size_t j = 0; j < kept->n; j++) {
        if (kept->at[j] != i) continue;
        (void)snprintf(out, n_out, "%s%zu%s", prefix, j, rest);
        return true;
    }
    return false;
}
