/* The end of a step: logits or hidden states of the rows that are wanted. */
#include <assert.h>

#include "model/pass.h"

/* Of the rows that came through the layers only those that are wanted. */
static void keep_for_output(skv_pass *p)
{
    const skv_set_spec *wanted = &p->spec.sets[SKV_SET_WANTED];
    skv_span_place at = {0, 0};
    size_t n = 0;
    if (p->set != SKV_SET_CHOSEN) {
        if (wanted->n_rows < p->n_alive) {
            p->be->gather(p->be, p->ws->step, p->ws->x, p->c->hidden, p->set, SKV_SET_WANTED);
        }
        p->set = SKV_SET_WANTED;
        p->n_alive = wanted->n_rows;
        return;
    }
    for (size_t row = 0; row < p->n_alive; row++) {
        at = skv_pass_find_span(p, at, row);
        if (skv_pass_row(p, row) - at.row0 < skv_span_wanted(&p->spans[at.i_span])) continue;
        p->ws->gathered[n++] = (uint32_t)row;
    }
    skv_pass_keep(p, n);
}

/* args->y = rows of x by a head of n_out rows. */
static void run_head(const skv_pass *p, const skv_linear_args *args, skv_vec norm, size_t n_out)
{
    skv_linear_args all = *args;
    all.norm = skv_pass_norm(p, norm);
    p->be->linear(p->be, &all);
    p->work->vocabulary += skv_work_product(all.n_rows, p->c->hidden, n_out);
}

/* logits [n_rows, n] */
static void cap(const skv_pass *p, skv_rows logits, size_t n_rows, size_t n)
{
    if (p->c->final_softcap > 0) {
        p->be->softcap(p->be, logits, n_rows, n, (float)p->c->final_softcap);
    }
}

/* Ranks meet in the host's memory. Rank 0 only writes the others' logits, so its own logits stay
 * where they are; the others read theirs, and have no further use for them. */
static void collect(const skv_pass *p, size_t n)
{
    skv_ranks *ranks = p->m->ranks;
    const size_t V = p->c->vocab, own = p->m->ids.n, part = p->m->ids.part;
    const skv_rows behind = skv_rows_from(skv_rows_as(p->ws->logits, V), 0, own);
    const skv_mapped host =
        skv_ranks_lead(ranks)
            ? p->be->map(p->be, behind, n, V - own, SKV_MAP_WRITE)
            : p->be->map(p->be, skv_rows_as(p->ws->logits, part), n, part, SKV_MAP_READ);
    skv_ranks_collect(ranks, host.at, host.ld, n, V);
    p->be->unmap(p->be, host);
}

/* ws->logits [n, V] of rows of x. */
static void run_own_head(const skv_pass *p, size_t row, size_t n)
{
    const skv_config *c = p->c;
    const bool leads = skv_ranks_lead(p->m->ranks);
    const skv_linear_args args = {.w = p->m->head,
                                  .y =
                                      skv_rows_as(p->ws->logits, leads ? c->vocab : p->m->ids.part),
                                  .x = skv_rows_from(p->ws->x, row, 0),
                                  .n_rows = n};
    run_head(p, &args, p->m->head_norm, p->m->ids.n);
    if (p->m->ranks) collect(p, n);
    if (leads) cap(p, args.y, n, c->vocab);
}

void skv_pass_exit(const skv_pass *p, size_t row, size_t n)
{
    const size_t W = p->m->n_exit_ids;
    const skv_linear_args args = {.w = p->m->exit_head,
                                  .y = skv_rows_as(p->ws->logits, W),
                                  .x = skv_rows_from(p->ws->x, row, 0),
                                  .n_rows = n};
    run_head(p, &args, p->m->stack.norm, W);
    cap(p, args.y, n, W);
}

/* ws->logits [n, D]: rows of x after the final norm. */
static void make_hidden(const skv_pass *p, size_t row, size_t n)
{
    size_t D = p->c->hidden;
    p->be->norm(p->be, &(skv_norm_args){.y = skv_rows_as(p->ws->logits, D),
                                        .x = skv_rows_from(p->ws->x, row, 0),
                                        .n_rows = n,
                                        .n = D,
                                        .norm = skv_pass_norm(p, p->m->final_norm)});
}

/* Rows of x from `row` on that are wanted in the same form, at most SKV_LOGIT_ROWS. */
static size_t count_alike(const skv_pass *p, skv_span_place at, size_t row)
{
    const bool hidden = p->spans[at.i_span].hidden;
    size_t n = 1;
    for (; n < SKV_LOGIT_ROWS && row + n < p->n_alive; n++) {
        at = skv_pass_find_span(p, at, row + n);
        if (p->spans[at.i_span].hidden != hidden) break;
    }
    return n;
}

/* ---- telling ---- */

/* Number of a row of x among the rows that are told of its span. */
static size_t told_row(const skv_pass *p, skv_span_place at, size_t row)
{
    const skv_pass_span *span = &p->spans[at.i_span];
    return span->told_row + skv_pass_row(p, row) - at.row0 - skv_span_wanted(span);
}

