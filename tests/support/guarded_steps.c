/* Steps of the guarded back end: see guarded_backend.h. */
#include <stdlib.h>
#include <string.h>

#include "guarded_state.h"

/* ---- what describes a step ---- */

static size_t row_of(const skv_set_spec *set, size_t i)
{
    return set->rows ? set->rows[i] : i;
}

static void check_rows(const skv_set_spec *set, size_t T)
{
    if (set->n_rows > T) guarded_die("a set of more rows than its step has");
    for (size_t i = 0; set->rows && i < set->n_rows; i++) {
        if (set->rows[i] >= T) guarded_die("a row that a step does not have");
        if (i > 0 && set->rows[i] <= set->rows[i - 1]) guarded_die("rows that do not ascend");
    }
}

/* The first row of a span. */
static size_t row0_of(const skv_backend_step_spec *spec, size_t i_span)
{
    size_t row0 = 0;
    if (i_span >= spec->n_spans) guarded_die("an item of a span that is not there");
    for (size_t s = 0; s < i_span; s++) row0 += spec->spans[s].n;
    return row0;
}

/* Item i of a set, whose rows follow those of the item before. */
static void check_item(const skv_backend_step_spec *spec, const skv_set_spec *set, size_t i)
{
    const skv_attention_item *item = &set->items[i], *before = i > 0 ? item - 1 : NULL;
    const size_t row0 = row0_of(spec, item->span);
    const skv_backend_span *span = &spec->spans[item->span];
    if (item->row0 != (before ? before->row0 + before->n_q : 0) || item->n_q == 0 ||
        item->row0 + item->n_q > set->n_rows) {
        guarded_die("items that are not those of their rows");
    }
    const size_t first = row_of(set, item->row0);
    if (first < row0 || first + item->n_q > row0 + span->n ||
        row_of(set, item->row0 + item->n_q - 1) != first + item->n_q - 1) {
        guarded_die("an item of rows that do not follow each other in its span");
    }
    if (item->n_past != span->n_past + first - row0) guarded_die("an item at a wrong place");
    if (item->follows && (!before || before->span != item->span || before->n_q != 1 ||
                          item->n_q != 1 || item->n_past != before->n_past + 1)) {
        guarded_die("an item that does not follow the one before");
    }
}

static void check_items(const skv_backend_step_spec *spec, const skv_set_spec *set)
{
    for (size_t i = 0; i < set->n_items; i++) check_item(spec, set, i);
    const skv_attention_item *last = set->n_items > 0 ? &set->items[set->n_items - 1] : NULL;
    if ((last ? last->row0 + last->n_q : 0) != set->n_rows) guarded_die("rows without an item");
}

static bool has_row(const skv_set_spec *set, size_t row)
{
    size_t i = 0;
    while (i < set->n_rows && row_of(set, i) < row) i++;
    return i < set->n_rows && row_of(set, i) == row;
}

static void check_within(const skv_set_spec *from, const skv_set_spec *to)
{
    for (size_t i = 0; i < to->n_rows; i++) {
        if (!has_row(from, row_of(to, i))) guarded_die("rows that the set before does not have");
    }
}

/* Angles of this back end, for as many columns as the step has room for. */
static void check_angles(const guarded *g, const skv_backend_step *step,
                         const skv_backend_step_spec *spec)
{
    size_t n = 0;
    if (spec->n_angles > SKV_STEP_ANGLES) guarded_die("more angles than a step can have");
    for (size_t a = 0; a < spec->n_angles; a++) {
        if (!spec->angles[a] || spec->angles[a]->of != g) guarded_die("angles of another back end");
        n += spec->angles[a]->n;
    }
    if (n > step->angle_columns) guarded_die("more angles than a step is for");
}

static size_t position_of(const skv_backend_step_spec *spec, size_t s, size_t i, size_t row)
{
    return spec->positions ? spec->positions[row] : spec->spans[s].position0 + i;
}

/* The rows of another step stand where those of this one do. */
static void check_lender(const guarded *g, const skv_backend_step_spec *spec, size_t T)
{
    const skv_backend_step *other = spec->angles_of;
    if (!other) return;
    if (other->of != g || !other->is_under_way) guarded_die("angles of a step that has ended");
    if (other->n_rows != T) guarded_die("angles of a step with other rows");
    size_t row = 0, s_other = 0, i_other = 0;
    for (size_t s = 0; s < spec->n_spans; s++) {
        for (size_t i = 0; i < spec->spans[s].n; i++, row++, i_other++) {
            if (i_other == other->spans[s_other].n) s_other++, i_other = 0;
            if (other->positions[row] != position_of(spec, s, i, row) ||
                other->spans[s_other].context != spec->spans[s].context) {
                guarded_die("angles of a step with rows at other positions");
            }
        }
    }
}

