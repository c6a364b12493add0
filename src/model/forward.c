/* One step through the layers: see forward.h. The workspace is in workspace.c. */
#include "model/forward.h"

#include <assert.h>
#include <string.h>

#include "base/size.h"

/* A step on its way: which rows are still alive, and for whom. */
typedef struct pass {
    const skv_forward *f;
    const skv_model *m;
    const skv_config *c;
    skv_backend *be;
    skv_workspace *ws;
    size_t n_rows;  /* T */
    size_t n_alive; /* rows of x; step row of row i is ws->alive[i] */
    size_t n_items;
    bool all_alive;         /* alive is 0..T-1 */
    bool normed;            /* x has been through norm_swiftkv already */
    skv_forward_span *span; /* where rows are dropped: what is left of the only span */
} pass;

static skv_norm norm_of(const pass *p, const float *weight)
{
    return (skv_norm){weight, p->c->norm_offset_one ? 1.0f : 0.0f, (float)p->c->norm_eps};
}

static const uint32_t *alive_rows(const pass *p)
{
    return p->all_alive ? NULL : p->ws->alive;
}

/* ---- starting: embeddings, angles, places in the caches ---- */

typedef struct embed_job {
    const pass *p;
    const skv_forward_span *span;
    size_t row0;
} embed_job;

/* Angles of a row, and its place in the cache. */
static void place_row(const embed_job *job, size_t i)
{
    const pass *p = job->p;
    size_t row = job->row0 + i;
    for (size_t r = 0; r < 2; r++) {
        const skv_rope_table *rope = &p->m->ropes[r];
        skv_rope_angles(rope, job->span->position0 + i, job->span->context,
                        p->ws->cos[r] + row * rope->n, p->ws->sin[r] + row * rope->n);
    }
    p->ws->kv_rows[row] = job->span->n_past + i;
}

static void embed_row(void *arg, size_t i)
{
    const embed_job *job = arg;
    const pass *p = job->p;
    size_t D = p->c->hidden, row = job->row0 + i;
    float *x = p->ws->x + row * D;
    size_t id = (size_t)job->span->ids[i];
    p->ws->unread[row] = skv_matrix_fetch_row(&p->m->embedding, id, x, NULL) != SKV_OK;
    float scale = (float)p->c->embedding_scale;
    if (p->c->embedding_scale != 1.0) {
        for (size_t d = 0; d < D; d++) x[d] *= scale;
    }
    place_row(job, i);
}

static skv_status start_rows(pass *p, skv_error *err)
{
    size_t row = 0;
    for (size_t s = 0; s < p->f->n_spans; s++) {
        const skv_forward_span *span = &p->f->spans[s];
        embed_job job = {p, span, row};
        p->be->parallel(p->be, span->n, embed_row, &job);
        for (size_t i = 0; i < span->n; i++) {
            if (p->ws->unread[row + i]) { /* once more: only one thread may fill the error */
                SKV_TRY(skv_matrix_fetch_row(&p->m->embedding, (size_t)span->ids[i],
                                             p->ws->x + (row + i) * p->c->hidden, err));
                return skv_fail(err, SKV_IO, "embedding of id %d: cannot read", (int)span->ids[i]);
            }
            p->ws->alive[row + i] = (uint32_t)(row + i);
        }
        row += span->n;
    }
    p->n_rows = p->n_alive = row;
    p->all_alive = true;
    return SKV_OK;
}

static void place_span_row(void *arg, size_t i)
{
    const embed_job *job = arg;
    place_row(job, i);
    job->p->ws->alive[i] = (uint32_t)i;
}

/* The only span goes on where it was left. */
static void resume_rows(pass *p)
{
    const skv_forward_span *span = &p->f->spans[0];
    assert(p->f->n_spans == 1 && p->f->rows);
    embed_job job = {p, span, 0};
    p->be->parallel(p->be, span->n, place_span_row, &job);
    memcpy(p->ws->x, p->f->rows, span->n * p->c->hidden * sizeof *p->ws->x);
    p->n_rows = p->n_alive = span->n;
    p->all_alive = true;
}

/* First of the span's rows that is wanted: its end when none is. */
static size_t first_wanted(const skv_forward_span *span)
{
    switch (span->wanted) {
    case SKV_ROWS_NONE: return span->n;
    case SKV_ROWS_LAST: return span->n - 1;
    case SKV_ROWS_ALL: break;
    }
    return 0;
}

