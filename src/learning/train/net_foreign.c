/*
 * Selects the rows that the base of KV Prediction runs in training: those with a loss, since
 * nothing else depends on a row with predicted keys and values. They are packed into a batch of
 * their own and attend to rows of the whole batch.
 */
#include "base/mem.h"
#include "train/net_impl.h"

skv_status skv_net_foreign_create(skv_net_foreign *f, size_t max_tokens, size_t n_layers,
                                  skv_error *err)
{
    f->ids = skv_alloc_zero(max_tokens, sizeof *f->ids);
    f->targets = skv_alloc_zero(max_tokens, sizeof *f->targets);
    f->positions = skv_alloc_zero(max_tokens, sizeof *f->positions);
    f->doc_start = skv_alloc_zero(max_tokens, sizeof *f->doc_start);
    f->row = skv_alloc_zero(max_tokens, sizeof *f->row);
    f->end = skv_alloc_zero(max_tokens, sizeof *f->end);
    f->own = skv_alloc_zero(max_tokens, sizeof *f->own);
    f->layers = skv_alloc_zero(n_layers, sizeof *f->layers);
    SKV_REQUIRE(f->ids && f->targets && f->positions && f->doc_start && f->row && f->end &&
                    f->own && f->layers,
                err, SKV_MEMORY, "training: no memory for the rows of %zu tokens", max_tokens);
    return SKV_OK;
}

void skv_net_foreign_release(skv_net_foreign *f)
{
    skv_free(f->ids);
    skv_free(f->targets);
    skv_free(f->positions);
    skv_free(f->doc_start);
    skv_free(f->row);
    skv_free(f->end);
    skv_free(f->own);
    skv_free(f->layers);
}

/* Adds token t of the batch as the n-th learnt row. Its answer begins at token `start`, which is
 * the learnt row `first`. */
static void add_row(skv_net_foreign *f, size_t n, size_t t, size_t start, size_t first)
{
    const skv_train_batch *all = f->all;
    bool same = n > 0 && all->doc_start[f->row[n - 1]] == all->doc_start[t];
    f->ids[n] = all->ids[t];
    f->targets[n] = all->targets[t];
    f->positions[n] = all->positions[t];
    f->doc_start[n] = same ? f->doc_start[n - 1] : (uint32_t)n;
    f->row[n] = (uint32_t)t;
    f->end[n] = (uint32_t)(f->answers ? start : t + 1);
    f->own[n] = (uint32_t)(f->answers ? first : n + 1);
}

void skv_net_foreign_select(skv_net_foreign *f, const skv_train_batch *all)
{
    size_t n = 0, start = 0, first = 0;
    bool text = false;
    f->all = all;
    for (size_t t = 0; t < all->n_tokens; t++) {
        if (all->targets[t] < 0) continue;
        bool begins = n == 0 || f->row[n - 1] + 1 != t || all->doc_start[t] == t;
        if (begins) text = all->doc_start[t] == t;
        if (begins || text) {
            start = t;
            first = n;
        }
        add_row(f, n++, t, start, first);
    }
    f->learnt = (skv_train_batch){n, f->ids, f->targets, f->positions, f->doc_start};
}
