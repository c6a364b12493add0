/*
 * Quantising a model: its tensors as a list, what becomes of each, and the files they are written
 * to. See skv/quantize.h.
 *
 *     quantize.c         the list of tensors, their rounding, and who writes them
 *     quantize_round.c   a row of floats -> codes and scales
 *     quantize_folder.c  the list as a Hugging Face folder
 */
#ifndef SKV_TRAIN_QUANTIZER_H
#define SKV_TRAIN_QUANTIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/pool.h"
#include "format/safetensors.h"
#include "format/source.h"
#include "skv/quantize.h"

/* ---- quantize_round.c ---- */

/* How rows become codes: whole numbers of `bits` bits, from -2^(bits - 1) on, times a scale. */
typedef struct skv_rounding {
    unsigned bits;        /* 4 or 8 */
    size_t group;         /* divides the length of a row */
    skv_dtype scale_type; /* F16 or BF16: what the scales are rounded to */
} skv_rounding;

/** scales [K / group] of a row x [K]: those of the least squared error among a few, where element k
 * counts importance[k] (NULL: 1). */
void skv_round_scales(const skv_rounding *r, const float *x, const float *importance, size_t K,
                      float *scales);
/** codes [K] = the nearest multiples of the scales. */
void skv_round_row(const skv_rounding *r, const float *x, const float *scales, size_t K,
                   int8_t *codes);

/* ---- quantize.c ---- */

/* A tensor of the model, and its codes where it is quantised. */
typedef struct skv_quantize_item {
    const char *name;         /* borrowed */
    const skv_tensor *tensor; /* borrowed */
    bool is_projection;       /* a matrix of a layer; quantised where groups fill its rows */
    float offset;   /* added to every element as it is written: -1 for Gemma's norms of GGUF */
    uint8_t *codes; /* owned, [N, K * bits / 8]: lowest bits first, + 2^(bits - 1); NULL: floats */
    uint16_t *scales; /* owned, [N, K / group], bits of the scales' type */
} skv_quantize_item;

typedef struct skv_quantizer {
    skv_source *source;                  /* owned */
    skv_safetensors *files;              /* owned: the folder's tensors as published; or NULL */
    const skv_quantize_options *options; /* borrowed */
    skv_rounding rounding;
    skv_quantize_item *items; /* [n], owned */
    size_t n;
    skv_pool *pool;      /* owned */
    double error, whole; /* sums over the quantised matrices: |Q - W|^2, |W|^2 */
} skv_quantizer;

/** What an item that stays a matrix of floats is written as. */
skv_dtype skv_quantize_written_type(const skv_quantize_item *item);
/** Rows [row0, row0 + n) of an item as they are written, out [n, columns]. */
SKV_MUST_CHECK skv_status skv_quantize_read(const skv_quantize_item *item, size_t row0, size_t n,
                                            float *out, skv_error *err);

/* ---- quantize_folder.c ---- */

/** Refuses a folder that holds a model. */
SKV_MUST_CHECK skv_status skv_quantize_check_folder(const char *out, skv_error *err);
/** Writes all items and what belongs beside them into a new folder. */
SKV_MUST_CHECK skv_status skv_quantize_write_folder(const skv_quantizer *q, const char *out,
                                                    uint64_t *n_bytes, skv_error *err);

#endif
