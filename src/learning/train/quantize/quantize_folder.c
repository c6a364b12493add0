/* A quantised model as a Hugging Face folder: see quantizer.h, and format/coded.h for the layout.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "format/companions.h"
#include "format/config.h"
#include "train/quantize/quantizer.h"

enum { NAME_BYTES = 256, CONFIG_BYTES_MAX = 16 << 20, PARTS = 3 };

/* The tensors to write: an item is one tensor, or three of them. */
typedef struct folder_parts {
    skv_tensor_out *outs;        /* [n], owned */
    char (*names)[NAME_BYTES];   /* [n], owned */
    unsigned char (*shapes)[16]; /* [n items], owned: N and K, I64 */
    size_t n;
} folder_parts;

static skv_status write_rows(void *arg, size_t row0, size_t n, unsigned char *out, skv_error *err)
{
    const skv_quantize_item *item = arg;
    const size_t n_elements = n * skv_tensor_columns(item->tensor);
    float *rows = skv_alloc(n_elements, sizeof *rows);
    SKV_REQUIRE(rows, err, SKV_MEMORY, "%s: no memory for %zu rows", item->name, n);
    const skv_status status = skv_quantize_read(item, row0, n, rows, err);
    if (status == SKV_OK) {
        skv_dtype_from_f32(skv_quantize_written_type(item), out, rows, n_elements);
    }
    skv_free(rows);
    return status;
}

static skv_status add_part(folder_parts *p, const skv_quantize_item *item, const char *suffix,
                           skv_tensor_out out, skv_error *err)
{
    const int n = snprintf(p->names[p->n], NAME_BYTES, "%s%s", item->name, suffix);
    SKV_REQUIRE(n >= 0 && n < NAME_BYTES, err, SKV_RANGE, "tensor name %s is too long", item->name);
    out.name = p->names[p->n];
    p->outs[p->n++] = out;
    return SKV_OK;
}

static skv_status add_item(folder_parts *p, const skv_quantizer *q, size_t i, skv_error *err)
{
    skv_quantize_item *item = &q->items[i];
    const skv_tensor *t = item->tensor;
    if (!item->codes) {
        skv_tensor_out out = {.type = skv_quantize_written_type(item),
                              .n_dims = t->n_dims,
                              .rows = write_rows,
                              .arg = item};
        memcpy(out.dims, t->dims, sizeof out.dims);
        return add_part(p, item, "", out, err);
    }
    const size_t N = t->dims[0], K = t->dims[1];
    for (size_t b = 0; b < 8; b++) {
        p->shapes[i][b] = (unsigned char)((uint64_t)N >> 8 * b);
        p->shapes[i][8 + b] = (unsigned char)((uint64_t)K >> 8 * b);
    }
    SKV_TRY(add_part(p, item, "_packed",
                     (skv_tensor_out){.type = SKV_DTYPE_I32,
                                      .n_dims = 2,
                                      .dims = {N, K * q->rounding.bits / 32},
                                      .data = item->codes},
                     err));
    SKV_TRY(add_part(p, item, "_scale",
                     (skv_tensor_out){.type = q->rounding.scale_type,
                                      .n_dims = 2,
                                      .dims = {N, K / q->rounding.group},
                                      .data = item->scales},
                     err));
    return add_part(
        p, item, "_shape",
        (skv_tensor_out){.type = SKV_DTYPE_I64, .n_dims = 1, .dims = {2}, .data = p->shapes[i]},
        err);
}

static uint64_t bytes_of(const skv_tensor_out *out)
{
    uint64_t n = skv_dtype_block_bytes(out->type);
    for (size_t i = 0; i < out->n_dims; i++) n *= out->dims[i];
    return n;
}

static skv_status list_parts(folder_parts *p, const skv_quantizer *q, skv_error *err)
{
    p->outs = skv_alloc(PARTS * q->n, sizeof *p->outs);
    p->names = skv_alloc(PARTS * q->n, sizeof *p->names);
    p->shapes = skv_alloc(q->n, sizeof *p->shapes);
    SKV_REQUIRE(p->outs && p->names && p->shapes, err, SKV_MEMORY,
                "quantize: no memory for %zu tensors", q->n);
    for (size_t i = 0; i < q->n; i++) SKV_TRY(add_item(p, q, i, err));
    return SKV_OK;
}

