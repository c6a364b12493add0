/* A weight matrix that can be read by rows: a tensor of a file, or random numbers (presets). */
#ifndef SKV_MODEL_MATRIX_H
#define SKV_MODEL_MATRIX_H

#include <stdint.h>

#include "format/tensor.h"

typedef struct skv_matrix {
    const skv_tensor *tensor; /* borrowed; NULL: random */
    uint64_t seed;            /* random: the same seed gives the same numbers */
    float scale;              /* random: uniform in (-scale, scale) around `center` */
    float center;
    size_t n_rows, n_columns;
} skv_matrix;

/** out [n, n_columns] = rows [row0, row0 + n); `matrix` is a const skv_matrix *. */
void skv_matrix_read(const void *matrix, size_t row0, size_t n, float *out);
/** Lets the system drop the file's pages behind it: they have been packed. */
void skv_matrix_forget(const skv_matrix *matrix);

#endif
