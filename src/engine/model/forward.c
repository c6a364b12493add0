/* A pass through the layers: see pass.h. The workspace is in workspace.c. */
#include "model/forward.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/size.h"
#include "model/ffn_skip.h"
#include "model/pass.h"

/* ---- starting: embeddings ---- */

/* Rows of the step while the host writes them. */
typedef struct embed_job {
    const skv_pass *p;
    const skv_pass_span *span;
    size_t row0;
    skv_mapped x;      /* [T, D] */
    skv_mapped x0;     /* [T, D]; NULL: no layer reads a copy of x */
    skv_mapped embeds; /* [T, L P] */
} embed_job;

static skv_mapped map_to_write(const skv_pass *p, skv_rows rows, size_t n_rows)
{
    return p->be->map(p->be, rows, n_rows, rows.ld, SKV_MAP_WRITE);
}

static embed_job map_rows(const skv_pass *p)
{
    const skv_workspace *ws = p->ws;
    embed_job job = {.p = p, .x = map_to_write(p, ws->x, p->n_rows)};
    if (p->c->per_layer > 0) {
        job.x0 = map_to_write(p, ws->x0, p->n_rows);
        job.embeds = map_to_write(p, ws->embeds, p->n_rows);
    }
    return job;
}

static void unmap_rows(const embed_job *job)
{
    const skv_pass *p = job->p;
    p->be->unmap(p->be, job->x);
    if (!job->x0.at) return;
    p->be->unmap(p->be, job->x0);
    p->be->unmap(p->be, job->embeds);
}

static float *row_at(skv_mapped rows, size_t row)
{
    return rows.at + row * rows.ld;
}

/* The token's embeddings of the layers that it runs, and x as it enters layer 0. */
static skv_status embed_layers(const embed_job *job, size_t i, skv_error *err)
{
    const skv_pass *p = job->p;
    const skv_plan *plan = p->plan;
    const bool stops = plan->skip && i < skv_span_kept(job->span);
    const size_t D = p->c->hidden, P = p->c->per_layer, row = job->row0 + i;
    const size_t n = (stops ? plan->last_boundary : plan->n_layers) * P;
    if (!job->x0.at) return SKV_OK;
    float *embeds = row_at(job->embeds, row);
    memcpy(row_at(job->x0, row), row_at(job->x, row), D * sizeof *embeds);
    const size_t id = (size_t)job->span->ids[i];
    SKV_TRY(skv_matrix_fetch_start(&p->m->token_embeds, id, n, embeds, err));
    const float scale = (float)p->c->per_layer_scale;
    for (size_t d = 0; d < n; d++) embeds[d] *= scale;
    return SKV_OK;
}

static void embed_row(void *arg, size_t i, size_t i_thread)
{
    const embed_job *job = arg;
    (void)i_thread;
    const skv_pass *p = job->p;
    size_t D = p->c->hidden, row = job->row0 + i;
    float *x = row_at(job->x, row);
    size_t id = (size_t)job->span->ids[i];
    if (id < p->m->ids.first || id - p->m->ids.first >= p->m->ids.n) { /* another rank's */
        p->ws->unread[row] = false;
        memset(x, 0, D * sizeof *x);
    } else {
        p->ws->unread[row] = skv_matrix_fetch_row(&p->m->embedding, id, x, NULL) != SKV_OK;
    }
    float scale = (float)p->c->embedding_scale;
    if (p->c->embedding_scale != 1.0) {
        for (size_t d = 0; d < D; d++) x[d] *= scale;
    }
    if (embed_layers(job, i, NULL) != SKV_OK) p->ws->unread[row] = true;
}

