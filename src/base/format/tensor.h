/* A tensor in a mapped file, and finding tensors and keys by their names. */
#ifndef SKV_FORMAT_TENSOR_H
#define SKV_FORMAT_TENSOR_H

#include "base/fail.h"
#include "base/file.h"
#include "base/quant.h"
#include "format/dtype.h"

enum { SKV_TENSOR_DIMS_MAX = 4 };

/* The layouts of codes that have separate tensors of scales: coded.h. */
typedef enum skv_code_layout {
    SKV_CODES_NONE,
    SKV_CODES_FP8,
    SKV_CODES_I8,
    SKV_CODES_BYTES,
    SKV_CODES_PACKED,
    SKV_CODES_E2M1,
    SKV_CODES_GPTQ,
    SKV_CODES_AWQ
} skv_code_layout;

typedef struct skv_tensor_part {
    const unsigned char *data; /* borrowed as a tensor's; NULL: none */
    const skv_file_map *file;  /* as a tensor's */
} skv_tensor_part;

/* The rest of a coded matrix, which slices of it share: their `data` is its first row's. */
typedef struct skv_tensor_coded {
    skv_code_layout layout;
    size_t row0;                       /* the tensor's first row among */
    size_t n_rows;                     /* those of the whole matrix */
    size_t n_groups;                   /* scales of a row */
    skv_tensor_part scales;            /* of (row, group), at */
    size_t scale_row_step, scale_step; /* row / block_rows * row_step + group * step */
    skv_dtype scale_type;              /* F32, F16 or BF16; of E2M1 U8 */
    size_t block_rows, block_columns;  /* that share a scale */
    size_t n_row_blocks;               /* along the rows */
    bool block_unsure;                 /* block size other than 128: config.json must confirm it */
    skv_tensor_part zeros;             /* 4 bits, as the codes */
    unsigned zero_offset;              /* is added to them */
    skv_tensor_part groups;            /* I32 [K]: of each column; none: column / block_columns */
    bool says_groups;                  /* the file does, if only column / block_columns */
} skv_tensor_coded;

typedef struct skv_tensor {
    const char *name; /* borrowed from the file it was found in */
    skv_dtype type;
    size_t n_dims;
    size_t dims[SKV_TENSOR_DIMS_MAX]; /* outermost first: a matrix W[N, K] has dims {N, K} */
    const unsigned char *data;        /* borrowed from the mapped file; checked to lie inside it */
    size_t n_bytes;
    const skv_file_map *file; /* borrowed: the map that data lies in; NULL: plain memory */
    /* Rows stored for interleaved rotation (GGUF's llama q and k): n_rope_heads > 0: each head's
     * rows are in pair order, and reading puts them into rotate-half order. For a vector (a bias)
     * this applies to the elements. */
    size_t n_rope_heads;
    size_t n_rope_dims; /* rotated dimensions at the start of a head; the rest is unchanged */
    /* The order of the rows in the file, if they are not contiguous: */
    size_t row_step;    /* every n-th of the stored ones, from the first on; 0: each */
    size_t row_block;   /* with row_step: this many adjacent rows, then the next row_step further;
                         * 0: one */
    size_t column_step; /* stored transposed: elements from one of a row to its next; 0: not */
    skv_tensor_coded coded;
} skv_tensor;

/** The length of its rows. */
static inline size_t skv_tensor_columns(const skv_tensor *t)
{
    return t->n_dims ? t->dims[t->n_dims - 1] : 1;
}

/** Their number: all dims but the last, multiplied. */
static inline size_t skv_tensor_rows(const skv_tensor *t)
{
    size_t rows = 1; /* cannot overflow: the parser checked the product of all dims */
    for (size_t i = 0; i + 1 < t->n_dims; i++) rows *= t->dims[i];
    return rows;
}

/** Rows of the file from its first to its last one. */
static inline size_t skv_tensor_stored_rows(const skv_tensor *t)
{
    const size_t n = skv_tensor_rows(t), block = t->row_block ? t->row_block : 1;
    return t->row_step > 0 && n > 0 ? (n / block - 1) * t->row_step + block : n;
}

/** Rows [row, row + n) of a matrix as they are stored, or elements of a vector. */
skv_tensor skv_tensor_slice(const skv_tensor *t, size_t row, size_t n);
/** For a matrix or vector with rows in periods of `step`: returns rows [row, row + n) of every
 * period, concatenated. The number of rows is a multiple of `step`. */