/* The rows of all spans. */
static size_t check_spans(const guarded *g, const skv_backend_step_spec *spec)
{
    const skv_slots *slots = NULL;
    size_t T = 0;
    if (spec->n_spans == 0) guarded_die("a step without spans");
    for (size_t s = 0; s < spec->n_spans; s++) {
        const skv_backend_span *span = &spec->spans[s];
        if (span->n_undo > span->n) guarded_die("more rows to take back than there are");
        if (!span->table != !spec->spans[0].table) guarded_die("spans with tables and without");
        if (span->table && span->table->of != g) guarded_die("a table of another back end");
        if (slots && span->table->slots != slots) guarded_die("a step of several layouts");
        if (span->table) slots = span->table->slots;
        if (span->n == 0) guarded_die("a span without rows");
        T += span->n;
    }
    return T;
}

/* ---- lists ---- */

/* A copy of n_bytes in *list, in place of what it was. */
static void copy_list(const void **list, const void *from, size_t n_bytes)
{
    free((void *)(uintptr_t)*list);
    *list = from ? memcpy(guarded_take(n_bytes), from, n_bytes) : NULL;
}

/* A list that was lent: whoever has kept it reads nonsense from now on. */
static void end_list(const void *list, size_t n_bytes)
{
    if (!list) return;
    memset((void *)(uintptr_t)list, NONSENSE, n_bytes);
    free((void *)(uintptr_t)list);
}

static void copy_set(skv_set_spec *to, const skv_set_spec *from)
{
    const void *rows = to->rows, *items = to->items;
    copy_list(&rows, from->rows, from->n_rows * sizeof *from->rows);
    copy_list(&items, from->items, from->n_items * sizeof *from->items);
    *to = (skv_set_spec){rows, from->n_rows, items, from->n_items};
}

static void end_set(const skv_set_spec *set)
{
    end_list(set->rows, set->n_rows * sizeof *set->rows);
    end_list(set->items, set->n_items * sizeof *set->items);
}

static void keep_description(skv_backend_step *step, const skv_backend_step_spec *spec, size_t T)
{
    const void *spans = step->spans;
    copy_list(&spans, spec->spans, spec->n_spans * sizeof *spec->spans);
    step->spans = (skv_backend_span *)(uintptr_t)spans;
    step->n_spans = spec->n_spans;
    step->n_rows = T;
    step->n_angles = spec->n_angles;
    memcpy(step->angles, spec->angles, sizeof step->angles);
    const void *ids = step->ids;
    copy_list(&ids, spec->ids, T * sizeof *spec->ids);
    step->ids = ids;
    free(step->positions);
    step->positions = guarded_take(T * sizeof *step->positions);
    for (size_t s = 0, row = 0; s < spec->n_spans; s++) {
        for (size_t i = 0; i < spec->spans[s].n; i++, row++) {
            step->positions[row] = (uint32_t)position_of(spec, s, i, row);
        }
    }
    for (size_t i = 0; i < SKV_SET_COUNT; i++) {
        static const skv_set_spec none;
        copy_set(&step->sets[i], i == SKV_SET_CHOSEN ? &none : &spec->sets[i]);
    }
}

/* The description as the CPU gets it, for as long as a call takes. */
static skv_backend_step_spec lend_description(const skv_backend_step *step,
                                              const skv_backend_step_spec *own)
{
    skv_backend_step_spec spec = {.n_spans = step->n_spans, .n_angles = step->n_angles};
    const void *positions = NULL;
    if (own->positions) copy_list(&positions, own->positions, step->n_rows * sizeof(uint32_t));
    spec.positions = positions;
    if (own->angles_of) spec.angles_of = own->angles_of->inner;
    for (size_t a = 0; a < step->n_angles; a++) spec.angles[a] = step->angles[a]->inner;
    skv_backend_span *spans = guarded_take(step->n_spans * sizeof *spans);
    for (size_t s = 0; s < step->n_spans; s++) {
        spans[s] = step->spans[s];
        if (spans[s].table) spans[s].table = spans[s].table->inner;
    }
    spec.spans = spans;
    for (size_t i = 0; i < SKV_SET_COUNT; i++) copy_set(&spec.sets[i], &step->sets[i]);
    return spec;
}

static void end_description(const skv_backend_step_spec *spec, size_t T)
{
    end_list(spec->positions, T * sizeof *spec->positions);
    end_list(spec->spans, spec->n_spans * sizeof *spec->spans);
    for (size_t i = 0; i < SKV_SET_COUNT; i++) end_set(&spec->sets[i]);
}

/* ---- functions of the table ---- */

