/* Tensors in mapped files: see tensor.h. */
#include "format/tensor.h"

#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "format/coded.h"

enum {
    PIECE_BYTES = 4096, /* of a row, fetched at a time */
    CODED_COLUMNS = 8,  /* of a coded matrix that are read from a multiple of it on */
    TRANSPOSED = 128,   /* elements of a stored row that are read at a time */
    FORGET_BYTES_MIN = 1 << 15
};

skv_tensor skv_tensor_slice(const skv_tensor *t, size_t row, size_t n)
{
    size_t row_bytes = t->n_bytes / t->dims[0];
    skv_tensor slice = *t;
    slice.dims[0] = n;
    if (t->coded.layout) {
        slice.coded.row0 += row;
        return slice;
    }
    slice.data = t->data + row * row_bytes;
    slice.n_bytes = n * row_bytes;
    return slice;
}

skv_tensor skv_tensor_periodic(const skv_tensor *t, size_t step, size_t row, size_t n)
{
    const size_t n_periods = t->dims[0] / step;
    assert(!t->row_step && !t->n_rope_heads && t->dims[0] % step == 0 && row + n <= step);
    skv_tensor part = skv_tensor_slice(t, row, (n_periods - 1) * step + n);
    part.dims[0] = n_periods * n;
    part.row_step = step;
    part.row_block = n;
    return part;
}

/* The length of the axis with the heads: rows of a matrix, elements of a bias. */
static size_t head_axis(const skv_tensor *t)
{
    return t->n_dims == 1 ? t->dims[0] : skv_tensor_rows(t);
}

/* Row `row` of the rotate-half form among those that the tensor has in the file. */
static size_t head_row(const skv_tensor *t, size_t row)
{
    const size_t head_dim = t->n_rope_heads ? head_axis(t) / t->n_rope_heads : 0;
    const size_t half = t->n_rope_dims / 2;
    if (head_dim == 0 || row % head_dim >= t->n_rope_dims) return row;
    size_t at = row % head_dim; /* rotate-half: first halves of all pairs, then second halves */
    return row - at + (at < half ? 2 * at : 2 * (at - half) + 1);
}

/* Row `row` as the file counts them from the tensor's first on. */
static size_t stored_row(const skv_tensor *t, size_t row)
{
    const size_t block = skv_max_size(t->row_block, 1);
    row = head_row(t, row);
    return t->row_step > 0 ? row / block * t->row_step + row % block : row;
}

/* Whether adjacent rows are not adjacent in the file. */
static bool is_scattered(const skv_tensor *t)
{
    return t->n_rope_heads || t->row_step > 1;
}

/* Returns how many of n rows from `row` on are contiguous in the file. */
static size_t neighbours(const skv_tensor *t, size_t row, size_t n)
{
    if (!is_scattered(t)) return n;
    if (t->n_rope_heads) return 1;
    const size_t block = skv_max_size(t->row_block, 1);
    return skv_min_size(n, block - row % block);
}

const skv_quant_form *skv_tensor_form_of(const skv_tensor *t, size_t column0, size_t n_columns)
{
    return t->coded.layout ? skv_coded_form(t, column0, n_columns) : skv_quant_form_of(t->type);
}

const skv_quant_form *skv_tensor_form(const skv_tensor *t)
{
    return skv_tensor_form_of(t, 0, skv_tensor_columns(t));
}

/* Rows of a matrix that is stored transposed: a stored row has an element of each of them. */
static void read_transposed(const skv_tensor *t, size_t row0, size_t n, size_t column0,
                            size_t columns, float *out)
{
    const size_t step = skv_max_size(t->row_step, 1);
    const size_t size = skv_dtype_block_bytes(t->type), n_piece = TRANSPOSED / step;
    float piece[TRANSPOSED];
    for (size_t i = 0; i < n; i += n_piece) {
        const size_t m = skv_min_size(n_piece, n - i);
        for (size_t k = 0; k < columns; k++) {
            const size_t at = (column0 + k) * t->column_step + (row0 + i) * step;
            const unsigned char *from = t->data + at * size;
            skv_dtype_to_f32(t->type, piece, from, (m - 1) * step + 1);
            for (size_t r = 0; r < m; r++) out[(i + r) * columns + k] = piece[r * step];
        }
    }
}

static void read_coded(const skv_tensor *t, size_t row0, size_t n, size_t column0, size_t n_columns,
                       float *out)
{
    for (size_t i = 0, m; i < n; i += m) {
        const size_t row = t->coded.row0 + stored_row(t, row0 + i);
        m = neighbours(t, row0 + i, n - i);
        skv_coded_read_rows(t, row, m, column0, n_columns, out + i * n_columns);
    }
}