/* ---- config.json ---- */

/* The modules that stay as they are, among those of the classes that are quantised. */
static skv_status put_ignored(const skv_quantizer *q, skv_quantization *out, skv_error *err)
{
    out->ignored = skv_alloc(q->n, sizeof *out->ignored);
    SKV_REQUIRE(out->ignored, err, SKV_MEMORY, "quantize: no memory for a list of modules");
    for (size_t i = 0; i < q->n; i++) {
        const skv_quantize_item *item = &q->items[i];
        const bool is_matrix = item->tensor->n_dims == 2 && !strstr(item->name, "embed_tokens") &&
                               !strstr(item->name, "_bias") &&
                               !strstr(item->name, "token_embeddings");
        if (is_matrix && !item->codes) out->ignored[out->n_ignored++] = item->name;
    }
    return SKV_OK;
}

static skv_status make_config(const skv_quantizer *q, const skv_quantization *form, skv_buf *out,
                              skv_error *err)
{
    const char *path = skv_source_path(q->source);
    char *text = NULL, *from = skv_path_join(path, "config.json");
    size_t n = 0;
    skv_buf own;
    skv_buf_init(&own, CONFIG_BYTES_MAX);
    skv_status status = from ? SKV_OK : skv_fail(err, SKV_MEMORY, "%s: no memory", path);
    if (status == SKV_OK && skv_source_gguf(q->source)) {
        status = skv_config_json_from_config(skv_source_config(q->source), &own, err);
        if (status == SKV_OK && own.failed)
            status = skv_fail(err, SKV_MEMORY, "%s: no memory", path);
        if (status == SKV_OK)
            status = skv_config_json_quantized(own.data, own.size, path, form, out, err);
    } else if (status == SKV_OK) {
        status = skv_file_read(from, CONFIG_BYTES_MAX, &text, &n, err);
        if (status == SKV_OK) status = skv_config_json_quantized(text, n, from, form, out, err);
    }
    skv_buf_release(&own);
    skv_free(text);
    skv_free(from);
    return status;
}

static skv_status write_config(const skv_quantizer *q, const char *out, skv_error *err)
{
    skv_quantization form = {.bits = q->rounding.bits, .group = q->rounding.group};
    skv_buf json;
    skv_buf_init(&json, CONFIG_BYTES_MAX);
    char *path = skv_path_join(out, "config.json");
    skv_status status = put_ignored(q, &form, err);
    if (status == SKV_OK) status = make_config(q, &form, &json, err);
    if (status == SKV_OK && (json.failed || !path)) {
        status = skv_fail(err, SKV_MEMORY, "%s: no memory for config.json", out);
    }
    if (status == SKV_OK) status = skv_file_write(path, json.data, json.size, err);
    skv_free(form.ignored);
    skv_free(path);
    skv_buf_release(&json);
    return status;
}

/* ---- the folder ---- */

skv_status skv_quantize_check_folder(const char *out, skv_error *err)
{
    SKV_REQUIRE(!skv_folder_has(out, "config.json"), err, SKV_ARGUMENT,
                "%s: already contains a model", out);
    return SKV_OK;
}

skv_status skv_quantize_write_folder(const skv_quantizer *q, const char *out, uint64_t *n_bytes,
                                     skv_error *err)
{
    folder_parts parts = {0};
    const bool is_new = !skv_file_is_folder(out);
    skv_status status = list_parts(&parts, q, err);
    if (status == SKV_OK) status = skv_folder_create(out, err);
    if (status == SKV_OK) {
        status = skv_safetensors_write_folder(out, parts.outs, parts.n, SKV_SHARD_BYTES_MAX, err);
    }
    if (status == SKV_OK) status = skv_companions_write(q->source, out, err);
    /* Last: without it the folder is no model. */
    if (status == SKV_OK) status = write_config(q, out, err);
    /* Goes only if nothing was finished in it, and takes nothing that was there before. */
    if (status != SKV_OK && is_new) (void)rmdir(out);
    *n_bytes = 0;
    for (size_t i = 0; i < parts.n; i++) *n_bytes += bytes_of(&parts.outs[i]);
    skv_free(parts.outs);
    skv_free(parts.names);
    skv_free(parts.shapes);
    return status;
}
