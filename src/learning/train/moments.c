/* Second moments of activations, over a text: see ridge.h. */
#include "train/ridge.h"

#include <math.h>
#include <stdio.h>

#include "base/mem.h"
#include "base/size.h"
#include "base/system.h"
#include "kernels/kernels.h"
#include "train/calibrate.h"

enum {
    NORM_ROWS = 16, /* rows of a task */
    COLUMNS = 64    /* columns of a task */
};

typedef struct gatherer {
    skv_moments *m;
    const skv_source *source;
    const skv_moments_tools *tools;
    float *norms; /* [n_deep, D], owned */
    float *x, *n; /* [seq, D], owned: of the step */
    float *tile;  /* [D, D], owned: of the step */
} gatherer;

/* ---- memory ---- */

static size_t square_bytes(size_t D, size_t element)
{
    return D * D * element; /* D is bounded by skv_config_check */
}

/* Of the moments and of a step; the engine has counted its own before. */
static skv_status check_memory(const skv_moments *m, size_t seq, skv_error *err)
{
    const double MIB = 1048576.0;
    size_t moments, rows = 2 * seq * m->D * sizeof(float), total;
    bool fits = skv_size_mul(square_bytes(m->D, sizeof(double)), m->n_deep, &moments) &&
                skv_size_add(moments, rows + square_bytes(m->D, sizeof(float)), &total);
    size_t available = skv_memory_available();
    SKV_REQUIRE(fits && total <= available, err, SKV_MEMORY,
                "memory: moments of %zu layers of width %zu %.0f MiB + rows of %zu tokens %.0f "
                "MiB, %.0f MiB are available",
                m->n_deep, m->D, (double)m->n_deep * (double)square_bytes(m->D, 8) / MIB, seq,
                (double)rows / MIB, (double)available / MIB);
    return SKV_OK;
}

static skv_status take_memory(gatherer *g, size_t seq, skv_error *err)
{
    skv_moments *m = g->m;
    size_t D = m->D, n_deep = m->n_deep;
    SKV_TRY(check_memory(m, seq, err));
    m->gram = skv_map_zero(square_bytes(D, sizeof(double)));
    m->cross = skv_alloc_zero(n_deep, sizeof *m->cross);
    m->sums = skv_alloc_zero(n_deep * D, sizeof *m->sums);
    m->squares = skv_alloc_zero(n_deep * D, sizeof *m->squares);
    g->norms = skv_alloc(n_deep * D, sizeof *g->norms);
    g->x = skv_alloc_aligned(seq * D, sizeof *g->x);
    g->n = skv_alloc_aligned(seq * D, sizeof *g->n);
    g->tile = skv_alloc_aligned(D * D, sizeof *g->tile);
    bool taken =
        m->gram && m->cross && m->sums && m->squares && g->norms && g->x && g->n && g->tile;
    for (size_t i = 1; taken && i < n_deep; i++) {
        m->cross[i] = skv_map_zero(square_bytes(D, sizeof(double)));
        taken = m->cross[i];
    }
    SKV_REQUIRE(taken, err, SKV_MEMORY, "calibration: no memory for moments of width %zu", D);
    return SKV_OK;
}

void skv_moments_release(skv_moments *m)
{
    if (m->gram) skv_unmap(m->gram, square_bytes(m->D, sizeof(double)));
    for (size_t i = 1; m->cross && i < m->n_deep; i++) {
        if (m->cross[i]) skv_unmap(m->cross[i], square_bytes(m->D, sizeof(double)));
    }
    skv_free(m->cross);
    skv_free(m->sums);
    skv_free(m->squares);
    *m = (skv_moments){0};
}

static void release_gatherer(gatherer *g)
{
    skv_free(g->norms);
    skv_free(g->x);
    skv_free(g->n);
    skv_free(g->tile);
}

/* ---- sums of a step ---- */

typedef struct norm_job {
    const gatherer *g;
    const float *x, *weight;
    float *out;
    size_t n_rows;
} norm_job;

static void norm_rows(void *arg, size_t i_task, size_t i_thread)
{
    const norm_job *j = arg;
    const skv_config *c = skv_source_config(j->g->source);
    size_t D = j->g->m->D, end = skv_min_size(j->n_rows, (i_task + 1) * NORM_ROWS);
    (void)i_thread;
    for (size_t t = i_task * NORM_ROWS; t < end; t++) {
        j->g->tools->kernels->rmsnorm(j->out + t * D, j->x + t * D, j->weight,
                                      c->norm_offset_one ? 1.0f : 0.0f, (float)c->norm_eps, D);
    }
}

typedef struct sum_job {
    const float *n; /* [n_rows, D] */
    size_t n_rows, D;
    double *sums, *squares; /* [D] */
} sum_job;

