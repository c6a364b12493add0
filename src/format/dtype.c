/* Element types: see dtype.h. */
#include "format/dtype.h"

#include <assert.h>
#include <string.h>

#include "base/size.h"
#include "format/dequant.h"
#include "format/float16.h"

typedef struct dtype_facts {
    const char *name;
    size_t elements; /* in a block */
    size_t bytes;    /* of a block */
} dtype_facts;

static const dtype_facts facts[SKV_DTYPE_COUNT] = {
#define SKV_DTYPE_FACTS(name, n, bytes) {#name, n, bytes},
    SKV_DTYPE_LIST(SKV_DTYPE_FACTS)
#undef SKV_DTYPE_FACTS
};

const char *skv_dtype_name(skv_dtype type)
{
    return (unsigned)type < (unsigned)SKV_DTYPE_COUNT ? facts[type].name : "unknown";
}

size_t skv_dtype_block_elements(skv_dtype type)
{
    assert((unsigned)type < (unsigned)SKV_DTYPE_COUNT);
    return facts[type].elements;
}

size_t skv_dtype_block_bytes(skv_dtype type)
{
    assert((unsigned)type < (unsigned)SKV_DTYPE_COUNT);
    return facts[type].bytes;
}

bool skv_dtype_bytes(skv_dtype type, size_t n, size_t *n_bytes)
{
    size_t elements = skv_dtype_block_elements(type);
    if (n % elements != 0) return false;
    return skv_size_mul(n / elements, skv_dtype_block_bytes(type), n_bytes);
}

static uint16_t load_u16(const unsigned char *p)
{
    uint16_t value;
    memcpy(&value, p, sizeof value);
    return value;
}

void skv_dtype_to_f32(skv_dtype type, float *out, const void *data, size_t n)
{
    const unsigned char *bytes = data;
    switch (type) {
    case SKV_DTYPE_F32:
        if (n) memcpy(out, bytes, n * sizeof *out);
        return;
    case SKV_DTYPE_F16:
        for (size_t i = 0; i < n; i++) out[i] = skv_float_of_f16(load_u16(bytes + 2 * i));
        return;
    case SKV_DTYPE_BF16:
        for (size_t i = 0; i < n; i++) out[i] = skv_float_of_bf16(load_u16(bytes + 2 * i));
        return;
    default: break;
    }
    skv_dequant_block_fn *block = skv_dequant_block(type);
    size_t elements = skv_dtype_block_elements(type), size = skv_dtype_block_bytes(type);
    assert(block && n % elements == 0);
    for (size_t i = 0; i < n / elements; i++) block(out + i * elements, bytes + i * size);
}

void skv_dtype_from_f32(skv_dtype type, void *out, const float *in, size_t n)
{
    unsigned char *bytes = out;
    assert(skv_dtype_block_elements(type) == 1);
    if (type == SKV_DTYPE_F32) {
        if (n) memcpy(bytes, in, n * sizeof *in);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        uint16_t h = type == SKV_DTYPE_BF16 ? skv_bf16_of_float(in[i]) : skv_f16_of_float(in[i]);
        memcpy(bytes + 2 * i, &h, sizeof h);
    }
}
