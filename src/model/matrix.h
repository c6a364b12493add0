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
/** out [n_columns] = one row, fetched from its file: for rows that are read while a model runs. */
SKV_MUST_CHECK skv_status skv_matrix_fetch_row(const skv_matrix *matrix, size_t row, float *out,
                                               skv_error *err);
/** Whether the file behind it is still whole; skv_matrix_read is for between two of these. */
SKV_MUST_CHECK skv_status skv_matrix_check(const skv_matrix *matrix, skv_error *err);
/** Lets the system drop the file's pages behind it: they have been packed. */
void skv_matrix_forget(const skv_matrix *matrix);

#endif
