/* Batches from token files and plain text: see token_feed.h. */
#include "train/token_feed.h"

#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/size.h"
#include "format/json_doc.h"
#include "skv/text.h"

enum { FILE_BYTES_MAX = 1 << 30 };

struct skv_token_feed {
    size_t seq, rows;
    uint64_t seed;
    int32_t *ids; /* owned, [n_ids] */
    size_t n_ids;
    size_t n_sequences;
    uint32_t *order; /* owned, [n_sequences]: of this epoch */
    uint64_t epoch, cursor;
    int32_t *batch_ids, *targets;     /* owned, [rows * seq] */
    uint32_t *positions, *doc_starts; /* owned, [rows * seq] */
};

static skv_status append(skv_token_feed *f, const int32_t *ids, size_t n, skv_error *err)
{
    int32_t *more = skv_realloc(f->ids, f->n_ids + n + 1, sizeof *more);
    SKV_REQUIRE(more, err, SKV_MEMORY, "data: no memory for %zu tokens", f->n_ids + n);
    f->ids = more;
    memcpy(f->ids + f->n_ids, ids, n * sizeof *ids);
    f->n_ids += n;
    return SKV_OK;
}

static skv_status add_ids(skv_token_feed *f, const json_t *root, const char *path, skv_error *err)
{
    SKV_REQUIRE(json_is_array(root), err, SKV_FORMAT, "%s: not an array of token ids", path);
    size_t n = json_array_size(root);
    int32_t *ids = skv_alloc(n + 1, sizeof *ids);
    SKV_REQUIRE(ids, err, SKV_MEMORY, "%s: no memory for %zu ids", path, n);
    skv_status status = SKV_OK;
    for (size_t i = 0; status == SKV_OK && i < n; i++) {
        json_int_t id = json_integer_value(json_array_get(root, i));
        if (!json_is_integer(json_array_get(root, i)) || id < 0 || id > INT32_MAX) {
            status = skv_fail(err, SKV_FORMAT, "%s: item %zu is not a token id", path, i);
        } else {
            ids[i] = (int32_t)id;
        }
    }
    if (status == SKV_OK) status = append(f, ids, n, err);
    skv_free(ids);
    return status;
}

static skv_status add_text(skv_token_feed *f, const char *model, const char *text, size_t n,
                           skv_error *err)
{
    skv_vocab *vocab;
    int32_t *ids = NULL;
    size_t n_ids = 0;
    SKV_TRY(skv_vocab_open(model, &vocab, err));
    skv_status status = skv_vocab_encode(vocab, text, n, true, false, &ids, &n_ids, err);
    if (status == SKV_OK) status = append(f, ids, n_ids, err);
    skv_text_free(ids);
    skv_vocab_close(vocab);
    return status;
}

static bool is_json(const char *path)
{
    size_t n = strlen(path);
    return n > 5 && strcmp(path + n - 5, ".json") == 0;
}

static skv_status add_file(skv_token_feed *f, const skv_token_feed_options *o, const char *path,
                           skv_error *err)
{
    char *text;
    size_t n;
    SKV_TRY(skv_file_read(path, FILE_BYTES_MAX, &text, &n, err));
    skv_status status;
    if (is_json(path)) {
        json_t *root = NULL;
        status = skv_json_load(text, n, FILE_BYTES_MAX, path, &root, err);
        if (status == SKV_OK) status = add_ids(f, root, path, err);
        json_decref(root);
    } else {
        status = add_text(f, o->model, text, n, err);
    }
    skv_free(text);
    return status;
}

/* A permutation that depends on the seed and the epoch alone. */
static void shuffle(skv_token_feed *f)
{
    skv_rng rng;
    skv_rng_init(&rng, skv_mix64(f->seed) ^ skv_mix64(f->epoch + 1));
    for (size_t i = 0; i < f->n_sequences; i++) f->order[i] = (uint32_t)i;
    for (size_t i = f->n_sequences; i > 1; i--) {
        size_t j = (size_t)skv_rng_below(&rng, i);
        uint32_t other = f->order[j];
        f->order[j] = f->order[i - 1];
        f->order[i - 1] = other;
    }
}

