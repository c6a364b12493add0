/*
 * A model on disk: a Hugging Face folder or a GGUF file, seen the same way.
 *
 * Tensors are found by their published Hugging Face name ("model.layers.3.mlp.up_proj.weight");
 * a GGUF file's own names are translated. Data stays mapped; opening copies nothing but names.
 */
#ifndef SKV_FORMAT_SOURCE_H
#define SKV_FORMAT_SOURCE_H

#include "format/config.h"
#include "format/tensor.h"

typedef struct skv_source skv_source;

/** path is a folder with config.json or a .gguf file. */
SKV_MUST_CHECK skv_status skv_source_open(const char *path, skv_source **out, skv_error *err);
void skv_source_close(skv_source *source);

const char *skv_source_path(const skv_source *source);
const skv_config *skv_source_config(const skv_source *source);
/** NULL when there is no such tensor. */
const skv_tensor *skv_source_find(const skv_source *source, const char *name);
size_t skv_source_count(const skv_source *source);
const skv_tensor *skv_source_at(const skv_source *source, size_t i);
/** The GGUF file behind it, for the tokenizer inside; NULL for a folder. */
const struct skv_gguf *skv_source_gguf(const skv_source *source);

#endif
