/* Writing tensors: see tensor_out.h. */
#include "format/tensor_out.h"

#include "base/mem.h"
#include "base/size.h"

enum { CHUNK_BYTES = 1 << 20 };

skv_status skv_tensor_out_measure(const skv_tensor_out *t, const char *path, skv_tensor_extent *out,
                                  skv_error *err)
{
    size_t rows = 1, columns = 1;
    bool fits = t->n_dims <= SKV_TENSOR_DIMS_MAX;
    for (size_t i = 0; fits && i < t->n_dims; i++) {
        size_t *side = i + 1 < t->n_dims ? &rows : &columns;
        fits = t->dims[i] > 0 && skv_size_mul(*side, t->dims[i], side);
    }
    *out = (skv_tensor_extent){.rows = rows};
    fits = fits && skv_dtype_bytes(t->type, columns, &out->row_bytes) &&
           skv_size_mul(rows, out->row_bytes, &out->n_bytes);
    SKV_REQUIRE(fits && (t->data || t->rows), err, SKV_ARGUMENT,
                "%s: %s: a tensor of this type or shape cannot be written", path, t->name);
    return SKV_OK;
}

/* Writes a tensor whose rows are computed on the fly. */
static skv_status put_rows(const skv_tensor_out *t, const skv_tensor_extent *extent, skv_writer *w,
                           skv_error *err)
{
    size_t n_chunk = skv_max_size(CHUNK_BYTES / extent->row_bytes, 1);
    n_chunk = skv_min_size(n_chunk, extent->rows);
    unsigned char *chunk = skv_alloc(n_chunk, extent->row_bytes);
    SKV_REQUIRE(chunk, err, SKV_MEMORY, "%s: no memory for a row of %s", w->path, t->name);
    skv_status status = SKV_OK;
    for (size_t row = 0; row < extent->rows && status == SKV_OK; row += n_chunk) {
        size_t n = skv_min_size(n_chunk, extent->rows - row);
        status = t->rows(t->arg, row, n, chunk, err);
        if (status == SKV_OK) status = skv_writer_put(w, chunk, n * extent->row_bytes, err);
    }
    skv_free(chunk);
    return status;
}

skv_status skv_tensor_out_put(const skv_tensor_out *t, const skv_tensor_extent *extent,
                              skv_writer *w, skv_error *err)
{
    return t->data ? skv_writer_put(w, t->data, extent->n_bytes, err) : put_rows(t, extent, w, err);
}
