/*
 * Writing GGUF files, version 3, little endian: metadata entries, then tensors.
 *
 *     skv_gguf_out out;
 *     skv_gguf_out_init(&out);
 *     skv_gguf_put_text(&out, "general.architecture", "llama");
 *     status = skv_gguf_write(path, &out, tensors, n, err);
 *     skv_gguf_out_release(&out);
 *
 * A failed `put` makes the write fail.
 */
#ifndef SKV_FORMAT_GGUF_WRITE_H
#define SKV_FORMAT_GGUF_WRITE_H

#include "base/buf.h"
#include "format/gguf.h"
#include "format/tensor_out.h"

typedef struct skv_gguf_out {
    skv_buf entries; /* as the file has them */
    size_t n;
} skv_gguf_out;

void skv_gguf_out_init(skv_gguf_out *out);
void skv_gguf_out_release(skv_gguf_out *out);

void skv_gguf_put_u32(skv_gguf_out *out, const char *key, size_t value);
void skv_gguf_put_f32(skv_gguf_out *out, const char *key, double value);
void skv_gguf_put_bool(skv_gguf_out *out, const char *key, bool value);
void skv_gguf_put_text(skv_gguf_out *out, const char *key, const char *text);
/** The entry of another file, byte for byte. */
void skv_gguf_put_copy(skv_gguf_out *out, const skv_gguf_value *v);
/** Begins an array; `count` calls of the functions below append its elements. */
void skv_gguf_put_array(skv_gguf_out *out, const char *key, skv_gguf_type element, size_t count);
void skv_gguf_put_element_text(skv_gguf_out *out, const char *text, size_t n);
void skv_gguf_put_element_i32(skv_gguf_out *out, int32_t value);
void skv_gguf_put_element_f32(skv_gguf_out *out, float value);
void skv_gguf_put_element_bool(skv_gguf_out *out, bool value);

/** Appends a whole file without tensors. */
void skv_gguf_print(const skv_gguf_out *out, skv_buf *file);
/**
 * Writes the file, complete or not at all. The tensors' types are those that GGUF has, their data
 * as it has them; `path` does not exist yet or is replaced.
 */
SKV_MUST_CHECK skv_status skv_gguf_write(const char *path, const skv_gguf_out *out,
                                         const skv_tensor_out *tensors, size_t n, skv_error *err);

#endif
