/* Operations that treat one row after the other: places of q, K and V, norms. */
#include <string.h>

#include "backend/cpu/cpu_backend.h"
#include "base/size.h"

enum { ROWS_A_TASK = 8 };

typedef struct row_job {
    const skv_cpu_backend *be;
    const void *args;
    size_t n_rows, per_task;
    void (*row)(const skv_cpu_backend *be, const void *args, size_t i);
} row_job;

static void run_rows(void *arg, size_t i_task, size_t i_thread)
{
    const row_job *job = arg;
    (void)i_thread;
    size_t end = skv_min_size((i_task + 1) * job->per_task, job->n_rows);
    for (size_t i = i_task * job->per_task; i < end; i++) job->row(job->be, job->args, i);
}

static void for_rows(skv_backend *base, const void *args, size_t n_rows,
                     void (*row)(const skv_cpu_backend *, const void *, size_t))
{
    skv_cpu_backend *be = (skv_cpu_backend *)base;
    row_job job = {be, args, n_rows, ROWS_A_TASK, row};
    /* Fewer where threads would be left without rows; a few rows are not worth waking them. */
    if (n_rows >= 2 * ROWS_A_TASK) {
        const size_t share = n_rows / skv_pool_threads(be->pool);
        job.per_task = skv_max_size(1, skv_min_size(share, ROWS_A_TASK));
    }
    skv_pool_run_stretches(be->pool, skv_ceil_div(n_rows, job.per_task), run_rows, &job);
}

/* The products before left row i + 1 in the third-level cache; x is row i. */
static void fetch_next(const float *x, size_t ld, size_t n, size_t i, size_t n_rows)
{
    if (i + 1 == n_rows) return;
    for (size_t d = 0; d < n; d += 16) __builtin_prefetch(x + ld + d, 1);
}

/* Row i of rows. */
static float *row_of(skv_rows rows, size_t i)
{
    return skv_cpu_at(rows) + i * rows.ld;
}

/* y [n] = norm(x) */
static void norm_one(const skv_cpu_backend *be, const skv_norm *norm, float *y, const float *x,
                     size_t n)
{
    be->kernels.rmsnorm(y, x, skv_cpu_vec(norm->weight), norm->offset, norm->eps, n);
}

/* x [n_heads, head_dim]: one norm a head, or one over all. */
static void norm_heads(const skv_cpu_backend *be, float *x, size_t n_heads, size_t head_dim,
                       const skv_norm *norm)
{
    const size_t n = norm->joined ? n_heads * head_dim : head_dim;
    for (size_t at = 0; norm->weight.area && at < n_heads * head_dim; at += n) {
        norm_one(be, norm, x + at, x + at, n);
    }
}

/* ---- place ---- */

typedef struct place_job {
    const skv_place_args *args;
    const uint32_t *rows; /* [rows of the set] or NULL */
    size_t n_q, n_kv;     /* rows of q, of k and v */
    skv_kv_type type;
    size_t track0, max_pages; /* of the slot, and of each of its heads */
} place_job;

/* Heads x [n_heads, head_dim] of row `row` of the step. */
static void rotate_heads(const skv_cpu_backend *be, float *x, size_t n_heads, size_t head_dim,
                         const skv_cpu_angles *angles, size_t row)
{
    const size_t n = angles->of->spec.n;
    const float *cosine = angles->cos + row * n, *sine = angles->sin + row * n;
    for (size_t h = 0; h < n_heads; h++) {
        be->kernels.rope(x + h * head_dim, cosine, sine, 2 * n);
    }
}

static void place_query(const skv_cpu_backend *be, const void *arg, size_t i)
{
    const place_job *job = arg;
    const skv_place_args *a = job->args;
    float *q = row_of(a->q, i);
    fetch_next(q, a->q.ld, a->n_heads * a->head_dim, i, job->n_q);
    norm_heads(be, q, a->n_heads, a->head_dim, &a->q_norm);
    rotate_heads(be, q, a->n_heads, a->head_dim, &a->step->angles[a->q_angles],
                 job->rows ? job->rows[i] : i);
}

