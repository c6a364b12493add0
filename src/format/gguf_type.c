/* The types of GGUF metadata: their names and sizes. */
#include "format/gguf_type.h"

#include <assert.h>

const char *skv_gguf_type_name(skv_gguf_type type)
{
    static const char *const names[] = {
#define SKV_GGUF_TYPE_NAME(name, bytes) #name,
        SKV_GGUF_TYPE_LIST(SKV_GGUF_TYPE_NAME)
#undef SKV_GGUF_TYPE_NAME
    };
    return (unsigned)type < (unsigned)SKV_GGUF_TYPE_COUNT ? names[type] : "unknown";
}

size_t skv_gguf_type_bytes(skv_gguf_type type)
{
    static const size_t sizes[] = {
#define SKV_GGUF_TYPE_BYTES(name, bytes) bytes,
        SKV_GGUF_TYPE_LIST(SKV_GGUF_TYPE_BYTES)
#undef SKV_GGUF_TYPE_BYTES
    };
    assert((unsigned)type < (unsigned)SKV_GGUF_TYPE_COUNT);
    return sizes[type];
}