/* First of the span's rows that goes on beyond the last boundary. */
static size_t first_kept(const skv_forward_span *span)
{
    return span->unskipped ? 0 : skv_min_size(first_wanted(span), span->deep_from);
}

/* Attention items for all new rows, or for the kept ones alone. The table is set by layer. */
static void describe_items(pass *p, bool only_kept)
{
    size_t row = 0;
    p->n_items = 0;
    for (size_t s = 0; s < p->f->n_spans; s++) {
        const skv_forward_span *span = &p->f->spans[s];
        size_t first = only_kept ? first_kept(span) : 0;
        if (first == span->n) continue;
        p->ws->items[p->n_items++] = (skv_attention_item){
            .row0 = row, .n_q = span->n - first, .n_past = span->n_past + first};
        row += span->n - first;
    }
}

/* Only rows whose output is wanted, and those of spans that skip nothing, go on from here. */
static void keep_wanted(pass *p)
{
    if (!p->all_alive) return;
    size_t row0 = 0, n = 0;
    for (size_t s = 0; s < p->f->n_spans; s++) {
        const skv_forward_span *span = &p->f->spans[s];
        for (size_t i = first_kept(span); i < span->n; i++) {
            p->ws->gathered[n++] = (uint32_t)(row0 + i);
        }
        row0 += span->n;
    }
    if (n == p->n_alive) return;
    p->be->gather(p->be, p->ws->x, p->c->hidden, p->ws->gathered, n);
    memcpy(p->ws->alive, p->ws->gathered, n * sizeof *p->ws->alive);
    p->n_alive = n;
    p->all_alive = false;
    describe_items(p, true);
}

/* ---- keys and values ---- */

/* Heads that a layer's rows are cached for. */
static size_t tracks_of(const pass *p, size_t i)
{
    const skv_layer_shape *shape = &p->c->layers[i];
    return p->f->plan->by_query_head ? shape->n_heads : shape->n_kv_heads;
}

/* k, v [n_rows, ld] of one layer: norm, rotation, and into the layer's slot. */
static void store_kv(const pass *p, size_t i, float *k, const float *v, size_t ld,
                     const float *k_norm)
{
    const skv_layer_shape *shape = &p->c->layers[i];
    size_t slot = p->f->plan->layers[i].slot, row = 0;
    for (size_t s = 0; s < p->f->n_spans; s++) {
        const skv_kv_cache *cache = p->f->spans[s].cache;
        void *const *table = skv_kv_cache_slot(cache, slot);
        const size_t *dropped = skv_kv_cache_dropped(cache, slot);
        for (size_t j = 0; j < p->f->spans[s].n; j++, row++) {
            p->ws->tables[row] = table;
            p->ws->dropped[row] = dropped;
        }
    }
    p->be->store(p->be, &(skv_store_args){
                            .k = k,
                            .v = v,
                            .ld = ld,
                            .n_rows = p->n_rows,
                            .n_heads = shape->n_kv_heads,
                            .head_dim = p->c->head_dim,
                            .n_rot = 2 * p->m->ropes[shape->i_rope].n,
                            .cos = p->ws->cos[shape->i_rope],
                            .sin = p->ws->sin[shape->i_rope],
                            .norm = norm_of(p, k_norm),
                            .tables = p->ws->tables,
                            .table_stride = p->f->spans[0].cache->max_pages,
                            .kv_rows = p->ws->kv_rows,
                            .dropped = p->ws->dropped,
                            .n_copies = tracks_of(p, i) / shape->n_kv_heads,
                            .type = skv_kv_pool_type(p->f->spans[0].cache->pool),
                        });
}

/*
 * SwiftKV equation 2, KV_j = W_KV^j x_{l+1} for all j > l (zero-based: all j >= l from the
 * hidden state that enters layer l): one product of norm_swiftkv(x) with the stacked projections,
 * as many of them at a time as the workspace has columns for. All rows are written here, before
 * any of these layers attends. [group, n_groups): of AcrossKV's groups of layers.
 */
