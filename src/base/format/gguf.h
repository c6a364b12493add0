/*
 * GGUF, versions 2 and 3, little endian: key-value metadata and tensors of one mapped file.
 *
 * Parsing checks everything: afterwards every key, string, array element and tensor lies inside the
 * file, and the getters below only check types and indexes. Strings are (pointer, length) into the
 * file: not terminated, any bytes.
 *
 *     const skv_gguf_value *v = skv_gguf_find(g, "tokenizer.ggml.tokens");
 *     if (v) SKV_TRY(skv_gguf_array(g, v, SKV_GGUF_STRING, &n_tokens, err));
 *     for (size_t i = 0; i < n_tokens; i++) text = skv_gguf_string_at(v, i, &n);
 */
#ifndef SKV_FORMAT_GGUF_H
#define SKV_FORMAT_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/fail.h"
#include "format/tensor.h"

/* The numbers are those of the file format. name, bytes of an element (0: not fixed) */
#define SKV_GGUF_TYPE_LIST(X)                                                                      \
    X(U8, 1)                                                                                       \
    X(I8, 1)                                                                                       \
    X(U16, 2)                                                                                      \
    X(I16, 2)                                                                                      \
    X(U32, 4)                                                                                      \
    X(I32, 4)                                                                                      \
    X(F32, 4)                                                                                      \
    X(BOOL, 1)                                                                                     \
    X(STRING, 0)                                                                                   \
    X(ARRAY, 0)                                                                                    \
    X(U64, 8)                                                                                      \
    X(I64, 8)                                                                                      \
    X(F64, 8)

typedef enum skv_gguf_type {
#define SKV_GGUF_TYPE_ENUM(name, bytes) SKV_GGUF_##name,
    SKV_GGUF_TYPE_LIST(SKV_GGUF_TYPE_ENUM)
#undef SKV_GGUF_TYPE_ENUM
        SKV_GGUF_TYPE_COUNT
} skv_gguf_type;

/** The number of an element type in files; false where they have none. */
bool skv_gguf_number_of(skv_dtype type, uint32_t *number);
/** Bytes of one element, 0 where the type fixes none; type < SKV_GGUF_TYPE_COUNT. */
size_t skv_gguf_type_bytes(skv_gguf_type type);

/* One metadata entry. Read it through the functions below. */
typedef struct skv_gguf_value {
    const char *key, *file;    /* owned by the file's struct, terminated; file: its name */
    skv_gguf_type type;        /* of the value */
    skv_gguf_type element;     /* of the elements where type is ARRAY; otherwise equal to type */
    size_t count;              /* elements of an array; 1 otherwise; bytes of a string */
    const unsigned char *data; /* borrowed from the file: the first element, unaligned */
    const size_t *starts;      /* arrays of strings: [count + 1] offsets from data, see gguf.c */
} skv_gguf_value;

typedef struct skv_gguf skv_gguf;

/** Reads data[0..n), which must outlive the result; `name` is for errors. */
SKV_MUST_CHECK skv_status skv_gguf_parse(const void *data, size_t n, const char *name,
                                         skv_gguf **out, skv_error *err);
/** Maps the file and parses it; the map lives as long as the result. The first part of a split file
 * has the tensors of all parts, which lie beside it. */
SKV_MUST_CHECK skv_status skv_gguf_open(const char *path, skv_gguf **out, skv_error *err);
/** NULL is fine. */
void skv_gguf_close(skv_gguf *g);

/** The path or name it was opened under. */
const char *skv_gguf_name(const skv_gguf *g);
/** The files that it is made of: 1, or all parts. */
size_t skv_gguf_part_count(const skv_gguf *g);

/** The entry of a key, NULL when there is none. */
const skv_gguf_value *skv_gguf_find(const skv_gguf *g, const char *key);
size_t skv_gguf_count(const skv_gguf *g);
const skv_gguf_value *skv_gguf_at(const skv_gguf *g, size_t i);

/*
 * The value as a C type. SKV_FORMAT, with file, key and type in the message, when it is of
 * another type or does not fit; integers of every width convert to u64 and i64, and those and
 * floats to f64.
 */
SKV_MUST_CHECK skv_status skv_gguf_string(const skv_gguf_value *v, const char **text, size_t *n,
                                          skv_error *err);
SKV_MUST_CHECK skv_status skv_gguf_u64(const skv_gguf_value *v, uint64_t *out, skv_error *err);
SKV_MUST_CHECK skv_status skv_gguf_i64(const skv_gguf_value *v, int64_t *out, skv_error *err);
SKV_MUST_CHECK skv_status skv_gguf_f64(const skv_gguf_value *v, double *out, skv_error *err);
SKV_MUST_CHECK skv_status skv_gguf_bool(const skv_gguf_value *v, bool *out, skv_error *err);
/** Checks that it is an array of this element type and gives its length. */
SKV_MUST_CHECK skv_status skv_gguf_array(const skv_gguf_value *v, skv_gguf_type element,
                                         size_t *count, skv_error *err);

/** Returns an element of an array of checked type; i < count. All in constant time. */
const char *skv_gguf_string_at(const skv_gguf_value *v, size_t i, size_t *n);
int32_t skv_gguf_i32_at(const skv_gguf_value *v, size_t i); /* I32 */
float skv_gguf_f32_at(const skv_gguf_value *v, size_t i);   /* F32 */
/** Any integer or bool element type as i64; a U64 beyond INT64_MAX gives INT64_MAX. */
int64_t skv_gguf_integer_at(const skv_gguf_value *v, size_t i);

/** Tensors under the names of the file, outermost dimension first. */
size_t skv_gguf_tensor_count(const skv_gguf *g);
const skv_tensor *skv_gguf_tensor_at(const skv_gguf *g, size_t i);
const skv_tensor *skv_gguf_tensor_find(const skv_gguf *g, const char *name);

#endif
