/* The public side of training: see skv/train.h. */
#include "skv/train.h"

#include <string.h>

#include "train/token_feed.h"
#include "train/trainer.h"

skv_train_options skv_train_options_default(skv_train_task task)
{
    bool distill = task == SKV_TRAIN_DISTILL;
    return (skv_train_options){.task = task,
                               .seq = 1024,
                               .rows = 1,
                               .accumulate = 1,
                               .steps = 1000,
                               .seed = 42,
                               .loss = distill ? SKV_TRAIN_KL : SKV_TRAIN_LM,
                               .part = distill ? SKV_TRAIN_QKV : SKV_TRAIN_ALL,
                               .tau = 2,
                               .hidden_mult = 0,
                               .rate = distill ? 2e-4 : 1e-3,
                               .warmup_share = 0.05,
                               .schedule = distill ? SKV_TRAIN_LINEAR : SKV_TRAIN_COSINE,
                               .final_share = distill ? 0 : 0.1,
                               .beta1 = 0.9,
                               .beta2 = distill ? 0.999 : 0.95,
                               .eps = 1e-8,
                               .weight_decay = distill ? 0 : 0.1,
                               .max_norm = 1,
                               .checkpoint_every = 100};
}

static void add_up(skv_trainer *t, skv_train_cost *out)
{
    const skv_train_options *o = t->options;
    const skv_params *params = skv_net_params(t->net);
    *out = (skv_train_cost){.weight_bytes = params->n_weights * sizeof(float),
                            .gradient_bytes = params->n_trainable * sizeof(float),
                            .optimiser_bytes = 2 * params->n_trainable * sizeof(float),
                            .teacher_bytes = params->n_copies * sizeof(float),
                            .tokens = o->seq * o->rows * o->accumulate};
    for (size_t i = 0; i < params->n; i++) {
        uint64_t n = skv_param_size(&params->at[i]);
        out->parameters += n;
        if (params->at[i].trainable) out->trainable += n;
    }
    size_t all = skv_net_bytes(t->net, &out->activation_bytes);
    out->scratch_bytes = all - out->activation_bytes;
    out->step_flops =
        (double)o->rows * (double)o->accumulate * skv_net_flops(t->net, o->seq, o->seq);
}

skv_status skv_train_plan(const skv_train_options *options, skv_train_cost *out, skv_error *err)
{
    skv_trainer t;
    SKV_TRY(skv_trainer_open(&t, options, err));
    add_up(&t, out);
    skv_trainer_close(&t);
    return SKV_OK;
}

skv_status skv_train_run(const skv_train_options *options, skv_error *err)
{
    skv_trainer t;
    skv_token_feed *feed = NULL;
    SKV_TRY(skv_trainer_open(&t, options, err));
    const skv_token_feed_options data = {.model = options->model,
                                         .files = options->data,
                                         .n_files = options->n_data,
                                         .seq = options->seq,
                                         .rows = options->rows,
                                         .vocab = t.config.vocab,
                                         .seed = options->seed};
    skv_status status = skv_token_feed_open(&data, &feed, err);
    if (status == SKV_OK) {
        const skv_batch_source source = skv_token_feed_source(feed);
        status = skv_trainer_run(&t, &source, err);
    }
    skv_token_feed_close(feed);
    skv_trainer_close(&t);
    return status;
}
