/* What steps leave out, and what they cost: see skv/work.h. */
#include "engine/engine.h"

#include "base/size.h"

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

void skv_engine_add_gates(skv_engine *e, const skv_sequence *s, skv_forward *f)
{
    const bool teacher = s->plan == &e->teacher_plan || s->plan == &e->spread_plans[1];
    f->work = &e->work;
    if (teacher || s->unskipped) return;
    if (e->options.ffn_skip.on) f->gate = &e->gate;
    if (e->options.early_exit > 0) f->exit = &e->exit;
}

/* Rows whose logits a span wants. */
static size_t count_logits(skv_want want, size_t n)
{
    switch (want) {
    case SKV_WANT_LAST: return 1;
    case SKV_WANT_ALL: return n;
    case SKV_WANT_NONE:
    case SKV_WANT_LAST_HIDDEN:
    case SKV_WANT_ALL_HIDDEN: break;
    }
    return 0;
}

void skv_engine_count_model(skv_engine *e, const skv_sequence *s, size_t n, skv_want want)
{
    const skv_config *c = e->config;
    const double D = (double)c->hidden, tokens = (double)n;
    double sum = (double)count_logits(want, n) * 2 * D * (double)c->vocab;
    for (size_t i = 0; i < c->n_layers; i++) {
        const skv_layer_shape *shape = &c->layers[i];
        const double q = (double)(shape->n_heads * c->head_dim);
        const double kv = (double)(shape->n_kv_heads * c->head_dim);
        double seen = 0;
        for (size_t t = s->n_seen - n; t < s->n_seen; t++) {
            seen += (double)(shape->window > 0 ? skv_min_size(t + 1, shape->window) : t + 1);
        }
        sum += tokens * 2 * D * (2 * q + 2 * kv + 3 * (double)shape->ffn) + 4 * q * seen;
    }
    e->work.model += sum;
}