static skv_status embed_span(embed_job *job, skv_error *err)
{
    const skv_pass *p = job->p;
    const skv_pass_span *span = job->span;
    skv_pool_run(p->pool, span->at.n, embed_row, job);
    for (size_t i = 0; i < span->at.n; i++) {
        size_t row = job->row0 + i;
        if (p->ws->unread[row] && p->m->ranks) { /* all of them are to know */
            *row_at(job->x, row) = NAN;
        } else if (p->ws->unread[row]) { /* once more: only one thread may fill the error */
            SKV_TRY(skv_matrix_fetch_row(&p->m->embedding, (size_t)span->ids[i],
                                         row_at(job->x, row), err));
            SKV_TRY(embed_layers(job, i, err));
            return skv_fail(err, SKV_IO, "embedding of id %d: cannot read", (int)span->ids[i]);
        }
    }
    return SKV_OK;
}

/* Each rank has read its ids and has zeros for the others. A row that could not be read is no
 * number on any rank, so that all of them fail. */
static skv_status join_embeddings(const skv_pass *p, skv_error *err)
{
    const size_t D = p->c->hidden;
    skv_pass_sum(p, p->ws->x, p->n_rows);
    const skv_mapped first = p->be->map(p->be, p->ws->x, p->n_rows, 1, SKV_MAP_READ);
    bool whole = true;
    for (size_t row = 0; row < p->n_rows; row++) whole = whole && !isnan(*row_at(first, row));
    p->be->unmap(p->be, first);
    if (p->c->per_layer > 0) p->be->copy_rows(p->be, p->ws->x0, p->ws->x, p->n_rows, D);
    SKV_TRY(skv_ranks_check(p->m->ranks, err));
    SKV_REQUIRE(whole, err, SKV_IO, "embedding: a rank cannot read a row");
    return SKV_OK;
}

/* Where the back end has the tables. */
static void embed_rows(const skv_pass *p)
{
    const skv_workspace *ws = p->ws;
    skv_backend *be = p->be;
    be->embed(be, ws->step, p->m->embedding_table, ws->x, (float)p->c->embedding_scale);
    if (p->c->per_layer == 0) return;
    be->copy_rows(be, ws->x0, ws->x, p->n_rows, p->c->hidden);
    be->embed(be, ws->step, p->m->token_table, ws->embeds, (float)p->c->per_layer_scale);
}

static skv_status start_rows(const skv_pass *p, skv_error *err)
{
    skv_status status = SKV_OK;
    if (p->m->embedding_table) {
        embed_rows(p);
        return p->m->ranks ? join_embeddings(p, err) : SKV_OK;
    }
    embed_job job = map_rows(p);
    for (size_t s = 0; s < p->n_spans && status == SKV_OK; s++) {
        job.span = &p->spans[s];
        status = embed_span(&job, err);
        job.row0 += job.span->at.n;
    }
    unmap_rows(&job);
    return status == SKV_OK && p->m->ranks ? join_embeddings(p, err) : status;
}

/* Spans go on where they were left. */
static void resume_rows(const skv_pass *p)
{
    const size_t D = p->c->hidden;
    if (p->saved) {
        p->be->load_rows(p->be, p->m->stack.type, p->ws->x, p->saved, p->n_rows, D);
        return;
    }
    for (size_t s = 0, row = 0; s < p->n_spans; row += p->spans[s++].at.n) {
        const skv_pass_span *span = &p->spans[s];
        const skv_rows x = span->x.area ? span->x : p->rows;
        assert(span->x.area || p->n_spans == 1);
        if (x.area) p->be->copy_rows(p->be, skv_rows_from(p->ws->x, row, 0), x, span->at.n, D);
    }
}

/* ---- keys and values ---- */

static const skv_projections *projections_of(const skv_pass *p, size_t i)
{
    const skv_layer *layer = &p->m->layers[i];
    bool stacked = p->plan->layers[i].source == SKV_KV_SOURCE_STACK;
    return stacked ? &layer->stacked : &layer->own;
}

