/*
 * Early exit (arXiv:2410.03960, B.4): a second head on norm_swiftkv(x_l). A token whose next one it
 * is sure of (its largest probability is above a threshold, 0.95 in the paper) never enters the
 * deep layers. Nothing is missing afterwards: with SwiftKV the keys and values of those layers are
 * made from x_l for every token, before any of them runs.
 */
#include "prefill/early_exit.h"

#include <assert.h>
#include <math.h>

#include "model/pass.h"

/* The probability of the most likely token is above this. */
static bool is_sure(double above, const skv_picked *picked)
{
    return exp((double)picked->best.logit - picked->norm) > above;
}

/* Whether a row may end here: its logits are wanted, and nothing else of it. */
static bool may_leave(const skv_pass *p, skv_span_place at, size_t row)
{
    const skv_pass_span *span = &p->spans[at.i_span];
    size_t i = skv_pass_row(p, row) - at.row0;
    return i >= skv_span_wanted(span) && i < span->deep_from && !span->hidden && !span->unskipped;
}

/* Rows of x from `row` on that may end here, at most SKV_LOGIT_ROWS. */
static size_t count_leaving(const skv_pass *p, skv_span_place at, size_t row)
{
    size_t n = 0;
    for (; n < SKV_LOGIT_ROWS && row + n < p->n_alive; n++) {
        at = skv_pass_find_span(p, at, row + n);
        if (!may_leave(p, at, row + n)) break;
    }
    return n;
}

/* Tells the exit's logits of the rows [row, row + n) that are sure of them; the others are listed
 * from n_kept on in ws->gathered. Returns how many are then listed. */
static size_t ask_rows(skv_pass *p, double above, size_t row, size_t n, size_t n_kept)
{
    skv_span_place at = {0, 0};
    bool leaves[SKV_LOGIT_ROWS];
    skv_pass_exit(p, row, n);
    skv_pass_pick_best(p, p->c->vocab, n);
    for (size_t i = 0; i < n; i++) {
        const skv_picked picked = skv_pass_picked(p, i);
        leaves[i] = is_sure(above, &picked);
    }
    p->work->exits_asked += n;
    for (size_t i = 0; i < n; i++) {
        at = skv_pass_find_span(p, at, row + i);
        if (leaves[i]) {
            p->work->exits++;
            skv_pass_tell(p, at, row + i, i);
        } else {
            p->ws->gathered[n_kept++] = (uint32_t)(row + i);
        }
    }
    return n_kept;
}

static void leave(void *user, skv_pass *p, size_t i_layer)
{
    const double *above = user;
    skv_span_place at = {0, 0};
    size_t n_kept = 0;
    if (i_layer != p->plan->stack_boundary || !p->plan->skip) return;
    skv_pass_keep_wanted(p);
    for (size_t row = 0, n; row < p->n_alive; row += n) {
        at = skv_pass_find_span(p, at, row);
        n = count_leaving(p, at, row);
        if (n > 0) {
            n_kept = ask_rows(p, *above, row, n, n_kept);
        } else {
            p->ws->gathered[n_kept++] = (uint32_t)row;
            n = 1;
        }
    }
    skv_pass_keep(p, n_kept);
}

skv_hook skv_early_exit_hook(double *above)
{
    assert(*above > 0);
    return (skv_hook){.user = above, .before_layer = leave};
}