skv_tensor skv_tensor_periodic(const skv_tensor *t, size_t step, size_t row, size_t n);
/** Writes "[4096,1024]", cut to size - 1 characters; returns the uncut length. */
size_t skv_tensor_shape_text(const size_t *dims, size_t n_dims, char *out, size_t size);
/** out [n, columns] = rows [row0, row0 + n) as f32, in rotate-half order; see skv_tensor_check. */
void skv_tensor_read_rows(const skv_tensor *t, size_t row0, size_t n, float *out);
/** out [n, n_columns] = columns [column0, column0 + n_columns) of these rows: all of them, or those
 * of a tensor with skv_tensor_divides. */
void skv_tensor_read_part(const skv_tensor *t, size_t row0, size_t n, size_t column0,
                          size_t n_columns, float *out);
/** Whether columns from a multiple of `part` on can be read alone, `part` of them. */
bool skv_tensor_divides(const skv_tensor *t, size_t part);
/** As skv_tensor_read_rows, between two calls of skv_tensor_check. Refuses codes with NaN or
 * infinite scales, naming the tensor. */
SKV_MUST_CHECK skv_status skv_tensor_read_checked(const skv_tensor *t, size_t row0, size_t n,
                                                  float *out, skv_error *err);
/** Whether the file holds codes and scales. */
bool skv_tensor_is_quantised(const skv_tensor *t);
/** Returns the form of its codes (quant.h); NULL if it holds floats, or scales without a form. */
const skv_quant_form *skv_tensor_form(const skv_tensor *t);
/** The form of columns [column0, column0 + n_columns) of it: other parts may cut groups. */
const skv_quant_form *skv_tensor_form_of(const skv_tensor *t, size_t column0, size_t n_columns);
/** The same part, rows->n of them and rows->K columns, as codes: for tensors that have a form. */
void skv_tensor_read_codes(const skv_tensor *t, size_t row0, size_t column0, skv_quant_rows *rows);
/** Of e4m3: how many columns of [column0, column0 + n_columns) share a scale, all of them or a
 * power of two from 32 on; 0 of others, and where scales lie otherwise. */
size_t skv_tensor_fp8_group(const skv_tensor *t, size_t column0, size_t n_columns);
/** The codes [n, n_columns] of these rows, and their scales [n, ceil(n_columns / group)]. */
void skv_tensor_read_fp8(const skv_tensor *t, size_t row0, size_t n, size_t column0,
                         size_t n_columns, uint8_t *codes, float *scales);
/** Lets the system drop the resident pages that hold the tensor. */
void skv_tensor_forget(const skv_tensor *t);
/** As above for rows that were just read, if that is worth a system call. */
void skv_tensor_forget_rows(const skv_tensor *t, size_t row0, size_t n);
/** Checks that the tensor's file is still whole. Callers check before and after reading rows. */
SKV_MUST_CHECK skv_status skv_tensor_check(const skv_tensor *t, skv_error *err);
/** out [columns] = a row as f32, fetched from the file: safe whatever has become of it (but a
 * permuted bias and coded matrices, which are read as above). */
SKV_MUST_CHECK skv_status skv_tensor_fetch_row(const skv_tensor *t, size_t row, float *out,
                                               skv_error *err);
/** As skv_tensor_fetch_row, but only the first n_columns are guaranteed; out has room for the whole
 * row. */
SKV_MUST_CHECK skv_status skv_tensor_fetch_start(const skv_tensor *t, size_t row, size_t n_columns,
                                                 float *out, skv_error *err);

/*
 * Names -> numbers, for the keys and tensors of a file. Sorted, so that no choice of names makes it
 * slow, and equal names are adjacent.
 */
typedef struct skv_name_entry {
    const char *name; /* borrowed */
    size_t i;
} skv_name_entry;

typedef struct skv_name_index {
    skv_name_entry *entries; /* [n], owned, sorted by name */
    size_t n;
} skv_name_index;

/*
 * Takes ownership of entries[0..n) (from skv_alloc) and sorts them, also on failure. Two equal
 * names are an error: "FILE: WHAT NAME appears twice".
 */
SKV_MUST_CHECK skv_status skv_name_index_build(skv_name_index *index, skv_name_entry *entries,
                                               size_t n, const char *file, const char *what,
                                               skv_error *err);
void skv_name_index_release(skv_name_index *index);

/** The number of a name, SIZE_MAX when there is none. */
size_t skv_name_index_find(const skv_name_index *index, const char *name);

#endif
