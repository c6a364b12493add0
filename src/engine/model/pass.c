/* The rows of a step that go on, and its products as hooks and ranks see them: see pass.h. */
#include "model/pass.h"

#include <assert.h>
#include <string.h>

#include "base/size.h"
#include "model/adapter.h"
#include "model/ffn_skip.h"

/* ---- which rows go on ---- */

size_t skv_span_wanted(const skv_pass_span *span)
{
    return span->at.n - span->n_wanted;
}

size_t skv_span_kept(const skv_pass_span *span)
{
    return span->unskipped ? 0 : skv_min_size(skv_span_wanted(span), span->deep_from);
}

static size_t row_of(const skv_set_spec *set, size_t i)
{
    return set->rows ? set->rows[i] : i;
}

/* Attention items of a set: a run of consecutive rows of a span each, or each row of a span that is
 * taken singly. */
static void list_items(skv_pass *p, skv_row_set which)
{
    skv_set_spec *set = &p->spec.sets[which];
    skv_attention_item *items = p->ws->items[which];
    size_t row = 0, row0 = 0, n = 0;
    for (size_t s = 0; s < p->n_spans; s++) {
        const skv_pass_span *span = &p->spans[s];
        const size_t end = row0 + span->at.n;
        while (row < set->n_rows && row_of(set, row) < end) {
            const size_t first = row++, at = row_of(set, first);
            const bool follows = span->singly && first > 0 && row_of(set, first - 1) >= row0 &&
                                 at == row_of(set, first - 1) + 1;
            while (!span->singly && row < set->n_rows && row_of(set, row) < end &&
                   row_of(set, row) == row_of(set, row - 1) + 1) {
                row++;
            }
            items[n++] = (skv_attention_item){.row0 = first,
                                              .n_q = row - first,
                                              .n_past = span->at.n_past + at - row0,
                                              .span = s,
                                              .follows = follows};
        }
        row0 = end;
    }
    set->items = items;
    set->n_items = n;
}

/* Inputs of convolutions before its first row that goes on; and at its end, where drafts may be
 * taken back, those that a later span begins with. */
static size_t first_tap(const skv_pass *p, const skv_pass_span *span)
{
    const size_t n_taps = p->c->mixer.conv_rows;
    const size_t first = skv_min_size(skv_span_kept(span), span->at.n - span->at.n_undo);
    return n_taps == 0 || first < n_taps ? 0 : first - (n_taps - 1);
}

static size_t first_kept(const skv_pass *p, const skv_pass_span *span)
{
    (void)p;
    return skv_span_kept(span);
}

static size_t first_wanted(const skv_pass *p, const skv_pass_span *span)
{
    (void)p;
    return skv_span_wanted(span);
}

/* A set becomes the rows of each span from first(span) on. */
static void list_rows(skv_pass *p, skv_row_set which,
                      size_t (*first)(const skv_pass *, const skv_pass_span *))
{
    uint32_t *rows = p->ws->set_rows[which];
    size_t row0 = 0, n = 0;
    for (size_t s = 0; s < p->n_spans; s++) {
        const skv_pass_span *span = &p->spans[s];
        for (size_t i = first(p, span); i < span->at.n; i++) rows[n++] = (uint32_t)(row0 + i);
        row0 += span->at.n;
    }
    p->spec.sets[which] = (skv_set_spec){.rows = n < p->n_rows ? rows : NULL, .n_rows = n};
}

static void list_ids(const skv_pass *p)
{
    size_t row = 0;
    for (size_t s = 0; s < p->n_spans; s++) {
        const skv_pass_span *span = &p->spans[s];
        memcpy(p->ws->ids + row, span->ids, span->at.n * sizeof *span->ids);
        row += span->at.n;
    }
}

/* Decoding: a token of each sequence, and nothing but the back end has a say in it. */
static bool repeats(const skv_pass *p)
{
    const bool whole = p->first_layer == 0 && p->end_layer == 0 && !p->stack_only && !p->rows.area;
    bool alone = p->n_hooks == 0 && !p->ffn_skipper && !p->adapts && !p->m->ranks;
    for (size_t s = 0; s < p->n_spans; s++) {
        alone = alone && p->spans[s].at.n == 1 && !p->spans[s].votes && !p->spans[s].x.area;
    }
    return whole && alone;
}

