/**
 * Trains a vocabulary: byte-level BPE (Sennrich et al., 2016) with single digits and with special
 * tokens for the messages of a conversation.
 */
#ifndef SKV_VOCAB_TRAIN_H
#define SKV_VOCAB_TRAIN_H

#include <stddef.h>
#include <stdint.h>

#include "skv/documents.h"

SKV_BEGIN

typedef struct skv_vocab_train_options {
    size_t size;              /* entries, including special tokens and the 256 bytes */
    const char *const *files; /* text files; may be NULL */
    size_t n_files;
    const skv_documents_options *documents; /* NULL: none */
    uint64_t n_documents;
    /* Reports progress. `what` names the stage: reading a file, making documents, merging. May be
     * NULL. */
    void (*on_progress)(void *user, const char *what, double share);
    void *user;
} skv_vocab_train_options;

/** Returns the defaults: 3072 entries, and 2000 documents if `documents` is set. */
SKV_API skv_vocab_train_options skv_vocab_train_default(void);

typedef struct skv_vocab_train_report {
    size_t size, merges;
    size_t bytes, words;    /* size of the text; distinct words in it */
    double bytes_per_token; /* measured on the same text */
} skv_vocab_train_report;

/**
 * Writes tokenizer.json and tokenizer_config.json (with a chat template) to `folder`, which it
 * creates if necessary. The same options give the same files. The vocabulary is smaller than `size`
 * if the text allows no more merges. `report` may be NULL.
 */
SKV_CHECKED skv_status skv_vocab_train(const char *folder, const skv_vocab_train_options *options,
                                       skv_vocab_train_report *report, skv_error *err);

SKV_END

#endif
