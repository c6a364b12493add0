/* Counting a text's tokens, and choosing those of a cut exit head: see exit_words.h. */
#include "train/exit_words.h"

#include <assert.h>
#include <stdlib.h>

#include "base/mem.h"
#include "data/data.h"
#include "text/tokenizer.h"

enum { ROW_TOKENS = 1 << 16 /* of the text at a time: longer documents are cut */ };

typedef struct word {
    uint64_t count;
    int32_t id;
} word;

/* ---- counting ---- */

static skv_status open_tokenizer(const char *path, const skv_source *source, skv_tokenizer **out,
                                 skv_error *err)
{
    const struct skv_gguf *gguf = skv_source_gguf(source);
    if (gguf) return skv_tokenizer_open_gguf(gguf, out, err);
    return skv_tokenizer_open_folder(path, out, err);
}

/* Counts the tokens that training would learn in words [vocab]: the answers of conversations and,
 * in any other text, each token after the first. */
static skv_status count_rows(skv_data *data, word *words, size_t vocab, uint64_t *n, skv_error *err)
{
    const skv_batch_source from = skv_data_source(data);
    while (!skv_data_done(data)) {
        skv_train_batch batch;
        SKV_TRY(from.next(from.ctx, &batch, err));
        for (size_t i = 0; i < batch.n_tokens; i++) {
            const int32_t id = batch.targets[i];
            if (id < 0) continue;
            assert((size_t)id < vocab);
            words[id].count++;
            (*n)++;
        }
    }
    (void)vocab;
    return SKV_OK;
}

static skv_status count_text(const char *path, const skv_source *source,
                             const skv_transform_options *o, word *words, uint64_t *n,
                             skv_error *err)
{
    const size_t vocab = skv_source_config(source)->vocab;
    skv_train_data files[SKV_TRAIN_DATA_MAX] = {{.weight = 1}};
    skv_tokenizer *tokenizer = NULL;
    skv_data *data = NULL;
    SKV_REQUIRE(o->n_data <= SKV_TRAIN_DATA_MAX, err, SKV_RANGE,
                "exit words: %zu files, at most %d", o->n_data, SKV_TRAIN_DATA_MAX);
    SKV_TRY(open_tokenizer(path, source, &tokenizer, err));
    for (size_t i = 0; i < o->n_data; i++) files[i] = skv_train_data_default(o->data[i]);
    const skv_data_options options = {.tokenizer = tokenizer,
                                      .vocab = vocab,
                                      .sources = files,
                                      .n_sources = o->n_data,
                                      .rows = 1,
                                      .row_tokens = ROW_TOKENS,
                                      .seed = o->seed,
                                      .once = true};
    skv_status status = skv_data_open(&options, &data, err);
    if (status == SKV_OK) status = count_rows(data, words, vocab, n, err);
    if (status == SKV_OK && *n == 0) {
        status = skv_fail(err, SKV_ARGUMENT, "%s: exit words: no token to count", o->data[0]);
    }
    skv_data_close(data);
    skv_tokenizer_free(tokenizer);
    return status;
}

/* ---- choosing ---- */

/* The most frequent first, and of equal ones the lowest id: byte pairs that were merged early,
 * because they are frequent, have low ones. */
static int by_count(const void *a, const void *b)
{
    const word *x = a, *y = b;
    if (x->count != y->count) return x->count > y->count ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

static int by_id(const void *a, const void *b)
{
    const int32_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

static bool ends_answers(const skv_config *c, int32_t id)
{
    for (size_t i = 0; i < c->n_eos; i++) {
        if (c->eos[i] == id) return true;
    }
    return false;
}

/* Takes words in the given order; ids that end an answer go first. */
static void take(const skv_config *c, const word *words, skv_exit_words *out)
{
    size_t n = 0;
    for (size_t pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < c->vocab && n < out->n; i++) {
            if (ends_answers(c, words[i].id) != (pass == 0)) continue;
            out->ids[n++] = words[i].id;
            out->covered += words[i].count;
        }
    }
    assert(n == out->n);
    qsort(out->ids, n, sizeof *out->ids, by_id);
}

skv_status skv_exit_words_choose(const char *path, const skv_source *source,
                                 const skv_transform_options *options, skv_exit_words *out,
                                 skv_error *err)
{
    const skv_config *c = skv_source_config(source);
    SKV_REQUIRE(options->exit_words > c->n_eos && options->exit_words < c->vocab, err, SKV_RANGE,
                "%s: exit words: %zu, expected %zu to %zu: of its %zu tokens %zu end an answer",
                path, options->exit_words, c->n_eos + 1, c->vocab - 1, c->vocab, c->n_eos);
    skv_exit_words chosen = {.n = options->exit_words};
    word *words = skv_alloc_zero(c->vocab, sizeof *words);
    chosen.ids = skv_alloc(chosen.n, sizeof *chosen.ids);
    skv_status status = SKV_OK;
    if (!words || !chosen.ids) {
        status = skv_fail(err, SKV_MEMORY, "exit words: no memory for %zu tokens", c->vocab);
    }
    for (size_t i = 0; words && i < c->vocab; i++) words[i].id = (int32_t)i;
    if (status == SKV_OK && options->n_data > 0) {
        status = count_text(path, source, options, words, &chosen.counted, err);
    }
    if (status == SKV_OK) {
        qsort(words, c->vocab, sizeof *words, by_count);
        take(c, words, &chosen);
        *out = chosen;
    } else {
        skv_exit_words_release(&chosen);
    }
    skv_free(words);
    return status;
}

void skv_exit_words_release(skv_exit_words *words)
{
    skv_free(words->ids);
    *words = (skv_exit_words){0};
}
