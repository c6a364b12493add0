/*
 * The beginnings of self-written documents: lines of a file, drawn at random. In a .jsonl file a
 * line is {"text"}, or {"messages"}: a conversation as the model's chat template writes it, up to
 * where an answer follows. All of a line is data and spells no special token: only the template
 * does.
 */
#ifndef SKV_ENGINE_SELF_BEGIN_H
#define SKV_ENGINE_SELF_BEGIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/fail.h"
#include "base/rng.h"
#include "skv/text.h"

enum { SKV_SELF_BEGIN_BYTES_MAX = 1 << 26 };

typedef struct skv_self_begin {
    const char *path;       /* borrowed */
    const skv_vocab *vocab; /* borrowed */
    char *lines;            /* owned; NULL: documents begin with BOS alone */
    size_t n_bytes;
    bool is_json;
} skv_self_begin;

/** Reads the file; every line of JSON is checked. path NULL: there is none. */
SKV_MUST_CHECK skv_status skv_self_begin_open(const char *path, const skv_vocab *vocab,
                                              skv_self_begin *out, skv_error *err);
void skv_self_begin_release(skv_self_begin *begin);
/** The ids of a line (skv_text_free): of a text at most `most`, of a conversation all of them. */
SKV_MUST_CHECK skv_status skv_self_begin_draw(const skv_self_begin *begin, skv_rng *rng,
                                              size_t most, int32_t **ids, size_t *n_ids,
                                              skv_error *err);

#endif
