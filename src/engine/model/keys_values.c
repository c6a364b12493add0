/* Keys and values of a step: by the stack of a plan, and into the caches. See pass.h. */
#include "base/size.h"
#include "model/pass.h"

size_t skv_pass_tracks(const skv_pass *p, size_t i)
{
    const skv_layer_shape *shape = &p->c->layers[i];
    return p->plan->by_query_head ? shape->n_heads : shape->n_kv_heads;
}

/* The norm of queries or keys. */
static skv_norm head_norm(const skv_config *c, skv_vec weight)
{
    return (skv_norm){weight, c->norm_offset_one ? 1.0f : 0.0f, (float)c->norm_eps,
                      c->qk_norm_joined};
}

void skv_place_layer(const skv_model *m, const skv_plan *plan, size_t i, const skv_projections *by,
                     skv_place_args args)
{
    const skv_config *c = m->config;
    const skv_layer_shape *shape = &c->layers[i];
    args.head_dim = skv_config_head_dim(c, i);
    args.n_heads = shape->n_heads;
    args.q_norm = head_norm(c, by->q_norm);
    args.q_angles = shape->i_rope + shape->i_rope_q;
    args.n_kv_heads = shape->n_kv_heads;
    args.k_norm = head_norm(c, by->k_norm);
    args.k_angles = shape->i_rope;
    args.v_eps = c->v_norm ? (float)c->norm_eps : 0;
    args.slot = plan->layers[i].slot;
    args.n_copies = plan->by_query_head ? shape->n_heads / shape->n_kv_heads : 1;
    m->be->place(m->be, &args);
}

void skv_pass_place(const skv_pass *p, size_t i, const skv_projections *by, skv_rows q, skv_rows k,
                    skv_rows v)
{
    skv_place_layer(p->m, p->plan, i, by,
                    (skv_place_args){.step = p->ws->step, .q = q, .set = p->set, .k = k, .v = v});
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

/* As many layers from i on as the workspace has columns for, but one at least, and of a back end of
 * two only those of one. */
static stack_range next_range(const skv_pass *p, size_t i, size_t end)
{
    stack_range range = {.end = i};
    if (i < p->be->first_layers) end = skv_min_size(end, p->be->first_layers);
    while (range.end < end) {
        size_t more = skv_pass_kv_columns(p, range.end);
        if (range.n_groups > 0 && range.columns + more > p->ws->qkv_columns) break;
        range.columns += more;
        range.n_groups++;
        range.end = skv_plan_next_in_stack(p->plan, range.end + 1);
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
    const skv_plan *plan = p->plan;
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
            skv_pass_place(p, i, &p->m->layers[i].stacked, (skv_rows){0}, k,
                           skv_rows_from(k, 0, n / 2));
            k = skv_rows_from(k, 0, n);
        }
    }
}
