/* Merging adapters: see merge.h. */
#include "train/merge.h"

#include <string.h>

#include "base/mem.h"

static bool is_of(const skv_lora_pair *pair, const char *name)
{
    const size_t n = strlen(pair->name);
    return strncmp(pair->name, name, n) == 0 && strcmp(name + n, ".weight") == 0;
}

/* rows [n, K] += scale * b [n, r] a [r, K]. */
static void add_product(const float *a, const float *b, float scale, size_t n, size_t r, size_t K,
                        float *rows)
{
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < r; j++) {
            const float factor = scale * b[i * r + j];
            for (size_t k = 0; k < K; k++) rows[i * K + k] += factor * a[j * K + k];
        }
    }
}

static skv_status add_pair(const skv_lora_pair *pair, size_t row0, size_t n, float *rows,
                           skv_error *err)
{
    const size_t r = pair->a.dims[0], K = pair->a.dims[1];
    float *a = skv_alloc(r * K, sizeof *a), *b = skv_alloc(n * r, sizeof *b);
    skv_status status =
        a && b ? SKV_OK : skv_fail(err, SKV_MEMORY, "%s: no memory for rank %zu", pair->name, r);
    if (status == SKV_OK) status = skv_tensor_read_checked(&pair->a, 0, r, a, err);
    if (status == SKV_OK) status = skv_tensor_read_checked(&pair->b, row0, n, b, err);
    if (status == SKV_OK) add_product(a, b, pair->scale, n, r, K, rows);
    skv_free(a);
    skv_free(b);
    return status;
}

skv_status skv_merge_rows(const skv_adapters *adapters, const char *name, size_t row0, size_t n,
                          float *rows, skv_error *err)
{
    for (size_t i = 0; i < adapters->n; i++) {
        const skv_lora *file = &adapters->items[i].file;
        for (size_t j = 0; j < file->n_pairs; j++) {
            if (!is_of(&file->pairs[j], name)) continue;
            SKV_TRY(add_pair(&file->pairs[j], row0, n, rows, err));
        }
    }
    return SKV_OK;
}