/* Parts [part0, part1) of a layer's q|k|v from the rows that are alive: y has ldy columns. */
static void run_qkv(const skv_pass *p, size_t i, size_t part0, size_t part1, size_t ldy)
{
    const skv_product product = part0 == SKV_PART_Q ? SKV_PRODUCT_QKV : SKV_PRODUCT_KV;
    skv_pass_linear(p, i, product,
                    &(skv_linear_args){.w = projections_of(p, i)->w,
                                       .part0 = part0,
                                       .part1 = part1,
                                       .y = skv_rows_as(p->ws->qkv, ldy),
                                       .x = p->ws->x,
                                       .n_rows = p->n_alive,
                                       .norm = skv_pass_norm(p, p->m->layers[i].attn_norm)});
    size_t n_q = part0 == SKV_PART_Q ? skv_config_q_columns(p->c, i) : 0;
    p->work->q += skv_work_product(p->n_alive, p->c->hidden, n_q);
    p->work->kv += skv_work_product(p->n_alive, p->c->hidden, ldy - n_q);
}

/* The queries, keys and values that a layer has made go to their places. */
static void place_own(const skv_pass *p, size_t i, skv_rows q, skv_rows k)
{
    const size_t n = skv_pass_kv_columns(p, i);
    const skv_rows v = p->c->layers[i].k_is_v ? k : skv_rows_from(k, 0, n / 2);
    skv_pass_place(p, i, &p->m->layers[i].own, q, k, v);
}

static skv_rows make_q(const skv_pass *p, size_t i)
{
    const size_t n_q = skv_config_q_columns(p->c, i);
    const skv_rows q = skv_rows_as(p->ws->qkv, n_q), none = {0};
    if (p->n_alive == 0) return q;
    run_qkv(p, i, SKV_PART_Q, SKV_PART_K, n_q);
    skv_pass_place(p, i, projections_of(p, i), q, none, none);
    return q;
}

/* Keys and values of all rows, into the cache. */
static void make_own_kv(const skv_pass *p, size_t i)
{
    const size_t n_kv = skv_pass_kv_columns(p, i);
    const size_t end = p->c->layers[i].k_is_v ? SKV_PART_V : SKV_PART_QKV_END;
    run_qkv(p, i, SKV_PART_K, end, n_kv);
    place_own(p, i, (skv_rows){0}, skv_rows_as(p->ws->qkv, n_kv));
}

/* Queries of the alive rows, which are returned; before that the keys and values of all rows, where
 * this layer makes its own. `wanted_only`: rows drop out here. */
static skv_rows make_qkv(skv_pass *p, size_t i, bool wanted_only)
{
    const size_t n_q = skv_config_q_columns(p->c, i), n_kv = skv_pass_kv_columns(p, i);
    const size_t end = p->c->layers[i].k_is_v ? SKV_PART_V : SKV_PART_QKV_END;
    const bool own = p->plan->layers[i].source == SKV_KV_SOURCE_OWN;
    if (own && !wanted_only) {
        run_qkv(p, i, SKV_PART_Q, end, n_q + n_kv);
        const skv_rows qkv = skv_rows_as(p->ws->qkv, n_q + n_kv);
        place_own(p, i, qkv, skv_rows_from(qkv, 0, n_q));
        return qkv;
    }
    if (own) make_own_kv(p, i);
    if (wanted_only) skv_pass_keep_wanted(p);
    return make_q(p, i);
}

/* ---- the block ---- */

/* Rows of a cache that n_q rows after n_past see, added up. */
static double rows_seen(const skv_pass *p, size_t i, const skv_kv_cache *cache, size_t n_past,
                        size_t n_q)
{
    const size_t window = p->c->layers[i].window, n_tracks = skv_pass_tracks(p, i);
    const size_t *dropped = skv_kv_cache_dropped(cache, p->plan->layers[i].slot);
    double gone = 0;
    for (size_t t = 0; dropped && t < n_tracks; t++) gone += (double)dropped[t];
    const double first = (double)(n_past + 1) - gone / (double)n_tracks; /* each sees one more */
    double n = (double)n_q, n_far = 0;
    if (window > 0) { /* of them see no more than the window */
        const double n_near = fmax(0, floor((double)window - first) + 1);
        n_far = fmax(0, n - n_near);
        n -= n_far;
    }
    return n * first + n * (n - 1) / 2 + n_far * (double)window;
}

