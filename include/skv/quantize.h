/** Quantising a model's weights to 4 or 8 bits. */
#ifndef SKV_QUANTIZE_H
#define SKV_QUANTIZE_H

#include <stddef.h>
#include <stdint.h>

#include "skv/skv.h"

SKV_BEGIN

/* How a text is used. */
typedef enum skv_quantize_method {
    SKV_QUANTIZE_GPTQ,    /* columns make up for each other's rounding errors (arXiv:2210.17323) */
    SKV_QUANTIZE_AWQ,     /* columns of large inputs are scaled up before rounding; the operation
                           * that produces these inputs is scaled down (arXiv:2306.00978) */
    SKV_QUANTIZE_AWQ_GPTQ /* both: scales are chosen by the error that the first leaves */
} skv_quantize_method;

typedef struct skv_quantize_options {
    skv_weights weights; /* SKV_WEIGHTS_INT4 or SKV_WEIGHTS_INT8 */
    size_t group;        /* elements of a row that share a scale: 32 or 128 */
    /* Calibration text, .jsonl or token ids: minimises the error of each matrix on its own inputs,
     * if these are known (those of experts are not). None: round to nearest. */
    const char *const *data; /* [n_data] */
    size_t n_data;
    skv_quantize_method method;                 /* with a text */
    size_t threads;                             /* 0: one for each processor allowed */
    void (*progress)(void *user, double share); /* share of the work in 0..1; may be NULL */
    void *user;
} skv_quantize_options;

/** 4 bits, groups of 32. */
SKV_API skv_quantize_options skv_quantize_options_default(void);

typedef struct skv_quantize_report {
    size_t n_quantized; /* matrices that were quantised */
    size_t n_left;      /* projections whose row length is not a multiple of `group`: unchanged */
    size_t n_nearest;   /* with a text: matrices of experts, rounded to nearest, since their inputs
                         * are unknown */
    uint64_t bytes_from, bytes; /* of the tensors that were read, and of those written */
    size_t tokens;              /* of the text that were read */
    size_t n_scaled, n_inputs;  /* with AWQ: inputs of products that were scaled, of all */
    double error;               /* of the quantised matrices: |Q - W|^2 / |W|^2 */
} skv_quantize_report;

/**
 * Writes the model at `path`, a Hugging Face folder or a GGUF file, with its projections quantised
 * to the new folder `out`: safetensors in the layout `pack-quantized` of compressed-tensors, which
 * vLLM, transformers and this library open. Embedding, head, norms and biases stay as they are, and
 * so do SwiftKV's tensors and keys of config.json. Copies the tokenizer files. report may be NULL.
 * On failure no partial model remains.
 *
 * If `out` ends in .gguf, writes a GGUF file with Q4_0 or Q8_0 (group 32); its embedding and head
 * use Q8_0. Fails with SKV_UNSUPPORTED if GGUF cannot represent the model or its tokenizer.
 */
SKV_CHECKED skv_status skv_quantize(const char *path, const char *out,
                                    const skv_quantize_options *options,
                                    skv_quantize_report *report, skv_error *err);

SKV_END

#endif