/* Head h of row i, which is at k and v. */
static void store_head(const skv_cpu_backend *be, const place_job *job, const skv_cpu_row *row,
                       size_t h, const float *k, const float *v)
{
    const skv_place_args *a = job->args;
    const skv_table *table = row->table;
    const size_t *dropped = table->n_lost ? table->dropped + job->track0 : NULL;
    void **pages = table->pages + job->track0 * job->max_pages;
    for (size_t track = h * a->n_copies; track < (h + 1) * a->n_copies; track++) {
        const size_t place = row->place - (dropped ? dropped[track] : 0);
        void *page = pages[track * job->max_pages + place / SKV_PAGE_ROWS];
        be->kernels.kv_store(page, job->type, place % SKV_PAGE_ROWS, k, v, a->head_dim);
    }
}

static void place_kv(const skv_cpu_backend *be, const void *arg, size_t i)
{
    const place_job *job = arg;
    const skv_place_args *a = job->args;
    const skv_cpu_row *row = &a->step->row[i];
    float *k_row = row_of(a->k, i);
    const float *v_row = row_of(a->v, i);
    fetch_next(k_row, a->k.ld, a->n_kv_heads * a->head_dim, i, job->n_kv);
    fetch_next(v_row, a->v.ld, a->n_kv_heads * a->head_dim, i, job->n_kv);
    if (a->k_norm.joined) norm_heads(be, k_row, a->n_kv_heads, a->head_dim, &a->k_norm);
    for (size_t h = 0; h < a->n_kv_heads; h++) {
        float *k = k_row + h * a->head_dim, normed[SKV_HEAD_DIM_MAX];
        const float *v = v_row + h * a->head_dim;
        if (a->v_eps > 0) { /* before k changes: v may be k */
            be->kernels.rmsnorm(normed, v, NULL, 0, a->v_eps, a->head_dim);
            v = normed;
        }
        if (!a->k_norm.joined) norm_heads(be, k, 1, a->head_dim, &a->k_norm);
        rotate_heads(be, k, 1, a->head_dim, &a->step->angles[a->k_angles], i);
        store_head(be, job, row, h, k, v);
    }
}

static void place_row(const skv_cpu_backend *be, const void *arg, size_t i)
{
    place_query(be, arg, i);
    place_kv(be, arg, i);
}

void skv_cpu_place(skv_backend *base, const skv_place_args *args)
{
    const skv_backend_step *step = args->step;
    const skv_cpu_set *set = &step->sets[args->set];
    const skv_slots_spec *spec = &step->slots->spec;
    place_job job = {.args = args,
                     .rows = set->rows,
                     .n_q = args->q.area ? set->n_rows : 0,
                     .n_kv = args->k.area ? step->n_rows : 0,
                     .type = spec->type,
                     .max_pages = spec->max_pages};
    if (args->k.area) job.track0 = spec->track0[args->slot];
    if (job.n_q == job.n_kv) { /* the rows of both are the same */
        for_rows(base, &job, job.n_q, place_row);
        return;
    }
    for_rows(base, &job, job.n_kv, place_kv);
    for_rows(base, &job, job.n_q, place_query);
}

static void norm_row(const skv_cpu_backend *be, const void *args, size_t i)
{
    const skv_norm_args *a = args;
    norm_one(be, &a->norm, row_of(a->y, i), row_of(a->x, i), a->n);
}

void skv_cpu_norm(skv_backend *base, const skv_norm_args *args)
{
    for_rows(base, args, args->n_rows, norm_row);
}

static void norm_add_row(const skv_cpu_backend *be, const void *args, size_t i)
{
    const skv_norm_add_args *a = args;
    float *y = row_of(a->y, i), *x = row_of(a->x, i);
    norm_one(be, &a->norm, y, y, a->n);
    be->kernels.axpy(x, 1.0f, y, a->n);
    const float scale = a->scale;
    if (scale == 0 || scale == 1) return;
    for (size_t d = 0; d < a->n; d++) x[d] *= scale;
}

void skv_cpu_norm_add(skv_backend *base, const skv_norm_add_args *args)
{
    for_rows(base, args, args->n_rows, norm_add_row);
}

static void glu_row(const skv_cpu_backend *be, const void *args, size_t i)
{
    const skv_glu_args *a = args;
    const float *x = row_of(a->x, i);
    skv_glu_fn *glu =
        a->epilogue == SKV_EPILOGUE_GELU_GLU ? be->kernels.gelu_tanh_glu : be->kernels.silu_glu;
    glu(row_of(a->y, i), x, x + a->n, a->n);
}

