/* Writing GGUF: see gguf_write.h. */
#include "format/gguf_write.h"

#include <stdint.h>
#include <string.h>

#include "base/float16.h"
#include "base/mem.h"
#include "base/size.h"

enum { ENTRIES_BYTES_MAX = 1 << 30, VERSION = 3, ALIGNMENT = 32 };

void skv_gguf_out_init(skv_gguf_out *out)
{
    *out = (skv_gguf_out){.n = 0};
    skv_buf_init(&out->entries, ENTRIES_BYTES_MAX);
}

void skv_gguf_out_release(skv_gguf_out *out)
{
    skv_buf_release(&out->entries);
}

static void put_number(skv_buf *out, uint64_t value, size_t n_bytes)
{
    char bytes[8];
    for (size_t i = 0; i < n_bytes; i++) bytes[i] = (char)(value >> (8 * i) & 0xff);
    (void)skv_buf_append(out, bytes, n_bytes);
}

static void put_text(skv_buf *out, const char *text, size_t n)
{
    put_number(out, n, 8);
    (void)skv_buf_append(out, text, n);
}

/* ---- metadata ---- */

static void begin_entry(skv_gguf_out *out, const char *key, skv_gguf_type type)
{
    put_text(&out->entries, key, strlen(key));
    put_number(&out->entries, (uint64_t)type, 4);
    out->n++;
}

void skv_gguf_put_u32(skv_gguf_out *out, const char *key, size_t value)
{
    begin_entry(out, key, SKV_GGUF_U32);
    if (value > UINT32_MAX) out->entries.failed = true;
    put_number(&out->entries, value, 4);
}

void skv_gguf_put_f32(skv_gguf_out *out, const char *key, double value)
{
    begin_entry(out, key, SKV_GGUF_F32);
    put_number(&out->entries, skv_bits_of_float((float)value), 4);
}

void skv_gguf_put_bool(skv_gguf_out *out, const char *key, bool value)
{
    begin_entry(out, key, SKV_GGUF_BOOL);
    put_number(&out->entries, value, 1);
}

void skv_gguf_put_text(skv_gguf_out *out, const char *key, const char *text)
{
    begin_entry(out, key, SKV_GGUF_STRING);
    put_text(&out->entries, text, strlen(text));
}

void skv_gguf_put_array(skv_gguf_out *out, const char *key, skv_gguf_type element, size_t count)
{
    begin_entry(out, key, SKV_GGUF_ARRAY);
    put_number(&out->entries, (uint64_t)element, 4);
    put_number(&out->entries, count, 8);
}

void skv_gguf_put_element_text(skv_gguf_out *out, const char *text, size_t n)
{
    put_text(&out->entries, text, n);
}

void skv_gguf_put_element_i32(skv_gguf_out *out, int32_t value)
{
    put_number(&out->entries, (uint32_t)value, 4);
}

void skv_gguf_put_element_f32(skv_gguf_out *out, float value)
{
    put_number(&out->entries, skv_bits_of_float(value), 4);
}

void skv_gguf_put_element_bool(skv_gguf_out *out, bool value)
{
    put_number(&out->entries, value, 1);
}

/* Returns the bytes of a value in the file, without its length field. */
static size_t bytes_of(const skv_gguf_value *v)
{
    if (v->type == SKV_GGUF_STRING) return v->count;
    if (v->starts) return v->starts[v->count] - 8; /* see read_strings in gguf.c */
    return v->count * skv_gguf_type_bytes(v->element);
}

void skv_gguf_put_copy(skv_gguf_out *out, const skv_gguf_value *v)
{
    if (v->type == SKV_GGUF_ARRAY) {
        skv_gguf_put_array(out, v->key, v->element, v->count);
    } else {
        begin_entry(out, v->key, v->type);
        if (v->type == SKV_GGUF_STRING) put_number(&out->entries, v->count, 8);
    }
    (void)skv_buf_append(&out->entries, v->data, bytes_of(v));
}

