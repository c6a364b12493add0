/* Tensors that a result has from the model's files. */
#include <string.h>

#include "base/mem.h"
#include "train/trainer.h"

static skv_status copy_rows(void *arg, size_t row0, size_t n, unsigned char *out, skv_error *err)
{
    const skv_tensor *t = arg;
    const size_t n_elements = n * skv_tensor_columns(t);
    const skv_dtype type = skv_trainer_copied(t).type;
    float *x = skv_alloc(n_elements, sizeof *x);
    SKV_REQUIRE(x, err, SKV_MEMORY, "%s: no memory for %zu rows", t->name, n);
    const skv_status status = skv_tensor_read_checked(t, row0, n, x, err);
    if (status == SKV_OK) skv_dtype_from_f32(type, out, x, n_elements);
    skv_free(x);
    return status;
}

skv_tensor_out skv_trainer_copied(const skv_tensor *t)
{
    const bool stays = t->type == SKV_DTYPE_F32 || t->type == SKV_DTYPE_F16;
    skv_tensor_out out = {.name = t->name,
                          .type = stays ? t->type : SKV_DTYPE_BF16,
                          .n_dims = t->n_dims,
                          .rows = copy_rows,
                          .arg = (void *)(uintptr_t)t};
    memcpy(out.dims, t->dims, sizeof out.dims);
    return out;
}
