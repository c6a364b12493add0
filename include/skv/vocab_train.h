/**
 * Learning a vocabulary: a byte-level BPE (Sennrich et al., 2016, over the bytes of the text)
 * with digits one by one and tokens for the turns of a conversation.
 */
#ifndef SKV_VOCAB_TRAIN_H
#define SKV_VOCAB_TRAIN_H

#include <stddef.h>
#include <stdint.h>

#include "skv/documents.h"

SKV_BEGIN

typedef struct skv_vocab_train_options {
    size_t size;              /* entries, special tokens and the 256 bytes included */
    const char *const *files; /* texts to learn from; may be NULL */
    size_t n_files;
    const skv_documents_options *documents; /* NULL: none */
    uint64_t n_documents;
} skv_vocab_train_options;

/** 3072 entries, 2000 documents once `documents` is set. */
SKV_API skv_vocab_train_options skv_vocab_train_default(void);

typedef struct skv_vocab_train_report {
    size_t size, merges;
    size_t bytes, words;    /* of the text; different words in it */
    double bytes_per_token; /* on the text itself */
} skv_vocab_train_report;

/**
 * Writes tokenizer.json and tokenizer_config.json (with a chat template) into `folder`, which is
 * made if it is not there. The same options give the same files. Fewer entries result when the
 * text has nothing more to merge. `report` may be NULL.
 */
SKV_CHECKED skv_status skv_vocab_train(const char *folder, const skv_vocab_train_options *options,
                                       skv_vocab_train_report *report, skv_error *err);

SKV_END

#endif
