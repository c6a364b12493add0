/*
 * The scan of linear attention: blocks of SKV_SCAN_BLOCK rows at multiples of that in the sequence
 * (Yang et al., Parallelizing Linear Transformers with the Delta Rule, 2024, section 3, with one
 * right side; kernels.h has the formulas).
 *
 * A task has some panels of the value heads of one key head, of one span, and goes down its blocks.
 * S changes at ends of blocks alone, so a row's bits do not depend on how rows came in steps. The
 * rows of the last block are kept beside S; tasks read those of earlier steps, so keys and decays
 * of this step are written when all tasks are done (keep_rows).
 */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/cpu_states.h"
#include "base/size.h"

enum {
    B = SKV_SCAN_BLOCK,
    STRETCH = 4 /* blocks whose keys are prepared at once */
};

typedef struct scan_job {
    const skv_cpu_backend *be;
    const skv_scan_args *a;
    const skv_state_place *place;
    size_t n_parts; /* of a key head */
} scan_job;

/* A block of a span as a task sees it. */
typedef struct scan_rows {
    size_t row0;         /* step row of its row 0, which may be of an earlier step: then it wraps */
    size_t n0, n;        /* new rows are [n0, n) */
    size_t q0, q1;       /* as in skv_scan_block */
    size_t slot;         /* where the state keeps it */
    const float *kt;     /* [key_dim][B] */
    float *qt, *kk, *qk; /* [key_dim][B], [B][B], [B][B]: k_i . k_j and q_i . k_j */
    size_t out[B];       /* rows of q and out; SIZE_MAX: not wanted */
} scan_rows;

/* The scratch of a value head for a block. */
typedef struct scan_head {
    float alpha[B], beta[B], dt[B], decay[B];
    float weight[B]; /* alpha_j+1 ... alpha_n-1 */
    float a[SKV_PANEL], b[SKV_PANEL];
} scan_head;

/* A task: panels [unit0, unit1) of the value heads of a key head, counted through. */
typedef struct scan_task {
    const scan_job *job;
    const skv_state_span *span;
    size_t key_head, unit0, unit1;
    size_t settled, settles; /* rows folded into S before and after */
    float *state;            /* [n_bytes / 4], of the sequence: see cpu_states.h */
    float *scratch;          /* [skv_cpu_scan_scratch / 4], of the thread */
    float *out, *s;          /* of it: [n_panels][B][B], [n_panels][key_dim][B] */
} scan_task;

size_t skv_cpu_scan_scratch(const skv_backend_limits *limits)
{
    const size_t dk = limits->state_key_dim;
    const size_t n_panels = skv_ceil_div(limits->state_value_dim, B);
    return (STRETCH * 2 * (dk * B + SKV_PANEL) + n_panels * (SKV_PANEL + dk * B)) * sizeof(float);
}

static size_t group_of(const skv_state_layer *l)
{
    return l->n_value_heads / l->n_key_heads;
}

/* Value head g of those of a key head. */
static size_t value_head(const skv_state_layer *l, size_t key_head, size_t g)
{
    return l->tiled ? g * l->n_key_heads + key_head : key_head * group_of(l) + g;
}

static float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

static float softplus(float x)
{
    return x > 20.0f ? x : log1pf(expf(x));
}

/* alpha, and beta or dt, of a step row and value head. */
static void gates_of(const scan_job *job, size_t row, size_t h, float *alpha, float *beta,
                     float *dt)
{
    const skv_scan_args *a = job->a;
    const float bias = a->dt_bias.area ? skv_cpu_vec(a->dt_bias)[h] : 0;
    float step = softplus(*skv_cpu_row_at(a->decay, row, h) + bias);
    if (job->place->layer.kind == SKV_SCAN_MAMBA2) {
        if (step < a->dt_min) step = a->dt_min;
        if (a->dt_max > 0 && step > a->dt_max) step = a->dt_max;
        *dt = step;
    } else {
        *beta = a->write_max * sigmoid(*skv_cpu_row_at(a->write, row, h));
    }
    *alpha = expf(skv_cpu_vec(a->rate)[h] * step);
}

/* xt[:, i] = x * factor, normalised for the delta rule. */
static void put_column(const scan_job *job, float *xt, size_t i, const float *x, float factor)
{
    const size_t dk = job->place->layer.key_dim;
    if (job->place->layer.kind == SKV_SCAN_GATED_DELTA) {
        factor /= sqrtf(job->be->kernels.dot(x, x, dk) + 1e-6f);
    }
    for (size_t d = 0; d < dk; d++) xt[d * B + i] = x[d] * factor;
}

static void put_key(const scan_job *job, float *kt, size_t i, size_t row, size_t key_head)
{
    const size_t dk = job->place->layer.key_dim;
    put_column(job, kt, i, skv_cpu_row_at(job->a->k, row, key_head * dk), 1.0f);
}

