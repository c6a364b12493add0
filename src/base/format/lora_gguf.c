/*
 * GGUF adapters: general.type = "adapter", adapter.type = "lora", adapter.lora.alpha, and the
 * tensors "NAME.lora_a" [r, K] and "NAME.lora_b" [N, r] beside the name that a model's file has.
 */
#include <string.h>

#include "format/gguf.h"
#include "format/lora.h"

static skv_status require_text(const skv_lora *lora, const char *key, const char *expected,
                               skv_error *err)
{
    const skv_gguf_value *value = skv_gguf_find(lora->gguf, key);
    const char *text = "";
    size_t n = 0;
    if (value) SKV_TRY(skv_gguf_string(value, &text, &n, err));
    SKV_REQUIRE(n == strlen(expected) && memcmp(text, expected, n) == 0, err, SKV_FORMAT,
                "%s: %s: \"%.*s\", expected \"%s\"", lora->path, key, (int)(n < 64 ? n : 64), text,
                expected);
    return SKV_OK;
}

/* "blk.3.attn_q.weight.lora_a" */
static skv_status put_tensor(skv_lora *lora, const skv_tensor *t, skv_error *err)
{
    const size_t n = strlen(t->name), n_end = strlen(".weight.lora_a");
    const char *end = n > n_end ? t->name + n - n_end : "";
    const bool is_b = strcmp(end, ".weight.lora_b") == 0;
    SKV_REQUIRE(is_b || strcmp(end, ".weight.lora_a") == 0, err, SKV_UNSUPPORTED,
                "%s: %s: expected \"MATRIX.weight.lora_a\" or \"lora_b\"", lora->path, t->name);
    return skv_lora_put(lora, t->name, n - n_end, is_b, t, err);
}

skv_status skv_lora_read_gguf(skv_lora *lora, skv_error *err)
{
    SKV_TRY(skv_gguf_open(lora->path, &lora->gguf, err));
    SKV_TRY(require_text(lora, "general.type", "adapter", err));
    SKV_TRY(require_text(lora, "adapter.type", "lora", err));
    const skv_gguf_value *value = skv_gguf_find(lora->gguf, "adapter.lora.alpha");
    double alpha = 0;
    if (value) SKV_TRY(skv_gguf_f64(value, &alpha, err));
    const size_t n = skv_gguf_tensor_count(lora->gguf);
    SKV_TRY(skv_lora_take(lora, n, err));
    for (size_t i = 0; i < n; i++) {
        SKV_TRY(put_tensor(lora, skv_gguf_tensor_at(lora->gguf, i), err));
    }
    for (size_t i = 0; i < lora->n_pairs; i++) {
        skv_lora_pair *pair = &lora->pairs[i];
        const size_t rank = pair->b.n_dims == 2 ? pair->b.dims[1] : 0;
        pair->scale = alpha != 0 && rank > 0 ? (float)(alpha / (double)rank) : 1.0F;
    }
    return SKV_OK;
}
