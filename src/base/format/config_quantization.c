/* quantization_config of config.json -> skv_config: see config_build.h. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "format/config_build.h"

static bool is_one_of(const char *text, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(text, list[i]) == 0) return true;
    }
    return false;
}

/* GPTQ's and AWQ's own fields. */
static void read_columnwise(skv_json_reader *q, skv_config *c)
{
    const bool awq = strcmp(c->quant.method, "awq") == 0;
    const size_t bits = skv_json_size(q, "bits", 4, 64);
    const json_t *group = skv_json_get(q, "group_size");
    const bool all = json_is_integer(group) && json_integer_value(group) == -1;
    c->quant.schemes[0] =
        (skv_quant_scheme){bits, all ? 0 : skv_json_size(q, "group_size", 0, SIZE_MAX / 2),
                           !awq && skv_json_bool(q, "desc_act", false)};
    c->quant.n_schemes = 1;
    const char *version = skv_json_text(q, "version", "gemm");
    const char *layout = skv_json_text(q, "checkpoint_format", "gptq");
    c->quant.zeros_minus_one = !awq && strcmp(layout, "gptq_v2") != 0;
    if (q->status != SKV_OK) return;
    if (bits != 4) {
        skv_json_fail(q, SKV_UNSUPPORTED, "quantization_config: bits %zu of %s is not supported",
                      bits, c->quant.method);
    } else if (awq && strcmp(version, "gemm") != 0 && strcmp(version, "GEMM") != 0) {
        skv_json_fail(q, SKV_UNSUPPORTED,
                      "quantization_config: version %.40s of awq is not supported", version);
    } else if (!awq && strcmp(layout, "gptq") != 0 && strcmp(layout, "gptq_v2") != 0) {
        skv_json_fail(q, SKV_UNSUPPORTED,
                      "quantization_config: checkpoint_format %.40s is not supported", layout);
    }
}

static void read_block_size(skv_json_reader *q, const char *key, size_t out[2])
{
    const json_t *block = skv_json_get(q, key);
    if (!block) return;
    if (!json_is_array(block) || json_array_size(block) != 2) {
        skv_json_refuse(q, key, block, "two integers");
        return;
    }
    for (size_t i = 0; i < 2; i++) {
        out[i] = skv_json_size_of(q, json_array_get(block, i), key, 1 << 20);
        if (out[i] == 0) skv_json_fail(q, SKV_RANGE, "%s: 0, expected 1 or more", key);
    }
}

/* How a group of modules orders its columns: "group" and its older spellings, or not at all. */
static bool is_ordered(const json_t *actorder)
{
    const char *text = json_string_value(actorder);
    return json_is_true(actorder) ||
           (text && (strcmp(text, "group") == 0 || strcmp(text, "dynamic") == 0));
}

/* Reads the weights of one group of modules. All groups share one block size. */
static void read_scheme(skv_json_reader *w, skv_config *c)
{
    static const char key[] = "block_structure";
    const json_t *group = skv_json_get(w, "group_size");
    const bool all = json_is_integer(group) && json_integer_value(group) < 0;
    const skv_quant_scheme scheme = {skv_json_size(w, "num_bits", 0, 64),
                                     all ? 0 : skv_json_size(w, "group_size", 0, SIZE_MAX / 2),
                                     is_ordered(skv_json_get(w, "actorder"))};
    size_t block[2] = {0, 0};
    if (json_is_array(skv_json_get(w, key))) read_block_size(w, key, block);
    if (c->quant.n_schemes < SKV_QUANT_SCHEMES_MAX) c->quant.schemes[c->quant.n_schemes] = scheme;
    c->quant.n_schemes++;
    if (block[0] == 0 || w->status != SKV_OK) return;
    if (c->quant.block[0] && memcmp(block, c->quant.block, sizeof block) != 0) {
        skv_json_fail(w, SKV_UNSUPPORTED, "quantization_config: more than one %s is not supported",
                      key);
    }
    memcpy(c->quant.block, block, sizeof block);
}

static void read_groups(skv_json_reader *q, skv_config *c)
{
    skv_json_reader groups = skv_json_child(q, "config_groups");
    json_t *all = (json_t *)(uintptr_t)groups.object; /* iterating changes nothing */
    void *at = json_object_iter(all);
    for (; at && q->status == SKV_OK; at = json_object_iter_next(all, at)) {
        skv_json_reader group = skv_json_child(&groups, json_object_iter_key(at));
        skv_json_reader weights = skv_json_child(&group, "weights");
        if (weights.object) read_scheme(&weights, c);
        q->status = weights.status;
    }
}

/* Rotations of activations that compressed-tensors asks for at run time. */
static void refuse_rotations(skv_json_reader *q)
{
    skv_json_reader rotations = skv_json_child(q, "transform_config");
    const json_t *groups = skv_json_get(&rotations, "config_groups");
    if (q->status == SKV_OK) q->status = rotations.status;
    if (json_object_size(groups) == 0 || q->status != SKV_OK) return;
    skv_json_fail(q, SKV_UNSUPPORTED, "quantization_config: transform_config is not supported");
}

void skv_config_read_quantization(skv_json_reader *r, skv_config *c)
{
    static const char *const methods[] = {
        "compressed-tensors", "fp8", "fbgemm_fp8", "awq", "gptq", "mxfp4"};
    static const char *const formats[] = {
        "pack-quantized",  "float-quantized",      "int-quantized", "naive-quantized",
        "mixed-precision", "mxfp4-pack-quantized", "dense"};
    skv_json_reader q = skv_json_child(r, "quantization_config");
    if (r->status == SKV_OK) r->status = q.status;
    const char *method = skv_json_text(&q, "quant_method", "unnamed");
    const char *format = skv_json_text(&q, "format", "");
    const bool by_format = strcmp(method, "compressed-tensors") == 0;
    const bool known = is_one_of(method, methods, sizeof methods / sizeof *methods) &&
                       (!by_format || is_one_of(format, formats, sizeof formats / sizeof *formats));
    if (r->status == SKV_OK) r->status = q.status;
    if (!q.object || r->status != SKV_OK) return;
    if (!known) {
        skv_json_fail(r, SKV_UNSUPPORTED,
                      "quantization_config: quant_method %.60s%s%.60s is not supported", method,
                      format[0] ? ", format " : "", format);
        return;
    }
    (void)snprintf(c->quant.method, sizeof c->quant.method, "%s", method);
    if (strcmp(method, "awq") == 0 || strcmp(method, "gptq") == 0) read_columnwise(&q, c);
    read_block_size(&q, "weight_block_size", c->quant.block);
    if (by_format) {
        read_groups(&q, c);
        refuse_rotations(&q);
    }
    r->status = q.status;
}
