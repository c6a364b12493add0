/* The pre-tokenizers that GGUF files name in tokenizer.ggml.pre. */
#ifndef SKV_TEXT_TOKENIZER_PRE_H
#define SKV_TEXT_TOKENIZER_PRE_H

#include <stdbool.h>
#include <stddef.h>

enum { SKV_PRE_PATTERNS_MAX = 7 };

typedef struct skv_pre_type {
    const char *patterns[SKV_PRE_PATTERNS_MAX]; /* applied one after the other; NULL at the end */
    bool ignore_merges, add_bos;
} skv_pre_type;

/** What a name stands for; NULL for an unknown one. */
const skv_pre_type *skv_pre_type_find(const char *name, size_t n);

#endif
