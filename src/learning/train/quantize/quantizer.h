/*
 * Quantising a model: the list of its tensors, their rounding, and the files they are written to.
 * See skv/quantize.h.
 *
 *     quantize.c         the list of tensors, their rounding, and the choice of the writer
 *     quantize_round.c   a row of floats -> codes and scales
 *     quantize_gptq.c    the same, where a column makes up for the errors of those before
 *     quantize_scale.c   scales up columns with large inputs, and scales down these inputs' source
 *     quantize_text.c    the inputs of products over a text, for these two
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
#include "skv/tools.h"

/* ---- quantize_round.c ---- */

/* How rows become codes: whole numbers of `bits` bits, from -2^(bits - 1) on, times a scale. */
typedef struct skv_rounding {
    unsigned bits;        /* 4 or 8 */
    size_t group;         /* divides the length of a row */
    skv_dtype scale_type; /* F16 or BF16: the type of the rounded scales */
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
    float *factors;  /* [K, K], borrowed: row k, element j < k: step j's error is added to step k
                      * with this factor */
    uint32_t *order; /* [K], owned: the column of each step */
    float *moments;  /* [K], owned: sums of squares of each column's input */
    float *weights;  /* [K], owned: the squared weight of each step's remaining error */
    bool nearest;    /* errors are counted, and not made up for */
} skv_compensation;

/** From the sum of x x^T over the input's rows, gram [K, K], which becomes the factors and must
 * outlive c. */
SKV_MUST_CHECK skv_status skv_compensation_init(skv_compensation *c, skv_pool *pool, float *gram,
                                                size_t K, skv_error *err);
void skv_compensation_release(skv_compensation *c);
/** Adapts c to matrices with columns multiplied by s [K] and inputs divided by it. */
void skv_compensation_scale(skv_compensation *c, skv_pool *pool, const float *s);
/** Rounds rows x [n, K] to codes [n, K] with scales [n, K / group]; errors [n, K] is scratch.
 * Returns the squared error of the rows' outputs. */
double skv_round_compensated(const skv_rounding *r, const skv_compensation *c, const float *x,
                             const float *scales, size_t n, float *errors, int8_t *codes);

/* A tensor of the model, with its codes if it is quantised. */
typedef struct skv_quantize_item {
    const char *name;         /* borrowed, or own_name */
    char *own_name;           /* owned; NULL: the name is the tensor's */
    const skv_tensor *tensor; /* borrowed */
    bool is_projection;       /* a matrix of a layer; quantised where groups fill its rows */
    float offset;   /* added to every element as it is written: -1 for Gemma's norms of GGUF */
    float centre;   /* added when the written value is used: 1 for Gemma's norms */
    float *columns; /* [K], owned: factors of the columns; NULL: 1 */
    float *rows;    /* [N], owned: factors of the rows; NULL: 1 */
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
    size_t n_scaled, n_inputs;
} skv_quantizer;

/* ---- quantize_item.c ---- */

/** Returns the rest of a name after its layer's number, ".self_attn...", and the layer; NULL: not
 * in a layer. */
const char *skv_quantize_name_in_layer(const char *name, size_t *layer);
/** Finds the input of a projection; false if it is unknown: an expert reads only the rows routed to
 * it. The stack is one input for all layers. */
bool skv_quantize_find_input(const skv_quantize_item *item, size_t *layer, skv_product *product);

/** Whether an item's codes are written. */
bool skv_quantize_is_quantized(const skv_quantizer *q, const skv_quantize_item *item);
/** Codes and scales of an item; c NULL: round to nearest. */
SKV_MUST_CHECK skv_status skv_quantize_round_item(skv_quantizer *q, skv_quantize_item *item,
                                                  const skv_compensation *c, skv_error *err);
/** Returns the type in which a matrix that stays in floats is written. */
skv_dtype skv_quantize_written_type(const skv_quantize_item *item);
/** Rows [row0, row0 + n) of an item as they are written, out [n, columns]. */
SKV_MUST_CHECK skv_status skv_quantize_read(const skv_quantize_item *item, size_t row0, size_t n,
                                            float *out, skv_error *err);

/* ---- quantize.c ---- */

/** Opens the model of the options and lists its tensors. May fail half-way; the caller must release
 * q either way. */
SKV_MUST_CHECK skv_status skv_quantizer_open(skv_quantizer *q, const char *path,
                                             const skv_quantize_options *options, bool to_gguf,
                                             skv_error *err);
void skv_quantizer_release(skv_quantizer *q);

/* ---- quantize_scale.c ---- */

/** Chooses the factors of the columns that read an input, sets them in items and in c, and divides
 * the source of the input. Does nothing if that cannot be divided. */
SKV_MUST_CHECK skv_status skv_quantize_scale_input(skv_quantizer *q, skv_compensation *c,
                                                   size_t layer, skv_product product,
                                                   skv_error *err);
/** Multiplies the columns that read an input by s [K] and divides its source. Sets s to the
 * effective factors. *done is false if the source cannot be divided. */
SKV_MUST_CHECK skv_status skv_quantize_fold(skv_quantizer *q, size_t layer, skv_product product,
                                            float *s, size_t K, bool *done, skv_error *err);

/* ---- quantize_text.c ---- */

/** Rounds the items with known inputs by the text of the options; the model is at `path`. *n_tokens
 * receives the number of tokens read. */
SKV_MUST_CHECK skv_status skv_quantize_with_text(skv_quantizer *q, const char *path,
                                                 size_t *n_tokens, skv_error *err);

/* ---- quantize_folder.c ---- */

/** Refuses a folder that holds a model. */
SKV_MUST_CHECK skv_status skv_quantize_check_folder(const char *out, skv_error *err);
/** Writes all items and the companion files into a new folder. */
SKV_MUST_CHECK skv_status skv_quantize_write_folder(const skv_quantizer *q, const char *out,
                                                    uint64_t *n_bytes, skv_error *err);

/* ---- quantize_gguf.c ---- */

/** Whether OUT is to be a GGUF file: it ends in .gguf. */
bool skv_quantize_is_gguf(const char *out);
/** Makes the metadata. Refuses an existing file, other group sizes, and a configuration or
 * tokenizer that GGUF cannot represent. */
SKV_MUST_CHECK skv_status skv_quantize_begin_gguf(skv_quantizer *q, const char *out,
                                                  skv_error *err);
SKV_MUST_CHECK skv_status skv_quantize_write_gguf(const skv_quantizer *q, const char *out,
                                                  uint64_t *n_bytes, skv_error *err);

#endif