/* The votes of item j, whose queries have been rotated; rows that have voted in this layer before,
 * in a step that did not end, do not vote again. */
static void cast_votes(const skv_pass *p, size_t i, skv_rows q, size_t j)
{
    const skv_attention_item *item = &p->spec.sets[p->set].items[j];
    const skv_pass_span *span = &p->spans[item->span];
    const skv_layer_shape *shape = &p->c->layers[i];
    skv_kv_votes *votes = span->votes;
    size_t slot = p->plan->layers[i].slot;
    size_t row0 = item->n_past;
    size_t from = skv_max_size(skv_max_size(votes->from, votes->voted[i]), row0);
    size_t to = skv_min_size(votes->to, row0 + item->n_q);
    if (shape->window > 0 || from >= to) return;
    p->be->votes(p->be, &(skv_votes_args){
                            .step = p->ws->step,
                            .set = p->set,
                            .item = j,
                            .first = from - row0,
                            .n = to - from,
                            .q = q,
                            .slot = slot,
                            .n_heads = shape->n_heads,
                            .head_dim = skv_config_head_dim(p->c, i),
                            .scale = (float)p->c->attention_scale,
                            .softcap = (float)p->c->attention_softcap,
                            .sinks = p->m->layers[i].sinks,
                            .votes = skv_kv_votes_of(votes, slot),
                            .by_query_head = votes->by_query_head,
                        });
    votes->voted[i] = to;
    p->work->attention += 2 * (double)skv_config_q_columns(p->c, i) *
                          rows_seen(p, i, span->cache, from, to - from); /* scores once more */
}

/* o *= sigmoid(Wgate a), of rows that go on. */
static void gate_attention(const skv_pass *p, size_t i, skv_rows o)
{
    const skv_layer *layer = &p->m->layers[i];
    const size_t n = skv_config_q_columns(p->c, i);
    const skv_rows gate = skv_rows_as(p->ws->h, n);
    p->be->linear(p->be, &(skv_linear_args){.w = layer->gate,
                                            .y = gate,
                                            .x = p->ws->x,
                                            .n_rows = p->n_alive,
                                            .norm = skv_pass_norm(p, layer->attn_norm)});
    p->be->gated_norm(
        p->be,
        &(skv_gated_norm_args){
            .x = o, .z = gate, .n_rows = p->n_alive, .n_groups = 1, .n = n, .sigmoid = true});
    p->work->q += skv_work_product(p->n_alive, p->c->hidden, n);
}

static void attend(const skv_pass *p, size_t i, skv_rows q)
{
    const skv_config *c = p->c;
    const skv_layer_shape *shape = &c->layers[i];
    const size_t head_dim = skv_config_head_dim(c, i);
    size_t n_q = shape->n_heads * head_dim, slot = p->plan->layers[i].slot;
    for (size_t h = 0; h < p->n_hooks; h++) {
        const skv_hook *hook = p->hooks[h];
        if (hook->on_query) hook->on_query(hook->user, i, q, p->n_alive);
    }
    for (size_t j = 0; j < p->spec.sets[p->set].n_items; j++) {
        const skv_attention_item *item = &p->spec.sets[p->set].items[j];
        const skv_pass_span *span = &p->spans[item->span];
        if (span->votes) cast_votes(p, i, q, j);
        p->work->attention +=
            4 * (double)n_q * rows_seen(p, i, span->cache, item->n_past, item->n_q);
    }
    const skv_rows out = skv_rows_as(p->ws->o, n_q);
    p->be->attention(p->be, &(skv_attention_args){
                                .step = p->ws->step,
                                .set = p->set,
                                .out = out,
                                .q = q,
                                .slot = slot,
                                .n_heads = shape->n_heads,
                                .head_dim = head_dim,
                                .window = shape->window,
                                .scale = (float)c->attention_scale,
                                .softcap = (float)c->attention_softcap,
                                .sinks = p->m->layers[i].sinks,
                            });
    if (p->m->layers[i].gate) gate_attention(p, i, out);
}

