/* Rows of pages that move: compaction after evictions, and rows that go to other positions. */
#include <string.h>

#include "backend/cuda/cuda_backend.h"

/* ---- compaction ---- */

/* Lists of some jobs, as the host and the device have them. */
typedef struct batch {
    skv_cuda_backend *be;
    size_t n_jobs, n_used; /* bytes; the jobs themselves come first */
} batch;

enum { JOBS = 64 }; /* of a batch, at most */

static size_t list_bytes(const skv_compact_job *job)
{
    const size_t n_pages =
        skv_ceil_div(job->n, SKV_PAGE_ROWS) + job->rows[job->n - 1] / SKV_PAGE_ROWS + 1;
    return (n_pages + job->n) * sizeof(uint32_t);
}

size_t skv_cuda_moving_bytes(size_t max_kv_rows)
{
    const size_t n_pages = max_kv_rows / SKV_PAGE_ROWS + 2;
    return JOBS * sizeof(skv_cuda_compact_job) +
           skv_max_size((2 * n_pages + max_kv_rows) * sizeof(uint32_t), (size_t)1 << 20);
}

static const uint32_t *add_list(batch *b, const uint32_t *list, size_t n)
{
    const size_t at = b->n_used;
    memcpy(b->be->host_moving + at, list, n * sizeof *list);
    b->n_used += n * sizeof *list;
    return (const uint32_t *)(const void *)(b->be->moving + at);
}

static void add_job(batch *b, const skv_compact_job *job)
{
    skv_cuda_compact_job *to = (skv_cuda_compact_job *)(void *)b->be->host_moving + b->n_jobs++;
    *to = (skv_cuda_compact_job){.to_offset = (uint32_t)job->to_offset,
                                 .from_offset = (uint32_t)job->from_offset,
                                 .head_dim = (uint32_t)job->head_dim,
                                 .n = (uint32_t)job->n};
    to->to = add_list(b, job->to, skv_ceil_div(job->n, SKV_PAGE_ROWS));
    to->from = add_list(b, job->from, job->rows[job->n - 1] / SKV_PAGE_ROWS + 1);
    to->rows = add_list(b, job->rows, job->n);
}

static void pages_compact(skv_backend *base, skv_page_pool *pool, skv_kv_type type,
                          const skv_compact_job *jobs, size_t n)
{
    skv_cuda_backend *be = skv_cuda_of(base);
    const skv_cuda_compact_args args = {.pool = pool->at,
                                        .jobs = (const skv_cuda_compact_job *)(void *)be->moving,
                                        .page_bytes = (uint32_t)pool->page_bytes,
                                        .type = (uint32_t)type};
    for (size_t i = 0; i < n;) {
        batch b = {.be = be, .n_used = JOBS * sizeof(skv_cuda_compact_job)};
        while (i < n && b.n_jobs < JOBS &&
               (b.n_jobs == 0 || b.n_used + list_bytes(&jobs[i]) <= be->n_moving)) {
            add_job(&b, &jobs[i++]);
        }
        skv_cuda_put(&be->device, be->moving, be->host_moving, b.n_used);
        skv_cuda_launch(&be->device, SKV_CUDA_skv_compact_rows,
                        (skv_cuda_grid){.x = (uint32_t)b.n_jobs}, &args);
    }
}

/* ---- turning ---- */

static bool go_together(const skv_turn_job *a, const skv_turn_job *b)
{
    return a->angles == b->angles && a->to_position == b->to_position &&
           a->from_position == b->from_position && a->context == b->context;
}

/* The turn of row i: cosines and sines as the processor's back end finds them (cpu_turn.c). Returns
 * whether the key moves at all. */
