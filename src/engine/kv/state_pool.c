/* The states of sequences: see state_pool.h. */
#include "kv/state_pool.h"

#include <assert.h>

#include "base/mem.h"

static bool is_empty(const skv_states_spec *spec)
{
    return spec->n_layers == 0 || spec->n_states == 0;
}

skv_bytes skv_state_pool_bytes(const skv_backend *be, const skv_states_spec *spec)
{
    return is_empty(spec) ? (skv_bytes){0, 0} : be->states_bytes(be, spec);
}

skv_status skv_state_pool_init(skv_state_pool *pool, skv_backend *be, const skv_states_spec *spec,
                               skv_error *err)
{
    const size_t n = spec->n_states;
    skv_states_spec one = *spec;
    *pool = (skv_state_pool){.be = be, .max_undo = spec->max_undo};
    if (is_empty(spec)) return SKV_OK;
    SKV_REQUIRE(n < UINT32_MAX, err, SKV_RANGE, "states: %zu are too many", n);
    pool->free = skv_alloc(n, sizeof *pool->free);
    SKV_REQUIRE(pool->free, err, SKV_MEMORY, "states: no memory for a list of %zu", n);
    const skv_status status = be->states_create(be, spec, &pool->states, err);
    if (status != SKV_OK) {
        skv_state_pool_release(pool);
        return status;
    }
    one.n_states = 1;
    pool->state_bytes = skv_bytes_sum(be->states_bytes(be, &one));
    pool->n = pool->n_free = n;
    for (size_t i = 0; i < n; i++) pool->free[i] = (uint32_t)(n - 1 - i);
    return SKV_OK;
}

void skv_state_pool_release(skv_state_pool *pool)
{
    if (pool->states) pool->be->states_free(pool->be, pool->states);
    skv_free(pool->free);
    *pool = (skv_state_pool){0};
}

skv_status skv_state_pool_take(skv_state_pool *pool, size_t *out, skv_error *err)
{
    *out = SKV_NO_STATE;
    if (!pool->states) return SKV_OK;
    SKV_REQUIRE(pool->n_free > 0, err, SKV_FULL,
                "states: all %zu are in use by other sequences (kv_sequences)", pool->n);
    *out = pool->free[--pool->n_free];
    return SKV_OK;
}

void skv_state_pool_give(skv_state_pool *pool, size_t state)
{
    if (state == SKV_NO_STATE) return;
    assert(pool->n_free < pool->n && state < pool->n);
    pool->free[pool->n_free++] = (uint32_t)state;
}

void skv_state_pool_copy(skv_state_pool *pool, size_t state, const skv_states *from, size_t i)
{
    assert(state < pool->n);
    pool->be->state_copy(pool->be, pool->states, state, from, i);
}