/* A block's last product, whose result is added to rows of x, by way of a norm where the
 * architecture has one after the block; such a sum may be multiplied by a number. Ranks have parts
 * of the result, and rank 0 adds its own to x, which becomes the sum of them. */
static void project(const skv_pass *p, size_t i, skv_product which, const skv_linear_args *product,
                    skv_vec post_norm, float scale)
{
    const bool whole = which == SKV_PRODUCT_EMBED; /* every rank has all of it */
    const bool normed = post_norm.area;
    skv_linear_args args = *product;
    if (normed) { /* qkv is free again: the queries have been used */
        args.y = skv_rows_as(p->ws->qkv, p->c->hidden);
    }
    args.epilogue =
        normed || !(whole || skv_ranks_lead(p->m->ranks)) ? SKV_EPILOGUE_STORE : SKV_EPILOGUE_ADD;
    skv_pass_linear(p, i, which, &args);
    if (!whole) skv_pass_sum(p, args.y, args.n_rows);
    if (!normed) return;
    p->be->norm_add(p->be, &(skv_norm_add_args){.x = product->y,
                                                .y = args.y,
                                                .n_rows = args.n_rows,
                                                .n = p->c->hidden,
                                                .norm = skv_pass_norm(p, post_norm),
                                                .scale = scale});
}

/* The last steps of a layer's sum: embeddings that still come are scaled after them. */
static float block_scale(const skv_pass *p, size_t i)
{
    return p->c->per_layer > 0 ? 1 : p->m->layers[i].scale;
}

/* The dense block of rows x [n, D], added to `sum` [n, D]: x, or the sum beside it. */
static void run_dense(const skv_pass *p, size_t i, skv_rows x, size_t n, skv_rows sum)
{
    const skv_layer *layer = &p->m->layers[i];
    const skv_rows h = skv_rows_as(p->ws->h, skv_config_dense_ffn(p->c, i));
    skv_pass_linear(p, i, SKV_PRODUCT_GATE_UP,
                    &(skv_linear_args){
                        .w = layer->gate_up,
                        .y = h,
                        .x = x,
                        .n_rows = n,
                        .norm = skv_pass_norm(p, layer->ffn_norm),
                        .epilogue = skv_pass_activation(p->c),
                    });
    project(p, i, SKV_PRODUCT_DOWN,
            &(skv_linear_args){.w = layer->down, .y = sum, .x = h, .n_rows = n},
            layer->experts ? layer->post_dense_norm : layer->post_ffn_norm,
            layer->experts ? 1 : block_scale(p, i));
}

/* The block of layer i for rows x [n, D]. */
static void run_block(const skv_pass *p, size_t i, skv_rows x, size_t n)
{
    const skv_layer *layer = &p->m->layers[i];
    p->work->mlp += 2 * (double)n * (double)skv_config_block_weights(p->c, i);
    p->work->mlp_blocks += n;
    if (layer->experts) skv_pass_run_experts(p, i, x, n);
    if (layer->gate_up) run_dense(p, i, x, n, layer->experts ? p->ws->ffn_sum : x);
    if (!layer->experts || !layer->gate_up) return;
    p->be->norm_add(p->be, &(skv_norm_add_args){.x = x,
                                                .y = p->ws->ffn_sum,
                                                .n_rows = n,
                                                .n = p->c->hidden,
                                                .norm = skv_pass_norm(p, layer->post_ffn_norm),
                                                .scale = block_scale(p, i)});
}

static void feed_forward(const skv_pass *p, size_t i)
{
    const skv_ffn_skipper *s = p->ffn_skipper;
    skv_rows rows = p->ws->x;
    if (p->c->layers[i].ffn == 0) return;
    if (!s || i < s->first_layer || i >= s->end_layer) {
        run_block(p, i, rows, p->n_alive);
        return;
    }
    const size_t n = skv_ffn_skip_take(p, &rows);
    if (n == 0) return;
    run_block(p, i, rows, n);
    skv_ffn_skip_put(p, n);
}

