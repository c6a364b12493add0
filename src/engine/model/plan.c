/* The table of K,V sources: see plan.h. */
#include "model/plan.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"

static void find_boundaries(skv_plan *plan)
{
    plan->stack_boundary = plan->n_layers;
    for (size_t i = 0; i < plan->n_layers; i++) {
        const skv_plan_layer *layer = &plan->layers[i];
        if (layer->kept == SKV_KEPT_NOTHING) continue;
        if (layer->kept & SKV_KEPT_STATE) plan->n_states++;
        switch (layer->source) {
        case SKV_KV_SOURCE_OWN: assert(layer->kv_boundary == i && layer->writes); break;
        case SKV_KV_SOURCE_STACK:
            assert(layer->kv_boundary <= i);
            assert(layer->writes || i > layer->kv_boundary || layer->kept == SKV_KEPT_STATE);
            assert(plan->stack_boundary == plan->n_layers ||
                   plan->stack_boundary == layer->kv_boundary);
            plan->stack_boundary = layer->kv_boundary;
            break;
        case SKV_KV_SOURCE_MODEL:
        case SKV_KV_SOURCE_DONOR: assert(!layer->writes); continue;
        }
        plan->last_boundary = skv_max_size(plan->last_boundary, layer->kv_boundary);
    }
}

/* Bit of skv_slots_spec.sides. */
static unsigned char side_of(const skv_plan *plan, size_t i)
{
    if (plan->first_layers == 0) return 0;
    return i < plan->first_layers ? 1 : 2;
}

static skv_status lay_out_slots(skv_plan *plan, const skv_config *config, skv_error *err)
{
    size_t n_slots = 0;
    for (size_t i = 0; i < plan->n_layers; i++) {
        if (plan->layers[i].slot == SKV_NO_SLOT) continue;
        n_slots = skv_max_size(n_slots, plan->layers[i].slot + 1);
    }
    skv_kv_slot *slots = skv_alloc_zero(n_slots, sizeof *slots);
    SKV_REQUIRE(slots, err, SKV_MEMORY, "plan: no memory for %zu slots", n_slots);
    for (size_t i = 0; i < plan->n_layers; i++) {
        if (plan->layers[i].slot == SKV_NO_SLOT) continue;
        const skv_layer_shape *shape = &config->layers[i];
        skv_kv_slot *slot = &slots[plan->layers[i].slot];
        /* Of the layers that read a slot, the one that sees furthest. */
        const bool all = shape->window == 0 || (slot->n_heads > 0 && slot->window == 0);
        *slot = (skv_kv_slot){.n_heads = plan->by_query_head ? shape->n_heads : shape->n_kv_heads,
                              .head_dim = skv_config_head_dim(config, i),
                              .window = all ? 0 : skv_max_size(slot->window, shape->window),
                              .sides = slot->sides | side_of(plan, i)};
    }
    skv_status status = skv_kv_layout_init(&plan->layout, slots, n_slots, err);
    skv_free(slots);
    return status;
}

/* A plan without slots, whose layers are zeroed. */
static skv_status take_layers(skv_plan *plan, size_t n_layers, bool skip, skv_error *err)
{
    *plan = (skv_plan){.n_layers = n_layers, .skip = skip};
    plan->layers = skv_alloc_zero(n_layers, sizeof *plan->layers);
    SKV_REQUIRE(plan->layers, err, SKV_MEMORY, "plan: no memory for %zu layers", n_layers);
    return SKV_OK;
}

void skv_fill_full(const skv_config *config, skv_plan_layer *layers)
{
    size_t n_slots = 0, n_states = 0;
    for (size_t i = 0; i < config->n_layers; i++) {
        const bool pages = skv_config_attends(config, i), state = skv_config_keeps_state(config, i);
        layers[i] = (skv_plan_layer){.kept = (pages ? SKV_KEPT_PAGES : SKV_KEPT_NOTHING) |
                                             (state ? SKV_KEPT_STATE : SKV_KEPT_NOTHING),
                                     .source = SKV_KV_SOURCE_OWN,
                                     .kv_boundary = i,
                                     .slot = pages ? n_slots++ : SKV_NO_SLOT,
                                     .state = state ? n_states++ : 0,
                                     .writes = true};
    }
}