void skv_cpu_glu(skv_backend *base, const skv_glu_args *args)
{
    for_rows(base, args, args->n_rows, glu_row);
}

static void embed_gate_row(const skv_cpu_backend *be, const void *args, size_t i)
{
    const skv_embed_gate_args *a = args;
    float *gate = row_of(a->gate, i), *e = row_of(a->part, i);
    const uint32_t *rows = a->step->sets[a->set].rows;
    const float *token = row_of(a->token, rows ? rows[i] : i);
    norm_one(be, &a->norm, e, e, a->n);
    for (size_t d = 0; d < a->n; d++) e[d] = (e[d] + token[d]) * 0.70710678f;
    be->kernels.gelu_tanh_glu(gate, gate, e, a->n);
}

void skv_cpu_embed_gate(skv_backend *base, const skv_embed_gate_args *args)
{
    for_rows(base, args, args->step->sets[args->set].n_rows, embed_gate_row);
}

static void gated_norm_row(const skv_cpu_backend *be, const void *args, size_t i)
{
    const skv_gated_norm_args *a = args;
    float *x = row_of(a->x, i);
    const float *z = row_of(a->z, i), *weight = skv_cpu_vec(a->norm.weight);
    skv_glu_fn *glu = a->sigmoid ? be->kernels.sigmoid_glu : be->kernels.silu_glu;
    if (!weight || a->gate_first) glu(x, z, x, a->n_groups * a->n);
    for (size_t g = 0; weight && g < a->n_groups; g++) {
        const float *w = weight + (a->weight_per_group ? g * a->n : 0);
        float *group = x + g * a->n;
        be->kernels.rmsnorm(group, group, w, a->norm.offset, a->norm.eps, a->n);
    }
    if (weight && !a->gate_first) glu(x, z, x, a->n_groups * a->n);
}

void skv_cpu_gated_norm(skv_backend *base, const skv_gated_norm_args *args)
{
    for_rows(base, args, args->n_rows, gated_norm_row);
}

static void mix_row(const skv_cpu_backend *be, const void *args, size_t i)
{
    const skv_mix_args *a = args;
    const skv_cpu_routes *routes = &be->routes;
    float *x = row_of(a->x, i);
    if (a->store) memset(x, 0, a->n * sizeof *x);
    for (size_t j = i * routes->n_terms; j < (i + 1) * routes->n_terms; j++) {
        be->kernels.axpy(x, routes->weights[j], row_of(a->y, routes->places[j]), a->n);
    }
}

void skv_cpu_mix(skv_backend *base, const skv_mix_args *args)
{
    for_rows(base, args, ((const skv_cpu_backend *)base)->routes.n_rows, mix_row);
}

void skv_cpu_sum(skv_backend *base, skv_rows x, size_t n_rows, size_t n)
{
    const skv_backend_limits *limits = &((const skv_cpu_backend *)base)->limits;
    limits->ranks.sum(limits->ranks.ctx, skv_cpu_at(x), n_rows * n);
}

void skv_cpu_copy_rows(skv_backend *base, skv_rows to, skv_rows from, size_t n_rows, size_t n)
{
    (void)base;
    for (size_t i = 0; i < n_rows; i++) memcpy(row_of(to, i), row_of(from, i), n * sizeof(float));
}

void skv_cpu_scale(skv_backend *base, skv_rows rows, size_t n_rows, size_t n, float factor)
{
    (void)base;
    for (size_t i = 0; i < n_rows; i++) {
        float *x = row_of(rows, i);
        for (size_t d = 0; d < n; d++) x[d] *= factor;
    }
}

void skv_cpu_softcap(skv_backend *base, skv_rows rows, size_t n_rows, size_t n, float cap)
{
    const skv_cpu_backend *be = (const skv_cpu_backend *)base;
    if (rows.ld == n) {
        be->kernels.softcap(skv_cpu_at(rows), cap, n_rows * n);
        return;
    }
    for (size_t i = 0; i < n_rows; i++) be->kernels.softcap(row_of(rows, i), cap, n);
}