/*
 * Adds the embeddings of the rows' tokens in layer i (Gemma 4). It is gated by x as it is:
 *     e = (NORM(Wpart_i x0 / sqrt(D)) + token_i) / sqrt(2),  x += NORM(Wout (gelu(Wgate x) * e))
 * The rows' x0 and embeddings stay where the step began, whoever has ended since.
 */
static void add_embedding(const skv_pass *p, size_t i)
{
    const skv_layer *layer = &p->m->layers[i];
    const size_t D = p->c->hidden, P = p->c->per_layer;
    const skv_rows gate = skv_rows_as(p->ws->h, P), part = skv_rows_as(p->ws->qkv, P);
    skv_norm norm = skv_pass_norm(p, p->m->embed_norm);
    norm.eps *= (float)D; /* in place of the factor 1 / sqrt(D) before the norm */
    p->be->linear(p->be, &(skv_linear_args){.w = p->m->embed_part,
                                            .part0 = i,
                                            .part1 = i + 1,
                                            .y = part,
                                            .x = p->ws->x0,
                                            .n_rows = p->n_alive,
                                            .step = p->ws->step,
                                            .set = p->set});
    p->be->linear(
        p->be,
        &(skv_linear_args){.w = layer->embed_gate, .y = gate, .x = p->ws->x, .n_rows = p->n_alive});
    p->be->embed_gate(p->be, &(skv_embed_gate_args){.step = p->ws->step,
                                                    .set = p->set,
                                                    .gate = gate,
                                                    .part = part,
                                                    .token = skv_rows_from(p->ws->embeds, 0, i * P),
                                                    .n = P,
                                                    .norm = norm});
    project(
        p, i, SKV_PRODUCT_EMBED,
        &(skv_linear_args){.w = layer->embed_out, .y = p->ws->x, .x = gate, .n_rows = p->n_alive},
        layer->post_embed_norm, layer->scale);
    p->work->mlp += skv_work_product(p->n_alive, D, 3 * P);
}

/* x += w o [n_alive, n] by way of ws->o. */
static void project_o(const skv_pass *p, size_t i, const skv_linear *w, size_t n)
{
    project(p, i, SKV_PRODUCT_O,
            &(skv_linear_args){
                .w = w, .y = p->ws->x, .x = skv_rows_as(p->ws->o, n), .n_rows = p->n_alive},
            p->m->layers[i].post_attn_norm, 1);
    p->work->o += skv_work_product(p->n_alive, n, p->c->hidden);
}

/* Attention beside a state: both read x as it enters the layer. Rows drop out when both have seen
 * all of them, and queries are made before x changes. */
static void mix_both(skv_pass *p, size_t i, bool wanted_only)
{
    make_own_kv(p, i);
    const size_t n = skv_pass_mix(p, i, wanted_only);
    const skv_rows q = make_q(p, i);
    if (p->n_alive == 0) return;
    project_o(p, i, p->m->layers[i].delta.out, n);
    attend(p, i, q);
}

/* What the layer's tokens learn of each other is added to x, and what it keeps of all rows is
 * brought up to date. */
static void mix(skv_pass *p, size_t i)
{
    const bool wanted_only = p->plan->skip && i >= p->plan->last_boundary;
    size_t n = skv_config_q_columns(p->c, i);
    switch (p->plan->layers[i].kept) {
    case SKV_KEPT_NOTHING: return;
    case SKV_KEPT_STATE: n = skv_pass_mix(p, i, wanted_only); break;
    case SKV_KEPT_BOTH: mix_both(p, i, wanted_only); break;
    case SKV_KEPT_PAGES: {
        const skv_rows q = make_qkv(p, i, wanted_only);
        if (p->n_alive > 0) attend(p, i, q);
        break;
    }
    }
    if (p->n_alive > 0) project_o(p, i, p->m->layers[i].o, n);
}

static void run_layer(skv_pass *p, size_t i)
{
    mix(p, i);
    if (p->n_alive == 0) return;
    feed_forward(p, i);
    if (p->c->per_layer > 0) add_embedding(p, i);
}