static void make_swiftkv_kv(const pass *p, size_t group, size_t n_groups)
{
    const skv_config *c = p->c;
    skv_norm norm = norm_of(p, p->normed ? NULL : p->m->norm_swiftkv);
    while (group < n_groups) {
        size_t end = group, columns = 0;
        while (end < n_groups) {
            size_t i = c->kv_layers + end * c->kv_group;
            size_t more = 2 * c->layers[i].n_kv_heads * c->head_dim;
            if (end > group && columns + more > p->ws->qkv_columns) break;
            columns += more;
            end++;
        }
        p->be->linear(p->be, &(skv_linear_args){.w = p->m->kv_swiftkv,
                                                .part0 = 2 * group,
                                                .part1 = 2 * end,
                                                .y = p->ws->qkv,
                                                .ldy = columns,
                                                .x = p->ws->x,
                                                .ldx = c->hidden,
                                                .n_rows = p->n_rows,
                                                .norm = norm});
        float *k = p->ws->qkv;
        for (; group < end; group++) {
            size_t i = c->kv_layers + group * c->kv_group;
            size_t n_kv = c->layers[i].n_kv_heads * c->head_dim;
            store_kv(p, i, k, k + n_kv, columns, p->m->layers[i].k_norm_swiftkv);
            k += 2 * n_kv;
        }
    }
}

static size_t count_groups(const skv_config *c)
{
    return (c->n_layers - c->kv_layers) / c->kv_group;
}

/* Parts [part0, part1) of a layer's q|k|v from the rows that are alive. */
static void run_qkv(const pass *p, size_t i, size_t part0, size_t part1, float *y, size_t ldy)
{
    const skv_layer *layer = &p->m->layers[i];
    p->be->linear(p->be, &(skv_linear_args){.w = layer->qkv,
                                            .part0 = part0,
                                            .part1 = part1,
                                            .y = y,
                                            .ldy = ldy,
                                            .x = p->ws->x,
                                            .ldx = p->c->hidden,
                                            .n_rows = p->n_alive,
                                            .norm = norm_of(p, layer->attn_norm)});
}

/* A layer's own keys and values, which somebody may want to see as they are now. */
static void store_own_kv(const pass *p, size_t i, float *k, const float *v, size_t ld)
{
    if (p->f->on_kv) p->f->on_kv(p->f->kv_user, i, k, v, ld, p->n_rows);
    store_kv(p, i, k, v, ld, p->m->layers[i].k_norm);
}

/* Queries of the alive rows at ws->qkv with the row length returned; before that the keys and
 * values of all rows, where this layer makes its own. `wanted_only`: rows drop out here. */
static size_t make_qkv(pass *p, size_t i, bool wanted_only)
{
    const skv_plan_layer *plan = &p->f->plan->layers[i];
    const skv_layer_shape *shape = &p->c->layers[i];
    size_t n_q = shape->n_heads * p->c->head_dim, n_kv = shape->n_kv_heads * p->c->head_dim;
    const skv_layer *layer = &p->m->layers[i];
    float *y = p->ws->qkv;
    if (plan->foreign) {
        if (wanted_only) keep_wanted(p);
        if (p->n_alive > 0) run_qkv(p, i, SKV_PART_Q, SKV_PART_K, y, n_q);
        return n_q;
    }
    if (plan->swiftkv) {
        if (wanted_only) keep_wanted(p);
        p->be->linear(p->be, &(skv_linear_args){.w = layer->q_swiftkv,
                                                .y = y,
                                                .ldy = n_q,
                                                .x = p->ws->x,
                                                .ldx = p->c->hidden,
                                                .n_rows = p->n_alive,
                                                .norm = norm_of(p, layer->attn_norm)});
        return n_q;
    }
    if (!wanted_only) {
        size_t ld = n_q + 2 * n_kv;
        run_qkv(p, i, SKV_PART_Q, SKV_PART_QKV_END, y, ld);
        store_own_kv(p, i, y + n_q, y + n_q + n_kv, ld);
        return ld;
    }
    run_qkv(p, i, SKV_PART_K, SKV_PART_QKV_END, y, 2 * n_kv);
    store_own_kv(p, i, y, y + n_kv, 2 * n_kv);
    keep_wanted(p);
    if (p->n_alive > 0) run_qkv(p, i, SKV_PART_Q, SKV_PART_K, y, n_q);
    return n_q;
}

/* ---- the block ---- */

/* x += W y, by way of a norm where the architecture has one behind the block. */
static void add_projection(const pass *p, const skv_linear *w, const float *y, size_t ldy,
                           const float *post_norm)
{
    size_t D = p->c->hidden;
    skv_linear_args args = {.w = w,
                            .y = p->ws->x,
                            .ldy = D,
                            .x = y,
                            .ldx = ldy,
                            .n_rows = p->n_alive,
                            .epilogue = SKV_EPILOGUE_ADD};
    if (!post_norm) {
        p->be->linear(p->be, &args);
        return;
    }
    args.y = p->ws->qkv; /* free again: the queries have been used */
    args.epilogue = SKV_EPILOGUE_STORE;
    p->be->linear(p->be, &args);
    p->be->norm_add(p->be, &(skv_norm_add_args){.x = p->ws->x,
                                                .y = p->ws->qkv,
                                                .n_rows = p->n_alive,
                                                .n = D,
                                                .norm = norm_of(p, post_norm)});
}

