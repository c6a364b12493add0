/* A model's loading from inside: shared by load*.c. */
#ifndef SKV_MODEL_LOAD_IMPL_H
#define SKV_MODEL_LOAD_IMPL_H

#include "model/model.h"

enum { SKV_LOAD_NAME_BYTES = 160 };

/* How a product is held where the codes of a file are not kept. */
typedef enum skv_load_care {
    SKV_CARE_NONE,   /* as was asked for */
    SKV_CARE_8_BITS, /* at least: what a token's embedding of a layer adds bears no 4 bits */
    SKV_CARE_FLOATS, /* at least 16 bits: errors in a decay grow with the text */
    SKV_CARE_F32     /* a router */
} skv_load_care;

/* One part of a product, by the published name of its tensor. */
typedef struct skv_load_part {
    char name[SKV_LOAD_NAME_BYTES];
    size_t n_rows;
    bool bias;
    size_t row0, n_all; /* its rows begin at row0 of the tensor's n_all; 0, 0: they are all */
    double times;       /* its weights are multiplied by it; 0: by 1 */
    size_t layer;       /* skv_row_source.layer */
} skv_load_part;

typedef struct skv_load_job {
    skv_linear **out;
    skv_weight_type *type_out; /* may be NULL */
    skv_load_part *parts;      /* [n_parts] */
    size_t n_parts, K;
    bool paired;
    skv_load_care care;
    size_t column0, n_columns; /* K of so many of the tensors' columns; 0, 0: they are all */
} skv_load_job;

typedef struct skv_loader {
    skv_model *model;
    const skv_config *config;
    const skv_source *source; /* NULL: random */
    skv_backend *be;
    const skv_load_options *options;
    skv_status (*visit)(struct skv_loader *loader, const skv_load_job *job, skv_error *err);
    bool loads; /* false: it only counts */
    size_t bytes_done;
    skv_bytes bytes_all;
} skv_loader;

/* ---- load_vectors.c: tensors, norms and other vectors ---- */

/** Whether SwiftKV replaces the projections of layer i. */
bool skv_load_is_swiftkv(const skv_loader *ld, size_t i);
/** The tensor `name` with the shape that it must have. */
SKV_MUST_CHECK skv_status skv_load_find_matrix(const skv_loader *ld, const char *name,
                                               size_t n_rows, size_t n_columns, skv_matrix *out,
                                               skv_error *err);
/** *out = a vector `name` of n_all numbers, for skv_free: those from `first` on are moved to its
 * beginning. */
SKV_MUST_CHECK skv_status skv_load_read_vector(const skv_loader *ld, const char *name, size_t first,
                                               size_t n_all, float **out, skv_error *err);

/** All norms and other vectors, into one area. */
SKV_MUST_CHECK skv_status skv_load_vectors(skv_loader *ld, skv_error *err);

#endif
