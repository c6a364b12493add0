/* Writing safetensors: see safetensors.h. */
#include "format/safetensors.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/size.h"

enum { HEADER_BYTES_MAX = 100000000, SHARDS_MAX = 99999, TYPES = 5 };

/* A tensor with its derived extent. */
typedef struct item {
    const skv_tensor_out *tensor;
    skv_tensor_extent extent;
    size_t i_shard; /* from 0 */
} item;

/* The library's order of types; TYPES for those that it has no name for. */
static size_t type_rank(skv_dtype type)
{
    static const skv_dtype order[TYPES] = {SKV_DTYPE_I64, SKV_DTYPE_F32, SKV_DTYPE_I32,
                                           SKV_DTYPE_BF16, SKV_DTYPE_F16};
    size_t i = 0;
    while (i < TYPES && order[i] != type) i++;
    return i;
}

static int by_type_and_name(const void *a, const void *b)
{
    const item *x = *(const item *const *)a, *y = *(const item *const *)b;
    const size_t a_rank = type_rank(x->tensor->type), b_rank = type_rank(y->tensor->type);
    if (a_rank != b_rank) return a_rank < b_rank ? -1 : 1;
    return strcmp(x->tensor->name, y->tensor->name);
}

static void put_json_name(skv_buf *out, const char *name)
{
    skv_buf_byte(out, '"');
    skv_buf_json_text(out, name, strlen(name));
    skv_buf_byte(out, '"');
}

static void put_entry(skv_buf *out, const skv_tensor_out *t, size_t begin, size_t end)
{
    skv_buf_byte(out, ',');
    put_json_name(out, t->name);
    skv_buf_printf(out, ":{\"dtype\":\"%s\",\"shape\":[", skv_dtype_name(t->type));
    for (size_t i = 0; i < t->n_dims; i++) skv_buf_printf(out, i ? ",%zu" : "%zu", t->dims[i]);
    skv_buf_printf(out, "],\"data_offsets\":[%zu,%zu]}", begin, end);
}

/* The length and the header, padded so that the data begins on a multiple of 8. */
static skv_status put_header(skv_writer *w, const item *const *order, size_t n, skv_error *err)
{
    skv_buf header;
    skv_buf_init(&header, HEADER_BYTES_MAX);
    skv_buf_text(&header, "{\"__metadata__\":{\"format\":\"pt\"}");
    size_t at = 0;
    bool fits = true;
    for (size_t i = 0; i < n && fits; i++) {
        size_t begin = at;
        fits = skv_size_add(at, order[i]->extent.n_bytes, &at);
        put_entry(&header, order[i]->tensor, begin, at);
    }
    skv_buf_byte(&header, '}');
    while (!header.failed && header.size % 8 != 0) skv_buf_byte(&header, ' ');
    skv_status status = SKV_OK;
    if (header.failed || !fits) {
        status = skv_fail(err, SKV_FULL, "%s: the header is too large", w->path);
    } else {
        unsigned char length[8];
        for (size_t i = 0; i < 8; i++) length[i] = (unsigned char)((uint64_t)header.size >> 8 * i);
        status = skv_writer_put(w, length, sizeof length, err);
        if (status == SKV_OK) status = skv_writer_put(w, header.data, header.size, err);
    }
    skv_buf_release(&header);
    return status;
}

static skv_status put_file(skv_writer *w, const item *const *order, size_t n, skv_error *err)
{
    SKV_TRY(put_header(w, order, n, err));
    for (size_t i = 0; i < n; i++) {
        SKV_TRY(skv_tensor_out_put(order[i]->tensor, &order[i]->extent, w, err));
    }
    return SKV_OK;
}

/* Writes the items of one shard. */
static skv_status write_file(const char *path, const item *items, size_t n, size_t i_shard,
                             skv_error *err)
{
    const item **order = skv_alloc(n, sizeof *order);
    SKV_REQUIRE(order, err, SKV_MEMORY, "%s: no memory", path);
    size_t n_order = 0;
    for (size_t i = 0; i < n; i++) {
        if (items[i].i_shard == i_shard) order[n_order++] = &items[i];
    }
    if (n_order) qsort(order, n_order, sizeof *order, by_type_and_name);
    skv_writer writer = {0};
    skv_status status = SKV_OK;
    for (size_t i = 1; i < n_order && status == SKV_OK; i++) {
        if (by_type_and_name(&order[i - 1], &order[i]) != 0) continue;
        status = skv_fail(err, SKV_ARGUMENT, "%s: tensor %s appears twice", path,
                          order[i]->tensor->name);
    }
    if (status == SKV_OK) status = skv_writer_open(&writer, path, err);
    if (status == SKV_OK) status = put_file(&writer, order, n_order, err);
    if (status == SKV_OK) {
        status = skv_writer_commit(&writer, err);
    } else {
        skv_writer_abort(&writer);
    }
    skv_free(order);
    return status;
}

/* Fills shards in the order given: a tensor that does not fit opens the next. */
static skv_status assign_shards(item *items, size_t n, size_t shard_bytes_max, const char *folder,
                                size_t *n_shards, size_t *total, skv_error *err)
{
    size_t used = 0, i_shard = 0;
    *total = 0;
    for (size_t i = 0; i < n; i++) {
        bool fits = used <= shard_bytes_max && items[i].extent.n_bytes <= shard_bytes_max - used;
        if (used && !fits) {
            i_shard++;
            used = 0;
        }
        items[i].i_shard = i_shard;
        used += items[i].extent.n_bytes;
        SKV_REQUIRE(skv_size_add(*total, items[i].extent.n_bytes, total), err, SKV_RANGE,
                    "%s: the tensors' size does not fit", folder);
    }
    *n_shards = i_shard + 1;
    SKV_REQUIRE(*n_shards <= SHARDS_MAX, err, SKV_RANGE, "%s: %zu shards, at most %d", folder,
                *n_shards, SHARDS_MAX);
    return SKV_OK;
}

