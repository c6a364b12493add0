/*
 * LoRA adapters (arXiv:2106.09685) on disk: a PEFT folder with adapter_config.json and
 * adapter_model.safetensors, or a GGUF file of the type "adapter".
 *
 * An adapter adds scale B A to named matrices W[N, K] of a model. Both forms use the names and
 * parts of source.h, without ".weight". The engine checks that the model has such matrices. Other
 * content of an adapter (biases, whole modules, magnitudes) is refused by name.
 */
#ifndef SKV_FORMAT_LORA_H
#define SKV_FORMAT_LORA_H

#include "base/sha256.h"
#include "format/config.h"
#include "format/tensor.h"

enum { SKV_LORA_NAME_BYTES = 128, SKV_LORA_PAIRS_MAX = 8192 };

typedef struct skv_lora_pair {
    char name[SKV_LORA_NAME_BYTES]; /* "model.layers.3.self_attn.q_proj" */
    skv_tensor a;                   /* [r, K] */
    skv_tensor b;                   /* [N, r] */
    float scale;
} skv_lora_pair;

typedef struct skv_lora {
    char *path;                      /* owned */
    struct skv_safetensors *tensors; /* owned; NULL for a GGUF file */
    struct skv_gguf *gguf;           /* owned; NULL for a folder */
    skv_lora_pair *pairs;            /* owned, [n_pairs]; tensors borrowed from the file */
    size_t n_pairs;
    uint8_t hash[SKV_SHA256_BYTES]; /* of all that the result depends on */
} skv_lora;

/** path is a PEFT folder or a .gguf file, made for a model of this configuration. */
SKV_MUST_CHECK skv_status skv_lora_open(const char *path, const skv_config *config, skv_lora *out,
                                        skv_error *err);
void skv_lora_close(skv_lora *lora);

/* ---- lora_peft.c, lora_gguf.c: fill an empty skv_lora that has its path. Pairs have the names of
 * the model's own file, without ".weight" ---- */

SKV_MUST_CHECK skv_status skv_lora_read_peft(skv_lora *lora, skv_error *err);
SKV_MUST_CHECK skv_status skv_lora_read_gguf(skv_lora *lora, skv_error *err);
/** lora_names.c: gives them the names of source.h; pairs of fused matrices become their parts. */
SKV_MUST_CHECK skv_status skv_lora_rename(skv_lora *lora, const skv_config *config, skv_error *err);
/** Room for as many pairs as a file of n tensors can hold. */
SKV_MUST_CHECK skv_status skv_lora_take(skv_lora *lora, size_t n_tensors, skv_error *err);
/** Adds a tensor as one half of a pair; begins the pair if it is the first. */
SKV_MUST_CHECK skv_status skv_lora_put(skv_lora *lora, const char *name, size_t n_name, bool is_b,
                                       const skv_tensor *tensor, skv_error *err);

#endif