skv_status skv_plan_init(skv_plan *plan, const skv_config *config, skv_plan_fill *fill, bool skip,
                         skv_error *err)
{
    SKV_TRY(take_layers(plan, config->n_layers, skip, err));
    fill(config, plan->layers);
    find_boundaries(plan);
    return lay_out_slots(plan, config, err);
}

skv_status skv_plan_spread(skv_plan *plan, const skv_plan *from, const skv_config *config,
                           skv_error *err)
{
    SKV_TRY(take_layers(plan, from->n_layers, from->skip, err));
    memcpy(plan->layers, from->layers, from->n_layers * sizeof *plan->layers);
    plan->by_query_head = true;
    plan->first_layers = from->first_layers;
    find_boundaries(plan);
    SKV_TRY(lay_out_slots(plan, config, err));
    plan->layout.step_rows = from->layout.step_rows;
    return SKV_OK;
}

void skv_plan_state_layers(const skv_plan *plan, const skv_config *config, skv_state_layer *layers)
{
    const skv_mixer_shape *m = &config->mixer;
    for (size_t i = 0; i < plan->n_layers; i++) {
        if (!(plan->layers[i].kept & SKV_KEPT_STATE)) continue;
        skv_state_layer *layer = &layers[plan->layers[i].state];
        *layer = (skv_state_layer){.kind = SKV_SCAN_NONE,
                                   .conv_columns = skv_config_conv_columns(config, i),
                                   .conv_taps = m->conv_rows,
                                   .layer = i};
        if (config->layers[i].mixer == SKV_MIXER_CONV) continue;
        layer->kind =
            config->layers[i].mixer == SKV_MIXER_DELTA ? SKV_SCAN_GATED_DELTA : SKV_SCAN_MAMBA2;
        layer->n_key_heads = m->n_key_heads;
        layer->n_value_heads = m->n_value_heads;
        layer->key_dim = m->key_dim;
        layer->value_dim = m->value_dim;
        layer->tiled = m->tiled;
    }
}

skv_status skv_plan_divide(skv_plan *plan, const skv_config *config, size_t first_layers,
                           skv_error *err)
{
    if (plan->first_layers == first_layers) return SKV_OK;
    assert(!plan->layout.slots);
    const size_t step_rows = plan->layout.step_rows;
    skv_kv_layout_release(&plan->layout);
    plan->first_layers = first_layers;
    SKV_TRY(lay_out_slots(plan, config, err));
    plan->layout.step_rows = step_rows;
    return SKV_OK;
}

void skv_plan_release(skv_plan *plan)
{
    skv_free(plan->layers);
    skv_kv_layout_release(&plan->layout);
    *plan = (skv_plan){0};
}

size_t skv_plan_page_bytes(const skv_config *config, skv_kv_type type)
{
    size_t most = 0;
    for (size_t i = 0; i < config->n_layers; i++) {
        const size_t head_dim = skv_config_head_dim(config, i);
        const size_t n_beside = config->head_dim / head_dim;
        most = skv_max_size(most, n_beside * skv_kv_page_bytes(type, head_dim));
    }
    return skv_max_size(most, skv_kv_page_bytes(type, config->head_dim));
}

size_t skv_plan_next_in_stack(const skv_plan *plan, size_t i)
{
    while (i < plan->n_layers &&
           !(plan->layers[i].source == SKV_KV_SOURCE_STACK && plan->layers[i].writes)) {
        i++;
    }
    return i;
}

size_t skv_plan_next_fed(const skv_plan *plan, size_t i)
{
    while (i < plan->n_layers && !(plan->layers[i].source == SKV_KV_SOURCE_STACK &&
                                   plan->layers[i].kept == SKV_KEPT_STATE)) {
        i++;
    }
    return i;
}
