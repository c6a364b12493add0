/**
 * Self-generated text: training data sampled from the model itself, so that a SwiftKV student can
 * be distilled from any teacher without a data set.
 *
 * Documents are sampled starting at BOS or at given beginnings, in SKV_SELF_LANES streams at once.
 * The output depends only on the model and the options, not on the number of threads.
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
    uint64_t tokens; /* least number of tokens; rounded up to whole streams */
    size_t length;   /* tokens of a stream, and the most of a document */
    double temperature;
    uint64_t seed;
    const char *begin; /* a file of lines to begin documents with, drawn at random; NULL: only BOS.
                        * In a .jsonl file a line is {"text"} or {"messages"}, which the chat
                        * template writes. A line spells no special tokens. */
    void (*on_progress)(void *user, uint64_t done, uint64_t total); /* may be NULL */
    void *user;
} skv_self_options;

/** Returns engine options with room for all streams and, for a SwiftKV model, with its teacher. */
SKV_API skv_engine_options skv_self_engine_options(const skv_self_options *options, bool swiftkv);

/**
 * Writes FOLDER/self-HASH.u16 (.u32 for vocabularies above 65536) with consecutive streams of
 * `length` token ids, and returns its path in *path (free with skv_text_free). HASH is that of the
 * model and the options. An existing complete file is kept; an interrupted one (SKV_CANCELLED after
 * skv_cancel) is continued. vocab is only needed for `begin`.
 */
SKV_CHECKED skv_status skv_self_write(skv_engine *engine, const skv_vocab *vocab,
                                      const char *folder, const skv_self_options *options,
                                      char **path, skv_error *err);

SKV_END

#endif