/* ---- the file ---- */

static void put_head(const skv_gguf_out *out, size_t n_tensors, skv_buf *file)
{
    (void)skv_buf_append(file, "GGUF", 4);
    put_number(file, VERSION, 4);
    put_number(file, n_tensors, 8);
    put_number(file, out->n, 8);
    (void)skv_buf_append(file, out->entries.data, out->entries.size);
    if (out->entries.failed) file->failed = true;
}

void skv_gguf_print(const skv_gguf_out *out, skv_buf *file)
{
    put_head(out, 0, file);
}

/* Writes everything before the data: the metadata and the offset of each tensor. */
static skv_status put_index(const char *path, const skv_gguf_out *out,
                            const skv_tensor_out *tensors, const skv_tensor_extent *extents,
                            size_t n, skv_buf *file, skv_error *err)
{
    size_t at = 0;
    put_head(out, n, file);
    for (size_t i = 0; i < n; i++) {
        const skv_tensor_out *t = &tensors[i];
        uint32_t type = 0;
        SKV_REQUIRE(skv_gguf_number_of(t->type, &type), err, SKV_ARGUMENT,
                    "%s: %s: GGUF has no type %s", path, t->name, skv_dtype_name(t->type));
        put_text(file, t->name, strlen(t->name));
        put_number(file, t->n_dims, 4);
        for (size_t d = t->n_dims; d-- > 0;) put_number(file, t->dims[d], 8);
        put_number(file, type, 4);
        put_number(file, at, 8);
        SKV_REQUIRE(skv_size_add(at, extents[i].n_bytes, &at) && at < SIZE_MAX - ALIGNMENT, err,
                    SKV_RANGE, "%s: the tensors' size does not fit", path);
        at = skv_round_up(at, ALIGNMENT);
    }
    while (!file->failed && file->size % ALIGNMENT != 0) skv_buf_byte(file, 0);
    SKV_REQUIRE(!file->failed, err, SKV_MEMORY, "%s: no memory, or no room, for the metadata",
                path);
    return SKV_OK;
}

static skv_status put_all(skv_writer *w, const skv_buf *index, const skv_tensor_out *tensors,
                          const skv_tensor_extent *extents, size_t n, skv_error *err)
{
    static const char zeros[ALIGNMENT];
    SKV_TRY(skv_writer_put(w, index->data, index->size, err));
    for (size_t i = 0; i < n; i++) {
        SKV_TRY(skv_tensor_out_put(&tensors[i], &extents[i], w, err));
        const size_t over = extents[i].n_bytes % ALIGNMENT;
        if (over > 0) SKV_TRY(skv_writer_put(w, zeros, ALIGNMENT - over, err));
    }
    return SKV_OK;
}

skv_status skv_gguf_write(const char *path, const skv_gguf_out *out, const skv_tensor_out *tensors,
                          size_t n, skv_error *err)
{
    skv_tensor_extent *extents = skv_alloc(n + 1, sizeof *extents);
    SKV_REQUIRE(extents, err, SKV_MEMORY, "%s: no memory for %zu tensors", path, n);
    skv_buf index;
    skv_writer writer = {0};
    skv_status status = SKV_OK;
    skv_buf_init(&index, ENTRIES_BYTES_MAX);
    for (size_t i = 0; i < n && status == SKV_OK; i++) {
        status = skv_tensor_out_measure(&tensors[i], path, &extents[i], err);
    }
    if (status == SKV_OK) status = put_index(path, out, tensors, extents, n, &index, err);
    if (status == SKV_OK) status = skv_writer_open(&writer, path, err);
    if (status == SKV_OK) status = put_all(&writer, &index, tensors, extents, n, err);
    if (status == SKV_OK) {
        status = skv_writer_commit(&writer, err);
    } else {
        skv_writer_abort(&writer);
    }
    skv_buf_release(&index);
    skv_free(extents);
    return status;
}