static const skv_backend_step_spec *describe(skv_pass *p)
{
    const skv_workspace *ws = p->ws;
    skv_backend_step_spec *spec = &p->spec;
    spec->spans = ws->step_spans;
    spec->n_spans = p->n_spans;
    p->n_rows = 0;
    for (size_t s = 0; s < p->n_spans; s++) {
        ws->step_spans[s] = p->spans[s].at;
        p->n_rows += p->spans[s].at.n;
    }
    assert(p->n_rows <= ws->max_rows);
    p->set = SKV_SET_ALL;
    p->n_alive = p->n_rows;
    spec->sets[SKV_SET_ALL] = (skv_set_spec){.n_rows = p->n_rows};
    list_items(p, SKV_SET_ALL);
    list_rows(p, SKV_SET_KEPT, first_kept);
    list_items(p, SKV_SET_KEPT);
    list_rows(p, SKV_SET_WANTED, first_wanted);
    list_rows(p, SKV_SET_TAPS, first_tap);
    if (p->be->keeps_embeddings && p->first_layer == 0 && !p->stack_only) {
        list_ids(p);
        spec->ids = ws->ids;
    }
    spec->repeats = repeats(p);
    spec->n_angles = p->m->n_ropes;
    for (size_t r = 0; r < p->m->n_ropes; r++) spec->angles[r] = p->m->angles[r];
    return spec;
}

skv_status skv_pass_begin(skv_pass *p, skv_error *err)
{
    return p->be->step_begin(p->be, p->ws->step, describe(p), err);
}

void skv_pass_change(skv_pass *p)
{
    p->be->step_change(p->be, p->ws->step, describe(p));
}

/* x has the n rows of a set now, which were rows from[i] of it. */
static void take_set(skv_pass *p, skv_row_set set, const uint32_t *from, size_t n)
{
    uint16_t *left = p->ffn_skipper ? p->ffn_skipper->left : NULL;
    for (size_t i = 0; left && i < n; i++) left[i] = left[from[i]];
    p->set = set;
    p->n_alive = n;
}

void skv_pass_keep(skv_pass *p, size_t n)
{
    uint32_t *rows = p->ws->set_rows[SKV_SET_CHOSEN];
    const uint32_t *from = p->ws->gathered;
    skv_set_spec *chosen = &p->spec.sets[SKV_SET_CHOSEN];
    if (n == p->n_alive) return;
    for (size_t r = 0; r < n; r++) rows[r] = (uint32_t)skv_pass_row(p, from[r]);
    *chosen = (skv_set_spec){.rows = rows, .n_rows = n};
    list_items(p, SKV_SET_CHOSEN);
    p->be->step_choose(p->be, p->ws->step, p->set, chosen, p->ws->x, p->c->hidden);
    take_set(p, SKV_SET_CHOSEN, from, n);
}

void skv_pass_keep_wanted(skv_pass *p)
{
    const skv_set_spec *kept = &p->spec.sets[SKV_SET_KEPT];
    if (p->set != SKV_SET_ALL || kept->n_rows == p->n_rows) return;
    p->be->gather(p->be, p->ws->step, p->ws->x, p->c->hidden, SKV_SET_ALL, SKV_SET_KEPT);
    take_set(p, SKV_SET_KEPT, kept->rows, kept->n_rows);
}

/* ---- products ---- */

void skv_pass_linear(const skv_pass *p, size_t i, skv_product product, const skv_linear_args *args)
{
    if (p->adapts) {
        skv_adapters_linear(p, i, product, args);
    } else {
        p->be->linear(p->be, args);
    }
    for (size_t h = 0; h < p->n_hooks; h++) {
        const skv_hook *hook = p->hooks[h];
        if (hook->on_product) hook->on_product(hook->user, i, product, args);
    }
}

void skv_pass_sum(const skv_pass *p, skv_rows x, size_t n_rows)
{
    if (p->m->ranks) p->be->sum(p->be, x, n_rows, p->c->hidden);
}
