/* Text to calibrate with: see calibration_text.h. */
#include "data/calibration_text.h"

#include "base/size.h"
#include "skv/train.h"

enum {
    SEQ_DEFAULT = 1024,      /* where the model's context is not shorter */
    TOKENS_A_COLUMN = 32,    /* by default so many tokens for each column of x, */
    TOKENS_MIN = 1 << 15,    /* at least these */
    TOKENS_DEFAULT = 1 << 17 /* and at most these */
};

static skv_status open_tokenizer(skv_calibration_text *t, const char *path,
                                 const skv_source *source, skv_error *err)
{
    const struct skv_gguf *gguf = skv_source_gguf(source);
    if (gguf) return skv_tokenizer_open_gguf(gguf, &t->tokenizer, err);
    return skv_tokenizer_open_folder(path, &t->tokenizer, err);
}

static skv_status open_text(skv_calibration_text *t, const char *path, const skv_source *source,
                            const skv_transform_options *o, skv_error *err)
{
    skv_train_data files[SKV_TRAIN_DATA_MAX] = {{.weight = 1}};
    SKV_REQUIRE(o->n_data > 0, err, SKV_ARGUMENT, "calibration: no text is given");
    SKV_REQUIRE(o->n_data <= SKV_TRAIN_DATA_MAX, err, SKV_RANGE,
                "calibration: %zu files, at most %d", o->n_data, SKV_TRAIN_DATA_MAX);
    for (size_t i = 0; i < o->n_data; i++) files[i] = skv_train_data_default(o->data[i]);
    SKV_TRY(open_tokenizer(t, path, source, err));
    const skv_data_options data = {.tokenizer = t->tokenizer,
                                   .vocab = skv_source_config(source)->vocab,
                                   .sources = files,
                                   .n_sources = o->n_data,
                                   .rows = 1,
                                   .row_tokens = t->seq,
                                   .seed = o->seed,
                                   .once = true};
    SKV_TRY(skv_data_open(&data, &t->data, err));
    t->source = skv_data_source(t->data);
    return SKV_OK;
}

skv_status skv_calibration_text_open(const char *path, const skv_source *source,
                                     const skv_transform_options *options,
                                     skv_calibration_text *out, skv_error *err)
{
    const skv_config *c = skv_source_config(source);
    size_t wanted = skv_max_size(TOKENS_MIN, c->hidden * TOKENS_A_COLUMN);
    *out = (skv_calibration_text){.seq = options->seq, .n_tokens = options->tokens};
    if (out->seq == 0) out->seq = skv_min_size(c->context, SEQ_DEFAULT);
    if (out->n_tokens == 0) out->n_tokens = skv_min_size(TOKENS_DEFAULT, wanted);
    skv_status status = open_text(out, path, source, options, err);
    if (status != SKV_OK) skv_calibration_text_close(out);
    return status;
}

void skv_calibration_text_close(skv_calibration_text *t)
{
    skv_data_close(t->data);
    skv_tokenizer_free(t->tokenizer);
    *t = (skv_calibration_text){0};
}

skv_status skv_calibration_text_next(skv_calibration_text *t, skv_train_batch *batch, bool *more,
                                     skv_error *err)
{
    *more = !skv_data_done(t->data);
    return *more ? t->source.next(t->source.ctx, batch, err) : SKV_OK;
}
