/* Steps of two back ends: both get the whole description, and tokens are picked where the
 * logits are. */
#include <assert.h>

#include "backend/split/split_backend.h"
#include "base/mem.h"

/* ---- angles ---- */

static void angles_free(skv_backend *base, skv_angles *angles)
{
    skv_split_backend *be = skv_split_of(base);
    if (!angles) return;
    for (unsigned s = 0; s < SKV_SPLIT_SIDES; s++) be->of[s]->angles_free(be->of[s], angles->of[s]);
    skv_free(angles);
}

static skv_status angles_create(skv_backend *base, const skv_angles_spec *spec, skv_angles **out,
                                skv_error *err)
{
    skv_split_backend *be = skv_split_of(base);
    skv_angles *angles = skv_alloc_zero(1, sizeof *angles);
    SKV_REQUIRE(angles, err, SKV_MEMORY, "angles: out of memory");
    skv_status status = SKV_OK;
    for (unsigned s = 0; s < SKV_SPLIT_SIDES && status == SKV_OK; s++) {
        status = be->of[s]->angles_create(be->of[s], spec, &angles->of[s], err);
    }
    if (status != SKV_OK) {
        angles_free(base, angles);
        return status;
    }
    *out = angles;
    return SKV_OK;
}

/* ---- steps ---- */

static void step_free(skv_backend *base, skv_backend_step *step)
{
    skv_split_backend *be = skv_split_of(base);
    if (!step) return;
    for (unsigned s = 0; s < SKV_SPLIT_SIDES; s++) be->of[s]->step_free(be->of[s], step->of[s]);
    skv_free(step->spans);
    skv_free(step);
}

static skv_status step_create(skv_backend *base, const skv_backend_step_limits *limits,
                              skv_backend_step **out, skv_error *err)
{
    skv_split_backend *be = skv_split_of(base);
    const size_t max_rows = skv_max_size(1, limits->max_rows);
    skv_backend_step *step = skv_alloc_zero(1, sizeof *step);
    SKV_REQUIRE(step, err, SKV_MEMORY, "step: out of memory");
    *step = (skv_backend_step){.spans = skv_alloc_zero(max_rows, sizeof *step->spans),
                               .max_rows = max_rows};
    skv_status status = SKV_OK;
    if (!step->spans) status = skv_fail(err, SKV_MEMORY, "step: no memory for %zu rows", max_rows);
    for (unsigned s = 0; s < SKV_SPLIT_SIDES && status == SKV_OK; s++) {
        status = be->of[s]->step_create(be->of[s], limits, &step->of[s], err);
    }
    if (status != SKV_OK) {
        step_free(base, step);
        return status;
    }
    *out = step;
    return SKV_OK;
}

static skv_bytes step_bytes(const skv_backend *base, const skv_backend_step_limits *limits)
{
    const skv_split_backend *be = (const skv_split_backend *)base;
    skv_bytes sum = {.host = skv_max_size(1, limits->max_rows) * sizeof(skv_backend_span)};
    for (unsigned s = 0; s < SKV_SPLIT_SIDES; s++) {
        sum = skv_bytes_add(sum, be->of[s]->step_bytes(be->of[s], limits));
    }
    return sum;
}

/* The description as `side` knows it; its spans are there until the next call. The host reads x in
 * the midst of the step, so no recording of it can be replayed. */
static skv_backend_step_spec spec_for(skv_backend_step *step, const skv_backend_step_spec *spec,
                                      unsigned side)
{
    skv_backend_step_spec part = *spec;
    assert(spec->n_spans <= step->max_rows);
    for (size_t i = 0; i < spec->n_spans; i++) {
        step->spans[i] = spec->spans[i];
        if (step->spans[i].table) step->spans[i].table = spec->spans[i].table->of[side];
    }
    part.spans = step->spans;
    for (size_t i = 0; i < spec->n_angles; i++) part.angles[i] = spec->angles[i]->of[side];
    if (part.angles_of) part.angles_of = spec->angles_of->of[side];
    part.repeats = false;
    return part;
}

static void note_sets(skv_backend_step *step, const skv_backend_step_spec *spec)
{
    for (size_t i = 0; i < SKV_SET_COUNT; i++) {
        if (i != SKV_SET_CHOSEN) step->n_rows[i] = spec->sets[i].n_rows;
    }
    step->slots = spec->spans[0].table ? spec->spans[0].table->slots : NULL;
}

