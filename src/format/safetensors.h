/*
 * safetensors: one file, or a folder with one file or with shards and their index.
 *
 *     u64 n | n bytes of JSON {"NAME": {"dtype", "shape", "data_offsets"}, ...} | the data
 *
 * Tensors of the types that models compute with (F32, F16, BF16) are listed; others (position
 * tables, FP8 weights, more than four dimensions) are known by name only, so that a model that
 * needs one fails with a reason and a model that does not still opens.
 */
#ifndef SKV_FORMAT_SAFETENSORS_H
#define SKV_FORMAT_SAFETENSORS_H

#include <stddef.h>

#include "base/fail.h"
#include "format/tensor.h"

typedef struct skv_safetensors skv_safetensors;

/** Reads data[0..n), which must outlive the result; `name` is for errors. */
SKV_MUST_CHECK skv_status skv_safetensors_parse(const void *data, size_t n, const char *name,
                                                skv_safetensors **out, skv_error *err);
/** Maps one file. */
SKV_MUST_CHECK skv_status skv_safetensors_open(const char *path, skv_safetensors **out,
                                               skv_error *err);
/** The folder's model.safetensors, or the shards that model.safetensors.index.json names. */
SKV_MUST_CHECK skv_status skv_safetensors_open_folder(const char *folder, skv_safetensors **out,
                                                      skv_error *err);
/** NULL is fine. */
void skv_safetensors_close(skv_safetensors *s);

size_t skv_safetensors_count(const skv_safetensors *s);
const skv_tensor *skv_safetensors_at(const skv_safetensors *s, size_t i);
const skv_tensor *skv_safetensors_find(const skv_safetensors *s, const char *name);
/** Why a tensor of this name is in the file and not in the list ("element type I64"), or NULL. */
const char *skv_safetensors_unusable(const skv_safetensors *s, const char *name);

#endif
