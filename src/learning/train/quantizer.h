/*
 * Quantising a model: its tensors as a list, what becomes of each, and the files they are written
 * to. See skv/quantize.h.
 *
 *     quantize.c         the list of tensors, their rounding, and who writes them
 *     quantize_round.c   a row of floats -> codes and scales
 *     quantize_gptq.c    the same, where a column makes up for the errors of those before
 *     quantize_text.c    what the products read of a text, for quantize_gptq.c
 *     quantize_folder.c  the list as a Hugging Face folder
 *     quantize_gguf.c    the list as a GGUF file
 */
#ifndef SKV_TRAIN_QUANTIZER_H
#define SKV_TRAIN_QUANTIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/pool.h"
#include "format/gguf_write.h"
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
/** The nearest multiple of a scale. */
int skv_round_code(const skv_rounding *r, float x, float scale);
/** codes [K] = the nearest multiples of the scales. */
void skv_round_row(const skv_rounding *r, const float *x, const float *scales, size_t K,
                   int8_t *codes);

/* ---- quantize_gptq.c ---- */

/* How the columns of matrices that share an input make up for each other's errors. */
typedef struct skv_compensation {
    size_t K;
    const float *factors; /* [K, K], borrowed: row k, element j < k: what step k adds of step j's
                           * error */
    uint32_t *order;      /* [K], owned: the column of each step */
    float *moments;       /* [K], owned: sums of squares of each column's input */
} skv_compensation;

/** From the sum of x x^T over the input's rows, gram [K, K], which becomes the factors and must
 * outlive c. */
SKV_MUST_CHECK skv_status skv_compensation_init(skv_compensation *c, skv_pool *pool, float *gram,
                                                size_t K, skv_error *err);
void skv_compensation_release(skv_compensation *c);
/** codes [n, K] of rows x [n, K] with scales [n, K / group]; errors [n, K] is for use. */
void skv_round_compensated(const skv_rounding *r, const skv_compensation *c, const float *x,
                           const float *scales, size_t n, float *errors, int8_t *codes);

/* ---- quantize.c ---- */

/* A tensor of the model, and its codes where it is quantised. */
typedef struct skv_quantize_item {
    const char *name;         /* borrowed, or own_name */
    char *own_name;           /* owned; NULL: the name is the tensor's */
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
    bool to_gguf;                        /* written as a GGUF file, not as a folder */
    skv_gguf_out metadata;               /* owned; of that file */
    skv_rounding rounding;
    skv_quantize_item *items; /* [n], owned */
    size_t n;
    skv_pool *pool;      /* owned */
    double error, whole; /* sums over the quantised matrices: |Q - W|^2, |W|^2 */
} skv_quantizer;

/** Whether an item's codes are written. */
bool skv_quantize_is_quantized(const skv_quantizer *q, const skv_quantize_item *item);
/** Codes and scales of an item; c NULL: round to nearest. */
SKV_MUST_CHECK skv_status skv_quantize_round_item(skv_quantizer *q, skv_quantize_item *item,
                                                  const skv_compensation *c, skv_error *err);
/** What an item that stays a matrix of floats is written as. */
skv_dtype skv_quantize_written_type(const skv_quantize_item *item);
/** Rows [row0, row0 + n) of an item as they are written, out [n, columns]. */
SKV_MUST_CHECK skv_status skv_quantize_read(const skv_quantize_item *item, size_t row0, size_t n,
                                            float *out, skv_error *err);

/* ---- quantize_text.c ---- */

/** Rounds the items whose input is known by the text of the options; the model is at `path`.
 * *n_tokens of the text were read. */
SKV_MUST_CHECK skv_status skv_quantize_with_text(skv_quantizer *q, const char *path,
                                                 size_t *n_tokens, skv_error *err);

/* ---- quantize_folder.c ---- */

/** Refuses a folder that holds a model. */
SKV_MUST_CHECK skv_status skv_quantize_check_folder(const char *out, skv_error *err);
/** Writes all items and what belongs beside them into a new folder. */
SKV_MUST_CHECK skv_status skv_quantize_write_folder(const skv_quantizer *q, const char *out,
                                                    uint64_t *n_bytes, skv_error *err);

/* ---- quantize_gguf.c ---- */

/** Whether OUT is to be a GGUF file: it ends in .gguf. */
bool skv_quantize_is_gguf(const char *out);
/** Makes the metadata, and refuses what has no place in the file: what exists already, other
 * groups, a configuration or a tokenizer that GGUF has no words for. */
SKV_MUST_CHECK skv_status skv_quantize_begin_gguf(skv_quantizer *q, const char *out,
                                                  skv_error *err);
SKV_MUST_CHECK skv_status skv_quantize_write_gguf(const skv_quantizer *q, const char *out,
                                                  uint64_t *n_bytes, skv_error *err);

#endif