static void shard_name(char out[64], size_t i, size_t n_shards)
{
    if (n_shards == 1) {
        (void)snprintf(out, 64, "model.safetensors");
    } else {
        (void)snprintf(out, 64, "model-%05zu-of-%05zu.safetensors", i + 1, n_shards);
    }
}

static int by_name(const void *a, const void *b)
{
    const item *x = *(const item *const *)a, *y = *(const item *const *)b;
    return strcmp(x->tensor->name, y->tensor->name);
}

static skv_status write_index(const char *path, const item *items, size_t n, size_t n_shards,
                              size_t total, skv_error *err)
{
    const item **order = skv_alloc(n, sizeof *order);
    SKV_REQUIRE(order, err, SKV_MEMORY, "%s: no memory", path);
    for (size_t i = 0; i < n; i++) order[i] = &items[i];
    if (n) qsort(order, n, sizeof *order, by_name);
    skv_buf text;
    skv_buf_init(&text, HEADER_BYTES_MAX);
    skv_buf_printf(&text, "{\n  \"metadata\": {\n    \"total_size\": %zu\n  },\n", total);
    skv_buf_text(&text, "  \"weight_map\": {");
    for (size_t i = 0; i < n; i++) {
        char name[64];
        shard_name(name, order[i]->i_shard, n_shards);
        skv_buf_text(&text, i ? ",\n    " : "\n    ");
        put_json_name(&text, order[i]->tensor->name);
        skv_buf_printf(&text, ": \"%s\"", name);
    }
    skv_buf_text(&text, "\n  }\n}\n");
    skv_status status = text.failed ? skv_fail(err, SKV_FULL, "%s: the index is too large", path)
                                    : skv_file_write(path, text.data, text.size, err);
    skv_buf_release(&text);
    skv_free(order);
    return status;
}

/* A folder must not end up with a single file and an index that contradict each other. */
static skv_status refuse_other_layout(const char *folder, size_t n_shards, skv_error *err)
{
    const char *other = n_shards == 1 ? "model.safetensors.index.json" : "model.safetensors";
    char *path = skv_path_join(folder, other);
    SKV_REQUIRE(path, err, SKV_MEMORY, "%s: no memory", folder);
    bool exists = skv_file_exists(path);
    skv_free(path);
    SKV_REQUIRE(!exists, err, SKV_ARGUMENT,
                "%s: %s is already there, and would contradict what is to be written", folder,
                other);
    return SKV_OK;
}

static skv_status write_shards(const char *folder, item *items, size_t n, size_t shard_bytes_max,
                               skv_error *err)
{
    size_t n_shards = 0, total = 0;
    SKV_TRY(assign_shards(items, n, shard_bytes_max, folder, &n_shards, &total, err));
    SKV_TRY(refuse_other_layout(folder, n_shards, err));
    for (size_t i = 0; i <= n_shards; i++) {
        if (n_shards == 1 && i == 1) break; /* one file needs no index */
        char name[64] = "model.safetensors.index.json";
        if (i < n_shards) shard_name(name, i, n_shards);
        char *path = skv_path_join(folder, name);
        SKV_REQUIRE(path, err, SKV_MEMORY, "%s: no memory", folder);
        skv_status status = i < n_shards ? write_file(path, items, n, i, err)
                                         : write_index(path, items, n, n_shards, total, err);
        skv_free(path);
        SKV_TRY(status);
    }
    return SKV_OK;
}

static skv_status measure_all(const char *path, const skv_tensor_out *tensors, size_t n, item **out,
                              skv_error *err)
{
    item *items = skv_alloc(n, sizeof *items);
    SKV_REQUIRE(items, err, SKV_MEMORY, "%s: no memory for %zu tensors", path, n);
    for (size_t i = 0; i < n; i++) {
        items[i] = (item){.tensor = &tensors[i]};
        skv_status status = skv_tensor_out_measure(&tensors[i], path, &items[i].extent, err);
        if (status == SKV_OK && type_rank(tensors[i].type) < TYPES) continue;
        if (status == SKV_OK) {
            status = skv_fail(err, SKV_ARGUMENT, "%s: %s: safetensors has no type %s", path,
                              tensors[i].name, skv_dtype_name(tensors[i].type));
        }
        skv_free(items);
        return status;
    }
    *out = items;
    return SKV_OK;
}

skv_status skv_safetensors_write_folder(const char *folder, const skv_tensor_out *tensors, size_t n,
                                        size_t shard_bytes_max, skv_error *err)
{
    item *items = NULL;
    SKV_TRY(measure_all(folder, tensors, n, &items, err));
    skv_status status = write_shards(folder, items, n, shard_bytes_max, err);
    skv_free(items);
    return status;
}

skv_status skv_safetensors_write(const char *path, const skv_tensor_out *tensors, size_t n,
                                 skv_error *err)
{
    item *items = NULL;
    SKV_TRY(measure_all(path, tensors, n, &items, err));
    skv_status status = write_file(path, items, n, 0, err);
    skv_free(items);
    return status;
}
