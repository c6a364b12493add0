/*
 * Eviction on the CPU: votes for cached rows.
 *
 * Votes are softmax weights, so they take two passes over the keys: the first finds the logarithm
 * of the sum of every token's exponentials, the second, by page, adds up the weights of all tokens.
 * A page's votes belong to one task, which adds in the order of tokens: no result depends on the
 * threads. Scores are a matrix product in f32, of a block of queries with the keys of a page.
 */
#include <math.h>

#include "backend/cpu/cpu_backend.h"
#include "base/size.h"

enum { TASK_TOKENS_MIN = 8, TASK_TOKENS_MAX = 32 }; /* of the first pass: they share a page */

typedef struct votes_job {
    const skv_cpu_backend *be;
    const skv_votes_args *args;
    const skv_table *table; /* of the tokens' sequence */
    size_t n_past;          /* rows before the first of them */
    const float *q, *sinks; /* [n, ld] and [n_heads] or NULL */
    skv_kv_type type;
    size_t track0;   /* of the slot */
    size_t n_group;  /* query heads to a KV head */
    size_t n_blocks; /* tasks of a KV head */
    size_t n_tokens; /* of a task of the first pass */
} votes_job;

/* A task's part of the scratch. */
typedef struct votes_page {
    float *rows;           /* [64, Dh]: keys of a page; or queries of a block, scaled */
    unsigned char *panels; /* the keys, packed */
    unsigned char *block;  /* the queries, packed */
    float *scores;         /* [mr, ld] */
    size_t ld;             /* 64, or more where panels are wider than what divides it */
    size_t n_bytes;        /* of all */
} votes_page;

static votes_page lay_out(const skv_matmul *m, unsigned char *scratch, size_t head_dim)
{
    const size_t n_panels = skv_ceil_div(SKV_PAGE_ROWS, m->nr), ld = n_panels * m->nr;
    const size_t n_rows = skv_max_size(SKV_PAGE_ROWS, m->mr);
    const size_t panels_at = skv_round_up(n_rows * head_dim * sizeof(float), 64);
    const size_t block_at = panels_at + skv_round_up(n_panels * m->w_bytes(head_dim), 64);
    const size_t scores_at = block_at + skv_round_up(m->x_bytes(m->mr, head_dim), 64);
    votes_page out = {.ld = ld, .n_bytes = scores_at + m->mr * ld * sizeof(float)};
    if (!scratch) return out;
    out.rows = (float *)(void *)scratch;
    out.panels = scratch + panels_at;
    out.block = scratch + block_at;
    out.scores = (float *)(void *)(scratch + scores_at);
    return out;
}

size_t skv_cpu_votes_scratch(const skv_cpu_backend *be, size_t head_dim)
{
    return lay_out(&be->kernels.f32, NULL, head_dim).n_bytes;
}

static votes_page page_of(const votes_job *job, size_t i_thread)
{
    return lay_out(&job->be->kernels.f32, skv_cpu_scratch(job->be, i_thread), job->args->head_dim);
}

/* Rows of KV head h that token j sees. */
static size_t seen_rows(const votes_job *job, size_t h, size_t j)
{
    return job->n_past - job->table->dropped[job->track0 + h] + j + 1;
}

/* Of these, rows that its window ends before. */
static size_t hidden_rows(const votes_job *job, size_t h, size_t j)
{
    const skv_votes_args *a = job->args;
    const size_t n = seen_rows(job, h, j);
    return a->window > 0 && n > a->window ? n - a->window : 0;
}

/* Packs the first n keys of page p of head h. */
static void load_keys(const votes_job *job, size_t h, size_t p, size_t n, const votes_page *to)
{
    const skv_votes_args *a = job->args;
    const skv_matmul *m = &job->be->kernels.f32;
    const void *page = skv_cpu_track(job->table, job->track0 + h)[p];
    const size_t Dh = a->head_dim, panel_bytes = m->w_bytes(Dh);
    for (size_t r = 0; r < n; r++) {
        job->be->kernels.kv_load(page, job->type, r, to->rows + r * Dh, NULL, Dh);
    }
    for (size_t r = 0; r < n; r += m->nr) {
        m->pack_w(to->panels + r / m->nr * panel_bytes, to->rows + r * Dh, Dh,
                  skv_min_size(m->nr, n - r), Dh);
    }
}

/* Scores of n_queries of KV head h with the page's first n keys. Query i is that of token
 * i / n_group and the head's query head i % n_group. */
static void score_block(const votes_job *job, size_t h, size_t i0, size_t n_queries, size_t n,
                        const votes_page *page)
{
    const skv_votes_args *a = job->args;
    const skv_matmul *m = &job->be->kernels.f32;
    const size_t Dh = a->head_dim, panel_bytes = m->w_bytes(Dh);
    for (size_t i = 0; i < n_queries; i++) {
        const size_t j = (i0 + i) / job->n_group, g = (i0 + i) % job->n_group;
        const float *q = job->q + j * a->q.ld + (h * job->n_group + g) * Dh;
        for (size_t d = 0; d < Dh; d++) page->rows[i * Dh + d] = a->scale * q[d];
    }
    m->pack_x(page->block, page->rows, Dh, n_queries, Dh);
    for (size_t r = 0; r < n; r += m->nr) {
        m->tile(page->scores + r, page->ld, page->block, page->panels + r / m->nr * panel_bytes,
                n_queries, Dh, 0, Dh, false);
    }
    for (size_t i = 0; i < n_queries && a->softcap > 0; i++) {
        job->be->kernels.softcap(page->scores + i * page->ld, a->softcap, n);
    }
}

