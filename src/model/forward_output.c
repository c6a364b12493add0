/* The end of a step: logits or hidden states of the rows that are wanted. */
#include <string.h>

#include "base/size.h"
#include "model/forward_impl.h"

/* First of the span's rows that is wanted: its end when none is. */
size_t skv_span_wanted(const skv_forward_span *span)
{
    switch (span->wanted) {
    case SKV_ROWS_NONE: return span->n;
    case SKV_ROWS_LAST: return span->n - 1;
    case SKV_ROWS_ALL: break;
    }
    return 0;
}

/* First of the span's rows that goes on beyond the last boundary. */
size_t skv_span_kept(const skv_forward_span *span)
{
    return span->unskipped ? 0 : skv_min_size(skv_span_wanted(span), span->deep_from);
}

/* ---- the end: logits and hidden states ---- */

/* A span of the step, and its first row there. */
typedef struct span_place {
    size_t i_span, row0;
} span_place;

/* The span that has a row of the step, from one that does not lie behind it. */
static span_place find_span(const skv_pass *p, span_place at, size_t step_row)
{
    while (step_row >= at.row0 + p->f->spans[at.i_span].n) {
        at.row0 += p->f->spans[at.i_span++].n;
    }
    return at;
}

/* Of the rows that came through the layers only those that are wanted. */
static void keep_for_output(skv_pass *p)
{
    uint32_t *alive = p->ws->alive;
    span_place at = {0, 0};
    size_t n = 0;
    for (size_t row = 0; row < p->n_alive; row++) {
        at = find_span(p, at, alive[row]);
        if (alive[row] - at.row0 < skv_span_wanted(&p->f->spans[at.i_span])) continue;
        p->ws->gathered[n] = (uint32_t)row;
        alive[n++] = alive[row];
    }
    if (n < p->n_alive) p->be->gather(p->be, p->ws->x, p->c->hidden, p->ws->gathered, n);
    p->n_alive = n;
}

/* ws->logits [n, V] of rows of x by a head and the norm before it. */
static void run_head(const skv_pass *p, const skv_linear *head, const float *norm, size_t row,
                     size_t n)
{
    const skv_config *c = p->c;
    p->be->linear(p->be, &(skv_linear_args){.w = head,
                                            .y = p->ws->logits,
                                            .ldy = c->vocab,
                                            .x = p->ws->x + row * c->hidden,
                                            .ldx = c->hidden,
                                            .n_rows = n,
                                            .norm = skv_pass_norm(p, norm)});
    p->work->vocabulary += skv_work_product(n, c->hidden, c->vocab);
    if (c->final_softcap > 0) {
        p->be->softcap(p->be, p->ws->logits, n * c->vocab, (float)c->final_softcap);
    }
}

/* ws->logits [n, D]: rows of x behind the final norm, added to zeros. */
static void make_hidden(const skv_pass *p, size_t row, size_t n)
{
    size_t D = p->c->hidden;
    memset(p->ws->logits, 0, n * D * sizeof *p->ws->logits);
    p->be->norm_add(p->be, &(skv_norm_add_args){.x = p->ws->logits,
                                                .y = p->ws->x + row * D,
                                                .n_rows = n,
                                                .n = D,
                                                .norm = skv_pass_norm(p, p->m->final_norm)});
}

/* Rows of x from `row` on that are wanted in the same form, at most SKV_LOGIT_ROWS. */
static size_t count_alike(const skv_pass *p, span_place at, size_t row)
{
    const bool hidden = p->f->spans[at.i_span].hidden;
    size_t n = 1;
    for (; n < SKV_LOGIT_ROWS && row + n < p->n_alive; n++) {
        at = find_span(p, at, p->ws->alive[row + n]);
        if (p->f->spans[at.i_span].hidden != hidden) break;
    }
    return n;
}

/* Row i of ws->logits belongs to row `row` of x. */
static void tell(const skv_pass *p, span_place at, size_t row, size_t i)
{
    size_t length = p->f->spans[at.i_span].hidden ? p->c->hidden : p->c->vocab;
    p->f->on_row(p->f->user, at.i_span, p->ws->alive[row] - at.row0, p->ws->logits + i * length);
}

void skv_pass_report(skv_pass *p)
{
    span_place at = {0, 0};
    keep_for_output(p);
    for (size_t row = 0, n; row < p->n_alive; row += n) {
        at = find_span(p, at, p->ws->alive[row]);
        n = count_alike(p, at, row);
        if (p->f->spans[at.i_span].hidden) {
            make_hidden(p, row, n);
        } else {
            run_head(p, p->m->head, p->m->final_norm, row, n);
        }
        for (size_t i = 0; i < n; i++) {
            at = find_span(p, at, p->ws->alive[row + i]);
            tell(p, at, row + i, i);
        }
    }
}

/* ---- rows that are done before the deep layers ---- */

/* Whether a row may end here: its logits are wanted, and nothing else of it. */
static bool may_exit(const skv_pass *p, span_place at, size_t row)
{
    const skv_forward_span *span = &p->f->spans[at.i_span];
    size_t i = p->ws->alive[row] - at.row0;
    return i >= skv_span_wanted(span) && i < span->deep_from && !span->hidden && !span->unskipped;
}

/* Rows of x from `row` on that may end here, at most SKV_LOGIT_ROWS. */
static size_t count_leaving(const skv_pass *p, span_place at, size_t row)
{
    size_t n = 0;
    for (; n < SKV_LOGIT_ROWS && row + n < p->n_alive; n++) {
        at = find_span(p, at, p->ws->alive[row + n]);
        if (!may_exit(p, at, row + n)) break;
    }
    return n;
}

void skv_pass_exit(skv_pass *p)
{
    const skv_exit_gate *gate = p->f->exit;
    span_place at = {0, 0};
    size_t n_kept = 0;
    for (size_t row = 0, n; row < p->n_alive; row += n) {
        at = find_span(p, at, p->ws->alive[row]);
        n = count_leaving(p, at, row);
        if (n == 0) {
            p->ws->gathered[n_kept++] = (uint32_t)row;
            n = 1;
            continue;
        }
        run_head(p, p->m->exit_head, p->m->norm_swiftkv, row, n);
        p->work->exits_asked += n;
        for (size_t i = 0; i < n; i++) {
            at = find_span(p, at, p->ws->alive[row + i]);
            if (gate->leaves(gate->user, p->ws->logits + i * p->c->vocab, p->c->vocab)) {
                p->work->exits++;
                tell(p, at, row + i, i);
            } else {
                p->ws->gathered[n_kept++] = (uint32_t)(row + i);
            }
        }
    }
    skv_pass_keep(p, n_kept);
}
