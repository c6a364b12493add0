/*
 * Tokens that a sequence takes from another place of a text that was read before (--cache-shift):
 * their keys are turned to the new positions, in all slots, those of SwiftKV's deep layers and of
 * groups that share one included.
 */
#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "engine/engine.h"
#include "kv/kv_turn.h"

/* The angles of the layer that writes each slot: keys of a group are those of its first layer. */
static void find_angles(const skv_engine *e, const skv_plan *plan, const skv_angles **angles)
{
    for (size_t i = 0; i < plan->n_layers; i++) {
        const skv_plan_layer *layer = &plan->layers[i];
        if (layer->slot == SKV_NO_SLOT || !layer->writes) continue;
        angles[layer->slot] = e->model.angles[e->config->layers[i].i_rope];
    }
}

skv_status skv_sequence_take_run(skv_sequence *s, const int32_t *ids, size_t n,
                                 const uint32_t *pages, size_t n_pages, size_t position,
                                 skv_error *err)
{
    const skv_kv_layout *layout = s->cache.layout;
    const size_t row0 = s->n_seen;
    assert(s->state == SKV_NO_STATE && !s->pruned && !s->reader && !s->votes.votes);
    SKV_REQUIRE(n <= s->max_tokens - row0, err, SKV_FULL,
                "sequence: %zu tokens and %zu new ones, but the context is %zu", row0, n,
                s->max_tokens);
    const skv_angles **angles = skv_alloc_zero(layout->n_slots, sizeof *angles);
    SKV_REQUIRE(angles, err, SKV_MEMORY, "sequence: no memory");
    find_angles(s->engine, s->plan, angles);
    skv_sequence_keep_ready(s, 0);
    const skv_status status = skv_kv_cache_grow(&s->cache, row0 + n, err);
    if (status == SKV_OK) {
        const skv_kv_run run = {.pages = pages,
                                .n_pages = n_pages,
                                .n = n,
                                .position = position,
                                .context = s->max_tokens,
                                .angles = angles};
        skv_kv_cache_take_run(&s->cache, row0, &run);
        memcpy(s->ids + row0, ids, n * sizeof *ids);
        s->n_seen = s->n_sure = row0 + n;
    }
    skv_free(angles);
    return status;
}