static bool find_turn(const skv_turn_job *job, size_t i, float *cosine, float *sine)
{
    const skv_angles_spec *spec = &job->angles->spec;
    float to[2][SKV_CUDA_HEAD_DIM_MAX / 2], from[2][SKV_CUDA_HEAD_DIM_MAX / 2];
    bool any = false;
    spec->angles(spec->ctx, job->to_position + i, job->context, to[0], to[1]);
    spec->angles(spec->ctx, job->from_position + i, job->context, from[0], from[1]);
    for (size_t j = 0; j < spec->n; j++) {
        const float square = from[0][j] * from[0][j] + from[1][j] * from[1][j];
        const float scale = square > 0 ? 1 / square : 0;
        any = any || to[0][j] != from[0][j] || to[1][j] != from[1][j];
        cosine[j] = (to[0][j] * from[0][j] + to[1][j] * from[1][j]) * scale;
        sine[j] = (to[1][j] * from[0][j] - to[0][j] * from[1][j]) * scale;
    }
    return any;
}

/* Where the turns of a page's rows lie: cosines, sines, and which rows move. */
static void put_turns(skv_cuda_backend *be, const skv_turn_job *job, size_t first, size_t n,
                      skv_cuda_turn_args *args)
{
    const size_t n_angles = job->angles->spec.n, n_numbers = SKV_PAGE_ROWS * n_angles;
    float *cosine = (float *)(void *)be->host_moving, *sine = cosine + n_numbers;
    uint32_t *moves = (uint32_t *)(void *)(sine + n_numbers);
    for (size_t i = 0; i < n; i++) {
        moves[i] = find_turn(job, first + i, cosine + i * n_angles, sine + i * n_angles);
    }
    skv_cuda_put(&be->device, be->moving, be->host_moving,
                 (2 * n_numbers + SKV_PAGE_ROWS) * sizeof *cosine);
    const float *at = (const float *)(const void *)be->moving;
    args->angles = (skv_cuda_angles){.cosine = at, .sine = at + n_numbers, .n = (uint32_t)n_angles};
    args->moves = (const uint32_t *)(const void *)(at + 2 * n_numbers);
}

/* Rows [first, first + n) of a job, which lie in at most two pages each. */
static void turn_rows(skv_cuda_backend *be, const skv_turn_job *job, size_t first, size_t n,
                      skv_cuda_turn_args *args)
{
    const size_t to = job->to_row + first, from = job->from_row + first;
    for (size_t p = 0; p < 2; p++) {
        const size_t last = p * (n - 1);
        args->to[p] = job->to[(to + last) / SKV_PAGE_ROWS];
        args->from[p] = job->from[(from + last) / SKV_PAGE_ROWS];
    }
    args->to_row = (uint32_t)(to % SKV_PAGE_ROWS);
    args->from_row = (uint32_t)(from % SKV_PAGE_ROWS);
    args->offset = (uint32_t)job->offset;
    args->head_dim = (uint32_t)job->head_dim;
    const skv_cuda_grid grid = {.x = (uint32_t)n,
                                .shared = (uint32_t)(job->head_dim * sizeof(float))};
    skv_cuda_launch(&be->device, SKV_CUDA_skv_turn_rows, grid, args);
}

/* As many rows of all jobs at a time as a page has: jobs that go the same way share their turns. */
static void pages_turn(skv_backend *base, skv_page_pool *pool, skv_kv_type type,
                       const skv_turn_job *jobs, size_t n)
{
    skv_cuda_backend *be = skv_cuda_of(base);
    skv_cuda_turn_args args = {
        .pool = pool->at, .page_bytes = (uint32_t)pool->page_bytes, .type = (uint32_t)type};
    size_t most = 0;
    for (size_t i = 0; i < n; i++) most = skv_max_size(most, jobs[i].n);
    for (size_t first = 0; first < most; first += SKV_PAGE_ROWS) {
        const skv_turn_job *of =
            NULL; /* the job that the turns are of: it has as many rows, or more */
        for (size_t i = 0; i < n; i++) {
            if (jobs[i].n <= first) continue;
            const size_t n_rows = skv_min_size(SKV_PAGE_ROWS, jobs[i].n - first);
            if (!of || !go_together(of, &jobs[i]) || of->n < jobs[i].n) {
                of = &jobs[i];
                put_turns(be, of, first, n_rows, &args);
            }
            turn_rows(be, &jobs[i], first, n_rows, &args);
        }
    }
}

void skv_cuda_fill_moves(skv_backend *table)
{
    table->pages_compact = pages_compact;
    table->pages_turn = pages_turn;
}