static skv_status prepare(skv_token_feed *f, const skv_token_feed_options *o, skv_error *err)
{
    for (size_t i = 0; i < o->n_files; i++) SKV_TRY(add_file(f, o, o->files[i], err));
    for (size_t i = 0; i < f->n_ids; i++) {
        SKV_REQUIRE((size_t)f->ids[i] < o->vocab, err, SKV_RANGE,
                    "data: token id %d, the vocabulary has %zu", f->ids[i], o->vocab);
    }
    SKV_REQUIRE(f->n_ids > f->seq, err, SKV_ARGUMENT,
                "data: %zu tokens are too few for a sequence of %zu", f->n_ids, f->seq);
    f->n_sequences = (f->n_ids - 1) / f->seq;
    SKV_REQUIRE(f->n_sequences < UINT32_MAX, err, SKV_RANGE, "data: %zu sequences", f->n_sequences);
    size_t n = f->rows * f->seq;
    f->order = skv_alloc(f->n_sequences, sizeof *f->order);
    f->batch_ids = skv_alloc(n, sizeof *f->batch_ids);
    f->targets = skv_alloc(n, sizeof *f->targets);
    f->positions = skv_alloc(n, sizeof *f->positions);
    f->doc_starts = skv_alloc(n, sizeof *f->doc_starts);
    SKV_REQUIRE(f->order && f->batch_ids && f->targets && f->positions && f->doc_starts, err,
                SKV_MEMORY, "data: no memory for batches of %zu tokens", n);
    shuffle(f);
    return SKV_OK;
}

skv_status skv_token_feed_open(const skv_token_feed_options *options, skv_token_feed **out,
                               skv_error *err)
{
    size_t n;
    SKV_REQUIRE(options->n_files > 0, err, SKV_ARGUMENT, "data: no file is given");
    SKV_REQUIRE(options->seq > 0 && skv_size_mul(options->seq, options->rows, &n) && n > 0 &&
                    n < UINT32_MAX,
                err, SKV_ARGUMENT, "data: batches of %zu sequences of %zu tokens", options->rows,
                options->seq);
    skv_token_feed *f = skv_alloc_zero(1, sizeof *f);
    SKV_REQUIRE(f, err, SKV_MEMORY, "data: no memory");
    f->seq = options->seq;
    f->rows = options->rows;
    f->seed = options->seed;
    skv_status status = prepare(f, options, err);
    if (status != SKV_OK) {
        skv_token_feed_close(f);
        return status;
    }
    *out = f;
    return SKV_OK;
}

void skv_token_feed_close(skv_token_feed *f)
{
    if (!f) return;
    skv_free(f->ids);
    skv_free(f->order);
    skv_free(f->batch_ids);
    skv_free(f->targets);
    skv_free(f->positions);
    skv_free(f->doc_starts);
    skv_free(f);
}

static skv_status next_batch(void *ctx, skv_train_batch *batch, skv_error *err)
{
    skv_token_feed *f = ctx;
    (void)err;
    for (size_t row = 0; row < f->rows; row++) {
        if (f->cursor == f->n_sequences) {
            f->cursor = 0;
            f->epoch++;
            shuffle(f);
        }
        const int32_t *from = f->ids + (size_t)f->order[f->cursor++] * f->seq;
        size_t at = row * f->seq;
        memcpy(f->batch_ids + at, from, f->seq * sizeof *from);
        memcpy(f->targets + at, from + 1, f->seq * sizeof *from);
        for (size_t t = 0; t < f->seq; t++) {
            f->positions[at + t] = (uint32_t)t;
            f->doc_starts[at + t] = (uint32_t)at;
        }
    }
    *batch =
        (skv_train_batch){f->rows * f->seq, f->batch_ids, f->targets, f->positions, f->doc_starts};
    return SKV_OK;
}

static void save(const void *ctx, uint64_t state[SKV_BATCH_STATE_WORDS])
{
    const skv_token_feed *f = ctx;
    memset(state, 0, SKV_BATCH_STATE_WORDS * sizeof *state);
    state[0] = f->epoch;
    state[1] = f->cursor;
    state[2] = f->n_ids;
}

static skv_status restore(void *ctx, const uint64_t state[SKV_BATCH_STATE_WORDS], skv_error *err)
{
    skv_token_feed *f = ctx;
    SKV_REQUIRE(state[2] == f->n_ids && state[1] <= f->n_sequences, err, SKV_ARGUMENT,
                "data: %zu tokens, the checkpoint was made with %llu", f->n_ids,
                (unsigned long long)state[2]);
    f->epoch = state[0];
    f->cursor = state[1];
    shuffle(f);
    return SKV_OK;
}

skv_batch_source skv_token_feed_source(skv_token_feed *feed)
{
    return (skv_batch_source){feed, next_batch, save, restore};
}
