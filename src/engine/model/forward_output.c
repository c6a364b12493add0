/* The end of a step: logits or hidden states of the rows that are wanted. */
#include <math.h>
#include <string.h>

#include "base/size.h"
#include "model/pass.h"

/* Of the rows that came through the layers only those that are wanted. */
static void keep_for_output(skv_pass *p)
{
    const skv_set_spec *wanted = &p->sets[SKV_SET_WANTED];
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

/* ws->logits [n, V] of rows of x. */
static void run_own_head(const skv_pass *p, size_t row, size_t n)
{
    const skv_config *c = p->c;
    skv_ranks *ranks = p->m->ranks;
    const bool leads = skv_ranks_lead(ranks);
    const skv_linear_args args = {.w = p->m->head,
                                  .y =
                                      skv_rows_as(p->ws->logits, leads ? c->vocab : p->m->ids.part),
                                  .x = skv_rows_from(p->ws->x, row, 0),
                                  .n_rows = n};
    run_head(p, &args, p->m->head_norm, p->m->ids.n);
    if (ranks) {
        const skv_rows whole = skv_rows_as(p->ws->logits, c->vocab);
        const skv_mapped logits = p->be->map(p->be, whole, n, c->vocab, SKV_MAP_BOTH);
        skv_ranks_collect(ranks, logits.at, n, c->vocab);
        p->be->unmap(p->be, logits);
    }
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

/* ws->logits [n, D]: rows of x behind the final norm. */
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

/* Row `row` of x as its span names it. */
static skv_told_row told_row(const skv_pass *p, skv_span_place at, size_t row, const float *output)
{
    const skv_forward_span *span = &p->spans[at.i_span];
    const size_t i_wanted = skv_pass_row(p, row) - at.row0 - skv_span_wanted(span);
    return (skv_told_row){span->told_span, span->told_row + i_wanted, output};
}

static void tell(const skv_forward *f, const skv_told_row *rows, size_t n)
{
    if (f->on_rows) {
        f->on_rows(f->user, rows, n);
        return;
    }
    if (!f->on_row) return;
    for (size_t i = 0; i < n; i++) {
        f->on_row(f->user, rows[i].i_span, rows[i].i_row, rows[i].output);
    }
}

void skv_pass_tell(const skv_pass *p, skv_span_place at, size_t row, const float *output)
{
    const skv_told_row told = told_row(p, at, row, output);
    tell(p->f, &told, 1);
}

/* Rows [row, row + n), whose outputs of `length` are at ws->logits. */
static void tell_rows(const skv_pass *p, skv_span_place at, size_t row, size_t n, size_t length)
{
    skv_told_row rows[SKV_LOGIT_ROWS];
    const skv_mapped outputs =
        p->be->map(p->be, skv_rows_as(p->ws->logits, length), n, length, SKV_MAP_READ);
    for (size_t i = 0; i < n; i++) {
        at = skv_pass_find_span(p, at, row + i);
        rows[i] = told_row(p, at, row + i, outputs.at + i * outputs.ld);
    }
    tell(p->f, rows, n);
    p->be->unmap(p->be, outputs);
}

void skv_pass_report(skv_pass *p)
{
    skv_span_place at = {0, 0};
    keep_for_output(p);
    for (size_t row = 0, n; row < p->n_alive; row += n) {
        at = skv_pass_find_span(p, at, row);
        n = count_alike(p, at, row);
        const bool hidden = p->spans[at.i_span].hidden;
        if (hidden) {
            make_hidden(p, row, n);
        } else {
            run_own_head(p, row, n);
        }
        tell_rows(p, at, row, n, hidden ? p->c->hidden : p->c->vocab);
    }
}

/* ---- of logits ---- */

size_t skv_logits_best(const float *logits, size_t n)
{
    size_t best = 0;
    for (size_t i = 1; i < n; i++) {
        if (logits[i] > logits[best]) best = i;
    }
    return best;
}

double skv_logits_sum(const float *logits, size_t n, size_t *best)
{
    *best = skv_logits_best(logits, n);
    double sum = 0, top = (double)logits[*best];
    for (size_t i = 0; i < n; i++) sum += exp((double)logits[i] - top);
    return sum;
}
