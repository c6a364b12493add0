/* Copies of batches, which outlive the next draw: see trainer.h. */
#include <string.h>

#include "base/mem.h"
#include "train/trainer.h"

void skv_train_copy_clear(struct skv_train_copy *c)
{
    skv_free(c->ids);
    skv_free(c->targets);
    skv_free(c->positions);
    skv_free(c->doc_start);
    *c = (struct skv_train_copy){0};
}

static void *copy_of(const void *from, size_t n, size_t size)
{
    void *to = skv_alloc(n, size);
    if (to) memcpy(to, from, n * size);
    return to;
}

skv_status skv_trainer_fetch(skv_trainer *t, struct skv_train_copy *c, skv_error *err)
{
    skv_train_batch b;
    skv_train_copy_clear(c);
    SKV_TRY(t->data.next(t->data.ctx, &b, err));
    c->ids = copy_of(b.ids, b.n_tokens, sizeof *b.ids);
    c->targets = copy_of(b.targets, b.n_tokens, sizeof *b.targets);
    c->positions = copy_of(b.positions, b.n_tokens, sizeof *b.positions);
    c->doc_start = copy_of(b.doc_start, b.n_tokens, sizeof *b.doc_start);
    SKV_REQUIRE(c->ids && c->targets && c->positions && c->doc_start, err, SKV_MEMORY,
                "training: no memory for a batch of %zu tokens", b.n_tokens);
    c->batch = (skv_train_batch){b.n_tokens, c->ids, c->targets, c->positions, c->doc_start};
    c->n_tokens = b.n_tokens;
    return SKV_OK;
}
