/* The public side of training: see skv/train.h. */
#include "skv/train.h"

#include <string.h>

#include "train/data.h"
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

/* ---- data ---- */

/* Where a run's batches come from: token ids as they are, or documents through the tokenizer. */
typedef struct feed {
    skv_token_feed *ids;
    skv_tokenizer *tokenizer;
    skv_data *documents;
} feed;

static bool is_json(const char *path)
{
    size_t n = strlen(path);
    return n > 5 && strcmp(path + n - 5, ".json") == 0;
}

static skv_status open_ids(feed *f, const skv_trainer *t, skv_error *err)
{
    const skv_train_options *o = t->options;
    const skv_token_feed_options data = {.model = o->model,
                                         .files = o->data,
                                         .n_files = o->n_data,
                                         .seq = o->seq,
                                         .rows = o->rows,
                                         .vocab = t->config.vocab,
                                         .seed = o->seed};
    return skv_token_feed_open(&data, &f->ids, err);
}

static skv_status open_tokenizer(feed *f, const skv_trainer *t, skv_error *err)
{
    const struct skv_gguf *gguf = t->source ? skv_source_gguf(t->source) : NULL;
    if (gguf) {
        SKV_TRY(skv_tokenizer_open_gguf(gguf, &f->tokenizer, err));
    } else {
        SKV_TRY(skv_tokenizer_open_folder(t->options->model, &f->tokenizer, err));
    }
    SKV_REQUIRE(f->tokenizer, err, SKV_UNSUPPORTED, "%s: the model brings no tokenizer",
                t->options->model);
    return SKV_OK;
}

static skv_status open_documents(feed *f, const skv_trainer *t, skv_error *err)
{
    const skv_train_options *o = t->options;
    skv_data_source_options sources[SKV_DATA_SOURCES_MAX] = {{.weight = 1}};
    SKV_REQUIRE(o->n_data <= SKV_DATA_SOURCES_MAX, err, SKV_RANGE, "data: %zu files, at most %d",
                o->n_data, SKV_DATA_SOURCES_MAX);
    for (size_t i = 0; i < o->n_data; i++) {
        sources[i] = (skv_data_source_options){
            .kind = skv_data_kind_of(o->data[i]), .path = o->data[i], .weight = 1};
    }
    SKV_TRY(open_tokenizer(f, t, err));
    const skv_data_options data = {.tokenizer = f->tokenizer,
                                   .sources = sources,
                                   .n_sources = o->n_data,
                                   .rows = o->rows,
                                   .row_tokens = o->seq,
                                   .seed = o->seed};
    return skv_data_open(&data, &f->documents, err);
}

static skv_status open_feed(feed *f, const skv_trainer *t, skv_error *err)
{
    const skv_train_options *o = t->options;
    SKV_REQUIRE(o->n_data > 0, err, SKV_ARGUMENT, "data: no file is given");
    size_t n_json = 0;
    for (size_t i = 0; i < o->n_data; i++) n_json += is_json(o->data[i]);
    SKV_REQUIRE(n_json == 0 || n_json == o->n_data, err, SKV_ARGUMENT,
                "data: arrays of token ids (*.json) do not mix with other files");
    return n_json > 0 ? open_ids(f, t, err) : open_documents(f, t, err);
}

static void close_feed(feed *f)
{
    skv_data_close(f->documents);
    skv_tokenizer_free(f->tokenizer);
    skv_token_feed_close(f->ids);
}

skv_status skv_train_run(const skv_train_options *options, skv_error *err)
{
    skv_trainer t;
    feed f = {0};
    SKV_TRY(skv_trainer_open(&t, options, err));
    skv_status status = open_feed(&f, &t, err);
    if (status == SKV_OK) {
        const skv_batch_source source =
            f.ids ? skv_token_feed_source(f.ids) : skv_data_source(f.documents);
        status = skv_trainer_run(&t, &source, err);
    }
    close_feed(&f);
    skv_trainer_close(&t);
    return status;
}
