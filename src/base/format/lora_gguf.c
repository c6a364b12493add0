/*
 * GGUF adapters: general.type = "adapter", adapter.type = "lora", adapter.lora.alpha, and the
 * tensors "NAME.lora_a" [r, K] and "NAME.lora_b" [N, r] beside the name that a model's file has.
 */
#include <stdio.h>
#include <string.h>

#include "format/gguf.h"
#include "format/lora.h"
#include "format/source_impl.h"

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

/* The rows of Llama's q and k stand in pair order, in B as in the model. */
static void mark_order(const skv_config *c, size_t i, const char *to, skv_tensor *b)
{
    const size_t n_heads =
        strncmp(to, "self_attn.q", 11) == 0 ? c->layers[i].n_heads : c->layers[i].n_kv_heads;
    if (b->n_dims != 2 || b->dims[0] != n_heads * c->head_dim || c->head_dim % 2 != 0) return;
    b->n_rope_heads = n_heads;
    b->n_rope_dims = c->ropes[0].n_rot;
}

/* "blk.3.attn_q.weight.lora_a" */
static skv_status put_tensor(skv_lora *lora, const skv_config *c, const skv_tensor *t,
                             skv_error *err)
{
    size_t i = 0, n = strlen(t->name);
    const size_t n_end = strlen(".lora_a");
    const bool is_b = n > n_end && strcmp(t->name + n - n_end, ".lora_b") == 0;
    const bool is_a = n > n_end && strcmp(t->name + n - n_end, ".lora_a") == 0;
    const char *at = t->name;
    bool in_layer = strncmp(at, "blk.", 4) == 0 && at[4] >= '0' && at[4] <= '9';
    for (at += in_layer ? 4 : 0; in_layer && *at >= '0' && *at <= '9' && i < c->n_layers; at++) {
        i = 10 * i + (size_t)(*at - '0');
    }
    in_layer = in_layer && *at == '.' && i < c->n_layers;
    const skv_name_rule *rule = in_layer ? skv_gguf_scheme(c->architecture)->layer : NULL;
    const size_t n_from = in_layer && (is_a || is_b) ? strlen(at + 1) - n_end : 0;
    while (rule && rule->from &&
           (strlen(rule->from) != n_from || memcmp(rule->from, at + 1, n_from) != 0)) {
        rule++;
    }
    const bool known = rule && rule->from &&
                       (rule->action == SKV_NAME_KEEP || rule->action == SKV_NAME_INTERLEAVE);
    SKV_REQUIRE(known, err, SKV_UNSUPPORTED,
                "%s: %s: expected \"blk.N.MATRIX.weight.lora_a\" or \"lora_b\" of a matrix of this "
                "model",
                lora->path, t->name);
    char name[SKV_LORA_NAME_BYTES];
    const int n_to = (int)(strlen(rule->to) - strlen(".weight"));
    (void)snprintf(name, sizeof name, "model.layers.%zu.%.*s", i, n_to, rule->to);
    skv_tensor marked = *t;
    if (is_b && rule->action == SKV_NAME_INTERLEAVE) mark_order(c, i, rule->to, &marked);
    return skv_lora_put(lora, name, strlen(name), is_b, &marked, err);
}

skv_status skv_lora_read_gguf(skv_lora *lora, const skv_config *config, skv_error *err)
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
        SKV_TRY(put_tensor(lora, config, skv_gguf_tensor_at(lora->gguf, i), err));
    }
    for (size_t i = 0; i < lora->n_pairs; i++) {
        skv_lora_pair *pair = &lora->pairs[i];
        const size_t rank = pair->b.n_dims == 2 ? pair->b.dims[1] : 0;
        pair->scale = alpha != 0 && rank > 0 ? (float)(alpha / (double)rank) : 1.0F;
    }
    return SKV_OK;
}
