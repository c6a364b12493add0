/* What the guarded back end picks from logits: see guarded_backend.h. */
#include <stdlib.h>

#include "guarded_state.h"

static void check_ids(const int32_t *ids, size_t n, size_t V)
{
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < 0 || (size_t)ids[i] >= V) guarded_die("a pick of an id beyond the vocabulary");
    }
}

static void check_changes(const skv_pick_row *p, size_t V)
{
    for (size_t i = 0; i < p->n_biases; i++) check_ids(&p->biases[i].id, 1, V);
    if (p->n_penalties > 0 && !p->sampling) guarded_die("penalties without their numbers");
    for (size_t i = 0; i < p->n_penalties; i++) {
        const skv_penalty *seen = &p->penalties[i];
        check_ids(&seen->id, 1, V);
        if (seen->n_generated > seen->n_seen) guarded_die("more tokens generated than seen");
        for (size_t k = 0; k < i && i < 64; k++) { /* all pairs would take too long */
            if (p->penalties[k].id == seen->id) guarded_die("two penalties for a token");
        }
    }
}

static void check_pick(const skv_pick_row *p, size_t V)
{
    if (p->n_top > SKV_PICK_MAX) guarded_die("a pick of too many of the largest");
    check_ids(p->ids, p->n_ids, V);
    check_changes(p, V);
    if (!(p->u >= 0 && p->u < 1)) guarded_die("a number that is not in [0, 1)");
}

/* With copies of all lists, which end when the pick has run. */
static skv_pick_row keep(guarded *g, const skv_pick_row *p, size_t V)
{
    skv_pick_row out = *p;
    out.ids = guarded_keep(g, p->ids, p->n_ids * sizeof *p->ids);
    out.mask = guarded_keep(g, p->mask, (V + 31) / 32 * sizeof *p->mask);
    out.biases = guarded_keep(g, p->biases, p->n_biases * sizeof *p->biases);
    out.penalties = guarded_keep(g, p->penalties, p->n_penalties * sizeof *p->penalties);
    for (size_t i = 0; i < 2; i++) {
        out.held[i] = guarded_keep(g, p->held[i], p->n_held[i] * sizeof *p->held[i]);
    }
    out.sampling = guarded_keep(g, p->sampling, sizeof *p->sampling);
    return out;
}

/* The host has no use for results before row 0 is picked again. */
static void end_results(skv_backend_step *step)
{
    guarded_spoil_copies(step->results);
    guarded_free_copies(step->ended);
    step->ended = step->results;
    step->results = NULL;
}

static void count(skv_backend_step *step, const skv_pick_row *rows, size_t n, size_t first)
{
    if (first > step->n_picks) guarded_die("picks that do not follow those before");
    for (size_t i = first; i < step->n_picks; i++) {
        if (!step->picks[i].is_read) guarded_die("a pick in place of one that was not read");
    }
    if (first == 0) {
        step->n_numbers = 0;
        end_results(step);
    }
    for (size_t i = 0; i < n; i++) step->n_numbers += rows[i].n_top + rows[i].n_ids;
    step->n_picks = first + n;
    if (step->n_picks > step->max_picks || step->n_numbers > step->max_numbers)
        guarded_die("more picks than a step is for");
    for (size_t i = 0; i < n; i++) step->picks[first + i] = (pick_state){.n_ids = rows[i].n_ids};
}

typedef struct pick_args {
    skv_backend_step *step;
    skv_rows logits;
    const skv_pick_row *rows;
    size_t V, n, first;
} pick_args;

static void replay_pick(guarded *g, void *args)
{
    const pick_args *a = args;
    g->cpu->pick(g->cpu, a->step, a->logits, a->V, a->rows, a->n, a->first);
}

static void guarded_pick(skv_backend *base, skv_backend_step *step, skv_rows logits, size_t V,
                         const skv_pick_row *rows, size_t n, size_t first)
{
    guarded *g LEAVES = guarded_begin(base);
    skv_pick_row *own = guarded_keep(g, rows, n * sizeof *rows);
    size_t n_rows = 0;
    count(guarded_step(g, step), rows, n, first);
    for (size_t i = 0; i < n; i++) {
        check_pick(&rows[i], V);
        if (rows[i].row >= n_rows) n_rows = rows[i].row + 1;
        own[i] = keep(g, &rows[i], V);
    }
    pick_args a = {.step = step->inner,
                   .logits = guarded_floats(g, logits, n_rows, V),
                   .rows = own,
                   .V = V,
                   .n = n,
                   .first = first};
    LATER(g, pick, a);
}

skv_picked guarded_backend_picked_at_once(skv_backend *base, const skv_backend_step *step, size_t i)
{
    const guarded *g = (const guarded *)base;
    step->picks[i].is_read = true;
    return g->cpu->picked(g->cpu, step->inner, i);
}

static skv_picked guarded_picked(skv_backend *base, const skv_backend_step *step, size_t i)
{
    guarded *g LEAVES = guarded_inside(base);
    skv_backend_step *own = (skv_backend_step *)(uintptr_t)step;
    if (!step || step->of != g) guarded_die("a step of another back end");
    if (i >= step->n_picks) guarded_die("a row that was not picked");
    guarded_wait(g);
    skv_picked out = guarded_backend_picked_at_once(base, step, i);
    out.top = guarded_copy(&own->results, out.top, out.n_top * sizeof *out.top);
    out.at = guarded_copy(&own->results, out.at, step->picks[i].n_ids * sizeof *out.at);
    return out;
}

void guarded_free_picks(skv_backend_step *step)
{
    guarded_free_copies(step->results);
    guarded_free_copies(step->ended);
    free(step->picks);
}

void guarded_add_picks(skv_backend *base)
{
    base->pick = guarded_pick;
    base->picked = guarded_picked;
}
