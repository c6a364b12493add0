/* The passes of a step, the spans it runs over, and the work that is counted: see step.h. */
#include "base/size.h"
#include "engine/engine.h"
#include "model/pass.h"

/* ---- one pass ---- */

/* Whether it runs as the teacher of its engine's student. */
static bool is_teacher(const skv_sequence *s)
{
    return s->plan == &s->engine->teacher_plan || s->plan == &s->engine->spread_plans[1];
}

skv_pass skv_step_pass(skv_engine *e, const skv_sequence *s, const skv_step_sink *sink,
                       const skv_hook *hook)
{
    static const skv_step_sink nothing_wanted = {.on_row = NULL};
    skv_pass p = {.m = &e->model,
                  .plan = s ? s->plan : &e->plan,
                  .ws = &e->ws,
                  .sink = sink ? sink : &nothing_wanted,
                  .adapters = e->adapters.n > 0 ? &e->adapters : NULL,
                  .states = e->states.states,
                  .work = &e->work,
                  .cancel = e->ranks || e->states.states ? NULL : &e->cancel};
    if (p.sink->tap) p.hooks[p.n_hooks++] = p.sink->tap;
    if (hook) p.hooks[p.n_hooks++] = hook;
    /* A teacher's rows and those of a sequence that skips nothing leave out nothing. */
    if (!s || s->unskipped || is_teacher(s)) return p;
    if (e->options.ffn_skip.on) p.ffn_skipper = &e->ffn_skipper;
    if (e->options.early_exit > 0) p.hooks[p.n_hooks++] = &e->early_exit;
    return p;
}

/* ---- spans ---- */

skv_pass_span skv_step_span(skv_sequence *s, const int32_t *ids, size_t n, size_t at)
{
    return (skv_pass_span){.at = {.n = n,
                                  .n_past = at,
                                  .position0 = at,
                                  .context = s->max_tokens,
                                  .table = s->cache.table,
                                  .state = s->state},
                           .ids = ids,
                           .cache = &s->cache,
                           .unskipped = s->unskipped,
                           .adapters = s->adapters.n > 0 ? &s->adapters : NULL,
                           .votes = s->votes.votes ? &s->votes : NULL,
                           .deep_from = n};
}

/* Tokens of n whose output is wanted: the last ones. */
static size_t count_wanted(skv_want want, size_t n)
{
    switch (want) {
    case SKV_WANT_NONE: return 0;
    case SKV_WANT_LAST:
    case SKV_WANT_LAST_HIDDEN: return 1;
    case SKV_WANT_ALL:
    case SKV_WANT_ALL_HIDDEN:
    case SKV_WANT_DRAFTED: break;
    }
    return n;
}

static bool wants_hidden(skv_want want)
{
    return want == SKV_WANT_LAST_HIDDEN || want == SKV_WANT_ALL_HIDDEN;
}

void skv_step_want(skv_pass_span *span, skv_want want, size_t i_span)
{
    span->n_wanted = count_wanted(want, span->at.n);
    span->hidden = wants_hidden(want);
    span->told_span = i_span;
    span->told_row = span->at.n - span->n_wanted;
}

skv_status skv_engine_check_ids(const skv_engine *e, const int32_t *ids, size_t n, skv_error *err)
{
    for (size_t t = 0; t < n; t++) {
        SKV_REQUIRE(ids[t] >= 0 && (size_t)ids[t] < e->config->vocab, err, SKV_RANGE,
                    "ids[%zu]: %d, the vocabulary has %zu", t, ids[t], e->config->vocab);
    }
    return SKV_OK;
}

/* ---- the parts that steps leave out, and their costs: skv/work.h ---- */

skv_work skv_work_since(const skv_work *now, const skv_work *before)
{
    return (skv_work){
        .kv = now->kv - before->kv,
        .q = now->q - before->q,
        .o = now->o - before->o,
        .mlp = now->mlp - before->mlp,
        .attention = now->attention - before->attention,
        .vocabulary = now->vocabulary - before->vocabulary,
        .prediction = now->prediction - before->prediction,
        .total = now->total - before->total,
        .model = now->model - before->model,
        .mlp_blocks = now->mlp_blocks - before->mlp_blocks,
        .mlp_skipped = now->mlp_skipped - before->mlp_skipped,
        .exits_asked = now->exits_asked - before->exits_asked,
        .exits = now->exits - before->exits,
    };
}

skv_work skv_engine_get_work(const skv_engine *e)
{
    skv_work out = e->work;
    out.total = out.kv + out.q + out.o + out.mlp + out.attention + out.vocabulary + out.prediction;
    return out;
}

void skv_engine_count_model(skv_engine *e, const skv_sequence *s, size_t n, skv_want want)
{
    const skv_config *c = e->config;
    const double D = (double)c->hidden, tokens = (double)n;
    double sum =
        (double)(wants_hidden(want) ? 0 : count_wanted(want, n)) * 2 * D * (double)e->model.ids.n;
    for (size_t i = 0; i < c->n_layers; i++) {
        const skv_layer_shape *shape = &c->layers[i];
        const double q = (double)skv_config_q_columns(c, i);
        const bool owns = skv_config_donor(c, i) == i;
        const double donated = owns ? 0 : D * (double)skv_config_kv_columns(c, i);
        double seen = 0;
        for (size_t t = s->n_seen - n; t < s->n_seen; t++) {
            seen += (double)(shape->window > 0 ? skv_min_size(t + 1, shape->window) : t + 1);
        }
        sum +=
            tokens * (2 * ((double)skv_config_mixer_weights(c, i) - donated +
                           3 * D * (double)c->per_layer + (double)skv_config_block_weights(c, i)) +
                      skv_config_state_work(c, i, true)) +
            4 * q * seen;
    }
    e->work.model += sum;
}