/* ---- shared by value heads ---- */

/* Which rows of a block have an output, and their q. */
static void find_wanted(const scan_task *t, scan_rows *r)
{
    const skv_scan_args *a = t->job->a;
    const skv_cpu_set *set = &a->step->sets[a->set];
    const size_t dk = t->job->place->layer.key_dim;
    const bool is_delta = t->job->place->layer.kind == SKV_SCAN_GATED_DELTA;
    const float scale = is_delta ? 1.0f / sqrtf((float)dk) : 1.0f;
    size_t next = skv_cpu_first_wanted(set->rows, set->n_rows, r->row0 + r->n0);
    r->q0 = r->n;
    r->q1 = 0;
    for (size_t i = r->n0; i < r->n; i++) {
        r->out[i] = SIZE_MAX;
        if (next == set->n_rows || (set->rows ? set->rows[next] : next) != r->row0 + i) continue;
        if (r->q1 == 0) r->q0 = i;
        r->q1 = i + 1;
        put_column(t->job, r->qt, i, skv_cpu_row_at(a->q, next, t->key_head * dk), scale);
        r->out[i] = next++;
    }
}

/* Block `i` of a stretch, at row `at` of the sequence. */
static void prepare_block(const scan_task *t, scan_rows *r, size_t i, size_t at)
{
    const skv_state_place *p = t->job->place;
    const size_t dk = p->layer.key_dim, n_past = t->span->n_past, end = n_past + t->span->n;
    float *kt = t->scratch + i * 2 * (dk * B + SKV_PANEL);
    r->row0 = t->span->row0 + at - n_past;
    r->n0 = at < n_past ? skv_min_size(n_past - at, B) : 0;
    r->n = skv_min_size(end - at, B);
    r->slot = at / B % t->job->a->states->n_blocks;
    r->kt = kt;
    r->qt = kt + dk * B;
    r->kk = r->qt + dk * B;
    r->qk = r->kk + SKV_PANEL;
    const float *kept =
        t->state + p->keys + (r->slot * p->layer.n_key_heads + t->key_head) * dk * B;
    if (r->n0 > 0) memcpy(kt, kept, dk * B * sizeof *kt);
    for (size_t j = r->n0; j < r->n; j++) put_key(t->job, kt, j, r->row0 + j, t->key_head);
    find_wanted(t, r);
    const skv_scan_kernels *k = &t->job->be->kernels.scan;
    if (p->layer.kind == SKV_SCAN_GATED_DELTA) k->gram(r->kk, kt, kt, r->n0, r->n, dk);
    if (r->q0 < r->q1) k->gram(r->qk, r->qt, kt, r->q0, r->q1, dk);
}

/* ---- one value head ---- */

static float *kept_alpha(const scan_task *t, size_t slot, size_t h)
{
    const skv_state_place *p = t->job->place;
    return t->state + p->alpha + (slot * p->layer.n_value_heads + h) * B;
}

/* Decays and coefficients: products of alphas along the rows, never quotients or differences of
 * their logarithms, which lose digits. */
static void prepare_head(const scan_task *t, scan_head *head, const scan_rows *r, size_t h)
{
    float decay = 1.0f;
    const float *kept = kept_alpha(t, r->slot, h);
    for (size_t i = 0; i < r->n; i++) {
        if (i < r->n0) {
            head->alpha[i] = kept[i];
        } else {
            gates_of(t->job, r->row0 + i, h, &head->alpha[i], &head->beta[i], &head->dt[i]);
        }
        const float alpha = head->alpha[i];
        head->decay[i] = decay *= alpha;
        for (size_t j = 0; j < i; j++) head->weight[j] *= alpha;
        head->weight[i] = 1.0f;
        if (i < r->n0) continue;
        for (size_t j = 0; j < i; j++) {
            head->a[i * B + j] = head->beta[i] * (head->weight[j] * r->kk[i * B + j]);
        }
        if (i < r->q0 || i >= r->q1) continue;
        for (size_t j = 0; j <= i; j++) head->b[i * B + j] = head->weight[j] * r->qk[i * B + j];
    }
}

/* u of the new rows becomes v. */
static void load_values(const scan_task *t, const scan_head *head, const scan_rows *r, float *u,
                        size_t h, size_t panel, size_t n_panels)
{
    const skv_state_layer *l = &t->job->place->layer;
    for (size_t i = r->n0; i < r->n; i++) {
        const float *v = skv_cpu_row_at(t->job->a->v, r->row0 + i, h * l->value_dim);
        const float dt = l->kind == SKV_SCAN_MAMBA2 ? head->dt[i] : 1.0f;
        for (size_t p = 0; p < n_panels; p++) {
            const size_t column = (panel + p) * B;
            const size_t n = skv_min_size(l->value_dim - column, B);
            float *to = u + p * SKV_PANEL + i * B;
            for (size_t c = 0; c < n; c++) to[c] = dt * v[column + c];
            for (size_t c = n; c < B; c++) to[c] = 0;
        }
    }
}

