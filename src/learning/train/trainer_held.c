/*
 * Rows that are held out of a run: their loss before and after measures its gain and, with
 * until_flat, decides when to end it. With several processes, each measures its own part of them.
 */
#include <string.h>

#include "base/mem.h"
#include "base/team_work.h"
#include "train/trainer.h"

enum { FLAT_BATCHES = 4, TIMES = 40, FLAT_TIMES = SKV_TRAIN_FLAT_TIMES };
#define FLAT_SHARE 0.01

static size_t count_held(const skv_train_options *o)
{
    return o->held_out == 0 && o->until_flat ? FLAT_BATCHES : o->held_out;
}

skv_status skv_trainer_hold_out(skv_trainer *t, skv_error *err)
{
    skv_train_held *h = &t->held;
    const size_t n = count_held(t->options), per_step = t->options->stages[0].accumulate;
    if (n == 0) return SKV_OK;
    h->copies = skv_alloc_zero(n, sizeof *h->copies);
    SKV_REQUIRE(h->copies, err, SKV_MEMORY, "training: no memory for %zu held-out batches", n);
    h->n_copies = n;
    for (size_t i = 0; i < n; i++) {
        skv_train_copy *c = &h->copies[i];
        SKV_TRY(skv_trainer_fetch(t, c, err));
        h->scale.positions += (double)skv_net_count(t->net, &c->batch);
        h->scale.hidden += (double)c->n_tokens * (double)t->config.hidden;
        h->scale.tokens += (double)c->n_tokens;
        c->batch = skv_trainer_cut(t, i % per_step, &c->batch, c->doc_start);
    }
    if (h->scale.positions < 1) skv_trainer_release_held(t); /* nothing in them is learnt */
    return SKV_OK;
}

void skv_trainer_release_held(skv_trainer *t)
{
    for (size_t i = 0; i < t->held.n_copies; i++) skv_train_copy_clear(&t->held.copies[i]);
    skv_free(t->held.copies);
    t->held = (skv_train_held){.n_copies = 0};
}

static skv_status measure_mine(skv_trainer *t, double *loss, skv_error *err)
{
    const skv_train_held *h = &t->held;
    *loss = 0;
    for (size_t i = 0; i < h->n_copies; i++) {
        skv_net_sums sums;
        if (h->copies[i].batch.n_tokens == 0) continue;
        SKV_TRY(skv_net_run(t->net, &h->copies[i].batch, &h->scale, false, &sums, err));
        *loss += sums.loss;
    }
    return SKV_OK;
}

static skv_status measure(skv_trainer *t, double *out, skv_error *err)
{
    const skv_team *team = t->options->team;
    double loss;
    SKV_TRY(skv_team_agree(team, measure_mine(t, &loss, err), err));
    if (skv_team_size(team) > 1) SKV_TRY(skv_team_sum_doubles(team, &loss, 1, err));
    *out = loss / t->held.scale.positions;
    return SKV_OK;
}

skv_status skv_trainer_begin_held(skv_trainer *t, skv_error *err)
{
    if (t->held.n_copies == 0 || t->held.begun) return SKV_OK;
    t->held.begun = true;
    return measure(t, &t->held.first, err);
}

/* Whether the last measurements together brought almost no gain. A run that continues from a
 * checkpoint starts counting again. */
static bool is_flat(skv_train_held *h, double held)
{
    const double last = h->n > 0 ? h->best[FLAT_TIMES - 1] : h->first;
    const double oldest = h->n >= FLAT_TIMES ? h->best[0] : h->first;
    const double best = held < last ? held : last;
    memmove(h->best, h->best + 1, sizeof h->best - sizeof h->best[0]);
    h->best[FLAT_TIMES - 1] = best;
    h->n++;
    return (h->n > FLAT_TIMES && oldest - best < FLAT_SHARE * (h->first - best)) ||
           (h->n > 2 * FLAT_TIMES && best >= h->first); /* nothing was gained */
}

/* A student that computes what its teacher does has gradients of 0. */
static bool nothing_to_learn(const skv_trainer *t)
{
    const skv_train_options *o = t->options;
    return o->task == SKV_TRAIN_DISTILL && o->loss == SKV_TRAIN_KL && o->hidden_mult == 0 &&
           !o->early_exit && t->held.first <= 0;
}

skv_status skv_trainer_watch_held(skv_trainer *t, skv_train_progress *p, skv_error *err)
{
    skv_train_held *h = &t->held;
    p->flat = h->n_copies > 0 && nothing_to_learn(t);
    if (p->flat) return SKV_OK;
    const bool last = t->step == t->steps;
    const uint64_t every = t->steps > TIMES ? t->steps / TIMES : 1;
    const bool now = t->options->until_flat && t->step % every == 0;
    if (h->n_copies == 0 || (!now && !last)) return SKV_OK;
    SKV_TRY(measure(t, &p->held, err));
    p->held_first = h->first;
    p->flat = now && is_flat(h, p->held);
    return SKV_OK;
}
