/*
 * GGUF files that are split: NAME-00001-of-0000N.gguf and so on, as llama.cpp's gguf-split writes
 * them. The first part has the metadata of the model, and each has tensors, or none.
 */
#ifndef SKV_FORMAT_GGUF_PARTS_H
#define SKV_FORMAT_GGUF_PARTS_H

#include "format/gguf.h"

/* The parts of a split file after its first; none if it is not split. */
typedef struct skv_gguf_parts {
    skv_gguf **at; /* owned, [n], each owned */
    size_t n;
} skv_gguf_parts;

void skv_gguf_parts_close(skv_gguf_parts *parts);

/** skv_gguf_open of one file alone, split or not. */
SKV_MUST_CHECK skv_status skv_gguf_open_one(const char *path, skv_gguf **out, skv_error *err);
/** Merges the other parts into the first, which owns their tensors from then on. */
SKV_MUST_CHECK skv_status skv_gguf_take_parts(skv_gguf *g, skv_gguf_parts *parts, skv_error *err);

#endif
