/* The tokens that a cut exit head keeps (FR-Spec, arXiv:2502.14856): the frequent ones. */
#ifndef SKV_TRAIN_EXIT_WORDS_H
#define SKV_TRAIN_EXIT_WORDS_H

#include <stdint.h>

#include "base/fail.h"
#include "format/source.h"
#include "skv/tools.h"

typedef struct skv_exit_words {
    int32_t *ids; /* owned, [n], ascending */
    size_t n;
    uint64_t counted, covered; /* tokens of the text, and those among them that ids has */
} skv_exit_words;

/** The options' `exit_words` ids of the model at `path`, which `source` is open on: see there. */
SKV_MUST_CHECK skv_status skv_exit_words_choose(const char *path, const skv_source *source,
                                                const skv_transform_options *options,
                                                skv_exit_words *out, skv_error *err);
void skv_exit_words_release(skv_exit_words *words);

#endif