/* The votes of an item's rows, whose queries have been rotated; rows that have voted in this layer
 * before, in a step that did not end, do not vote again. */
static void cast_votes(const pass *p, size_t i, size_t ld_q, const skv_forward_span *span,
                       const skv_attention_item *item)
{
    const skv_layer_shape *shape = &p->c->layers[i];
    skv_kv_votes *votes = span->votes;
    size_t slot = p->f->plan->layers[i].slot;
    size_t row0 = span->n_past + (p->all_alive ? 0 : first_kept(span)); /* of the item */
    size_t from = skv_max_size(skv_max_size(votes->from, votes->voted[i]), row0);
    size_t to = skv_min_size(votes->to, span->n_past + span->n);
    if (shape->window > 0 || from >= to) return;
    p->be->votes(p->be, &(skv_votes_args){
                            .q = p->ws->qkv + (item->row0 + from - row0) * ld_q,
                            .ld_q = ld_q,
                            .n_q = to - from,
                            .n_past = from,
                            .dropped = item->dropped,
                            .table = item->table,
                            .table_stride = span->cache->max_pages,
                            .n_heads = shape->n_heads,
                            .n_kv_heads = tracks_of(p, i),
                            .head_dim = p->c->head_dim,
                            .type = skv_kv_pool_type(span->cache->pool),
                            .scale = (float)p->c->attention_scale,
                            .softcap = (float)p->c->attention_softcap,
                            .votes = votes->votes + votes->track0[slot] * votes->stride,
                            .votes_stride = votes->stride,
                            .by_query_head = votes->by_query_head,
                            .norms = p->ws->vote_norms,
                        });
    votes->voted[i] = to;
}

static void attend(const pass *p, size_t i, size_t ld_q)
{
    const skv_config *c = p->c;
    const skv_layer_shape *shape = &c->layers[i];
    const skv_layer *layer = &p->m->layers[i];
    const skv_plan_layer *plan = &p->f->plan->layers[i];
    size_t n_q = shape->n_heads * c->head_dim;
    p->be->rotate(p->be,
                  &(skv_rotate_args){
                      .q = p->ws->qkv,
                      .ldq = ld_q,
                      .n_rows = p->n_alive,
                      .n_heads = shape->n_heads,
                      .head_dim = c->head_dim,
                      .n_rot = 2 * p->m->ropes[shape->i_rope].n,
                      .cos = p->ws->cos[shape->i_rope],
                      .sin = p->ws->sin[shape->i_rope],
                      .rows = alive_rows(p),
                      .norm = norm_of(p, plan->swiftkv ? layer->q_norm_swiftkv : layer->q_norm),
                  });
    if (p->f->on_query) p->f->on_query(p->f->query_user, i, p->ws->qkv, ld_q, p->n_alive);
    size_t item = 0;
    for (size_t s = 0; s < p->f->n_spans; s++) {
        const skv_forward_span *span = &p->f->spans[s];
        if (!p->all_alive && first_kept(span) == span->n) continue;
        p->ws->items[item].table = skv_kv_cache_slot(span->cache, plan->slot);
        p->ws->items[item].dropped = skv_kv_cache_dropped(span->cache, plan->slot);
        if (span->votes) cast_votes(p, i, ld_q, span, &p->ws->items[item]);
        item++;
    }
    assert(item == p->n_items);
    p->be->attention(p->be, &(skv_attention_args){
                                .out = p->ws->o,
                                .ld_out = n_q,
                                .q = p->ws->qkv,
                                .ld_q = ld_q,
                                .items = p->ws->items,
                                .n_items = p->n_items,
                                .table_stride = p->f->spans[0].cache->max_pages,
                                .n_heads = shape->n_heads,
                                .n_kv_heads = tracks_of(p, i),
                                .head_dim = c->head_dim,
                                .type = skv_kv_pool_type(p->f->spans[0].cache->pool),
                                .window = shape->window,
                                .scale = (float)c->attention_scale,
                                .softcap = (float)c->attention_softcap,
                            });
}

