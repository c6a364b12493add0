/* LoRA adapters (arXiv:2106.09685) in the matrices of a model that is written: W + sum of s B A. */
#ifndef SKV_TRAIN_MERGE_H
#define SKV_TRAIN_MERGE_H

#include "format/lora.h"
#include "model/adapter.h"

/** rows [n, K] += s B A of rows [row0, row0 + n) of a tensor of that name ("....weight"), for each
 * adapter that has a pair of it. */
SKV_MUST_CHECK skv_status skv_merge_rows(const skv_adapters *adapters, const char *name,
                                         size_t row0, size_t n, float *rows, skv_error *err);

#endif
