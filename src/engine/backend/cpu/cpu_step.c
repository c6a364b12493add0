/*
 * Steps of the CPU back end: the rows that operations look up.
 *
 * Operations are done when they return, so a step is no more than lists: copies of those that
 * describe it, in one block that was taken beforehand.
 */
#include <assert.h>
#include <string.h>

#include "backend/cpu/cpu_backend.h"
#include "base/mem.h"
#include "base/size.h"

enum { ROWS_PER_TASK = 8 };

/* ---- memory ---- */

#define TAKE(field, count)                                                                         \
    do {                                                                                           \
        if (base) (field) = (void *)(base + used);                                                 \
        used += skv_round_up((count) * sizeof *(field), SKV_ALIGN);                                \
    } while (0)

/* Lays a step out from `base` (NULL: only counts) and returns the bytes it takes. */
static size_t lay_out(skv_backend_step *step, const skv_backend_step_limits *limits,
                      unsigned char *base)
{
    size_t used = 0;
    TAKE(step->tables, limits->max_rows);
    TAKE(step->spans, limits->max_rows);
    TAKE(step->row, limits->max_rows);
    TAKE(step->numbers, limits->max_rows * 2 * limits->angle_columns);
    for (size_t i = 0; i < SKV_SET_COUNT; i++) {
        TAKE(step->rows[i], limits->max_rows);
        if (i != SKV_SET_WANTED && i != SKV_SET_TAPS) TAKE(step->items[i], limits->max_rows);
    }
    TAKE(step->picked, limits->max_picks);
    TAKE(step->candidates, limits->max_numbers);
    TAKE(step->found, limits->max_numbers);
    return used;
}
#undef TAKE

static skv_bytes step_bytes(const skv_backend *base, const skv_backend_step_limits *limits)
{
    skv_backend_step counted;
    (void)base;
    return (skv_bytes){.host = sizeof counted + lay_out(&counted, limits, NULL)};
}

static skv_status step_create(skv_backend *base, const skv_backend_step_limits *limits,
                              skv_backend_step **out, skv_error *err)
{
    (void)base;
    skv_backend_step *step = skv_alloc_zero(1, sizeof *step);
    SKV_REQUIRE(step, err, SKV_MEMORY, "step: no memory");
    step->list_bytes = lay_out(step, limits, NULL);
    step->lists = skv_map_zero(step->list_bytes);
    if (!step->lists) {
        const size_t n_bytes = step->list_bytes;
        skv_free(step);
        return skv_fail(err, SKV_MEMORY, "step: no memory for %zu bytes", n_bytes);
    }
    (void)lay_out(step, limits, step->lists);
    step->max_rows = limits->max_rows;
    step->angle_columns = limits->angle_columns;
    step->max_picks = limits->max_picks;
    step->max_numbers = limits->max_numbers;
    *out = step;
    return SKV_OK;
}

static void step_free(skv_backend *base, skv_backend_step *step)
{
    (void)base;
    if (!step) return;
    skv_unmap(step->lists, step->list_bytes);
    skv_free(step);
}

/* ---- angles ---- */

static skv_status angles_create(skv_backend *base, const skv_angles_spec *spec, skv_angles **out,
                                skv_error *err)
{
    (void)base;
    skv_angles *angles = skv_alloc(1, sizeof *angles);
    SKV_REQUIRE(angles, err, SKV_MEMORY, "angles: no memory");
    *angles = (skv_angles){*spec};
    *out = angles;
    return SKV_OK;
}

static void angles_free(skv_backend *base, skv_angles *angles)
{
    (void)base;
    skv_free(angles);
}

typedef struct angle_job {
    const skv_backend_step *step;
    bool own[SKV_STEP_ANGLES]; /* not those of another step */
} angle_job;

static void fill_angles(void *arg, size_t i_task, size_t i_thread)
{
    const angle_job *job = arg;
    const skv_backend_step *step = job->step;
    const size_t end = skv_min_size((i_task + 1) * ROWS_PER_TASK, step->n_rows);
    (void)i_thread;
    for (size_t i = i_task * ROWS_PER_TASK; i < end; i++) {
        for (size_t a = 0; a < step->n_angles; a++) {
            const skv_cpu_angles *to = &step->angles[a];
            const skv_angles_spec *spec = &to->of->spec;
            if (!job->own[a]) continue;
            spec->angles(spec->ctx, step->row[i].position, step->row[i].context,
                         to->cos + i * spec->n, to->sin + i * spec->n);
        }
    }
}

/* Where another step has these angles, or NULL. */
static const skv_cpu_angles *find_angles(const skv_backend_step *other, const skv_angles *angles)
{
    for (size_t a = 0; other && a < other->n_angles; a++) {
        if (other->angles[a].of == angles) return &other->angles[a];
    }
    return NULL;
}

