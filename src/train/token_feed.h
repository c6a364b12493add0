/*
 * Batches from token files and plain text: all tokens stand in one stream, which is cut into
 * sequences; each epoch takes them in another order.
 */
#ifndef SKV_TRAIN_TOKEN_FEED_H
#define SKV_TRAIN_TOKEN_FEED_H

#include "train/batch.h"

typedef struct skv_token_feed skv_token_feed;

typedef struct skv_token_feed_options {
    const char *model;        /* whose tokenizer reads the text */
    const char *const *files; /* text, or *.json with an array of ids */
    size_t n_files;
    size_t seq, rows; /* a batch is `rows` sequences of `seq` tokens */
    size_t vocab;     /* ids must be below */
    uint64_t seed;
} skv_token_feed_options;

SKV_MUST_CHECK skv_status skv_token_feed_open(const skv_token_feed_options *options,
                                              skv_token_feed **out, skv_error *err);
void skv_token_feed_close(skv_token_feed *feed);
skv_batch_source skv_token_feed_source(skv_token_feed *feed);

#endif
