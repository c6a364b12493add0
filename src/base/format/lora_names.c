/*
 * An adapter's names -> ours, as the names of a model's tensors (source_names.c): B has the rows of
 * the matrix that it adds to, so that it is cut and its rows are ordered as that matrix is. The
 * parts of a fused matrix share A.
 */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "format/lora.h"
#include "format/source_impl.h"

/* Adds B's parts under the names of whole weights. */
static skv_status add_parts(const skv_lora_pair *pair, const skv_name_scheme *scheme,
                            skv_source *parts, skv_error *err)
{
    char name[SKV_LORA_NAME_BYTES + sizeof ".weight"], buffer[SKV_LORA_NAME_BYTES + 64];
    (void)snprintf(name, sizeof name, "%s.weight", pair->name);
    const char *text =
        skv_text_part_name(name, skv_config_has_images(&parts->config), buffer, sizeof buffer);
    SKV_REQUIRE(text, err, SKV_UNSUPPORTED, "%s: %s: of a part that reads no text", parts->path,
                pair->name);
    parts->config.hidden = pair->b.dims[1]; /* a fused W is checked as [N, hidden]; B is [N, r] */
    return skv_source_add_renamed(parts, scheme, text, &pair->b, err);
}

static skv_status put_part(const skv_lora_pair *from, const skv_source *parts, size_t i,
                           skv_lora_pair *out, skv_error *err)
{
    const char *name = parts->names[i];
    const size_t n = strlen(name), n_end = strlen(".weight");
    const bool is_weight = n > n_end && strcmp(name + n - n_end, ".weight") == 0;
    SKV_REQUIRE(is_weight && n - n_end < SKV_LORA_NAME_BYTES, err, SKV_UNSUPPORTED,
                "%s: %s: not a matrix that an adapter can change", parts->path, from->name);
    *out = (skv_lora_pair){.a = from->a, .b = parts->tensors[i], .scale = from->scale};
    memcpy(out->name, name, n - n_end);
    out->b.name = from->b.name;
    return SKV_OK;
}

static skv_status rename_pairs(skv_lora *lora, const skv_name_scheme *scheme, skv_source *parts,
                               skv_lora_pair **out, skv_error *err)
{
    size_t *ends = skv_alloc(lora->n_pairs, sizeof *ends); /* of the parts of each pair */
    skv_status status = ends ? SKV_OK : skv_fail(err, SKV_MEMORY, "%s: no memory", lora->path);
    for (size_t i = 0; i < lora->n_pairs && status == SKV_OK; i++) {
        const size_t before = parts->n;
        status = add_parts(&lora->pairs[i], scheme, parts, err);
        ends[i] = parts->n;
        if (status == SKV_OK && parts->n == before) {
            status = skv_fail(err, SKV_UNSUPPORTED, "%s: %s: the model has no such matrix",
                              lora->path, lora->pairs[i].name);
        }
    }
    *out = status == SKV_OK ? skv_alloc_zero(parts->n, sizeof **out) : NULL;
    if (status == SKV_OK && !*out) status = skv_fail(err, SKV_MEMORY, "%s: no memory", lora->path);
    for (size_t i = 0, j = 0; i < lora->n_pairs && status == SKV_OK; i++) {
        for (; j < ends[i] && status == SKV_OK; j++) {
            status = put_part(&lora->pairs[i], parts, j, &(*out)[j], err);
        }
    }
    skv_free(ends);
    return status;
}

skv_status skv_lora_rename(skv_lora *lora, const skv_config *config, skv_error *err)
{
    const skv_name_scheme *scheme =
        lora->gguf ? skv_gguf_scheme(config->architecture) : skv_folder_scheme(config, false);
    skv_source parts = {.path = lora->path, .config = *config};
    skv_lora_pair *pairs = NULL;
    const skv_status status = rename_pairs(lora, scheme, &parts, &pairs, err);
    if (status == SKV_OK) {
        skv_free(lora->pairs);
        lora->pairs = pairs;
        lora->n_pairs = parts.n;
    } else {
        skv_free(pairs);
    }
    for (size_t i = 0; i < parts.n; i++) skv_free(parts.names[i]);
    skv_free(parts.names);
    skv_free(parts.tensors);
    return status;
}
