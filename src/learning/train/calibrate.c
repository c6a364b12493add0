/* A text through a model: see calibrate.h. */
#include "train/calibrate.h"

#include "base/mem.h"
#include "base/size.h"
#include "data/data.h"
#include "kernels/kernels.h"

enum {
    DOCUMENTS_MAX = 16,      /* of a step: each may leave a page of its KV cache half empty */
    SEQ_DEFAULT = 1024,      /* where the model's context is not shorter */
    TOKENS_A_COLUMN = 32,    /* by default this many tokens for each column of x, */
    TOKENS_MIN = 1 << 15,    /* at least these */
    TOKENS_DEFAULT = 1 << 17 /* and at most these */
};

struct skv_calibration {
    skv_calibration_options options;        /* borrowed strings */
    const skv_source *source;               /* borrowed */
    size_t seq, n_tokens;                   /* of a row; requested in all */
    skv_tokenizer *tokenizer;               /* owned; NULL: the model brings none */
    skv_data *data;                         /* owned: the text as it is read; NULL: not begun */
    skv_engine *engine;                     /* owned */
    skv_sequence *sequences[DOCUMENTS_MAX]; /* owned */
    size_t n_rows;                          /* tokens that this run has read */
};

/* ---- the text, in batches of one row, once from beginning to end ----
 *
 * The files that training takes, in the order that training would read them in. */

static skv_status open_tokenizer(skv_calibration *c, const char *path, skv_error *err)
{
    const struct skv_gguf *gguf = skv_source_gguf(c->source);
    if (gguf) return skv_tokenizer_open_gguf(gguf, &c->tokenizer, err);
    return skv_tokenizer_open_folder(path, &c->tokenizer, err);
}

static skv_status open_text(skv_calibration *c, skv_error *err)
{
    const skv_calibration_options *o = &c->options;
    skv_train_data files[SKV_TRAIN_DATA_MAX] = {{.weight = 1}};
    SKV_REQUIRE(o->n_data > 0, err, SKV_ARGUMENT, "calibration: no text given");
    SKV_REQUIRE(o->n_data <= SKV_TRAIN_DATA_MAX, err, SKV_RANGE,
                "calibration: %zu files, at most %d", o->n_data, SKV_TRAIN_DATA_MAX);
    for (size_t i = 0; i < o->n_data; i++) files[i] = skv_train_data_default(o->data[i]);
    const skv_data_options data = {.tokenizer = c->tokenizer,
                                   .vocab = skv_source_config(c->source)->vocab,
                                   .sources = files,
                                   .n_sources = o->n_data,
                                   .rows = 1,
                                   .row_tokens = c->seq,
                                   .seed = o->seed,
                                   .once = true};
    return skv_data_open(&data, &c->data, err);
}

/* ---- the text through the model ---- */

static skv_status start_engine(skv_calibration *c, const char *path, skv_error *err)
{
    skv_engine_options engine = skv_engine_options_default();
    engine.threads = c->options.threads;
    engine.weights = c->options.weights;
    engine.cpu = c->options.cpu;
    engine.context = c->seq;
    engine.step_tokens = c->seq;
    engine.kv_tokens = c->seq + DOCUMENTS_MAX * SKV_PAGE_ROWS;
    engine.kv_sequences = DOCUMENTS_MAX; /* of which each may keep a state */
    engine.no_skip = true;
    SKV_TRY(skv_engine_open(path, &engine, &c->engine, err));
    for (size_t i = 0; i < DOCUMENTS_MAX; i++) {
        SKV_TRY(skv_sequence_create(c->engine, c->seq, &c->sequences[i], err));
    }
    return SKV_OK;
}