static skv_backend_step *step_of(const guarded *g, const skv_backend_step *step, bool is_under_way)
{
    if (!step || step->of != g) guarded_die("a step of another back end");
    if (step->is_under_way != is_under_way) {
        guarded_die(is_under_way ? "a step that is not under way" : "a step that is under way");
    }
    return (skv_backend_step *)(uintptr_t)step;
}

skv_backend_step *guarded_step(const guarded *g, const skv_backend_step *step)
{
    return step_of(g, step, true);
}

const skv_set_spec *guarded_set(const guarded *g, const skv_backend_step *step, skv_row_set set)
{
    (void)step_of(g, step, true);
    if ((size_t)set >= SKV_SET_COUNT) guarded_die("a set that there is not");
    return &step->sets[set];
}

static skv_status guarded_angles_create(skv_backend *base, const skv_angles_spec *spec,
                                        skv_angles **out, skv_error *err)
{
    guarded *g LEAVES = guarded_inside(base);
    skv_angles *inner;
    SKV_TRY(g->cpu->angles_create(g->cpu, spec, &inner, err));
    *out = guarded_take(sizeof **out);
    **out = (skv_angles){g, inner, spec->n};
    g->n_angles++;
    return SKV_OK;
}

static void guarded_angles_free(skv_backend *base, skv_angles *angles)
{
    guarded *g LEAVES = guarded_inside(base);
    if (!angles) return;
    if (angles->of != g) guarded_die("angles of another back end");
    if (g->n_under_way > 0) guarded_die("angles are freed within a step");
    guarded_run(g);
    g->cpu->angles_free(g->cpu, angles->inner);
    free(angles);
    g->n_angles--;
}

static skv_status guarded_step_create(skv_backend *base, const skv_backend_step_limits *limits,
                                      skv_backend_step **out, skv_error *err)
{
    guarded *g LEAVES = guarded_inside(base);
    skv_backend_step *inner;
    SKV_TRY(g->cpu->step_create(g->cpu, limits, &inner, err));
    skv_backend_step *step = guarded_take(sizeof *step);
    *step = (skv_backend_step){.of = g, .inner = inner, .max_rows = limits->max_rows};
    step->angle_columns = limits->angle_columns;
    step->max_picks = limits->max_picks;
    step->max_numbers = limits->max_numbers;
    step->picks = guarded_take(step->max_picks * sizeof *step->picks);
    g->n_steps++;
    *out = step;
    return SKV_OK;
}

static void guarded_step_free(skv_backend *base, skv_backend_step *step)
{
    guarded *g LEAVES = guarded_inside(base);
    if (!step) return;
    guarded_run(g);
    g->cpu->step_free(g->cpu, step_of(g, step, false)->inner);
    free(step->spans);
    free(step->positions);
    free((void *)(uintptr_t)step->ids);
    for (size_t i = 0; i < SKV_SET_COUNT; i++) end_set(&step->sets[i]);
    guarded_free_picks(step);
    free(step);
    g->n_steps--;
}

static skv_bytes guarded_step_bytes(const skv_backend *base, const skv_backend_step_limits *limits)
{
    const skv_backend *cpu = ((const guarded *)base)->cpu;
    return cpu->step_bytes(cpu, limits);
}

/* A description becomes the step's. */
static skv_backend_step_spec take_description(const guarded *g, skv_backend_step *step,
                                              const skv_backend_step_spec *spec)
{
    const size_t T = check_spans(g, spec);
    if (T > step->max_rows) guarded_die("more rows than a step is for");
    if (spec->sets[SKV_SET_ALL].n_rows != T) guarded_die("a step without all of its rows");
    for (size_t i = 0; i < SKV_SET_CHOSEN; i++) check_rows(&spec->sets[i], T);
    check_items(spec, &spec->sets[SKV_SET_ALL]);
    check_items(spec, &spec->sets[SKV_SET_KEPT]);
    check_within(&spec->sets[SKV_SET_KEPT], &spec->sets[SKV_SET_WANTED]);
    check_angles(g, step, spec);
    check_lender(g, spec, T);
    keep_description(step, spec, T);
    return lend_description(step, spec);
}

/* A description on its way to the CPU, which has it for as long as a call takes. */
typedef struct described {
    skv_backend_step *inner;
    skv_backend_step_spec spec;
    size_t T;
} described;

static void replay_begin(guarded *g, void *args)
{
    const described *d = args;
    skv_error err;
    if (g->cpu->step_begin(g->cpu, d->inner, &d->spec, &err) != SKV_OK) guarded_die(err.text);
    end_description(&d->spec, d->T);
}

