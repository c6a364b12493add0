/* The rows of a step that go on, and its products as hooks and ranks see them: see pass.h. */
#include "model/pass.h"

#include <assert.h>

#include "model/adapter.h"

/* ---- which rows go on ---- */

/* Attention items: a run of consecutive alive rows of a span each, or each row of a span that is
 * taken singly. */
void skv_pass_describe(skv_pass *p)
{
    const uint32_t *alive = p->ws->alive;
    size_t row = 0, row0 = 0;
    p->n_items = 0;
    for (size_t s = 0; s < p->f->n_spans; s++) {
        const skv_forward_span *span = &p->spans[s];
        size_t end = row0 + span->n;
        while (row < p->n_alive && alive[row] < end) {
            size_t first = row++;
            const bool follows = span->singly && first > 0 && alive[first - 1] >= row0 &&
                                 alive[first] == alive[first - 1] + 1;
            while (!span->singly && row < p->n_alive && alive[row] < end &&
                   alive[row] == alive[row - 1] + 1) {
                row++;
            }
            p->ws->item_spans[p->n_items] = (uint32_t)s;
            p->ws->items[p->n_items++] =
                (skv_attention_item){.row0 = first,
                                     .n_q = row - first,
                                     .n_past = span->n_past + alive[first] - row0,
                                     .table = span->cache->table,
                                     .follows = follows};
        }
        row0 = end;
    }
}

void skv_pass_gather(skv_pass *p, size_t n)
{
    const uint32_t *from = p->ws->gathered;
    p->be->gather(p->be, p->ws->x, p->c->hidden, from, n);
    for (size_t h = 0; h < p->f->n_hooks; h++) {
        const skv_hook *hook = p->f->hooks[h];
        if (hook->moved) hook->moved(hook->user, from, n);
    }
    p->n_alive = n;
}

void skv_pass_keep(skv_pass *p, size_t n)
{
    if (n == p->n_alive) return;
    for (size_t r = 0; r < n; r++) p->ws->alive[r] = p->ws->alive[p->ws->gathered[r]];
    skv_pass_gather(p, n);
    p->all_alive = false;
    skv_pass_describe(p);
}

void skv_pass_keep_wanted(skv_pass *p)
{
    if (!p->all_alive) return;
    size_t row0 = 0, n = 0;
    for (size_t s = 0; s < p->f->n_spans; s++) {
        const skv_forward_span *span = &p->spans[s];
        for (size_t i = skv_span_kept(span); i < span->n; i++) {
            p->ws->gathered[n++] = (uint32_t)(row0 + i);
        }
        row0 += span->n;
    }
    skv_pass_keep(p, n);
}

/* ---- products ---- */

void skv_pass_linear(const skv_pass *p, size_t i, skv_product product, const skv_linear_args *args)
{
    for (size_t h = 0; h < p->f->n_hooks; h++) {
        const skv_hook *hook = p->f->hooks[h];
        if (hook->on_product) hook->on_product(hook->user, i, product, args);
    }
    if (p->adapts) {
        skv_adapters_linear(p, i, product, args);
    } else {
        p->be->linear(p->be, args);
    }
}

void skv_pass_sum(const skv_pass *p, skv_rows x, size_t n_rows)
{
    const size_t D = p->c->hidden;
    if (!p->m->ranks) return;
    const skv_mapped host = p->be->map(p->be, x, n_rows, D, SKV_MAP_BOTH);
    assert(host.ld == D);
    skv_ranks_sum(p->m->ranks, host.at, n_rows * D);
    p->be->unmap(p->be, host);
}
