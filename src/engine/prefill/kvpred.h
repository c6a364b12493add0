/*
 * KV Prediction (arXiv:2410.08391): a small auxiliary model reads the prompt, and a linear map
 * predicts the base model's keys and values from the auxiliary's.
 *
 *     Khat_i = W^K_i k_{j(i)} + b^K_i        Vhat_i = W^V_i v_{j(i)} + b^V_i        (section 4.2)
 *
 * k_j and v_j are what layer j's projections leave, before any norm of heads and before rotation;
 * Khat_i is taken as the base's projection would be: its own norm and rotation follow. The heads
 * of a row lie one behind another.
 *
 * predictor.safetensors holds, for every layer i of the base, predictor.{key,value}.{i}.weight
 * [Hk_i Dh, Hk'_j Dh'] and .bias [Hk_i Dh]; the names of the authors' own checkpoints,
 * predicter.auxkv_to_basekv.{key,value}_transforms.{i}.{weight,bias}, do as well.
 */
#ifndef SKV_PREFILL_KVPRED_H
#define SKV_PREFILL_KVPRED_H

#include "format/safetensors.h"
#include "model/forward.h"

#define SKV_KVPRED_FILE "predictor.safetensors"

typedef struct skv_kvpred {
    const skv_config *base, *auxiliary; /* borrowed */
    skv_backend *be;                    /* borrowed */
    /* Of every layer of the auxiliary: the stacked maps of the base's layers that it serves, in
     * their order. NULL: it serves none. */
    skv_linear **keys, **values; /* owned, [n_layers of the auxiliary] */
    size_t n_columns;            /* of the widest stack of keys and values together */
    size_t max_rows;
    skv_area *predicted; /* owned: [max_rows, n_columns] */
    size_t weight_bytes;
} skv_kvpred;

/** Refuses an auxiliary that does not fit its base; `path` is the base's, for errors. */
SKV_MUST_CHECK skv_status skv_kvpred_check(const skv_config *base, const skv_config *auxiliary,
                                           const char *path, skv_error *err);
/** Bytes of the packed maps. */
skv_bytes skv_kvpred_map_bytes(const skv_config *base, const skv_config *auxiliary, skv_backend *be,
                               skv_weight_type type);
/** Bytes of its buffer for max_rows rows. */
skv_bytes skv_kvpred_row_bytes(const skv_config *base, const skv_config *auxiliary,
                               const skv_backend *be, size_t max_rows);
/** Parameters of the maps. */
uint64_t skv_kvpred_parameters(const skv_config *base, const skv_config *auxiliary);

typedef struct skv_kvpred_options {
    const skv_safetensors *file; /* NULL: random weights */
    const char *path;            /* of the file, for errors */
    skv_weight_type type;
    size_t max_rows;
    uint64_t seed;
} skv_kvpred_options;

/** Of two configurations that skv_kvpred_check let pass. */
SKV_MUST_CHECK skv_status skv_kvpred_load(skv_kvpred *p, const skv_config *base,
                                          const skv_config *auxiliary, skv_backend *be,
                                          const skv_kvpred_options *options, skv_error *err);
void skv_kvpred_release(skv_kvpred *p);

/* Where the predicted rows of a step go. */
typedef struct skv_kvpred_step {
    const skv_kvpred *predictor;
    /* A pass of the base that has not begun. The step_spans [n_spans] of its workspace are those of
     * the auxiliary's pass, with the base's tables. */
    const skv_pass *base;
    size_t n_spans;
    bool begun; /* the base's step is under way: the hook's */
} skv_kvpred_step;

/** A hook of the auxiliary's pass: begins a step of the base, predicts the layers that each of the
 * auxiliary's serves, and writes them to the base's caches. The step is borrowed. */
skv_hook skv_kvpred_hook(skv_kvpred_step *step);
/** Ends the base's step, after the auxiliary's pass, however that went. */
SKV_MUST_CHECK skv_status skv_kvpred_end(skv_kvpred_step *step, skv_error *err);

#endif