static skv_status step_begin(skv_backend *base, skv_backend_step *step,
                             const skv_backend_step_spec *spec, skv_error *err)
{
    skv_split_backend *be = skv_split_of(base);
    skv_backend *first = be->of[SKV_SPLIT_FIRST], *second = be->of[SKV_SPLIT_SECOND];
    const skv_backend_step_spec own = spec_for(step, spec, SKV_SPLIT_FIRST);
    SKV_TRY(first->step_begin(first, step->of[SKV_SPLIT_FIRST], &own, err));
    const skv_backend_step_spec other = spec_for(step, spec, SKV_SPLIT_SECOND);
    const skv_status status = second->step_begin(second, step->of[SKV_SPLIT_SECOND], &other, err);
    if (status != SKV_OK) {
        const skv_status ended = first->step_wait(first, step->of[SKV_SPLIT_FIRST], NULL);
        (void)ended;
        return status;
    }
    note_sets(step, spec);
    if (be->n_under_way++ == 0) {
        skv_split_forget(be);
        be->current = SKV_SPLIT_FIRST;
    }
    return SKV_OK;
}

static void step_change(skv_backend *base, skv_backend_step *step,
                        const skv_backend_step_spec *spec)
{
    skv_split_backend *be = skv_split_of(base);
    for (unsigned s = 0; s < SKV_SPLIT_SIDES; s++) {
        const skv_backend_step_spec part = spec_for(step, spec, s);
        be->of[s]->step_change(be->of[s], step->of[s], &part);
    }
    note_sets(step, spec);
}

/* x keeps n_rows rows of n. */
static void keep_rows(skv_rows x, size_t n_rows, size_t n)
{
    if (x.area) x.area->end = n_rows > 0 ? x.at + (n_rows - 1) * x.ld + n : 0;
}

/* Both are to know the rows; where x has no contents nonsense moves. */
static void step_choose(skv_backend *base, skv_backend_step *step, skv_row_set from,
                        const skv_set_spec *chosen, skv_rows x, size_t n)
{
    skv_split_backend *be = skv_split_of(base);
    for (unsigned s = 0; s < SKV_SPLIT_SIDES; s++) {
        skv_rows rows = x;
        if (x.area) rows.area = x.area->of[s];
        be->of[s]->step_choose(be->of[s], step->of[s], from, chosen, rows, n);
    }
    step->n_rows[SKV_SET_CHOSEN] = chosen->n_rows;
    keep_rows(x, chosen->n_rows, n);
}

static skv_status step_wait(skv_backend *base, skv_backend_step *step, skv_error *err)
{
    skv_split_backend *be = skv_split_of(base);
    skv_backend *first = be->of[SKV_SPLIT_FIRST], *second = be->of[SKV_SPLIT_SECOND];
    const skv_status status = first->step_wait(first, step->of[SKV_SPLIT_FIRST], err);
    const skv_status other =
        second->step_wait(second, step->of[SKV_SPLIT_SECOND], status == SKV_OK ? err : NULL);
    be->n_under_way--;
    return status != SKV_OK ? status : other;
}

/* Where it has the contents. */
static void gather(skv_backend *base, const skv_backend_step *step, skv_rows x, size_t n,
                   skv_row_set from, skv_row_set to)
{
    skv_split_backend *be = skv_split_of(base);
    for (unsigned s = 0; s < SKV_SPLIT_SIDES; s++) {
        if (!(x.area->valid & skv_split_bit(s))) continue;
        const skv_rows rows = {x.area->of[s], x.at, x.ld};
        be->of[s]->gather(be->of[s], step->of[s], rows, n, from, to);
    }
    keep_rows(x, step->n_rows[to], n);
}

/* ---- picks ---- */

static void pick(skv_backend *base, skv_backend_step *step, skv_rows logits, size_t V,
                 const skv_pick_row *rows, size_t n, size_t first)
{
    skv_split_backend *be = skv_split_of(base);
    const skv_rows none = {0};
    const unsigned side = skv_split_choose(be, logits, none);
    assert(first == 0 || side == step->picked);
    step->picked = side;
    skv_split_use(be, side, &logits, 0, 0, SKV_MAP_READ);
    be->of[side]->pick(be->of[side], step->of[side], logits, V, rows, n, first);
}

static skv_picked picked(skv_backend *base, const skv_backend_step *step, size_t i)
{
    skv_backend *of = skv_split_of(base)->of[step->picked];
    return of->picked(of, step->of[step->picked], i);
}

void skv_split_fill_steps(skv_backend *table)
{
    table->angles_create = angles_create;
    table->angles_free = angles_free;
    table->step_create = step_create;
    table->step_free = step_free;
    table->step_bytes = step_bytes;
    table->step_begin = step_begin;
    table->step_change = step_change;
    table->step_choose = step_choose;
    table->step_wait = step_wait;
    table->gather = gather;
    table->pick = pick;
    table->picked = picked;
}