static void run_mlp(const pass *p, size_t i)
{
    const skv_layer *layer = &p->m->layers[i];
    size_t F = p->c->layers[i].ffn;
    p->be->linear(p->be, &(skv_linear_args){
                             .w = layer->gate_up,
                             .y = p->ws->h,
                             .ldy = F,
                             .x = p->ws->x,
                             .ldx = p->c->hidden,
                             .n_rows = p->n_alive,
                             .norm = norm_of(p, layer->ffn_norm),
                             .epilogue = p->c->activation == SKV_ACT_SILU ? SKV_EPILOGUE_SILU_GLU
                                                                          : SKV_EPILOGUE_GELU_GLU,
                         });
    add_projection(p, layer->down, p->ws->h, F, layer->post_ffn_norm);
}

static void run_layer(pass *p, size_t i)
{
    const skv_layer *layer = &p->m->layers[i];
    bool wanted_only = p->f->plan->skip && i >= p->f->plan->last_boundary;
    size_t ld_q = make_qkv(p, i, wanted_only);
    if (p->n_alive == 0) return;
    attend(p, i, ld_q);
    size_t n_q = p->c->layers[i].n_heads * p->c->head_dim;
    add_projection(p, layer->o, p->ws->o, n_q, layer->post_attn_norm);
    run_mlp(p, i);
}

/* ---- rows that leave between layers ---- */

/* The places of the rows in a slot that has rows of its own. */
static void place_rows(pass *p, size_t i)
{
    p->span->n_past = p->f->drop->slot_rows[p->f->plan->layers[i].slot];
    for (size_t r = 0; r < p->n_rows; r++) p->ws->kv_rows[r] = p->span->n_past + r;
    describe_items(p, false);
}

/* Behind layer i: its slot has the rows, and some of them do not go on. */
static void drop_rows(pass *p, size_t i)
{
    const skv_row_drop *drop = p->f->drop;
    drop->slot_rows[p->f->plan->layers[i].slot] += p->n_rows;
    if (i + 1 == p->c->n_layers) return;
    size_t n = drop->choose(drop->user, i + 1, p->n_rows, p->ws->gathered);
    if (n == p->n_rows) return;
    p->be->gather(p->be, p->ws->x, p->c->hidden, p->ws->gathered, n);
    for (size_t r = 0; r < 2; r++) {
        p->be->gather(p->be, p->ws->cos[r], p->m->ropes[r].n, p->ws->gathered, n);
        p->be->gather(p->be, p->ws->sin[r], p->m->ropes[r].n, p->ws->gathered, n);
    }
    p->n_rows = p->n_alive = p->span->n = n;
}

/* ---- the end: logits and hidden states ---- */

/* Of the rows that came through the layers only those that are wanted. */
static void keep_for_output(pass *p)
{
    size_t row0 = 0, n = 0;
    for (size_t s = 0; s < p->f->n_spans; s++) {
        const skv_forward_span *span = &p->f->spans[s];
        size_t first = p->all_alive ? 0 : first_kept(span), n_rows = span->n - first;
        for (size_t i = first_wanted(span); i < span->n; i++) {
            p->ws->gathered[n++] = (uint32_t)(row0 + i - first);
        }
        row0 += n_rows;
    }
    if (n < p->n_alive) p->be->gather(p->be, p->ws->x, p->c->hidden, p->ws->gathered, n);
    p->n_alive = n;
}

/* ws->logits [n, V] of rows of x. */
static void make_logits(const pass *p, size_t row, size_t n)
{
    const skv_config *c = p->c;
    p->be->linear(p->be, &(skv_linear_args){.w = p->m->head,
                                            .y = p->ws->logits,
                                            .ldy = c->vocab,
                                            .x = p->ws->x + row * c->hidden,
                                            .ldx = c->hidden,
                                            .n_rows = n,
                                            .norm = norm_of(p, p->m->final_norm)});
    if (c->final_softcap > 0) {
        p->be->softcap(p->be, p->ws->logits, n * c->vocab, (float)c->final_softcap);
    }
}

/* ws->logits [n, D]: rows of x behind the final norm, added to zeros. */
static void make_hidden(const pass *p, size_t row, size_t n)
{
    size_t D = p->c->hidden;
    memset(p->ws->logits, 0, n * D * sizeof *p->ws->logits);
    p->be->norm_add(p->be, &(skv_norm_add_args){.x = p->ws->logits,
                                                .y = p->ws->x + row * D,
                                                .n_rows = n,
                                                .n = D,
                                                .norm = norm_of(p, p->m->final_norm)});
}