/* Rows [row, row + n): their outputs of `length` are rows of ws->logits from i on. */
static void tell_outputs(const skv_pass *p, skv_span_place at, size_t row, size_t i, size_t n,
                         size_t length)
{
    const skv_step_sink *sink = p->sink;
    const skv_rows rows = skv_rows_from(skv_rows_as(p->ws->logits, length), i, 0);
    if (!sink->on_row) return;
    const skv_mapped outputs = p->be->map(p->be, rows, n, length, SKV_MAP_READ);
    for (size_t k = 0; k < n; k++) {
        at = skv_pass_find_span(p, at, row + k);
        sink->on_row(sink->user, p->spans[at.i_span].told_span, told_row(p, at, row + k),
                     outputs.at + k * outputs.ld);
    }
    p->be->unmap(p->be, outputs);
}

/* The back end gets the wishes listed so far. */
static void pick_listed(skv_pass *p, size_t V)
{
    const size_t first = p->n_picked, n = p->n_picks - first;
    if (n == 0) return;
    p->be->pick(p->be, p->ws->step, skv_rows_as(p->ws->logits, V), V, p->ws->picks + first, n,
                first);
    p->n_picked = p->n_picks;
}

/* Tells the picks. */
static void tell_picked(skv_pass *p)
{
    const size_t n = p->n_picked;
    assert(n == p->n_picks);
    for (size_t i = 0; i < n; i++) {
        const skv_picked picked = p->be->picked(p->be, p->ws->step, i);
        p->sink->on_picked(p->sink->user, &p->ws->owners[i], &picked);
    }
    p->n_picks = p->n_picked = p->n_numbers = 0;
}

void skv_pass_pick_best(skv_pass *p, size_t V, size_t n)
{
    assert(n <= SKV_LOGIT_ROWS && p->n_picked == p->n_picks);
    if (p->n_picks + n > SKV_PICKS_MAX) tell_picked(p);
    skv_pick_row *picks = p->ws->picks + p->n_picks;
    for (size_t i = 0; i < n; i++) picks[i] = (skv_pick_row){.row = i, .norm = true};
    p->be->pick(p->be, p->ws->step, skv_rows_as(p->ws->logits, V), V, picks, n, p->n_picks);
}

skv_picked skv_pass_picked(const skv_pass *p, size_t i)
{
    return p->be->picked(p->be, p->ws->step, p->n_picks + i);
}

/* Asks for the wishes for a row of x, which is row i of ws->logits. False: not yet. */
static bool list_row(skv_pass *p, skv_span_place at, size_t row, size_t i)
{
    const size_t V = p->c->vocab;
    if (p->n_picks + SKV_ROW_PICKS > SKV_PICKS_MAX ||
        p->n_numbers + (size_t)SKV_ROW_PICKS * SKV_PICK_MAX > SKV_PICK_NUMBERS) {
        pick_listed(p, V);
        tell_picked(p);
    }
    skv_wishes wishes = {.i_span = p->spans[at.i_span].told_span,
                         .i_row = told_row(p, at, row),
                         .picks = p->ws->picks + p->n_picks,
                         .owners = p->ws->owners + p->n_picks};
    if (!p->sink->on_wish(p->sink->user, &wishes)) return false;
    for (size_t k = 0; k < wishes.n; k++) {
        wishes.picks[k].row = i;
        wishes.owners[k].i_span = wishes.i_span;
        wishes.owners[k].i_row = wishes.i_row;
        p->n_numbers += wishes.picks[k].n_top + wishes.picks[k].n_ids;
    }
    p->n_picks += wishes.n;
    return true;
}

/* Rows [row, row + n) of x: their logits are rows of ws->logits from i on, at most SKV_LOGIT_ROWS.
 * In each round those are picked from that depend on nothing which has not been told. */
static void tell_logits(skv_pass *p, skv_span_place at, size_t row, size_t i, size_t n)
{
    bool listed[SKV_LOGIT_ROWS] = {false};
    if (!p->sink->on_wish) {
        tell_outputs(p, at, row, i, n, p->c->vocab);
        return;
    }
    for (size_t n_left = n; n_left > 0;) {
        skv_span_place place = at;
        n_left = 0;
        for (size_t k = 0; k < n; k++) {
            place = skv_pass_find_span(p, place, row + k);
            if (!listed[k]) listed[k] = list_row(p, place, row + k, i + k);
            n_left += !listed[k];
        }
        pick_listed(p, p->c->vocab);
        if (n_left > 0) tell_picked(p);
    }
}

void skv_pass_tell(skv_pass *p, skv_span_place at, size_t row, size_t i)
{
    tell_logits(p, at, row, i, 1);
}

static void use_time(const skv_pass *p)
{
    if (!p->be->start || !p->sink->on_started) return;
    p->be->start(p->be);
    p->sink->on_started(p->sink->user);
}

void skv_pass_report(skv_pass *p)
{
    skv_span_place at = {0, 0};
    keep_for_output(p);
    for (size_t row = 0, n; row < p->n_alive; row += n) {
        at = skv_pass_find_span(p, at, row);
        n = count_alike(p, at, row);
        if (p->spans[at.i_span].hidden) {
            make_hidden(p, row, n);
            tell_outputs(p, at, row, 0, n, p->c->hidden);
        } else {
            run_own_head(p, row, n);
            tell_logits(p, at, row, 0, n);
        }
    }
    use_time(p);
    tell_picked(p);
}