/* ---- the step ---- */

static void tell_start(skv_pass *p)
{
    for (size_t h = 0; h < p->n_hooks; h++) {
        const skv_hook *hook = p->hooks[h];
        if (hook->start) hook->start(hook->user, p);
    }
}

static void tell_hidden(const skv_pass *p, size_t i)
{
    for (size_t h = 0; h < p->n_hooks; h++) {
        const skv_hook *hook = p->hooks[h];
        if (hook->on_hidden) hook->on_hidden(hook->user, i, p->ws->x, p->n_alive);
    }
}

static void tell_before(skv_pass *p, size_t i)
{
    for (size_t h = 0; h < p->n_hooks; h++) {
        const skv_hook *hook = p->hooks[h];
        if (hook->before_layer) hook->before_layer(hook->user, p, i);
    }
}

static void tell_after(skv_pass *p, size_t i)
{
    for (size_t h = 0; h < p->n_hooks; h++) {
        const skv_hook *hook = p->hooks[h];
        if (hook->after_layer) hook->after_layer(hook->user, p, i);
    }
}

/* All layers make the data that they keep of rows at the stack's boundary; states do when their
 * layer runs, which reads them too. */
static void pass_boundary(const skv_pass *p, size_t i, size_t end)
{
    skv_pass_make_stack(p, i, p->c->n_layers, p->m->stack.norm);
    skv_pass_keep_boundary(p, end);
}

/* Layers whose turn does not come, since all rows have ended, still take these into their states.
 */
static skv_status run_layers(skv_pass *p, size_t end, skv_error *err)
{
    size_t i = p->first_layer;
    for (; i < end && p->n_alive > 0; i++) {
        SKV_REQUIRE(!p->cancel || !atomic_load(p->cancel), err, SKV_CANCELLED,
                    "cancelled before layer %zu", i);
        tell_hidden(p, i);
        const bool resumed = p->first_layer > 0 && i == p->first_layer; /* its slots are written */
        if (i == p->plan->stack_boundary && !resumed) pass_boundary(p, i, end);
        tell_before(p, i);
        run_layer(p, i);
        SKV_TRY(skv_ranks_check(p->m->ranks, err));
        tell_after(p, i);
    }
    skv_pass_feed_states(p, i, end);
    return SKV_OK;
}

static skv_status run_pass(skv_pass *p, skv_error *err)
{
    if (p->first_layer > 0 || p->stack_only) {
        resume_rows(p);
    } else {
        SKV_TRY(start_rows(p, err));
    }
    if (p->stack_only) {
        skv_pass_make_stack(p, p->first_layer, p->end_layer,
                            p->rows.area ? p->m->stack.norm : (skv_vec){0});
        return SKV_OK;
    }
    if (p->ffn_skipper) skv_ffn_skip_start(p);
    tell_start(p);
    SKV_TRY(run_layers(p, p->end_layer ? p->end_layer : p->c->n_layers, err));
    if (p->end_layer) {
        if (p->rows.area) p->be->copy_rows(p->be, p->rows, p->ws->x, p->n_alive, p->c->hidden);
        return SKV_OK;
    }
    tell_hidden(p, p->c->n_layers);
    skv_pass_report(p);
    return skv_ranks_check(p->m->ranks, err);
}

skv_status skv_pass_run(skv_pass *p, skv_error *err)
{
    p->c = p->m->config;
    p->be = p->m->be;
    p->pool = p->m->pool;
    for (size_t s = 0; p->adapters && s < p->n_spans; s++) {
        p->adapts = p->adapts || p->spans[s].adapters;
    }
    SKV_TRY(skv_pass_begin(p, err));
    const skv_status status = run_pass(p, err);
    const skv_status ended = p->be->step_wait(p->be, p->ws->step, status == SKV_OK ? err : NULL);
    if (status == SKV_CANCELLED && p->cancel) atomic_store(p->cancel, false);
    return status == SKV_OK ? ended : status;
}