/* Takes the scores x [n] of query i of KV head h and rows from `row` on of a page. */
typedef void score_fn(const votes_job *job, size_t h, size_t i, size_t row, const float *x,
                      size_t n);

/* Queries [i0, i1) of KV head h and page p, in order, without those that see nothing of it. */
static void with_scores(const votes_job *job, size_t h, size_t p, size_t i0, size_t i1,
                        const votes_page *page, score_fn *use)
{
    const size_t first = p * SKV_PAGE_ROWS, mr = job->be->kernels.f32.mr;
    while (i1 > i0 && hidden_rows(job, h, (i1 - 1) / job->n_group) >= first + SKV_PAGE_ROWS) i1--;
    const size_t n_last = i1 > i0 ? seen_rows(job, h, (i1 - 1) / job->n_group) : 0;
    if (n_last <= first) return;
    load_keys(job, h, p, skv_min_size(n_last - first, SKV_PAGE_ROWS), page);
    while (seen_rows(job, h, i0 / job->n_group) <= first) i0++;
    for (size_t i = i0, m; i < i1; i += m) {
        m = skv_min_size(mr, i1 - i);
        const size_t n_most = seen_rows(job, h, (i + m - 1) / job->n_group) - first;
        score_block(job, h, i, m, skv_min_size(n_most, SKV_PAGE_ROWS), page);
        for (size_t k = 0; k < m; k++) {
            const size_t j = (i + k) / job->n_group;
            const size_t row = skv_max_size(hidden_rows(job, h, j), first);
            const size_t end = skv_min_size(seen_rows(job, h, j), first + SKV_PAGE_ROWS);
            use(job, h, i + k, row, page->scores + k * page->ld + (row - first), end - row);
        }
    }
}

/* ---- the first pass ---- */

/* log(exp(a) + exp(b)); one of them may be -inf. */
static float add_logs(float a, float b)
{
    float most = a > b ? a : b, least = a > b ? b : a;
    return most + log1pf(expf(least - most));
}

static float *norm_of(const votes_job *job, size_t h, size_t i)
{
    const size_t j = i / job->n_group, g = i % job->n_group;
    return job->be->vote_norms + j * job->args->n_heads + h * job->n_group + g;
}

static void add_to_norm(const votes_job *job, size_t h, size_t i, size_t row, const float *x,
                        size_t n)
{
    float *norm = norm_of(job, h, i);
    const float *sinks = job->sinks;
    const float own = job->be->kernels.logsumexp(x, n, NULL);
    if (row > hidden_rows(job, h, i / job->n_group)) {
        *norm = add_logs(*norm, own);
    } else {
        *norm = sinks ? add_logs(own, sinks[h * job->n_group + i % job->n_group]) : own;
    }
}

static void find_norms(void *arg, size_t i_task, size_t i_thread)
{
    const votes_job *job = arg;
    const skv_votes_args *a = job->args;
    const size_t h = i_task / job->n_blocks, j0 = i_task % job->n_blocks * job->n_tokens;
    const size_t j1 = skv_min_size(j0 + job->n_tokens, a->n);
    const size_t n_pages = skv_ceil_div(seen_rows(job, h, j1 - 1), SKV_PAGE_ROWS);
    const votes_page page = page_of(job, i_thread);
    for (size_t p = hidden_rows(job, h, j0) / SKV_PAGE_ROWS; p < n_pages; p++) {
        with_scores(job, h, p, j0 * job->n_group, j1 * job->n_group, &page, add_to_norm);
    }
}

/* ---- the second pass ---- */

static void add_weights(const votes_job *job, size_t h, size_t i, size_t row, const float *x,
                        size_t n)
{
    const skv_votes_args *a = job->args;
    const size_t track = a->by_query_head ? h * job->n_group + i % job->n_group : h;
    float *votes = skv_cpu_at(skv_rows_from(a->votes, track, row));
    job->be->kernels.add_exp(votes, x, *norm_of(job, h, i), n);
}

static void add_votes(void *arg, size_t i_task, size_t i_thread)
{
    const votes_job *job = arg;
    const size_t h = i_task / job->n_blocks, p = i_task % job->n_blocks;
    const votes_page page = page_of(job, i_thread);
    with_scores(job, h, p, 0, job->args->n * job->n_group, &page, add_weights);
}

void skv_cpu_votes(skv_backend *base, const skv_votes_args *args)
{
    skv_cpu_backend *be = (skv_cpu_backend *)base;
    const skv_cpu_item *item = &args->step->sets[args->set].items[args->item];
    const skv_slots_spec *spec = &args->step->slots->spec;
    const size_t n_kv_heads = spec->track0[args->slot + 1] - spec->track0[args->slot];
    votes_job job = {.be = be,
                     .args = args,
                     .table = item->table,
                     .n_past = item->n_past + args->first,
                     .q = skv_cpu_at(skv_rows_from(args->q, item->row0 + args->first, 0)),
                     .sinks = skv_cpu_vec(args->sinks),
                     .type = spec->type,
                     .track0 = spec->track0[args->slot],
                     .n_group = args->n_heads / n_kv_heads};
    const size_t n_threads = skv_pool_threads(be->pool);
    job.n_tokens = skv_ceil_div(args->n * n_kv_heads, 2 * n_threads);
    job.n_tokens = skv_max_size(TASK_TOKENS_MIN, skv_min_size(job.n_tokens, TASK_TOKENS_MAX));
    job.n_blocks = skv_ceil_div(args->n, job.n_tokens);
    skv_pool_run(be->pool, n_kv_heads * job.n_blocks, find_norms, &job);
    job.n_blocks = skv_ceil_div(job.n_past + args->n, SKV_PAGE_ROWS);
    skv_pool_run(be->pool, n_kv_heads * job.n_blocks, add_votes, &job);
}
