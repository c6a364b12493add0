/* Writing tokenizer.gguf: see tokenizer_keep.h; the format of GGUF stands in gguf.c. */
#include "format/tokenizer_keep.h"

#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"

enum { FILE_BYTES_MAX = 1 << 30, VERSION = 3 };

static bool is_kept(const char *key)
{
    /* The names are read too: some tokenizers behave by the model's. */
    return strncmp(key, "tokenizer.", 10) == 0 || strcmp(key, "general.architecture") == 0 ||
           strcmp(key, "general.name") == 0;
}

static void put_number(skv_buf *out, uint64_t value, size_t n_bytes)
{
    char bytes[8];
    for (size_t i = 0; i < n_bytes; i++) bytes[i] = (char)(value >> (8 * i) & 0xff);
    (void)skv_buf_append(out, bytes, n_bytes);
}

/* A value's bytes as they stand in the file, what counts them not included. */
static size_t bytes_of(const skv_gguf_value *v)
{
    if (v->type == SKV_GGUF_STRING) return v->count;
    if (v->starts) return v->starts[v->count] - 8; /* see read_strings in gguf.c */
    return v->count * skv_gguf_type_bytes(v->element);
}

static void put_entry(skv_buf *out, const skv_gguf_value *v)
{
    size_t n_key = strlen(v->key);
    put_number(out, n_key, 8);
    (void)skv_buf_append(out, v->key, n_key);
    put_number(out, (uint64_t)v->type, 4);
    if (v->type == SKV_GGUF_ARRAY) put_number(out, (uint64_t)v->element, 4);
    if (v->type == SKV_GGUF_ARRAY || v->type == SKV_GGUF_STRING) put_number(out, v->count, 8);
    (void)skv_buf_append(out, v->data, bytes_of(v));
}

skv_status skv_tokenizer_keep(const skv_gguf *gguf, const char *folder, skv_error *err)
{
    size_t n_kept = 0;
    if (!skv_gguf_find(gguf, "tokenizer.ggml.tokens")) return SKV_OK; /* there are "no_vocab"s */
    for (size_t i = 0; i < skv_gguf_count(gguf); i++) n_kept += is_kept(skv_gguf_at(gguf, i)->key);
    skv_buf out;
    skv_buf_init(&out, FILE_BYTES_MAX);
    (void)skv_buf_append(&out, "GGUF", 4);
    put_number(&out, VERSION, 4);
    put_number(&out, 0, 8);
    put_number(&out, n_kept, 8);
    for (size_t i = 0; i < skv_gguf_count(gguf); i++) {
        const skv_gguf_value *v = skv_gguf_at(gguf, i);
        if (is_kept(v->key)) put_entry(&out, v);
    }
    char *path = skv_path_join(folder, SKV_TOKENIZER_GGUF);
    skv_status status = out.failed || !path ? skv_fail(err, SKV_MEMORY, "%s: no memory for %s",
                                                       folder, SKV_TOKENIZER_GGUF)
                                            : skv_file_write(path, out.data, out.size, err);
    skv_free(path);
    skv_buf_release(&out);
    return status;
}
