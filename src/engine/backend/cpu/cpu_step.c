/*
 * Steps of the CPU back end: what operations look up about rows.
 *
 * Operations are done when they return, so a step is no more than lists: copies of those that
 * describe it, in one block that was taken beforehand.
 */
#include <assert.h>
#include <string.h>

#include "backend/cpu/cpu_backend.h"
#include "base/mem.h"
#include "base/size.h"

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
    for (size_t i = 0; i < SKV_SET_COUNT; i++) {
        TAKE(step->rows[i], limits->max_rows);
        if (i != SKV_SET_WANTED) TAKE(step->items[i], limits->max_rows);
    }
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
    (void)base;
    for (size_t s = 0; s < spec->n_spans; s++) step->tables[s] = spec->spans[s].table;
    step->slots = step->tables[0]->slots;
    for (size_t i = 0; i < SKV_SET_CHOSEN; i++) copy_set(step, i, &spec->sets[i]);
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
    base->step_create = step_create;
    base->step_free = step_free;
    base->step_bytes = step_bytes;
    base->step_begin = step_begin;
    base->step_change = step_change;
    base->step_choose = step_choose;
    base->step_wait = step_wait;
    base->gather = gather;
}
