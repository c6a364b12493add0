/* Writing config.json: for a SwiftKV checkpoint made from a folder, and from nothing but
 * skv_config. */
#ifndef SKV_FORMAT_CONFIG_WRITE_H
#define SKV_FORMAT_CONFIG_WRITE_H

#include "base/buf.h"
#include "base/fail.h"
#include "format/config.h"

/**
 * Appends the config.json of a SwiftKV checkpoint: the original's JSON with model_type,
 * architectures, swiftkv, num_key_value_layers and key_value_group_size as the published layout
 * has them, and tie_word_embeddings; kv_layers, kv_group, tied and dtype (where not "") are c's.
 * Of a model with images the text part is written. `name` is for errors.
 */
SKV_MUST_CHECK skv_status skv_config_json_for_swiftkv(const char *json, size_t n, const char *name,
                                                      const skv_config *c, skv_buf *out,
                                                      skv_error *err);

/** Appends the base model's JSON with what c says of KV Prediction: auxiliary, kvp_layers, and the
 * folder of the base where c->base is not "". */
SKV_MUST_CHECK skv_status skv_config_json_for_kvp(const char *json, size_t n, const char *name,
                                                  const skv_config *c, skv_buf *out,
                                                  skv_error *err);

/**
 * Appends a config.json that skv_config_parse reads back as c (with the SwiftKV fields where
 * c->swiftkv): for sources that had none. GGUF's rope_freqs become a longrope with equal factors,
 * which is the same rotation. Gemma's published norm weights lack the 1 that GGUF's contain
 * (c->norm_offset_one is false): whoever writes such tensors beside this file subtracts it.
 */
SKV_MUST_CHECK skv_status skv_config_json_from_config(const skv_config *c, skv_buf *out,
                                                      skv_error *err);

#endif