/* Documents of the batch from token *at on, at most `left` tokens of them, in one step. */
static skv_status run_step(skv_calibration *c, const skv_calibration_sink *sink,
                           const skv_train_batch *b, size_t *at, skv_error *err)
{
    const size_t left = c->n_tokens - c->n_rows;
    skv_span spans[DOCUMENTS_MAX];
    size_t n_spans = 0, n_tokens = 0, t = *at;
    while (t < b->n_tokens && n_spans < DOCUMENTS_MAX && n_tokens < left) {
        size_t end = t + 1;
        while (end < b->n_tokens && b->doc_start[end] == b->doc_start[t]) end++;
        size_t n = skv_min_size(end - t, left - n_tokens);
        if (n > 1) { /* a single token is padding, or carries no information */
            spans[n_spans] = (skv_span){c->sequences[n_spans], b->ids + t, n, SKV_WANT_NONE};
            n_spans++;
        }
        n_tokens += n > 1 ? n : 0;
        t = end;
    }
    *at = t;
    if (n_spans == 0) return SKV_OK;
    SKV_TRY(sink->on_hidden
                ? skv_step_hidden(c->engine, spans, n_spans, sink->on_hidden, sink->user, err)
                : skv_step_products(c->engine, spans, n_spans, sink->on_product, sink->user, err));
    for (size_t i = 0; i < n_spans; i++) skv_sequence_truncate(c->sequences[i], 0);
    c->n_rows += n_tokens;
    return SKV_OK;
}

skv_status skv_calibration_run(skv_calibration *c, const skv_calibration_sink *sink,
                               size_t *n_tokens, skv_error *err)
{
    if (!c->data) SKV_TRY(open_text(c, err));
    const skv_batch_source from = skv_data_source(c->data);
    skv_status status = SKV_OK;
    skv_train_batch batch;
    c->n_rows = 0;
    while (status == SKV_OK && c->n_rows + 1 < c->n_tokens && !skv_data_done(c->data)) {
        status = from.next(from.ctx, &batch, err);
        for (size_t at = 0;
             status == SKV_OK && at < batch.n_tokens && c->n_rows + 1 < c->n_tokens;) {
            status = run_step(c, sink, &batch, &at, err);
        }
        if (status == SKV_OK && sink->progress) {
            sink->progress(sink->progress_user, (double)c->n_rows / (double)c->n_tokens);
        }
    }
    skv_data_close(c->data);
    c->data = NULL;
    if (status != SKV_OK) return status;
    SKV_REQUIRE(c->n_rows > 0, err, SKV_ARGUMENT, "%s: no text to calibrate with",
                c->options.data[0]);
    *n_tokens = c->n_rows;
    return SKV_OK;
}

/* ---- opening ---- */

size_t skv_calibration_seq(const skv_calibration *c)
{
    return c->seq;
}

static skv_status start(skv_calibration *c, const char *path, skv_error *err)
{
    SKV_TRY(open_tokenizer(c, path, err));
    SKV_TRY(open_text(c, err)); /* before the model is loaded, which takes longer */
    return start_engine(c, path, err);
}

skv_status skv_calibration_open(const char *path, const skv_source *source,
                                const skv_calibration_options *options, skv_calibration **out,
                                skv_error *err)
{
    const skv_config *config = skv_source_config(source);
    const size_t wanted = skv_max_size(TOKENS_MIN, config->hidden * TOKENS_A_COLUMN);
    skv_calibration *c = skv_alloc_zero(1, sizeof *c);
    SKV_REQUIRE(c, err, SKV_MEMORY, "calibration: no memory");
    c->options = *options;
    c->source = source;
    c->seq = options->seq > 0 ? options->seq : skv_min_size(config->context, SEQ_DEFAULT);
    c->n_tokens = options->tokens > 0 ? options->tokens : skv_min_size(TOKENS_DEFAULT, wanted);
    const skv_status status = start(c, path, err);
    if (status != SKV_OK) {
        skv_calibration_close(c);
        return status;
    }
    *out = c;
    return SKV_OK;
}

void skv_calibration_close(skv_calibration *c)
{
    if (!c) return;
    for (size_t i = 0; i < DOCUMENTS_MAX; i++) skv_sequence_free(c->sequences[i]);
    skv_engine_close(c->engine);
    skv_data_close(c->data);
    skv_tokenizer_free(c->tokenizer);
    skv_free(c);
}
