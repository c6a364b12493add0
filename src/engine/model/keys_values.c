/* Keys and values of a step: by the stack of a plan, and into the caches. See pass.h. */
#include "model/pass.h"

size_t skv_pass_tracks(const skv_pass *p, size_t i)
{
    const skv_layer_shape *shape = &p->c->layers[i];
    return p->f->plan->by_query_head ? shape->n_heads : shape->n_kv_heads;
}

void skv_pass_store_kv(const skv_pass *p, size_t i, skv_rows k, skv_rows v, skv_vec k_norm)
{
    const skv_layer_shape *shape = &p->c->layers[i];
    p->be->store(p->be, &(skv_store_args){
                            .k = k,
                            .v = v,
                            .n_rows = p->n_rows,
                            .n_heads = shape->n_kv_heads,
                            .head_dim = skv_config_head_dim(p->c, i),
                            .n_rot = 2 * p->m->ropes[shape->i_rope].n,
                            .cos = p->ws->cos[shape->i_rope],
                            .sin = p->ws->sin[shape->i_rope],
                            .norm = skv_pass_head_norm(p, k_norm),
                            .v_eps = p->c->v_norm ? (float)p->c->norm_eps : 0,
                            .tables = p->ws->tables,
                            .slot = p->f->plan->layers[i].slot,
                            .kv_rows = p->ws->kv_rows,
                            .n_copies = skv_pass_tracks(p, i) / shape->n_kv_heads,
                        });
}

size_t skv_pass_kv_columns(const skv_pass *p, size_t i)
{
    return skv_config_kv_columns(p->c, i);
}

/* Layers of the stack that are made by one product. */
typedef struct stack_range {
    size_t end;      /* the layer after the last of them */
    size_t n_groups; /* parts of the stack, in pairs of k and v */
    size_t columns;
} stack_range;

/* As many layers from i on as the workspace has columns for, but one at least. */
static stack_range next_range(const skv_pass *p, size_t i, size_t end)
{
    stack_range range = {.end = i};
    while (range.end < end) {
        size_t more = skv_pass_kv_columns(p, range.end);
        if (range.n_groups > 0 && range.columns + more > p->ws->qkv_columns) break;
        range.columns += more;
        range.n_groups++;
        range.end = skv_plan_next_in_stack(p->f->plan, range.end + 1);
    }
    return range;
}

/*
 * Keys and values of those layers of [i, end) that have them from the stack.
 * SwiftKV, equation 2: KV_j = W_KV^j x_{l+1} for all j > l (zero-based: all j >= l from the
 * hidden state that enters layer l). It is one product of norm(x) with the stacked projections, as
 * many of them at a time as the workspace has columns for. All rows are written here, before any of
 * these layers attends.
 */
void skv_pass_make_stack(const skv_pass *p, size_t i, size_t end, skv_vec norm)
{
    const skv_plan *plan = p->f->plan;
    i = skv_plan_next_in_stack(plan, i);
    skv_linear_args args = {
        .w = p->m->stack.w, .x = p->ws->x, .n_rows = p->n_rows, .norm = skv_pass_norm(p, norm)};
    while (i < end) {
        const stack_range range = next_range(p, i, end);
        const size_t group = plan->layers[i].group;
        args.part0 = 2 * group;
        args.part1 = 2 * (group + range.n_groups);
        args.y = skv_rows_as(p->ws->qkv, range.columns);
        skv_pass_linear(p, i, SKV_PRODUCT_STACK, &args);
        p->work->kv += skv_work_product(p->n_rows, p->c->hidden, range.columns);
        skv_rows k = args.y;
        for (; i < range.end; i = skv_plan_next_in_stack(plan, i + 1)) {
            size_t n = skv_pass_kv_columns(p, i);
            skv_pass_store_kv(p, i, k, skv_rows_from(k, 0, n / 2), p->m->layers[i].stacked.k_norm);
            k = skv_rows_from(k, 0, n);
        }
    }
}
