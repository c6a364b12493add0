/* Maps between layers, and models without some of them: see layer_maps.h. */
#include "prefill/layer_maps.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

void skv_kvpred_map_canonical(size_t n_base, size_t n_auxiliary, uint16_t *layers)
{
    size_t each = n_base / n_auxiliary, more = n_base % n_auxiliary;
    size_t first = more * (each + 1); /* base layers that are served by those with one more */
    for (size_t i = 0; i < n_base; i++) {
        size_t j = i < first ? i / (each + 1) : more + (i - first) / each;
        layers[i] = (uint16_t)j;
    }
}

void skv_kvpred_map_pruned(size_t n_base, const uint16_t *kept, size_t n_kept, uint16_t *layers)
{
    size_t j = 0;
    for (size_t i = 0; i < n_base; i++) {
        while (j + 1 < n_kept && kept[j + 1] <= i) j++;
        layers[i] = (uint16_t)j;
    }
}

size_t skv_kvpred_kept(size_t n_base, size_t quarters, uint16_t *kept)
{
    size_t n = 0;
    for (size_t i = 0; i < n_base; i++) {
        bool keeps = quarters == 3 ? i % 4 != 3 : i % (4 / quarters) == 0;
        if (keeps) kept[n++] = (uint16_t)i;
    }
    return n;
}

size_t skv_kvpred_quarters(const char *name)
{
    static const struct {
        const char *name;
        size_t quarters;
    } all[] = {{"lp-0.25", 1}, {"lp-0.50", 2}, {"lp-0.5", 2}, {"lp-0.75", 3}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (strcmp(all[i].name, name) == 0) return all[i].quarters;
    }
    return 0;
}

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