/* The wanted row that is told next. */
typedef struct row_place {
    size_t i_span, i_row;
} row_place;

/* Over spans of which no further row is wanted. */
static row_place settle(const pass *p, row_place at)
{
    const skv_forward_span *spans = p->f->spans;
    while (at.i_row == spans[at.i_span].n) {
        at.i_span++;
        at.i_row = first_wanted(&spans[at.i_span]);
    }
    return at;
}

/* Rows from `at` on that are wanted in the same form, at most SKV_LOGIT_ROWS. */
static size_t count_alike(const pass *p, row_place at)
{
    const skv_forward_span *spans = p->f->spans;
    bool hidden = spans[at.i_span].hidden;
    size_t n = spans[at.i_span].n - at.i_row;
    for (size_t s = at.i_span + 1; s < p->f->n_spans && spans[s].hidden == hidden; s++) {
        n += spans[s].n - first_wanted(&spans[s]);
    }
    return skv_min_size(n, SKV_LOGIT_ROWS);
}

static void report_rows(const pass *p)
{
    row_place at = {0, first_wanted(&p->f->spans[0])};
    for (size_t row = 0, n; row < p->n_alive; row += n) {
        at = settle(p, at);
        n = count_alike(p, at);
        bool hidden = p->f->spans[at.i_span].hidden;
        size_t length = hidden ? p->c->hidden : p->c->vocab;
        (hidden ? make_hidden : make_logits)(p, row, n);
        for (size_t i = 0; i < n; i++, at.i_row++) {
            at = settle(p, at);
            p->f->on_row(p->f->user, at.i_span, at.i_row, p->ws->logits + i * length);
        }
    }
}

static bool is_cancelled(const pass *p)
{
    return p->f->cancelled && p->f->cancelled(p->f->user);
}

static void report_hidden(const pass *p, size_t i)
{
    if (p->f->on_hidden) p->f->on_hidden(p->f->user, i, p->ws->x, p->n_alive);
}

skv_status skv_forward_run(const skv_forward *f, skv_error *err)
{
    pass p = {.f = f, .m = f->model, .c = f->model->config, .be = f->model->be, .ws = f->ws};
    size_t L = f->end_layer ? f->end_layer : p.c->n_layers;
    skv_forward own = *f; /* whose span shrinks */
    skv_forward_span span = f->spans[0];
    if (f->drop) {
        own.spans = p.span = &span;
        p.f = &own;
    }
    if (f->first_layer > 0) {
        resume_rows(&p);
    } else {
        SKV_TRY(start_rows(&p, err));
    }
    describe_items(&p, false);
    for (size_t i = f->first_layer; i < L && p.n_alive > 0; i++) {
        SKV_REQUIRE(!is_cancelled(&p), err, SKV_CANCELLED, "cancelled before layer %zu", i);
        report_hidden(&p, i);
        const bool resumed = f->first_layer > 0 && i == f->first_layer; /* its slots are written */
        if (f->plan->layers[i].swiftkv && i == f->plan->layers[i].kv_boundary && !resumed) {
            make_swiftkv_kv(&p, 0, count_groups(p.c));
        }
        if (f->drop) place_rows(&p, i);
        run_layer(&p, i);
        if (f->drop) drop_rows(&p, i);
    }
    if (f->end_layer) {
        if (f->rows) memcpy(f->rows, p.ws->x, p.n_alive * p.c->hidden * sizeof *f->rows);
        return SKV_OK;
    }
    report_hidden(&p, L);
    keep_for_output(&p);
    if (p.n_alive > 0) report_rows(&p);
    return SKV_OK;
}

void skv_forward_deep_kv(const skv_forward *f)
{
    const skv_forward_span *span = &f->spans[0];
    assert(f->n_spans == 1 && span->n <= f->ws->max_rows);
    pass p = {.f = f,
              .m = f->model,
              .c = f->model->config,
              .be = f->model->be,
              .ws = f->ws,
              .n_rows = span->n,
              .normed = true};
    embed_job job = {&p, span, 0};
    for (size_t i = 0; i < span->n; i++) place_row(&job, i);
    make_swiftkv_kv(&p, 0, count_groups(p.c));
}

void skv_forward_deep_slot(const skv_forward *f, size_t group)
{
    assert(f->spans[0].n <= f->ws->max_rows);
    pass p = {.f = f, .m = f->model, .c = f->model->config, .be = f->model->be, .ws = f->ws};
    resume_rows(&p);
    make_swiftkv_kv(&p, group, group + 1);
}
