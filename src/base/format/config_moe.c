/* Mixtures of experts in a configuration: see config.h and config_build.h. */
#include <math.h>

#include "format/config_build.h"

enum { EXPERTS_MAX = 4096, ROUTER_LOSS_MAX = 1000 };

uint64_t skv_config_expert_weights(const skv_config *c, size_t i)
{
    return skv_config_block_matrices(c) * (uint64_t)skv_config_expert_columns(c) * c->layers[i].ffn;
}

uint64_t skv_config_block_weights(const skv_config *c, size_t i)
{
    const skv_layer_shape *l = &c->layers[i];
    const uint64_t D = c->hidden, n = skv_config_block_matrices(c);
    if (l->n_experts == 0) return n * D * l->ffn;
    const uint64_t gate = l->ffn_shared > 0 && !c->shared_plain ? D : 0;
    return D * l->n_experts + c->n_active * skv_config_expert_weights(c, i) +
           n * D * (l->ffn_beside + l->ffn_shared) + gate + 2 * D * c->moe_latent;
}

/* Layers that mlp_only_layers lists have a dense block. */
static bool is_listed(skv_json_reader *r, const json_t *list, size_t i)
{
    bool found = false;
    for (size_t j = 0; j < json_array_size(list); j++) {
        const json_t *value = json_array_get(list, j);
        if (!json_is_integer(value)) skv_json_refuse(r, "mlp_only_layers", value, "integers");
        found = found || json_integer_value(value) == (json_int_t)i;
    }
    return found;
}

void skv_config_read_moe(skv_json_reader *r, const skv_moe_defaults *defaults, skv_config *c)
{
    const size_t most = SIZE_MAX / 2;
    if (defaults->n_experts == 0) return;
    const char *named = skv_json_get(r, "num_experts") ? "num_experts" : "num_local_experts";
    const size_t n_experts = skv_json_size(r, named, defaults->n_experts, most);
    c->n_active = skv_json_size(r, "num_experts_per_tok", defaults->n_active, most);
    c->norm_topk = !defaults->by_key || skv_json_bool(r, "norm_topk_prob", defaults->normed);
    c->router_loss = skv_json_double(r, "router_aux_loss_coef", 0.0);
    const size_t step = defaults->ffn ? skv_json_size(r, "decoder_sparse_step", 1, most) : 1;
    const size_t ffn = skv_json_size(r, "moe_intermediate_size", defaults->ffn, most);
    const size_t shared = defaults->ffn_shared ? skv_json_size(r, "shared_expert_intermediate_size",
                                                               defaults->ffn_shared, most)
                                               : 0;
    const json_t *dense = defaults->ffn ? skv_json_get(r, "mlp_only_layers") : NULL;
    if (dense && !json_is_array(dense)) skv_json_refuse(r, "mlp_only_layers", dense, "a list");
    if (r->status == SKV_OK && (step == 0 || n_experts == 0)) {
        skv_json_fail(r, SKV_RANGE, "%s 0, expected 1 or more",
                      step == 0 ? "decoder_sparse_step" : named);
    }
    for (size_t i = 0; i < c->n_layers && r->status == SKV_OK; i++) {
        if ((i + 1) % step != 0 || is_listed(r, dense, i)) continue;
        c->layers[i].n_experts = n_experts;
        c->layers[i].ffn_shared = shared;
        if (defaults->ffn) c->layers[i].ffn = ffn;
    }
}

skv_status skv_config_check_moe(const skv_config *c, const char *name, skv_error *err)
{
    for (size_t i = 0; i < c->n_layers; i++) {
        const size_t n = c->layers[i].n_experts;
        if (n == 0) continue;
        SKV_REQUIRE(n <= EXPERTS_MAX, err, SKV_RANGE, "%s: %s %zu (layer %zu), expected 1 to %d",
                    name, skv_config_field_name(c, SKV_CONFIG_FIELD_EXPERTS).text, n, i,
                    EXPERTS_MAX);
        SKV_REQUIRE(c->n_active >= 1 && c->n_active <= n, err, SKV_RANGE,
                    "%s: %s %zu, expected 1 to the %zu experts of layer %zu", name,
                    skv_config_field_name(c, SKV_CONFIG_FIELD_ACTIVE).text, c->n_active, n, i);
    }
    SKV_REQUIRE(c->router_loss >= 0.0 && c->router_loss <= ROUTER_LOSS_MAX, err, SKV_RANGE,
                "%s: router_aux_loss_coef %g, expected 0 to %d", name, c->router_loss,
                ROUTER_LOSS_MAX);
    if (c->activation != SKV_ACT_SWIGLU_CLAMPED) return SKV_OK;
    SKV_REQUIRE(isfinite(c->swiglu_limit) && c->swiglu_limit > 0.0, err, SKV_RANGE,
                "%s: swiglu_limit %g, expected a positive number", name, c->swiglu_limit);
    SKV_REQUIRE(isfinite(c->swiglu_alpha) && c->swiglu_alpha > 0.0, err, SKV_RANGE,
                "%s: swiglu_alpha %g, expected a positive number", name, c->swiglu_alpha);
    return SKV_OK;
}