static void store_outputs(const scan_task *t, const scan_rows *r, size_t h, size_t panel,
                          size_t n_panels)
{
    const skv_scan_args *a = t->job->a;
    const skv_state_layer *l = &t->job->place->layer;
    const float skip = a->skip.area ? skv_cpu_vec(a->skip)[h] : 0;
    const size_t first = panel * B;
    const size_t end = skv_min_size((panel + n_panels) * B, l->value_dim);
    for (size_t i = r->q0; i < r->q1; i++) {
        if (r->out[i] == SIZE_MAX) continue;
        float *to = skv_cpu_at(a->out) + r->out[i] * a->out.ld + h * l->value_dim;
        const float *v = skv_cpu_row_at(a->v, r->row0 + i, h * l->value_dim);
        for (size_t c = first; c < end; c++) {
            const float y = t->out[(c - first) / B * SKV_PANEL + i * B + c % B];
            to[c] = a->skip.area ? y + skip * v[c] : y;
        }
    }
}

/* S [n] rounded to bf16, and to `kept` [n]; NULL: nowhere. */
static void round_state(const scan_task *t, float *s, uint16_t *kept, size_t n)
{
    const skv_kernels *k = &t->job->be->kernels;
    uint16_t part[SKV_PANEL];
    for (size_t at = 0; at < n; at += SKV_PANEL) {
        const size_t n_part = skv_min_size(n - at, SKV_PANEL);
        uint16_t *to = kept ? kept + at : part;
        k->to_bf16(to, s + at, n_part);
        k->from_bf16(s + at, to, n_part);
    }
}

/* Panels [panel, panel + n_panels) of value head h through the blocks of a stretch, the first of
 * which is at row `at`. */
static void run_head(const scan_task *t, const scan_rows *blocks, size_t n_blocks, size_t at,
                     size_t h, size_t panel, size_t n_panels)
{
    const skv_state_place *p = t->job->place;
    const skv_scan_kernels *k = &t->job->be->kernels.scan;
    const size_t dk = p->layer.key_dim, floats = n_panels * dk * B;
    float *s = t->state + p->s + (h * p->n_panels + panel) * p->panel_floats;
    uint16_t *kept = t->job->a->states->bf16 ? (uint16_t *)(void *)s : NULL;
    scan_head head;
    if (kept) {
        s = t->s;
        t->job->be->kernels.from_bf16(s, kept, floats);
    }
    for (size_t i = 0; i < n_blocks; i++) {
        const scan_rows *r = &blocks[i];
        const size_t slot = r->slot * p->layer.n_value_heads + h;
        float *u = t->state + p->u + (slot * p->n_panels + panel) * SKV_PANEL;
        prepare_head(t, &head, r, h);
        load_values(t, &head, r, u, h, panel, n_panels);
        if (r->n0 < r->n) {
            k->rows(&(skv_scan_block){.key_dim = dk,
                                      .n0 = r->n0,
                                      .n = r->n,
                                      .q0 = r->q0,
                                      .q1 = r->q1,
                                      .kt = r->kt,
                                      .qt = r->qt,
                                      .decay = head.decay,
                                      .beta = head.beta,
                                      .a = p->layer.kind == SKV_SCAN_MAMBA2 ? NULL : head.a,
                                      .b = head.b},
                    s, u, t->out, n_panels);
            store_outputs(t, r, h, panel, n_panels);
        }
        const bool settles = at + (i + 1) * B <= t->settles;
        if (!settles && i + 1 == n_blocks) return;
        if (!settles && s != t->s) s = memcpy(t->s, s, floats * sizeof *s);
        k->fold(s, r->kt, u, head.weight, head.decay[B - 1], dk, n_panels);
        if (kept) round_state(t, s, settles ? kept : NULL, floats);
    }
}

/* ---- tasks ---- */

/* Calls run_head, or zeroes S, for the panels of a task. */
static void for_heads(const scan_task *t, const scan_rows *blocks, size_t n_blocks, size_t at)
{
    const skv_state_place *p = t->job->place;
    for (size_t unit = t->unit0; unit < t->unit1;) {
        const size_t h = value_head(&p->layer, t->key_head, unit / p->n_panels);
        const size_t panel = unit % p->n_panels;
        const size_t n_panels = skv_min_size(p->n_panels - panel, t->unit1 - unit);
        const size_t floats = p->panel_floats;
        if (blocks) {
            run_head(t, blocks, n_blocks, at, h, panel, n_panels);
        } else {
            memset(t->state + p->s + (h * p->n_panels + panel) * floats, 0,
                   n_panels * floats * sizeof(float));
        }
        unit += n_panels;
    }
}

