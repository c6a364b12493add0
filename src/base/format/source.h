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

struct skv_gguf;

/**
 * Tensors are presented under the names of the Llama family, regardless of their names in the file;
 * fused projections appear as their parts. Per layer i, as "model.layers.{i}.": input_layernorm,
 * self_attn.{q,k,v,o}_proj, self_attn.{q,k}_norm, post_attention_layernorm, mlp.{gate,up,down}_proj
 * (".weight", ".bias"); Gemma adds pre_feedforward_layernorm and post_feedforward_layernorm (its
 * post_attention_layernorm follows the attention). Layers that keep a state have
 * linear_attn.{in_proj_{q,k,v,z,b,a}, conv1d, out_proj, norm} with .A_log (GGUF: .rate) and
 * .dt_bias, or conv.{in_proj,conv,out_proj}; attention with a gate adds self_attn.gate_proj.
 * Outside: model.embed_tokens.weight, model.norm.weight, and lm_head.weight unless the
 * configuration is `tied`.
 *
 * path is a folder with config.json or a .gguf file. On success every tensor that the configuration
 * requires exists with the right shape.
 */
SKV_MUST_CHECK skv_status skv_source_open(const char *path, skv_source **out, skv_error *err);
/** The head of a model that predicts further tokens (MTP), as a model of one layer
 * (skv_config.mtp): its layer is model.layers.0, its norm model.norm, and "mtp.fc.weight" [D, 2 D]
 * and "mtp.pre_fc_norm_{embedding,hidden}.weight" [D] come before them. SKV_UNSUPPORTED where the
 * model has none, or none that is read. */
SKV_MUST_CHECK skv_status skv_source_open_mtp(const char *path, skv_source **out, skv_error *err);
/** Whether a model has one. */
bool skv_source_has_mtp(const skv_source *source);
/** The configuration of a folder alone, its weights absent or not. */
SKV_MUST_CHECK skv_status skv_config_read(const char *folder, skv_config *out, skv_error *err);
/** A GGUF file in memory, which must outlive the result; `name` is for errors. */
SKV_MUST_CHECK skv_status skv_source_parse_gguf(const void *data, size_t n, const char *name,
                                                skv_source **out, skv_error *err);
void skv_source_close(skv_source *source);

const char *skv_source_path(const skv_source *source);
const skv_config *skv_source_config(const skv_source *source);
/** NULL when there is no such tensor. */
const skv_tensor *skv_source_find(const skv_source *source, const char *name);
/** Whether a tensor of the source comes from the folder of its base. */
bool skv_source_in_base(const skv_source *source, const skv_tensor *tensor);
size_t skv_source_count(const skv_source *source);
const skv_tensor *skv_source_at(const skv_source *source, size_t i);
/** The name under which a folder of this configuration is written: a Mixtral's experts have names
 * of their own, so that other programs open it. False when it does not fit into out [size]. */
bool skv_source_written_name(const skv_config *c, const char *name, char *out, size_t size);
/** Tensors of the folder's own files, as they are stored there; none of a GGUF file. */
size_t skv_source_stored_count(const skv_source *source);
/** The i-th of them, and in *name its name in the text part, perhaps in buffer [size]: NULL where
 * it belongs to another part of a model with images. */
const skv_tensor *skv_source_stored_at(const skv_source *source, size_t i, char *buffer,
                                       size_t size, const char **name);
/** Why a tensor that the files hold is not among them ("element type I64"), or NULL. */
const char *skv_source_unusable(const skv_source *source, const char *name);
/** Returns the underlying GGUF file, for its tokenizer; NULL for a folder. */
const struct skv_gguf *skv_source_gguf(const skv_source *source);

#endif
