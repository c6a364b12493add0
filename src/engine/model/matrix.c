/* Weight matrices by rows: see model.h. */
#include "model/model.h"

#include <assert.h>

#include "base/rng.h"
#include "base/size.h"

/* Four 16-bit uniforms from each 64-bit draw: a preset has more than 10^9 weights to make. */
static void random_row(const skv_matrix *m, size_t row, float *out)
{
    const size_t end = m->column0 + m->n_columns;
    float step = m->scale / 32768.0f;
    uint64_t counter = skv_mix64(m->seed + row);
    for (size_t k = m->column0, next; k < end; k = next) {
        uint64_t bits = skv_mix64(counter + k / 4 * 4);
        next = skv_min_size(k / 4 * 4 + 4, end);
        for (size_t i = k; i < next; i++) {
            *out++ = m->center + step * (float)((int)(bits >> (16 * (i % 4)) & 0xffff) - 32768);
        }
    }
}

void skv_matrix_read(const void *matrix, size_t row0, size_t n, float *out)
{
    const skv_matrix *m = matrix;
    row0 += m->row0;
    if (m->tensor) {
        skv_tensor_read_part(m->tensor, row0, n, m->column0, m->n_columns, out);
        skv_tensor_forget_rows(m->tensor, row0, n);
        for (size_t i = 0; m->times != 0 && i < n * m->n_columns; i++) out[i] *= m->times;
        return;
    }
    for (size_t i = 0; i < n; i++) random_row(m, row0 + i, out + i * m->n_columns);
}

void skv_matrix_read_codes(const void *matrix, size_t row0, size_t n, skv_quant_rows *out)
{
    const skv_matrix *m = matrix;
    assert(n == out->n);
    skv_tensor_read_codes(m->tensor, m->row0 + row0, m->column0, out);
    skv_tensor_forget_rows(m->tensor, m->row0 + row0, n);
}

void skv_matrix_read_fp8(const void *matrix, size_t row0, size_t n, uint8_t *codes, float *scales)
{
    const skv_matrix *m = matrix;
    skv_tensor_read_fp8(m->tensor, m->row0 + row0, n, m->column0, m->n_columns, codes, scales);
    skv_tensor_forget_rows(m->tensor, m->row0 + row0, n);
}

skv_status skv_matrix_fetch_row(const skv_matrix *m, size_t row, float *out, skv_error *err)
{
    if (m->tensor) return skv_tensor_fetch_row(m->tensor, row, out, err);
    random_row(m, row, out);
    return SKV_OK;
}

skv_status skv_matrix_check(const skv_matrix *m, skv_error *err)
{
    return m->tensor ? skv_tensor_check(m->tensor, err) : SKV_OK;
}

skv_status skv_matrix_fetch_start(const skv_matrix *m, size_t row, size_t n_columns, float *out,
                                  skv_error *err)
{
    if (m->tensor) return skv_tensor_fetch_start(m->tensor, row, n_columns, out, err);
    skv_matrix start = *m;
    start.n_columns = n_columns;
    random_row(&start, row, out);
    return SKV_OK;
}

void skv_matrix_forget(const skv_matrix *matrix)
{
    if (matrix->tensor) skv_tensor_forget(matrix->tensor);
}
