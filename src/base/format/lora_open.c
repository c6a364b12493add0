/* Opens an adapter of either form and checks its pairs: see lora.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "format/gguf.h"
#include "format/lora.h"
#include "format/safetensors.h"

static skv_status check_pair(const skv_lora *lora, const skv_lora_pair *pair, skv_error *err)
{
    SKV_REQUIRE(pair->a.name && pair->b.name, err, SKV_FORMAT, "%s: %s: its lora_%s is missing",
                lora->path, pair->name, pair->a.name ? "B" : "A");
    SKV_REQUIRE(pair->a.dims[0] > 0 && pair->a.dims[0] == pair->b.dims[1], err, SKV_FORMAT,
                "%s: %s: A has %zu rows and B %zu columns, expected one rank", lora->path,
                pair->name, pair->a.dims[0], pair->b.dims[1]);
    SKV_REQUIRE(pair->a.coded.layout == SKV_CODES_NONE && pair->b.coded.layout == SKV_CODES_NONE,
                err, SKV_UNSUPPORTED, "%s: %s: codes with scales, expected F32, F16 or BF16",
                lora->path, pair->name);
    SKV_REQUIRE(isfinite(pair->scale), err, SKV_FORMAT, "%s: %s: scale %g, expected a finite one",
                lora->path, pair->name, (double)pair->scale);
    return SKV_OK;
}

static int by_name(const void *a, const void *b)
{
    const skv_lora_pair *one = a, *other = b;
    return strcmp(one->name, other->name);
}

static void add_tensor(skv_sha256 *sha, const skv_tensor *t)
{
    const uint64_t about[] = {t->dims[0], t->dims[1], (uint64_t)t->type, t->n_rope_heads};
    skv_sha256_add(sha, about, sizeof about);
    skv_sha256_add(sha, t->data, t->n_bytes);
}

/* The pairs in the order of their names, so that it does not matter how a file orders them. */
static skv_status hash_pairs(skv_lora *lora, skv_error *err)
{
    skv_sha256 sha;
    skv_sha256_init(&sha);
    qsort(lora->pairs, lora->n_pairs, sizeof *lora->pairs, by_name);
    for (size_t i = 0; i < lora->n_pairs; i++) {
        const skv_lora_pair *pair = &lora->pairs[i];
        SKV_TRY(skv_tensor_check(&pair->a, err));
        SKV_TRY(skv_tensor_check(&pair->b, err));
        skv_sha256_add(&sha, pair->name, strlen(pair->name) + 1);
        skv_sha256_add(&sha, &pair->scale, sizeof pair->scale);
        add_tensor(&sha, &pair->a);
        add_tensor(&sha, &pair->b);
    }
    skv_sha256_end(&sha, lora->hash);
    return SKV_OK;
}

static skv_status read_adapter(skv_lora *lora, const skv_config *config, skv_error *err)
{
    SKV_REQUIRE(lora->path, err, SKV_MEMORY, "adapter: no memory");
    if (skv_file_is_folder(lora->path)) {
        SKV_TRY(skv_lora_read_peft(lora, err));
    } else {
        SKV_TRY(skv_lora_read_gguf(lora, err));
    }
    SKV_REQUIRE(lora->n_pairs > 0, err, SKV_FORMAT, "%s: no matrices of an adapter", lora->path);
    for (size_t i = 0; i < lora->n_pairs; i++) SKV_TRY(check_pair(lora, &lora->pairs[i], err));
    SKV_TRY(skv_lora_rename(lora, config, err));
    return hash_pairs(lora, err);
}

skv_status skv_lora_open(const char *path, const skv_config *config, skv_lora *out, skv_error *err)
{
    *out = (skv_lora){.path = skv_strndup(path, strlen(path))};
    const skv_status status = read_adapter(out, config, err);
    if (status != SKV_OK) skv_lora_close(out);
    return status;
}

void skv_lora_close(skv_lora *lora)
{
    skv_safetensors_close(lora->tensors);
    skv_gguf_close(lora->gguf);
    skv_free(lora->pairs);
    skv_free(lora->path);
    *lora = (skv_lora){0};
}
