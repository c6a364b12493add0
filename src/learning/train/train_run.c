/* The public side of training: see skv/train.h. */
#include "skv/train.h"

#include "base/rng.h"
#include "base/team_work.h"
#include "data/data.h"
#include "train/trainer.h"

skv_train_options skv_train_options_default(skv_train_task task)
{
    const bool distill = task == SKV_TRAIN_DISTILL, mtp = task == SKV_TRAIN_MTP;
    skv_train_options o = {.task = task,
                           .n_stages = 1,
                           .seed = 42,
                           .loss = distill || mtp ? SKV_TRAIN_KL : SKV_TRAIN_LM,
                           .part = distill ? SKV_TRAIN_QKV : SKV_TRAIN_ALL,
                           .tau = mtp ? 1 : 2,
                           .hidden_mult = 0,
                           .router_loss = -1,
                           .beta1 = 0.9,
                           .beta2 = distill ? 0.999 : 0.95,
                           .eps = 1e-8,
                           .weight_decay = distill ? 0 : 0.1,
                           .base_loss = 1,
                           .auxiliary_loss = 1,
                           .consistency_loss = -1,
                           .max_norm = 1,
                           .held_out = distill || mtp ? 4 : 0,
                           .checkpoint_every = 100};
    o.stages[0] = (skv_train_stage){.steps = 1000,
                                    .seq = 1024,
                                    .rows = 1,
                                    .accumulate = 1,
                                    .rate = distill ? 2e-4 : 1e-3,
                                    .warmup_share = 0.05,
                                    .final_share = distill ? 0 : 0.1,
                                    .schedule = distill ? SKV_TRAIN_LINEAR : SKV_TRAIN_COSINE};
    return o;
}

/* ---- cost ---- */

static void add_stage(skv_trainer *t, const skv_train_stage *s, skv_train_cost *out)
{
    const size_t tokens = s->seq * s->rows * s->accumulate;
    const double flops =
        (double)s->rows * (double)s->accumulate * skv_net_flops(t->net, s->seq, s->seq);
    out->run_tokens += (double)tokens * (double)s->steps;
    out->run_flops += flops * (double)s->steps;
    if (flops <= out->step_flops) return;
    out->step_flops = flops;
    out->tokens = tokens;
}

void skv_trainer_count(skv_trainer *t, skv_train_cost *out)
{
    const skv_train_options *o = t->options;
    const skv_params *params = skv_net_params(t->net);
    const skv_net_bytes bytes = skv_net_count_bytes(t->net);
    *out = (skv_train_cost){.weight_bytes = params->n_weights * sizeof(float),
                            .gradient_bytes = params->n_trainable * sizeof(float),
                            .optimiser_bytes = 2 * params->n_trainable * sizeof(float),
                            .teacher_bytes = params->n_copies * sizeof(float),
                            .packed_bytes = bytes.packed,
                            .activation_bytes = bytes.kept,
                            .scratch_bytes = bytes.scratch};
    const skv_net *base = skv_net_base(t->net);
    if (base) {
        const skv_net_bytes of_base = skv_net_count_bytes(base);
        const skv_params *frozen = skv_net_params((skv_net *)(uintptr_t)base);
        out->weight_bytes += frozen->n_weights * sizeof(float);
        out->packed_bytes += of_base.packed;
        out->activation_bytes += of_base.kept;
        out->scratch_bytes += of_base.scratch;
        for (size_t i = 0; i < frozen->n; i++) out->parameters += skv_param_size(&frozen->at[i]);
    }
    for (size_t i = 0; i < params->n; i++) {
        uint64_t n = skv_param_size(&params->at[i]);
        out->parameters += n;
        if (params->at[i].trainable) out->trainable += n;
    }
    for (size_t i = 0; i < o->n_stages; i++) add_stage(t, &o->stages[i], out);
}

skv_status skv_train_plan(const skv_train_options *options, skv_train_cost *out, skv_error *err)
{
    skv_trainer t;
    SKV_TRY(skv_trainer_plan(&t, options, err));
    skv_trainer_count(&t, out);
    skv_trainer_close(&t);
    return SKV_OK;
}

