/*
 * Rows of boundary l as bytes, and back into deep slots.
 *
 * With SwiftKV the K,V of all layers from l on are one product of norm_swiftkv(x_l). Whoever stores
 * the rows of that product's input can make the deep slots again, bit for bit: by the same code, in
 * the form in which the product reads its input. Weights of bfloat16 read rows of bfloat16, int8
 * weights read codes with a scale for each group; narrow products and f32 weights read floats.
 */
#include <assert.h>

#include "base/size.h"
#include "engine/engine.h"
#include "model/pass.h"

/* Of the product of the deep slots, which reads the rows. */
static skv_weight_type weight_type(const skv_engine *e)
{
    return e->model.stack.type;
}

size_t skv_boundary_row_bytes(const skv_engine *e)
{
    const skv_kv_layout *layout = &e->plan.layout;
    /* An adapter changes the product, and reads its input as it was before it was rounded. */
    if (e->adapters.n > 0 || !(e->be->promises & SKV_PROMISE_ROWS)) return 0;
    if (skv_plan_next_in_stack(&e->plan, 0) == e->plan.n_layers || e->ws.max_rows < 2) return 0;
    /* Bundles have to stand in the order of slots. */
    if (layout->n_bundles < skv_kv_layout_tracks(layout) || layout->window > 0) return 0;
    return e->be->row_bytes(e->be, weight_type(e), e->config->hidden);
}

size_t skv_boundary_tracks(const skv_engine *e)
{
    const size_t i = skv_plan_next_in_stack(&e->plan, 0);
    return e->plan.layout.track0[e->plan.layers[i].slot];
}

size_t skv_boundary_layer(const skv_engine *e)
{
    return e->plan.stack_boundary;
}

void skv_boundary_take(skv_engine *e, skv_rows x, size_t n, unsigned char *rows)
{
    const skv_config *c = e->config;
    e->be->save_rows(e->be, weight_type(e), rows, x, n, c->hidden,
                     (skv_norm){.weight = e->model.stack.norm,
                                .offset = c->norm_offset_one ? 1.0f : 0.0f,
                                .eps = (float)c->norm_eps});
}

/* The table that restored pages are written by. */
static void show_pages(const skv_engine *e, const uint32_t *pages)
{
    for (size_t b = 0; b < e->plan.layout.n_bundles; b++) {
        e->be->table_write(e->be, e->restoring, b, 0, pages ? pages + b : NULL, 1);
    }
}

void skv_boundary_restore(skv_engine *e, const unsigned char *rows, size_t position, size_t context,
                          const uint32_t *pages)
{
    assert(skv_boundary_row_bytes(e) > 0);
    size_t n_bytes = skv_boundary_row_bytes(e);
    size_t most = skv_min_size(SKV_PAGE_ROWS, e->ws.max_rows);
    show_pages(e, pages);
    for (size_t i = 0; i < SKV_PAGE_ROWS; i += most) {
        size_t m = skv_min_size(most, SKV_PAGE_ROWS - i);
        skv_pass_span span = {.at = {.n = m,
                                     .n_past = i,
                                     .position0 = position + i,
                                     .context = context,
                                     .table = e->restoring}};
        skv_pass pass = skv_step_pass(e, NULL, NULL, NULL);
        pass.spans = &span;
        pass.n_spans = 1;
        pass.end_layer = e->plan.n_layers;
        pass.stack_only = true;
        pass.saved = rows + i * n_bytes;
        skv_status status = skv_pass_run(&pass, NULL);
        assert(status == SKV_OK); /* nothing of it can fail */
        (void)status;
    }
    show_pages(e, NULL);
}
