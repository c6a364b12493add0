/**
 * Text that a model writes itself, to be trained on: a SwiftKV student can be recovered from any
 * teacher without a data set.
 *
 * Documents are sampled from BOS on (or from given beginnings), SKV_SELF_LANES streams of tokens
 * at once. What is written is a function of the model and the options: the same call gives the
 * same bytes, whatever the number of threads.
 */
#ifndef SKV_SELF_TEXT_H
#define SKV_SELF_TEXT_H

#include <stddef.h>
#include <stdint.h>

#include "skv/api.h"
#include "skv/skv.h"
#include "skv/text.h"

SKV_BEGIN

enum { SKV_SELF_LANES = 16 };

typedef struct skv_self_options {
    uint64_t tokens; /* at least so many; whole streams are written */
    size_t length;   /* tokens of a stream: no document is longer */
    double temperature;
    uint64_t seed;
    const char *begin; /* a file whose lines begin documents, drawn at random; NULL: BOS alone */
    void (*on_progress)(void *user, uint64_t done, uint64_t total); /* may be NULL */
    void *user;
} skv_self_options;

/** What the engine is opened with: room for all lanes, and the teacher of a SwiftKV model. */
SKV_API skv_engine_options skv_self_engine_options(const skv_self_options *options, bool swiftkv);

/**
 * Writes FOLDER/self-HASH.u16 (.u32 for vocabularies beyond 65536), streams of `length` token ids
 * one behind another, and puts its path into *path (skv_text_free). The hash is of model and
 * options. A file that is there is kept. One that was interrupted, with SKV_CANCELLED after
 * skv_cancel, goes on where it was. vocab is only needed for `begin`.
 */
SKV_CHECKED skv_status skv_self_write(skv_engine *engine, const skv_vocab *vocab,
                                      const char *folder, const skv_self_options *options,
                                      char **path, skv_error *err);

SKV_END

#endif