void skv_tensor_read_rows(const skv_tensor *t, size_t row0, size_t n, float *out)
{
    if (t->column_step > 0) {
        read_transposed(t, row0, n, 0, skv_tensor_columns(t), out);
        return;
    }
    if (t->coded.layout) {
        read_coded(t, row0, n, 0, skv_tensor_columns(t), out);
        return;
    }
    size_t columns = skv_tensor_columns(t), row_bytes = 0;
    bool whole = skv_dtype_bytes(t->type, columns, &row_bytes);
    assert(whole && row0 + n <= skv_tensor_rows(t));
    (void)whole;
    if (!is_scattered(t)) {
        skv_dtype_to_f32(t->type, out, t->data + row0 * row_bytes, n * columns);
    } else if (t->n_dims == 1) { /* a bias: its elements are the rows of the matrix */
        size_t size = skv_dtype_block_bytes(t->type);
        for (size_t i = 0; n && i < columns; i++) {
            skv_dtype_to_f32(t->type, out + i, t->data + stored_row(t, i) * size, 1);
        }
    } else {
        for (size_t i = 0; i < n; i++) {
            size_t row = stored_row(t, row0 + i);
            skv_dtype_to_f32(t->type, out + i * columns, t->data + row * row_bytes, columns);
        }
    }
}

bool skv_tensor_divides(const skv_tensor *t, size_t part)
{
    const size_t block = t->coded.layout ? CODED_COLUMNS : skv_dtype_block_elements(t->type);
    return t->n_dims == 2 && part % block == 0;
}

void skv_tensor_read_part(const skv_tensor *t, size_t row0, size_t n, size_t column0,
                          size_t n_columns, float *out)
{
    size_t row_bytes = 0, start = 0;
    if (n_columns == skv_tensor_columns(t)) {
        skv_tensor_read_rows(t, row0, n, out);
        return;
    }
    if (t->column_step > 0) {
        read_transposed(t, row0, n, column0, n_columns, out);
        return;
    }
    if (t->coded.layout) {
        read_coded(t, row0, n, column0, n_columns, out);
        return;
    }
    bool whole = skv_dtype_bytes(t->type, skv_tensor_columns(t), &row_bytes) &&
                 skv_dtype_bytes(t->type, column0, &start);
    assert(whole && skv_tensor_divides(t, n_columns));
    (void)whole;
    for (size_t i = 0; i < n; i++) {
        const unsigned char *row = t->data + stored_row(t, row0 + i) * row_bytes;
        skv_dtype_to_f32(t->type, out + i * n_columns, row + start, n_columns);
    }
}

void skv_tensor_read_codes(const skv_tensor *t, size_t row0, size_t column0, skv_quant_rows *rows)
{
    size_t row_bytes = 0, start = 0;
    bool whole = skv_dtype_bytes(t->type, skv_tensor_columns(t), &row_bytes) &&
                 skv_dtype_bytes(t->type, column0, &start);
    assert(whole && column0 + rows->K <= skv_tensor_columns(t) &&
           row0 + rows->n <= skv_tensor_rows(t));
    (void)whole;
    for (size_t i = 0, m; i < rows->n; i += m) {
        const size_t row = stored_row(t, row0 + i);
        m = t->coded.layout ? neighbours(t, row0 + i, rows->n - i) : 1;
        if (t->coded.layout) {
            skv_coded_read_codes(t, t->coded.row0 + row, column0, rows, i, m);
        } else {
            skv_quant_read(rows, i, t->type, t->data + row * row_bytes + start);
        }
    }
}

size_t skv_tensor_fp8_group(const skv_tensor *t, size_t column0, size_t n_columns)
{
    return t->coded.layout ? skv_coded_fp8_group(t, column0, n_columns) : 0;
}

void skv_tensor_read_fp8(const skv_tensor *t, size_t row0, size_t n, size_t column0,
                         size_t n_columns, uint8_t *codes, float *scales)
{
    const size_t group = skv_tensor_fp8_group(t, column0, n_columns);
    const size_t n_groups = group > 0 ? skv_ceil_div(n_columns, group) : 0;
    for (size_t i = 0; i < n; i++) {
        const size_t row = t->coded.row0 + stored_row(t, row0 + i);
        skv_coded_read_fp8(t, row, column0, n_columns, codes + i * n_columns,
                           scales + i * n_groups);
    }
}

void skv_tensor_forget(const skv_tensor *t)
{
    if (t->coded.layout) {
        skv_coded_forget(t);
    } else {
        skv_file_map_forget(t->data, t->n_bytes);
    }
}

void skv_tensor_forget_rows(const skv_tensor *t, size_t row0, size_t n)
{
    size_t row_bytes = 0;
    const bool by_column = t->column_step > 0 || skv_coded_is_by_column(t);
    const bool in_a_row = t->file && !by_column && !is_scattered(t);
    row0 += t->coded.row0;
    if (!in_a_row || !skv_dtype_bytes(t->type, skv_tensor_columns(t), &row_bytes)) return;
    if (n * row_bytes >= FORGET_BYTES_MIN) {
        skv_file_map_forget(t->data + row0 * row_bytes, n * row_bytes);
    }
}

