/* The table of K,V sources: see plan.h. */
#include "model/plan.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"

skv_status skv_plan_init(skv_plan *plan, size_t n_layers, bool skip, skv_error *err)
{
    *plan = (skv_plan){.n_layers = n_layers, .skip = skip};
    plan->layers = skv_alloc_zero(n_layers, sizeof *plan->layers);
    SKV_REQUIRE(plan->layers, err, SKV_MEMORY, "plan: no memory for %zu layers", n_layers);
    return SKV_OK;
}

skv_status skv_plan_finish(skv_plan *plan, const skv_config *config, skv_error *err)
{
    size_t n_slots = 0;
    for (size_t i = 0; i < plan->n_layers; i++) {
        const skv_plan_layer *layer = &plan->layers[i];
        assert(layer->kv_boundary <= i);
        plan->last_boundary = skv_max_size(plan->last_boundary, layer->kv_boundary);
        n_slots = skv_max_size(n_slots, layer->slot + 1);
    }
    size_t *n_heads = skv_alloc_zero(n_slots, sizeof *n_heads);
    SKV_REQUIRE(n_heads, err, SKV_MEMORY, "plan: no memory for %zu slots", n_slots);
    for (size_t i = 0; i < plan->n_layers; i++) {
        const skv_layer_shape *shape = &config->layers[i];
        n_heads[plan->layers[i].slot] = plan->by_query_head ? shape->n_heads : shape->n_kv_heads;
    }
    skv_status status = skv_kv_layout_init(&plan->layout, n_heads, n_slots, err);
    skv_free(n_heads);
    return status;
}

skv_status skv_plan_spread(skv_plan *plan, const skv_plan *from, const skv_config *config,
                           skv_error *err)
{
    SKV_TRY(skv_plan_init(plan, from->n_layers, from->skip, err));
    memcpy(plan->layers, from->layers, from->n_layers * sizeof *plan->layers);
    plan->by_query_head = true;
    return skv_plan_finish(plan, config, err);
}

void skv_plan_release(skv_plan *plan)
{
    skv_free(plan->layers);
    skv_kv_layout_release(&plan->layout);
    *plan = (skv_plan){0};
}