static skv_status guarded_step_begin(skv_backend *base, skv_backend_step *step,
                                     const skv_backend_step_spec *spec, skv_error *err)
{
    guarded *g LEAVES = guarded_inside(base);
    (void)err;
    const skv_backend_step_spec lent = take_description(g, step_of(g, step, false), spec);
    const described d = {step->inner, lent, step->n_rows};
    if (g->n_under_way == 0) guarded_forget(g);
    guarded_later(g, replay_begin, &d, sizeof d);
    step->is_under_way = true;
    step->n_picks = step->n_numbers = 0;
    g->n_under_way++;
    if (spec->repeats) guarded_tape(g, step);
    g->routed = (routed){0};
    return SKV_OK;
}

static void replay_change(guarded *g, void *args)
{
    const described *d = args;
    g->cpu->step_change(g->cpu, d->inner, &d->spec);
    end_description(&d->spec, d->T);
}

static void guarded_step_change(skv_backend *base, skv_backend_step *step,
                                const skv_backend_step_spec *spec)
{
    guarded *g LEAVES = guarded_begin(base);
    const skv_backend_step_spec lent = take_description(g, step_of(g, step, true), spec);
    const described d = {step->inner, lent, step->n_rows};
    guarded_later(g, replay_change, &d, sizeof d);
}

static skv_status guarded_step_wait(skv_backend *base, skv_backend_step *step, skv_error *err)
{
    guarded *g LEAVES = guarded_inside(base);
    step_of(g, step, true)->is_under_way = false;
    g->n_under_way--;
    guarded_wait(g);
    guarded_deliver(g);
    return g->cpu->step_wait(g->cpu, step->inner, err);
}

/* x, whose rows are those of `from`, as the CPU knows it. */
static skv_rows moving(guarded *g, const skv_set_spec *from, skv_rows x, size_t n)
{
    if (!x.area || !x.area->spec.moves || x.at != 0)
        guarded_die("rows are gathered that do not move");
    return guarded_rows(g, x, from->n_rows, n);
}

static void spoil_behind(guarded *g, skv_rows x, skv_rows inner, size_t n_rows, size_t n)
{
    guarded_spoil(g, skv_rows_from(inner, n_rows, 0), x.area->n / x.ld - n_rows, n);
}

/* Rows of x that go. */
typedef struct moved {
    skv_backend_step *step;
    skv_rows x;
    size_t n;
    skv_row_set from, to;
    skv_set_spec chosen;
} moved;

static void replay_choose(guarded *g, void *args)
{
    const moved *m = args;
    g->cpu->step_choose(g->cpu, m->step, m->from, &m->chosen, m->x, m->n);
}

static void guarded_step_choose(skv_backend *base, skv_backend_step *step, skv_row_set from,
                                const skv_set_spec *chosen, skv_rows x, size_t n)
{
    guarded *g LEAVES = guarded_inside(base);
    const skv_set_spec *before = guarded_set(g, step, from);
    const skv_backend_step_spec spec = {.spans = step->spans, .n_spans = step->n_spans};
    check_rows(chosen, step->n_rows);
    check_items(&spec, chosen);
    check_within(before, chosen);
    moved m = {.step = step->inner, .x = moving(g, before, x, n), .n = n, .from = from};
    m.chosen = *chosen;
    m.chosen.rows = guarded_keep(g, chosen->rows, chosen->n_rows * sizeof *chosen->rows);
    m.chosen.items = guarded_keep(g, chosen->items, chosen->n_items * sizeof *chosen->items);
    copy_set(&step->sets[SKV_SET_CHOSEN], chosen);
    guarded_later(g, replay_choose, &m, sizeof m);
    if (chosen->n_rows > 0) g->is_busy = true; /* else nothing moves */
    spoil_behind(g, x, m.x, chosen->n_rows, n);
}

static void replay_gather(guarded *g, void *args)
{
    const moved *m = args;
    g->cpu->gather(g->cpu, m->step, m->x, m->n, m->from, m->to);
}

static void guarded_gather(skv_backend *base, const skv_backend_step *step, skv_rows x, size_t n,
                           skv_row_set from, skv_row_set to)
{
    guarded *g LEAVES = guarded_begin(base);
    const skv_set_spec *before = guarded_set(g, step, from), *after = guarded_set(g, step, to);
    check_within(before, after);
    moved m = {.step = step->inner, .x = moving(g, before, x, n), .n = n, .from = from, .to = to};
    LATER(g, gather, m);
    spoil_behind(g, x, m.x, after->n_rows, n);
}

void guarded_add_steps(skv_backend *base)
{
    base->angles_create = guarded_angles_create;
    base->angles_free = guarded_angles_free;
    base->step_create = guarded_step_create;
    base->step_free = guarded_step_free;
    base->step_bytes = guarded_step_bytes;
    base->step_begin = guarded_step_begin;
    base->step_change = guarded_step_change;
    base->step_choose = guarded_step_choose;
    base->step_wait = guarded_step_wait;
    base->gather = guarded_gather;
}
