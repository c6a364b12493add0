/* Agreement with a reference: see runner.h and docs/reference/tasks.md. */
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "eval/runner.h"

/* Positions whose logits are held at once. */
enum { ROWS_MAX = 64 };

typedef struct comparison {
    size_t n_vocab;
    float *rows; /* owned, [ROWS_MAX, n_vocab]: the reference's logits */
    double n_same, kl;
    size_t n;
} comparison;

static void keep_row(void *user, size_t i_span, size_t i_token, const float *logits)
{
    const comparison *c = user;
    (void)i_span;
    if (i_token < ROWS_MAX) {
        memcpy(c->rows + i_token * c->n_vocab, logits, c->n_vocab * sizeof *logits);
    }
}

static void compare_row(void *user, size_t i_span, size_t i_token, const float *logits)
{
    comparison *c = user;
    (void)i_span;
    if (i_token >= ROWS_MAX) return;
    bool same;
    c->kl += skv_metric_kl(c->rows + i_token * c->n_vocab, logits, c->n_vocab, &same);
    c->n_same += same;
    c->n++;
}

/* Both models over the text, in step; only positions that count have logits. */
static skv_status walk(skv_engine *engines[2], skv_sequence *sequences[2], comparison *c,
                       const skv_eval_example *e, skv_error *err)
{
    skv_engine_stats stats[2];
    for (int i = 0; i < 2; i++) skv_engine_get_stats(engines[i], &stats[i]);
    const size_t step = skv_min_size(stats[0].step_tokens, stats[1].step_tokens);
    const size_t first = e->n_right_context - 1, n = e->right.n - 1;
    for (size_t at = 0; at < n;) {
        const bool counts = at >= first;
        const size_t most = counts ? skv_min_size(step, ROWS_MAX) : skv_min_size(step, first - at);
        skv_span span = {NULL, e->right.data + at, skv_min_size(most, n - at),
                         counts ? SKV_WANT_ALL : SKV_WANT_NONE};
        for (int i = 0; i < 2; i++) {
            span.sequence = sequences[i];
            SKV_TRY(skv_step(engines[i], &span, 1, i == 0 ? keep_row : compare_row, c, err));
        }
        at += span.n;
    }
    return SKV_OK;
}

skv_status skv_eval_agree(skv_engine *engine, skv_engine *reference, skv_eval_example *e,
                          skv_error *err)
{
    comparison c = {.n_vocab = skv_engine_vocab(engine)};
    if (e->right.n < 2) return SKV_OK;
    skv_engine *engines[2] = {reference, engine};
    skv_sequence *sequences[2] = {NULL, NULL};
    c.rows = skv_alloc(ROWS_MAX, c.n_vocab * sizeof *c.rows);
    skv_status status =
        c.rows ? SKV_OK : skv_fail(err, SKV_MEMORY, "agreement: no memory for logits");
    for (int i = 0; i < 2 && status == SKV_OK; i++) {
        status = skv_sequence_create(engines[i], 0, &sequences[i], err);
    }
    if (status == SKV_OK) status = walk(engines, sequences, &c, e, err);
    for (int i = 0; i < 2; i++) skv_sequence_free(sequences[i]);
    skv_free(c.rows);
    if (status != SKV_OK || c.n == 0) return status;
    skv_eval_set(e, SKV_METRIC_AGREEMENT, c.n_same, (double)c.n);
    skv_eval_set(e, SKV_METRIC_KL, c.kl, (double)c.n);
    return SKV_OK;
}
