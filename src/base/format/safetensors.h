/*
 * safetensors: one file, or a folder with one file or with shards and their index.
 *
 *     u64 n | n bytes of JSON {"NAME": {"dtype", "shape", "data_offsets"}, ...} | the data
 *
 * Tensors of the types that models compute with (F32, F16, BF16) are listed; others (position
 * tables, FP8 weights, more than four dimensions) are known by name only, so that a model that
 * needs one fails with a reason and a model that does not still opens. Codes and their scales are
 * listed as one matrix: coded.h.
 */
#ifndef SKV_FORMAT_SAFETENSORS_H
#define SKV_FORMAT_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/fail.h"
#include "format/tensor_out.h"

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
/** Whether there is one of them. */
bool skv_safetensors_are_in(const char *folder);
/** NULL is fine. */
void skv_safetensors_close(skv_safetensors *s);

size_t skv_safetensors_count(const skv_safetensors *s);
const skv_tensor *skv_safetensors_at(const skv_safetensors *s, size_t i);
const skv_tensor *skv_safetensors_find(const skv_safetensors *s, const char *name);
/** Returns why a tensor in the file is not in the list ("element type I64"), or NULL. */
const char *skv_safetensors_unusable(const skv_safetensors *s, const char *name);

/*
 * Writing, byte for byte as the reference library does for the same tensors: the header
 * {"__metadata__":{"format":"pt"},...} padded with spaces to 8 bytes, tensors ordered by type
 * (I64, F32, I32, BF16, F16) and name. There are no other types.
 */

/** The limit of save_pretrained: no file is larger, unless a single tensor is. */
#define SKV_SHARD_BYTES_MAX ((size_t)4000000000u)

/**
 * Writes tensors[0..n) into the folder: model.safetensors when they fit in one shard, otherwise
 * model-00001-of-0000N.safetensors ... in the order given and, last, their index. Every file is
 * complete or absent; a folder that already holds the other layout is refused. On failure the
 * shards that were finished stay.
 */
SKV_MUST_CHECK skv_status skv_safetensors_write_folder(const char *folder,
                                                       const skv_tensor_out *tensors, size_t n,
                                                       size_t shard_bytes_max, skv_error *err);
/** Writes one file. */
SKV_MUST_CHECK skv_status skv_safetensors_write(const char *path, const skv_tensor_out *tensors,
                                                size_t n, skv_error *err);

#endif