static void take_angles(const skv_cpu_backend *be, skv_backend_step *step,
                        const skv_backend_step_spec *spec)
{
    angle_job job = {.step = step};
    float *next = step->numbers;
    bool any = false;
    step->n_angles = spec->n_angles;
    for (size_t a = 0; a < spec->n_angles; a++) {
        const skv_angles *angles = spec->angles[a];
        const skv_cpu_angles *other = find_angles(spec->angles_of, angles);
        const size_t n = step->n_rows * angles->spec.n;
        job.own[a] = !other;
        any = any || !other;
        step->angles[a] = other ? *other : (skv_cpu_angles){angles, next, next + n};
        if (!other) next += 2 * n;
    }
    assert((size_t)(next - step->numbers) <= step->max_rows * 2 * step->angle_columns);
    if (any) skv_pool_run(be->pool, skv_ceil_div(step->n_rows, ROWS_PER_TASK), fill_angles, &job);
}

/* ---- describing a step ---- */

static void list_rows(skv_backend_step *step, const skv_backend_step_spec *spec)
{
    size_t row = 0;
    for (size_t s = 0; s < spec->n_spans; s++) {
        const skv_backend_span *span = &spec->spans[s];
        step->tables[s] = span->table;
        step->spans[s] = (skv_state_span){span->state, row, span->n, span->n_past, span->n_undo};
        for (size_t i = 0; i < span->n; i++, row++) {
            const size_t position = spec->positions ? spec->positions[row] : span->position0 + i;
            step->row[row] = (skv_cpu_row){span->table, span->n_past + i, position, span->context};
        }
    }
    step->n_rows = row;
    step->n_spans = spec->n_spans;
}

static void copy_set(skv_backend_step *step, skv_row_set which, const skv_set_spec *spec)
{
    uint32_t *rows = step->rows[which];
    skv_cpu_item *items = step->items[which];
    const size_t n_items = items ? spec->n_items : 0;
    assert(spec->n_rows <= step->max_rows && n_items <= spec->n_rows);
    if (spec->rows) memcpy(rows, spec->rows, spec->n_rows * sizeof *rows);
    for (size_t i = 0; i < n_items; i++) {
        const skv_attention_item *item = &spec->items[i];
        items[i] = (skv_cpu_item){item->row0, item->n_q, item->n_past, step->tables[item->span],
                                  item->follows};
    }
    step->sets[which] = (skv_cpu_set){spec->rows ? rows : NULL, spec->n_rows, items, n_items};
}

static void step_change(skv_backend *base, skv_backend_step *step,
                        const skv_backend_step_spec *spec)
{
    list_rows(step, spec);
    take_angles((const skv_cpu_backend *)base, step, spec);
    step->slots = step->tables[0] ? step->tables[0]->slots : NULL;
    for (skv_row_set i = 0; i < SKV_SET_CHOSEN; i++) copy_set(step, i, &spec->sets[i]);
}

static skv_status step_begin(skv_backend *base, skv_backend_step *step,
                             const skv_backend_step_spec *spec, skv_error *err)
{
    (void)err;
    step_change(base, step, spec);
    return SKV_OK;
}

static skv_status step_wait(skv_backend *base, skv_backend_step *step, skv_error *err)
{
    (void)base;
    (void)step;
    (void)err;
    return SKV_OK;
}

/* ---- sets ---- */

static size_t row_of(const uint32_t *rows, size_t i)
{
    return rows ? rows[i] : i;
}

/* Rows ascend, so none moves to a later place and nothing is overwritten too early. */
static void gather_rows(skv_rows x, size_t n, const uint32_t *from, const uint32_t *to, size_t n_to)
{
    float *at = skv_cpu_at(x);
    for (size_t i = 0, j = 0; i < n_to; i++, j++) {
        while (row_of(from, j) != row_of(to, i)) j++;
        if (i != j) memmove(at + i * x.ld, at + j * x.ld, n * sizeof *at);
    }
}

static void step_choose(skv_backend *base, skv_backend_step *step, skv_row_set from,
                        const skv_set_spec *chosen, skv_rows x, size_t n)
{
    (void)base;
    gather_rows(x, n, step->sets[from].rows, chosen->rows, chosen->n_rows);
    copy_set(step, SKV_SET_CHOSEN, chosen);
}

static void gather(skv_backend *base, const skv_backend_step *step, skv_rows x, size_t n,
                   skv_row_set from, skv_row_set to)
{
    (void)base;
    gather_rows(x, n, step->sets[from].rows, step->sets[to].rows, step->sets[to].n_rows);
}

void skv_cpu_add_steps(skv_backend *base)
{
    base->angles_create = angles_create;
    base->angles_free = angles_free;
    base->step_create = step_create;
    base->step_free = step_free;
    base->step_bytes = step_bytes;
    base->step_begin = step_begin;
    base->step_change = step_change;
    base->step_choose = step_choose;
    base->step_wait = step_wait;
    base->gather = gather;
}
