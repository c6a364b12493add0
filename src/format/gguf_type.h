/* The types of GGUF metadata. */
#ifndef SKV_FORMAT_GGUF_TYPE_H
#define SKV_FORMAT_GGUF_TYPE_H

#include <stddef.h>

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

/** "U8" and so on; "unknown" for a number that the format does not name. */
const char *skv_gguf_type_name(skv_gguf_type type);

/** Bytes of one element, 0 where the type fixes none; type < SKV_GGUF_TYPE_COUNT. */
size_t skv_gguf_type_bytes(skv_gguf_type type);

#endif