static void sum_columns(void *arg, size_t i_task, size_t i_thread)
{
    const sum_job *j = arg;
    size_t c0 = i_task * COLUMNS, c1 = skv_min_size(j->D, c0 + COLUMNS);
    (void)i_thread;
    for (size_t t = 0; t < j->n_rows; t++) {
        for (size_t c = c0; c < c1; c++) {
            double value = (double)j->n[t * j->D + c];
            j->sums[c] += value;
            j->squares[c] += value * value;
        }
    }
}

typedef struct add_job {
    double *to;
    const float *tile;
    size_t D;
} add_job;

static void add_row(void *arg, size_t i, size_t i_thread)
{
    const add_job *j = arg;
    (void)i_thread;
    for (size_t c = 0; c < j->D; c++) j->to[i * j->D + c] += (double)j->tile[i * j->D + c];
}

/* to += x^T n: f32 products and sums over the rows of a step, f64 over steps. */
static void add_product(const gatherer *g, const float *n, size_t n_rows, double *to)
{
    size_t D = g->m->D;
    skv_gemm_run(g->tools->gemm, &(skv_gemm_args){.c = g->tile,
                                                  .ldc = D,
                                                  .a = g->x,
                                                  .lda = D,
                                                  .b = n,
                                                  .ldb = D,
                                                  .M = D,
                                                  .N = D,
                                                  .K = n_rows,
                                                  .a_t = true});
    add_job job = {to, g->tile, D};
    skv_pool_run(g->tools->pool, D, add_row, &job);
}

/* x_j [n_rows, D] as it enters layer j. */
static void take_hidden(void *user, size_t i_layer, const float *x, size_t n_rows)
{
    const gatherer *g = user;
    const skv_moments *m = g->m;
    size_t D = m->D;
    if (i_layer < m->first || i_layer >= m->first + m->n_deep) return;
    size_t i = i_layer - m->first;
    float *n = i == 0 ? g->x : g->n;
    norm_job norm = {g, x, g->norms + i * D, n, n_rows};
    skv_pool_run(g->tools->pool, skv_ceil_div(n_rows, NORM_ROWS), norm_rows, &norm);
    sum_job sum = {n, n_rows, D, m->sums + i * D, m->squares + i * D};
    skv_pool_run(g->tools->pool, skv_ceil_div(D, COLUMNS), sum_columns, &sum);
    add_product(g, n, n_rows, i == 0 ? m->gram : m->cross[i]);
}

static skv_status check_finite(const skv_moments *m, skv_error *err)
{
    for (size_t i = 0; i < m->n_deep; i++) {
        double sum = 0;
        for (size_t c = 0; c < m->D; c++) sum += m->squares[i * m->D + c];
        SKV_REQUIRE(isfinite(sum), err, SKV_RANGE,
                    "calibration: the input of layer %zu is not finite", m->first + i);
    }
    return SKV_OK;
}

/* ---- setting up ---- */

static skv_status read_norms(gatherer *g, skv_error *err)
{
    for (size_t i = 0; i < g->m->n_deep; i++) {
        char name[96];
        (void)snprintf(name, sizeof name, "model.layers.%zu.input_layernorm.weight",
                       g->m->first + i);
        const skv_tensor *t = skv_source_find(g->source, name);
        SKV_REQUIRE(t && skv_tensor_columns(t) == g->m->D, err, SKV_FORMAT,
                    "%s: tensor %s is missing", skv_source_path(g->source), name);
        skv_tensor_read_rows(t, 0, 1, g->norms + i * g->m->D);
    }
    return SKV_OK;
}

static skv_status gather(gatherer *g, const char *path, const skv_transform_options *o,
                         skv_error *err)
{
    const skv_calibration_options options = {.data = o->data,
                                             .n_data = o->n_data,
                                             .tokens = o->tokens,
                                             .seq = o->seq,
                                             .seed = o->seed,
                                             .threads = o->threads,
                                             .cpu = o->cpu,
                                             .weights = o->weights};
    const skv_calibration_sink sink = {
        .on_hidden = take_hidden, .user = g, .progress = o->progress, .progress_user = o->user};
    skv_calibration *text = NULL;
    SKV_TRY(skv_calibration_open(path, g->source, &options, &text, err));
    skv_status status = take_memory(g, skv_calibration_seq(text), err);
    if (status == SKV_OK) status = read_norms(g, err);
    if (status == SKV_OK) status = skv_calibration_run(text, &sink, &g->m->n_rows, err);
    if (status == SKV_OK) status = check_finite(g->m, err);
    skv_calibration_close(text);
    return status;
}

skv_status skv_moments_gather(const char *path, const skv_source *source,
                              const skv_transform_options *options, const skv_moments_tools *tools,
                              skv_moments *out, skv_error *err)
{
    const skv_config *c = skv_source_config(source);
    *out = (skv_moments){
        .D = c->hidden, .first = options->kv_layers, .n_deep = c->n_layers - options->kv_layers};
    gatherer g = {.m = out, .source = source, .tools = tools};
    skv_status status = gather(&g, path, options, err);
    release_gatherer(&g);
    if (status != SKV_OK) skv_moments_release(out);
    return status;
}
