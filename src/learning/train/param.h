/*
 * The parameters of a model in training: f32 master weights under their published names, and
 * gradients for those that are trained. A frozen matrix that is packed for its products has no
 * master; other code reads its rows from its file.
 */
#ifndef SKV_TRAIN_PARAM_H
#define SKV_TRAIN_PARAM_H

#include <stdbool.h>
#include <stddef.h>

#include "base/fail.h"
#include "format/tensor.h"

enum { SKV_PARAM_NAME_MAX = 128 };

/* The part that a parameter plays, which decides whether a task trains it. */
typedef enum skv_param_role {
    SKV_ROLE_OUTSIDE,   /* embedding, last norm, language model head */
    SKV_ROLE_QKV,       /* a layer's own W_q, W_k, W_v, with biases and norms of heads; all that
                         * makes its state */
    SKV_ROLE_LAYER,     /* everything else of a layer but experts */
    SKV_ROLE_EXPERT,    /* a matrix of one expert, with its bias */
    SKV_ROLE_SWIFTKV,   /* norm_swiftkv, and the same as QKV of the layers after it */
    SKV_ROLE_EXIT_HEAD, /* of early exit */
    SKV_ROLE_PREDICTOR  /* a map of KV Prediction */
} skv_param_role;

typedef struct skv_param {
    char name[SKV_PARAM_NAME_MAX];
    size_t n_rows, n_columns; /* a vector has one row */
    bool vector;
    bool trainable;
    float offset;     /* the file has w - offset: 1 for norms that multiply by 1 + weight */
    float rate_share; /* of the learning rate */
    skv_param_role role;
    size_t layer;           /* it takes part in from this layer on; 0 for the embedding */
    const skv_tensor *file; /* where a frozen matrix is read from; NULL: w has it */
    float *w;               /* [n_rows, n_columns], in the arena; NULL with `file` */
    float *grad;            /* the same, NULL when frozen */
    const float *teacher;   /* the teacher's weights: w, or a copy of its first state */
} skv_param;

typedef struct skv_params {
    skv_param *at; /* owned, [n] */
    size_t n, n_max;
    float *weights; /* owned, [n_weights], mapped */
    size_t n_weights;
    float *grads; /* owned, [n_trainable]: concatenated gradients, mapped */
    size_t n_trainable;
    float *copies; /* owned, [n_copies]: the teacher's own, mapped */
    size_t n_copies;
} skv_params;

/** Room for n_max descriptions. */
SKV_MUST_CHECK skv_status skv_params_init(skv_params *params, size_t n_max, skv_error *err);
void skv_params_release(skv_params *params);
/** Describes one more; n_rows 0 makes a vector. */
skv_param *skv_params_add(skv_params *params, const char *name, size_t n_rows, size_t n_columns);
/** Counts the memory that skv_params_allocate will take. */
void skv_params_count(skv_params *params, bool copies);
/** Takes memory for all weights; gradients and (with `copies`) the teacher's copies of the
 * trainable ones. */
SKV_MUST_CHECK skv_status skv_params_allocate(skv_params *params, bool copies, skv_error *err);
skv_param *skv_params_find(const skv_params *params, const char *name);
/** Copies trainable weights to where the teacher reads them. */
void skv_params_keep_teacher(skv_params *params);

static inline size_t skv_param_size(const skv_param *p)
{
    return p->n_rows * p->n_columns;
}

#endif
