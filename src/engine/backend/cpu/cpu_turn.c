/*
 * Rows of the CPU back end's pages that go to other positions.
 *
 * A key stands in a page rotated by the angle of its position, so that it is turned by the
 * difference of two angles: cosine and sine follow from those of both positions, whatever function
 * of the position they are. Dividing by the square of the old amplitude takes that one out. A row
 * is read as f32, turned, and rounded again as `place` rounds it.
 */
#include <assert.h>

#include "backend/cpu/cpu_backend.h"
#include "base/size.h"
#include "kernels/kv_page.h"

typedef struct turning {
    const skv_cpu_backend *be;
    const skv_page_pool *pool;
    skv_kv_type type;
    const skv_turn_job *jobs;
    size_t n_jobs;
} turning;

/* The turn of a row's key: jobs that go the same way share it. */
typedef struct turn {
    const skv_turn_job *of; /* NULL: none yet */
    bool any;               /* false: it stays */
    float cos[SKV_HEAD_DIM_MAX / 2], sin[SKV_HEAD_DIM_MAX / 2];
} turn;

static bool go_together(const skv_turn_job *a, const skv_turn_job *b)
{
    return a->angles == b->angles && a->to_position == b->to_position &&
           a->from_position == b->from_position && a->context == b->context;
}

static void find_turn(const skv_turn_job *job, size_t i, turn *out)
{
    const skv_angles_spec *spec = &job->angles->spec;
    float to[2][SKV_HEAD_DIM_MAX / 2], from[2][SKV_HEAD_DIM_MAX / 2];
    spec->angles(spec->ctx, job->to_position + i, job->context, to[0], to[1]);
    spec->angles(spec->ctx, job->from_position + i, job->context, from[0], from[1]);
    out->of = job;
    out->any = false;
    for (size_t j = 0; j < spec->n; j++) {
        const float square = from[0][j] * from[0][j] + from[1][j] * from[1][j];
        const float scale = square > 0 ? 1 / square : 0;
        out->any = out->any || to[0][j] != from[0][j] || to[1][j] != from[1][j];
        out->cos[j] = (to[0][j] * from[0][j] + to[1][j] * from[1][j]) * scale;
        out->sin[j] = (to[1][j] * from[0][j] - to[0][j] * from[1][j]) * scale;
    }
}

static unsigned char *rows_at(const turning *t, const skv_turn_job *job, const uint32_t *pages,
                              size_t row)
{
    const uint32_t page = pages[row / SKV_PAGE_ROWS];
    assert(page < t->pool->n_pages);
    return t->pool->memory + page * t->pool->page_bytes + job->offset;
}

static void turn_row(const turning *t, const skv_turn_job *job, size_t i, const turn *by)
{
    float key[SKV_HEAD_DIM_MAX];
    unsigned char *to = rows_at(t, job, job->to, job->to_row + i);
    const unsigned char *from = rows_at(t, job, job->from, job->from_row + i);
    const size_t row = (job->to_row + i) % SKV_PAGE_ROWS;
    const size_t old = (job->from_row + i) % SKV_PAGE_ROWS;
    if (by->any) {
        t->be->kernels.kv_load(from, t->type, old, key, NULL, job->head_dim);
        t->be->kernels.rope(key, by->cos, by->sin, 2 * job->angles->spec.n);
        t->be->kernels.kv_store(to, t->type, row, key, key, job->head_dim);
    } else {
        skv_cpu_move_half(to, row, from, old, 0, t->type, job->head_dim);
    }
    skv_cpu_move_half(to, row, from, old, 1, t->type, job->head_dim);
}

/* A part of the rows of every job. */
static void turn_part(void *arg, size_t i_task, size_t i_thread)
{
    const turning *t = arg;
    turn by;
    (void)i_thread;
    for (size_t i = i_task * SKV_PAGE_ROWS; i < (i_task + 1) * SKV_PAGE_ROWS; i++) {
        by.of = NULL;
        for (const skv_turn_job *job = t->jobs; job < t->jobs + t->n_jobs; job++) {
            if (i >= job->n) continue;
            if (!by.of || !go_together(by.of, job)) find_turn(job, i, &by);
            turn_row(t, job, i, &by);
        }
    }
}

void skv_cpu_pages_turn(skv_backend *base, skv_page_pool *pool, skv_kv_type type,
                        const skv_turn_job *jobs, size_t n)
{
    const skv_cpu_backend *be = (const skv_cpu_backend *)base;
    turning t = {.be = be, .pool = pool, .type = type, .jobs = jobs, .n_jobs = n};
    size_t most = 0;
    for (size_t i = 0; i < n; i++) most = skv_max_size(most, jobs[i].n);
    skv_pool_run(be->pool, skv_ceil_div(most, SKV_PAGE_ROWS), turn_part, &t);
}