static scan_task task_of(const scan_job *job, size_t i_span, size_t key_head)
{
    const skv_state_span *span = &job->a->step->spans[i_span];
    const uint64_t *settled = skv_state_settled(job->a->states, span->state);
    scan_task t = {.job = job, .span = span, .key_head = key_head};
    t.settled = span->n_past == 0 ? 0 : (size_t)settled[job->a->layer];
    t.settles = skv_state_settles(t.settled, span);
    t.state = skv_state_at(job->a->states, span->state);
    return t;
}

static void run_task(void *arg, size_t i_task, size_t i_thread)
{
    const scan_job *job = arg;
    const skv_state_layer *l = &job->place->layer;
    const size_t part = i_task % job->n_parts, head = i_task / job->n_parts;
    scan_task t = task_of(job, head / l->n_key_heads, head % l->n_key_heads);
    const size_t n_units = group_of(l) * job->place->n_panels;
    t.unit0 = n_units * part / job->n_parts;
    t.unit1 = n_units * (part + 1) / job->n_parts;
    t.scratch = skv_cpu_scratch(job->be, i_thread);
    t.out = t.scratch + STRETCH * 2 * (l->key_dim * B + SKV_PANEL);
    t.s = t.out + job->place->n_panels * SKV_PANEL;
    if (t.span->n_past == 0) for_heads(&t, NULL, 0, 0);
    const size_t end = t.span->n_past + t.span->n;
    scan_rows blocks[STRETCH];
    for (size_t at = t.settled; at < end;) {
        /* Blocks that do not settle are the last stretch. */
        const size_t limit = at < t.settles ? t.settles : end;
        const size_t n = skv_min_size(skv_ceil_div(limit - at, B), STRETCH);
        for (size_t i = 0; i < n; i++) prepare_block(&t, &blocks[i], i, at + i * B);
        for_heads(&t, blocks, n, at);
        at += n * B;
    }
}

/* Keys and decays of the rows of a span that do not settle. */
static void keep_rows(void *arg, size_t i_task, size_t i_thread)
{
    const scan_job *job = arg;
    const skv_state_place *p = job->place;
    const size_t nk = p->layer.n_key_heads;
    (void)i_thread;
    const scan_task t = task_of(job, i_task / nk, i_task % nk);
    const size_t n_past = t.span->n_past, end = n_past + t.span->n;
    for (size_t at = skv_max_size(t.settles, n_past); at < end; at++) {
        const size_t slot = at / B % job->a->states->n_blocks, row = t.span->row0 + at - n_past;
        float *kt = t.state + p->keys + (slot * nk + t.key_head) * p->layer.key_dim * B;
        put_key(job, kt, at % B, row, t.key_head);
        for (size_t g = 0; g < group_of(&p->layer); g++) {
            const size_t h = value_head(&p->layer, t.key_head, g);
            float beta, dt;
            gates_of(job, row, h, &kept_alpha(&t, slot, h)[at % B], &beta, &dt);
        }
    }
}

/* Parts of a key head: enough tasks for all threads, none smaller than a panel. */
static size_t parts_of(const scan_job *job)
{
    const size_t n_threads = skv_pool_threads(job->be->pool);
    const size_t n_heads = job->a->step->n_spans * job->place->layer.n_key_heads;
    const size_t n_units = group_of(&job->place->layer) * job->place->n_panels;
    if (n_threads == 1) return 1;
    return skv_min_size(skv_ceil_div(2 * n_threads, n_heads), n_units);
}

void skv_cpu_scan(skv_backend *base, const skv_scan_args *args)
{
    skv_cpu_backend *be = (skv_cpu_backend *)base;
    const size_t n_spans = args->step->n_spans;
    scan_job job = {.be = be, .a = args, .place = &args->states->places[args->layer]};
    const skv_state_layer *l = &job.place->layer;
    assert(l->kind != SKV_SCAN_NONE && l->key_dim <= be->limits.state_key_dim);
    assert(l->value_dim <= be->limits.state_value_dim);
    job.n_parts = parts_of(&job);
    skv_pool_run(be->pool, n_spans * l->n_key_heads * job.n_parts, run_task, &job);
    skv_pool_run(be->pool, n_spans * l->n_key_heads, keep_rows, &job);
    for (size_t i = 0; i < n_spans; i++) {
        const scan_task t = task_of(&job, i, 0);
        skv_state_settled(args->states, t.span->state)[args->layer] = t.settles;
    }
}
