/*
 * Picks from rows of logits, by the processor's back end: the host fetches the rows and looks at
 * them there. So the token that is drawn is a function of the logits, the options and the number
 * drawn alone, as on the processor.
 */
#include <string.h>

#include "backend/cuda/cuda_backend.h"

/* Row `row` of logits [.., V] to row `to` of the host's. */
static void fetch_row(skv_cuda_backend *be, skv_rows logits, size_t row, size_t V, size_t to)
{
    const skv_cuda_rows from = skv_cuda_rows_of(skv_rows_from(logits, row, 0));
    const skv_rows host = {be->logits, to * be->limits.vocab, V};
    const skv_mapped m = be->cpu->map(be->cpu, host, 1, V, SKV_MAP_WRITE);
    skv_cuda_get(&be->device, m.at, from.at, V * sizeof(float));
    be->cpu->unmap(be->cpu, m);
}

/* Wishes of one row follow each other where it is drawn from more than once. */
static void pick(skv_backend *base, skv_backend_step *step, skv_rows logits, size_t V,
                 const skv_pick_row *rows, size_t n, size_t first)
{
    skv_cuda_backend *be = skv_cuda_of(base);
    const skv_rows host = {be->logits, 0, be->limits.vocab};
    for (size_t i = 0; i < n;) {
        skv_pick_row lent[SKV_CUDA_PICKS];
        size_t n_lent = 0, n_rows = 0;
        const size_t i0 = i;
        for (; i < n && n_lent < SKV_CUDA_PICKS; i++) {
            if (i == i0 || rows[i].row != rows[i - 1].row) {
                fetch_row(be, logits, rows[i].row, V, n_rows++);
            }
            lent[n_lent] = rows[i];
            lent[n_lent++].row = n_rows - 1;
        }
        be->cpu->pick(be->cpu, step->picks, host, V, lent, n_lent, first + i0);
    }
}

static skv_picked picked(skv_backend *base, const skv_backend_step *step, size_t i)
{
    skv_cuda_backend *be = skv_cuda_of(base);
    return be->cpu->picked(be->cpu, step->picks, i);
}

void skv_cuda_fill_picks(skv_backend *table)
{
    table->pick = pick;
    table->picked = picked;
}
