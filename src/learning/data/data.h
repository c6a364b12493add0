/*
 * Training data: documents from several sources, mixed by weight and packed into batches of rows. A
 * document never crosses a row, sees only itself (but in fused rows), and its positions begin at 0.
 *
 * The batches are a function of the options and, for each source, of one counter and one token
 * count. A run can therefore be continued, and does not depend on threads.
 */
#ifndef SKV_DATA_DATA_H
#define SKV_DATA_DATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/fail.h"
#include "skv/train.h"
#include "text/tokenizer.h"

/* ---- the input of a training step ---- */

/* Tokens of one or more documents, concatenated. Everything is borrowed from the maker of the
 * batch. */
typedef struct skv_train_batch {
    size_t n_tokens;
    const int32_t *ids;        /* [n_tokens] */
    const int32_t *targets;    /* [n_tokens]: the next token; -1: no loss here */
    const uint32_t *positions; /* [n_tokens]: restart with each document */
    const uint32_t *doc_start; /* [n_tokens]: index in the batch of its document's first token;
                                * token t attends to [doc_start[t], t] */
} skv_train_batch;

enum { SKV_BATCH_STATE_WORDS = 16 };

/* A source of batches. Its batches depend only on its seed and its state, so that a run can be
 * continued. */
typedef struct skv_batch_source {
    void *ctx;
    /* The next batch; it stays valid until the next call. A source repeats its data for ever. */
    skv_status (*next)(void *ctx, skv_train_batch *batch, skv_error *err);
    /* Cursor and random state, unused words zero. */
    void (*save)(const void *ctx, uint64_t state[SKV_BATCH_STATE_WORDS]);
    skv_status (*restore)(void *ctx, const uint64_t state[SKV_BATCH_STATE_WORDS], skv_error *err);
} skv_batch_source;

/* ---- from documents to batches ---- */

typedef enum skv_data_kind {
    SKV_DATA_TEXT,     /* a text file: pieces of it in random order, all tokens learnt */
    SKV_DATA_JSONL,    /* lines of JSON: see data_doc.h */
    SKV_DATA_TOKENS16, /* token ids, little-endian, two bytes each */
    SKV_DATA_TOKENS32, /* four bytes each */
    SKV_DATA_IDS,      /* a JSON array of token ids */
    SKV_DATA_GENERATED /* skv/documents.h */
} skv_data_kind;

typedef struct skv_data_options {
    const skv_tokenizer *tokenizer; /* borrowed; NULL: token files alone */
    size_t vocab;                   /* ids are below this */
    const skv_train_data *sources;  /* at most SKV_TRAIN_DATA_MAX */
    size_t n_sources;
    size_t rows, row_tokens; /* a batch is rows * row_tokens tokens */
    int32_t begin, end;      /* tokens around documents that the teacher wrote; -1: none */
    double fuse; /* share of the rows that keep one range of positions: their documents attend to
                  * those before them, long examples made of short ones */
    uint64_t seed;
    bool once; /* files end: the last rows are padded */
} skv_data_options;

typedef struct skv_data skv_data;
SKV_MUST_CHECK skv_status skv_data_open(const skv_data_options *options, skv_data **out,
                                        skv_error *err);
void skv_data_close(skv_data *data);

/** The batches, row by row; the rest of a row is filled with id 0 without loss. */
skv_batch_source skv_data_source(skv_data *data);
/** With `once`: true when every file has been read to its end. */
bool skv_data_done(const skv_data *data);

#endif
