/*
 * The weights of one model in a back end's memory, and how they are brought there.
 *
 * Products that share their input are one matrix with parts: q|k|v of a layer, gate|up, and the
 * k|v of all SwiftKV layers, which share norm_swiftkv(x_l). Which projections are loaded follows
 * from what the engine is asked to run: the student's, the teacher's, or both.
 */
#ifndef SKV_MODEL_H
#define SKV_MODEL_H

#include "backend/backend.h"
#include "format/source.h"
#include "model/matrix.h"
#include "model/rope.h"

/* Parts of skv_layer.qkv. */
enum { SKV_PART_Q, SKV_PART_K, SKV_PART_V, SKV_PART_QKV_END };

typedef struct skv_layer {
    const float *attn_norm;      /* [D] */
    const float *ffn_norm;       /* [D] */
    const float *post_attn_norm; /* [D] or NULL */
    const float *post_ffn_norm;  /* [D] or NULL */
    const float *q_norm;         /* [Dh] or NULL */
    const float *k_norm;         /* [Dh] or NULL */
    const float *q_norm_swiftkv; /* [Dh] or NULL */
    const float *k_norm_swiftkv; /* [Dh] or NULL; producers only */
    skv_linear *qkv;             /* [(H + 2 Hk) Dh, D]; NULL in a layer >= l without teacher */
    skv_linear *q_swiftkv;       /* [H Dh, D]; layers >= l of a SwiftKV model */
    skv_linear *o;               /* [D, H Dh] */
    skv_linear *gate_up;         /* paired [2 F, D] */
    skv_linear *down;            /* [D, F] */
} skv_layer;

typedef struct skv_model {
    const skv_config *config;  /* borrowed */
    skv_backend *be;           /* borrowed */
    skv_matrix embedding;      /* [V, D], read row by row from the file */
    skv_layer *layers;         /* owned, [L] */
    const float *final_norm;   /* [D] */
    const float *norm_swiftkv; /* [D] or NULL */
    skv_linear *kv_swiftkv;    /* parts k, v of layers l, l + g, l + 2g, ...: [2 Hk Dh each, D] */
    skv_linear *head;          /* [V, D] */
    skv_linear *exit_head;     /* [V, D], on norm_swiftkv(x_l); NULL: no early exit */
    skv_rope_table ropes[2];
    size_t n_ropes; /* that layers use: 1 or 2 */
    float *vectors; /* [vectors_bytes / 4], owned by the back end: every norm above lies in it */
    size_t vectors_bytes;
    size_t weight_bytes; /* of the packed matrices */
} skv_model;

typedef struct skv_load_options {
    skv_weight_type type;
    bool student;                               /* SwiftKV projections, where the model has them */
    bool teacher;                               /* the layers' own projections, everywhere */
    bool exit_head;                             /* the early exit's, which the model has */
    uint64_t seed;                              /* of random weights */
    void (*progress)(void *user, double share); /* may be NULL; share in 0..1 */
    void *user;
} skv_load_options;

/** Bytes that the packed weights will take. */
SKV_MUST_CHECK skv_status skv_model_bytes(const skv_config *config, skv_backend *be,
                                          const skv_load_options *options, size_t *n_bytes,
                                          skv_error *err);

/** source NULL: random weights of this shape (norms around 1). */
SKV_MUST_CHECK skv_status skv_model_load(skv_model *model, const skv_config *config,
                                         const skv_source *source, skv_backend *be,
                                         const skv_load_options *options, skv_error *err);
void skv_model_release(skv_model *model);

#endif
