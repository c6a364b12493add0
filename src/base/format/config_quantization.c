/* quantization_config of config.json -> skv_config: see config_build.h. */
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
    c->quant.group = all ? 0 : skv_json_size(q, "group_size", 0, SIZE_MAX / 2);
    const char *version = skv_json_text(q, "version", "gemm");
    const char *layout = skv_json_text(q, "checkpoint_format", "gptq");
    c->quant.zeros_minus_one = !awq && strcmp(layout, "gptq_v2") != 0;
    if (q->status != SKV_OK) return;
    if (bits != 4) {
        q->status = skv_fail(q->err, SKV_UNSUPPORTED,
                             "%s: quantization_config: bits %zu of %s is not supported", q->name,
                             bits, c->quant.method);
    } else if (awq && strcmp(version, "gemm") != 0 && strcmp(version, "GEMM") != 0) {
        q->status = skv_fail(q->err, SKV_UNSUPPORTED,
                             "%s: quantization_config: version %.40s of awq is not supported",
                             q->name, version);
    } else if (!awq && strcmp(layout, "gptq") != 0 && strcmp(layout, "gptq_v2") != 0) {
        q->status = skv_fail(q->err, SKV_UNSUPPORTED,
                             "%s: quantization_config: checkpoint_format %.40s is not supported",
                             q->name, layout);
    }
}

static void read_block_size(skv_json_reader *q, skv_config *c)
{
    const json_t *block = skv_json_get(q, "weight_block_size");
    if (!block) return;
    if (!json_is_array(block) || json_array_size(block) != 2) {
        skv_json_refuse(q, "weight_block_size", block, "two integers");
        return;
    }
    for (size_t i = 0; i < 2; i++) {
        c->quant.block[i] =
            skv_json_size_of(q, json_array_get(block, i), "weight_block_size", 1 << 20);
        if (c->quant.block[i] == 0 && q->status == SKV_OK) {
            q->status = skv_fail(q->err, SKV_RANGE, "%s: weight_block_size: 0, expected 1 or more",
                                 q->name);
        }
    }
}

void skv_config_read_quantization(skv_json_reader *r, skv_config *c)
{
    static const char *const methods[] = {
        "compressed-tensors", "fp8", "fbgemm_fp8", "awq", "gptq", "mxfp4"};
    static const char *const formats[] = {"pack-quantized",  "float-quantized",
                                          "int-quantized",   "naive-quantized",
                                          "mixed-precision", "mxfp4-pack-quantized"};
    skv_json_reader q = skv_json_child(r, "quantization_config");
    if (r->status == SKV_OK) r->status = q.status;
    const char *method = skv_json_text(&q, "quant_method", "unnamed");
    const char *format = skv_json_text(&q, "format", "");
    const bool by_format = strcmp(method, "compressed-tensors") == 0;
    const bool known = is_one_of(method, methods, sizeof methods / sizeof *methods) &&
                       (!by_format || is_one_of(format, formats, sizeof formats / sizeof *formats));
    if (!q.object || r->status != SKV_OK) return;
    if (!known) {
        r->status = skv_fail(r->err, SKV_UNSUPPORTED,
                             "%s: quantization_config: quant_method %.60s%s%.60s is not supported",
                             r->name, method, format[0] ? ", format " : "", format);
        return;
    }
    (void)snprintf(c->quant.method, sizeof c->quant.method, "%s", method);
    if (strcmp(method, "awq") == 0 || strcmp(method, "gptq") == 0) read_columnwise(&q, c);
    read_block_size(&q, c);
    r->status = q.status;
}