skv_status skv_tensor_check(const skv_tensor *t, skv_error *err)
{
    if (t->file) SKV_TRY(skv_file_map_check(t->file, err));
    return t->coded.layout ? skv_coded_check(t, err) : SKV_OK;
}

bool skv_tensor_is_quantised(const skv_tensor *t)
{
    return t->coded.layout || skv_quant_form_of(t->type);
}

/* Refuses rows [row0, row0 + n) of codes with scales that are NaN or infinite. */
static skv_status check_finite(const skv_tensor *t, size_t row0, size_t n, size_t n_columns,
                               const float *rows, skv_error *err)
{
    for (size_t i = 0; skv_tensor_is_quantised(t) && i < n; i++) {
        const float fault = skv_quant_fault(rows + i * skv_tensor_columns(t), n_columns);
        SKV_REQUIRE(fault == 0.0F, err, SKV_FORMAT, "%s: %s: row %zu: %g, expected finite weights",
                    t->file ? t->file->path : "memory", t->name, row0 + i, (double)fault);
    }
    return SKV_OK;
}

skv_status skv_tensor_read_checked(const skv_tensor *t, size_t row0, size_t n, float *out,
                                   skv_error *err)
{
    SKV_TRY(skv_tensor_check(t, err));
    skv_tensor_read_rows(t, row0, n, out);
    SKV_TRY(skv_tensor_check(t, err));
    return check_finite(t, row0, n, skv_tensor_columns(t), out, err);
}

skv_status skv_tensor_fetch_row(const skv_tensor *t, size_t row, float *out, skv_error *err)
{
    return skv_tensor_fetch_start(t, row, skv_tensor_columns(t), out, err);
}

skv_status skv_tensor_fetch_start(const skv_tensor *t, size_t row, size_t n_columns, float *out,
                                  skv_error *err)
{
    /* A bias, or a matrix, element by element. */
    bool shuffled = (is_scattered(t) && t->n_dims == 1) || t->column_step > 0 || t->coded.layout;
    if (!t->file || shuffled) return skv_tensor_read_checked(t, row, 1, out, err);
    unsigned char piece[PIECE_BYTES];
    size_t block_bytes = skv_dtype_block_bytes(t->type), block = skv_dtype_block_elements(t->type);
    size_t n_blocks = skv_ceil_div(n_columns, block);
    const unsigned char *from =
        t->data + stored_row(t, row) * (skv_tensor_columns(t) / block) * block_bytes;
    for (size_t i = 0, n; i < n_blocks; i += n) {
        n = skv_min_size(n_blocks - i, sizeof piece / block_bytes);
        SKV_TRY(skv_file_map_fetch(t->file, from + i * block_bytes, n * block_bytes, piece, err));
        skv_dtype_to_f32(t->type, out + i * block, piece, n * block);
    }
    return check_finite(t, row, 1, n_columns, out, err);
}

size_t skv_tensor_shape_text(const size_t *dims, size_t n_dims, char *out, size_t size)
{
    size_t used = 0;
    for (size_t i = 0; i <= n_dims && used < size; i++) {
        int n = i < n_dims ? snprintf(out + used, size - used, "%s%zu", i ? "," : "[", dims[i])
                           : snprintf(out + used, size - used, n_dims ? "]" : "[]");
        if (n < 0) break;
        used += (size_t)n;
    }
    return used;
}

/* ---- names ---- */

static int by_name(const void *a, const void *b)
{
    const skv_name_entry *x = a, *y = b;
    return strcmp(x->name, y->name);
}

skv_status skv_name_index_build(skv_name_index *index, skv_name_entry *entries, size_t n,
                                const char *file, const char *what, skv_error *err)
{
    index->entries = entries;
    index->n = n;
    if (n) qsort(entries, n, sizeof *entries, by_name);
    for (size_t i = 1; i < n; i++) {
        SKV_REQUIRE(strcmp(entries[i - 1].name, entries[i].name) != 0, err, SKV_FORMAT,
                    "%s: %s %s appears twice", file, what, entries[i].name);
    }
    return SKV_OK;
}

void skv_name_index_release(skv_name_index *index)
{
    skv_free(index->entries);
    *index = (skv_name_index){0};
}

size_t skv_name_index_find(const skv_name_index *index, const char *name)
{
    if (!index->n) return SIZE_MAX;
    skv_name_entry key = {.name = name};
    const skv_name_entry *found =
        bsearch(&key, index->entries, index->n, sizeof *index->entries, by_name);
    return found ? found->i : SIZE_MAX;
}