/* ---- data ---- */

/* The data of the stage at hand. */
typedef struct run_data {
    const skv_trainer *trainer;
    skv_tokenizer *tokenizer; /* owned; NULL: the model brings none */
    skv_data *data;           /* owned */
} run_data;

/* The least that it takes: its text at two bytes a token, one checkpoint, the new weights. */
skv_status skv_train_check_out(const skv_train_options *o, skv_error *err)
{
    enum { TEXT_BYTES = 2, WEIGHT_BYTES = 4, EXPORT_BYTES = 2 };
    skv_train_cost cost;
    uint64_t least = 0;
    SKV_TRY(skv_train_plan(o, &cost, err));
    for (size_t i = 0; !skv_file_is_folder(o->out) && i < o->n_stages; i++) {
        for (size_t j = 0; j < o->stages[i].n_data; j++) {
            least += o->stages[i].data[j].self_tokens * TEXT_BYTES;
        }
    }
    least += cost.optimiser_bytes + cost.trainable * (WEIGHT_BYTES + EXPORT_BYTES);
    return skv_trainer_check_folder(o, least, err);
}

static int32_t end_of(const skv_config *c, const skv_tokenizer *tokenizer)
{
    if (c->n_eos > 0) return c->eos[0];
    return tokenizer ? skv_tokenizer_eos(tokenizer) : -1;
}

/* The first token of self-written documents: see skv_self_write. */
static int32_t begin_of(const skv_config *c, const skv_tokenizer *tokenizer)
{
    if (tokenizer && skv_tokenizer_bos(tokenizer) >= 0) return skv_tokenizer_bos(tokenizer);
    if (c->bos >= 0) return c->bos;
    if (c->n_eos > 0) return c->eos[0];
    return tokenizer ? skv_tokenizer_eos(tokenizer) : -1;
}

static skv_status open_stage(void *ctx, size_t i_stage, skv_batch_source *out, skv_error *err)
{
    run_data *d = ctx;
    const skv_train_options *o = d->trainer->options;
    const skv_train_stage *stage = &o->stages[i_stage];
    SKV_REQUIRE(stage->n_data > 0, err, SKV_ARGUMENT, "data: stage %zu has no data", i_stage);
    skv_data_close(d->data);
    d->data = NULL;
    const skv_data_options data = {.tokenizer = d->tokenizer,
                                   .vocab = d->trainer->config.vocab,
                                   .sources = stage->data,
                                   .n_sources = stage->n_data,
                                   .rows = stage->rows,
                                   .row_tokens = stage->seq,
                                   .fuse = stage->fuse,
                                   .begin = begin_of(&d->trainer->config, d->tokenizer),
                                   .end = end_of(&d->trainer->config, d->tokenizer),
                                   .seed = skv_mix64(o->seed) + i_stage};
    SKV_TRY(skv_data_open(&data, &d->data, err));
    *out = skv_data_source(d->data);
    return SKV_OK;
}

static skv_status open_tokenizer(run_data *d, skv_error *err)
{
    const skv_trainer *t = d->trainer;
    const struct skv_gguf *gguf = t->source ? skv_source_gguf(t->source) : NULL;
    if (gguf) return skv_tokenizer_open_gguf(gguf, &d->tokenizer, err);
    return skv_tokenizer_open_folder(t->options->model, &d->tokenizer, err);
}

skv_status skv_train_run(const skv_train_options *options, skv_error *err)
{
    skv_trainer t;
    run_data data = {.trainer = &t};
    SKV_TRY(skv_team_check(options->team, err));
    skv_status status = skv_trainer_open(&t, options, err);
    if (status == SKV_OK) status = open_tokenizer(&data, err);
    status = skv_team_agree(options->team, status, err);
    if (status == SKV_OK) {
        const skv_trainer_feed feed = {.ctx = &data, .open = open_stage};
        status = skv_trainer_run(&t, &feed, err);
    }
    skv_data_close(data.data);
    skv_tokenizer_free(data.tokenizer);
    skv_trainer_close(&t);
    return status;
}
