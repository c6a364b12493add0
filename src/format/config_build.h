/* What config.json and GGUF metadata share on the way to a skv_config. */
#ifndef SKV_FORMAT_CONFIG_BUILD_H
#define SKV_FORMAT_CONFIG_BUILD_H

#include "format/config.h"
#include "format/json_doc.h"

/** c->layers = n_layers copies of `shape`; n_layers is checked. */
SKV_MUST_CHECK skv_status skv_config_set_layers(skv_config *c, size_t n_layers,
                                                skv_layer_shape shape, const char *name,
                                                skv_error *err);

/** Adds an id that ends an answer: once, and not when it lies outside the vocabulary. */
void skv_config_add_eos(skv_config *c, int64_t id);
/** Sets bos; ids outside the vocabulary (some files give -1 or 2^32 - 1) mean none. */
void skv_config_set_bos(skv_config *c, int64_t id);

/** Gemma multiplies embeddings by sqrt(hidden), rounded to the type its weights are used in:
 * "bfloat16", "float16", anything else for none. */
double skv_gemma_embedding_scale(size_t hidden, const char *dtype);

/** "kv_prediction" of config.json -> c, whose layers are known; what it names is checked. */
void skv_config_read_kvp(skv_json_reader *r, skv_config *c);

/** Heads and FFN width of layer i in the published OpenELM models; hidden, head_dim and n_layers
 * are c's. */
void skv_openelm_shape(const skv_config *c, size_t i, skv_layer_shape *out);

/** OpenELM's config.json -> c; `r` reads its top level. */
void skv_config_from_openelm(skv_json_reader *r, skv_config *c);

#endif
