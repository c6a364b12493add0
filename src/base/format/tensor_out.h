/* A tensor that is to be written to a file, and its bytes. */
#ifndef SKV_FORMAT_TENSOR_OUT_H
#define SKV_FORMAT_TENSOR_OUT_H

#include "base/fail.h"
#include "base/file.h"
#include "format/tensor.h"

/** Writes rows [row0, row0 + n) in the tensor's type to `out`. A vector is one row. */
typedef skv_status skv_tensor_rows_fn(void *arg, size_t row0, size_t n, unsigned char *out,
                                      skv_error *err);

typedef struct skv_tensor_out {
    const char *name; /* borrowed */
    skv_dtype type;   /* as the file's format stores it */
    size_t n_dims;
    size_t dims[SKV_TENSOR_DIMS_MAX]; /* outermost first */
    const void *data;                 /* all bytes, borrowed; NULL: `rows` makes them */
    skv_tensor_rows_fn *rows;
    void *arg; /* borrowed; handed to `rows` */
} skv_tensor_out;

/* The sizes derived from a tensor's shape. */
typedef struct skv_tensor_extent {
    size_t rows, row_bytes, n_bytes;
} skv_tensor_extent;

/** `path` is for errors: a type or shape that cannot be written. */
SKV_MUST_CHECK skv_status skv_tensor_out_measure(const skv_tensor_out *t, const char *path,
                                                 skv_tensor_extent *out, skv_error *err);
/** Writes the tensor's bytes. */
SKV_MUST_CHECK skv_status skv_tensor_out_put(const skv_tensor_out *t,
                                             const skv_tensor_extent *extent, skv_writer *w,
                                             skv_error *err);

#endif
