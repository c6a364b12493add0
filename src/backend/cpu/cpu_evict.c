/*
 * What eviction needs of the CPU: votes for cached rows, and moving rows that stay together.
 *
 * Votes are softmax weights, so they take two passes over the keys: the first finds the logarithm
 * of the sum of every token's exponentials, the second, by page, adds up the weights of all tokens.
 * A page's votes belong to one task, which adds in the order of tokens: no result depends on the
 * threads. Keys are turned round, so that one number of a query meets all keys of a page at once.
 */
#include <math.h>
#include <string.h>

#include "backend/cpu/cpu_backend.h"
#include "base/size.h"
#include "kernels/kv_page.h"

enum { TOKENS_PER_TASK = 8 }; /* of the first pass: they share a page of keys */

typedef struct votes_job {
    const skv_cpu_backend *be;
    const skv_votes_args *args;
    size_t n_group;  /* query heads to a KV head */
    size_t n_blocks; /* tasks of a KV head */
} votes_job;

size_t skv_cpu_votes_scratch(size_t head_dim)
{
    return (SKV_PAGE_ROWS * (head_dim + 1) + head_dim) * sizeof(float);
}

/* Rows of KV head h that token j sees. */
static size_t seen_rows(const skv_votes_args *a, size_t h, size_t j)
{
    return a->n_past - (a->dropped ? a->dropped[h] : 0) + j + 1;
}

/* A task's part of the scratch. */
typedef struct votes_page {
    float *keys;   /* [Dh, 64] of one page */
    float *scores; /* [64] */
    float *row;    /* [Dh] */
} votes_page;

static votes_page page_of(const votes_job *job, size_t i_thread)
{
    float *keys = skv_cpu_scratch(job->be, i_thread);
    float *scores = keys + SKV_PAGE_ROWS * job->args->head_dim;
    return (votes_page){keys, scores, scores + SKV_PAGE_ROWS};
}

/* The first n keys of page p of head h. */
static void load_keys(const votes_job *job, size_t h, size_t p, size_t n, const votes_page *to)
{
    const skv_votes_args *a = job->args;
    const void *page = a->table[h * a->table_stride + p];
    for (size_t r = 0; r < n; r++) {
        job->be->kernels.kv_load(page, a->type, r, to->row, NULL, a->head_dim);
        for (size_t d = 0; d < a->head_dim; d++) to->keys[d * SKV_PAGE_ROWS + r] = to->row[d];
    }
}

/* Scores of token j, one query head, with the page's first n keys. */
static void score_keys(const votes_job *job, size_t j, size_t head, size_t n,
                       const votes_page *page)
{
    const skv_votes_args *a = job->args;
    const float *q = a->q + j * a->ld_q + head * a->head_dim;
    memset(page->scores, 0, n * sizeof *page->scores);
    for (size_t d = 0; d < a->head_dim; d++) {
        job->be->kernels.axpy(page->scores, a->scale * q[d], page->keys + d * SKV_PAGE_ROWS, n);
    }
    if (a->softcap > 0) job->be->kernels.softcap(page->scores, a->softcap, n);
}

/* log(exp(a) + exp(b)); one of them may be -inf. */
static float add_logs(float a, float b)
{
    float most = a > b ? a : b, least = a > b ? b : a;
    return most + log1pf(expf(least - most));
}

static void find_norms(void *arg, size_t i_task, size_t i_thread)
{
    const votes_job *job = arg;
    const skv_votes_args *a = job->args;
    size_t h = i_task / job->n_blocks, j0 = i_task % job->n_blocks * TOKENS_PER_TASK;
    size_t j1 = skv_min_size(j0 + TOKENS_PER_TASK, a->n_q), n_seen = seen_rows(a, h, j1 - 1);
    votes_page page = page_of(job, i_thread);
    for (size_t p = 0; p * SKV_PAGE_ROWS < n_seen; p++) {
        size_t first = p * SKV_PAGE_ROWS;
        load_keys(job, h, p, skv_min_size(n_seen - first, SKV_PAGE_ROWS), &page);
        for (size_t j = j0; j < j1; j++) {
            size_t n = seen_rows(a, h, j);
            if (n <= first) continue;
            n = skv_min_size(n - first, SKV_PAGE_ROWS);
            for (size_t g = 0; g < job->n_group; g++) {
                size_t head = h * job->n_group + g;
                float *norm = a->norms + j * a->n_heads + head;
                score_keys(job, j, head, n, &page);
                *norm = add_logs(p == 0 ? -HUGE_VALF : *norm,
                                 job->be->kernels.logsumexp(page.scores, n, NULL));
            }
        }
    }
}

static void add_votes(void *arg, size_t i_task, size_t i_thread)
{
    const votes_job *job = arg;
    const skv_votes_args *a = job->args;
    size_t h = i_task / job->n_blocks, first = i_task % job->n_blocks * SKV_PAGE_ROWS;
    size_t n_seen = seen_rows(a, h, a->n_q - 1);
    if (n_seen <= first) return;
    votes_page page = page_of(job, i_thread);
    load_keys(job, h, first / SKV_PAGE_ROWS, skv_min_size(n_seen - first, SKV_PAGE_ROWS), &page);
    for (size_t j = 0; j < a->n_q; j++) {
        size_t n = seen_rows(a, h, j);
        if (n <= first) continue;
        n = skv_min_size(n - first, SKV_PAGE_ROWS);
        for (size_t g = 0; g < job->n_group; g++) {
            size_t head = h * job->n_group + g;
            const float norm = a->norms[j * a->n_heads + head];
            float *votes = a->votes + (a->by_query_head ? head : h) * a->votes_stride + first;
            score_keys(job, j, head, n, &page);
            for (size_t r = 0; r < n; r++) votes[r] += expf(page.scores[r] - norm);
        }
    }
}

void skv_cpu_votes(skv_backend *base, const skv_votes_args *args)
{
    skv_cpu_backend *be = (skv_cpu_backend *)base;
    votes_job job = {.be = be, .args = args, .n_group = args->n_heads / args->n_kv_heads};
    job.n_blocks = skv_ceil_div(args->n_q, TOKENS_PER_TASK);
    skv_pool_run(be->pool, args->n_kv_heads * job.n_blocks, find_norms, &job);
    job.n_blocks = skv_ceil_div(args->n_past + args->n_q, SKV_PAGE_ROWS);
    skv_pool_run(be->pool, args->n_kv_heads * job.n_blocks, add_votes, &job);
}

void skv_cpu_gather_kv(skv_backend *base, const skv_gather_kv_args *a)
{
    (void)base;
    size_t n_bytes = a->head_dim * skv_kv_size(a->type);
    for (size_t i = 0; i < a->n; i++) {
        size_t row = a->rows[i] % SKV_PAGE_ROWS;
        unsigned char *to = a->to;
        const unsigned char *from = a->from[a->rows[i] / SKV_PAGE_ROWS];
        if (to == from && row == i) continue;
        for (size_t which = 0; which < 2; which++) {
            size_t rows_at = skv_page_rows_at(a->type, a->head_dim, which);
            memcpy(to + rows_at + i * n_bytes, from + rows_at + row * n_bytes, n_bytes);
            if (!skv_kv_has_scales(a->type)) continue;
            size_t scales_at = skv_page_scales_at(a->type, a->head_dim, which);
            to[scales_at + i] = from[scales_at + row];
        }
    }
}
