/* The pairs of an adapter, as both forms of files fill them: see lora.h. */
#include "format/lora.h"

#include <string.h>

#include "base/mem.h"

skv_status skv_lora_take(skv_lora *lora, size_t n_tensors, skv_error *err)
{
    SKV_REQUIRE(n_tensors <= SKV_LORA_PAIRS_MAX, err, SKV_RANGE, "%s: %zu tensors, at most %d",
                lora->path, n_tensors, SKV_LORA_PAIRS_MAX);
    lora->pairs = skv_alloc_zero(n_tensors + 1, sizeof *lora->pairs);
    SKV_REQUIRE(lora->pairs, err, SKV_MEMORY, "%s: no memory", lora->path);
    return SKV_OK;
}

skv_status skv_lora_put(skv_lora *lora, const char *name, size_t n_name, bool is_b,
                        const skv_tensor *tensor, skv_error *err)
{
    SKV_REQUIRE(n_name < SKV_LORA_NAME_BYTES, err, SKV_FORMAT,
                "%s: %s: a name of %zu bytes, at most %d", lora->path, tensor->name, n_name,
                SKV_LORA_NAME_BYTES - 1);
    SKV_REQUIRE(tensor->n_dims == 2, err, SKV_FORMAT, "%s: %s: %zu dimensions, expected 2",
                lora->path, tensor->name, tensor->n_dims);
    size_t i = 0;
    while (i < lora->n_pairs &&
           (strncmp(lora->pairs[i].name, name, n_name) != 0 || lora->pairs[i].name[n_name])) {
        i++;
    }
    skv_lora_pair *pair = &lora->pairs[i];
    if (i == lora->n_pairs) {
        lora->n_pairs++;
        memcpy(pair->name, name, n_name);
    }
    *(is_b ? &pair->b : &pair->a) = *tensor;
    return SKV_OK;
}
