/* The types of GGUF metadata, and typed access to it: the getters of gguf.h. */
#include <assert.h>
#include <string.h>

#include "format/gguf.h"

/* "U8" and so on; "unknown" for a number that the format does not name. */
static const char *type_name(skv_gguf_type type)
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

/* Reads an integer or bool element without regard to sign: two's complement in 64 bits. */
static uint64_t load_integer(skv_gguf_type type, const unsigned char *p)
{
    uint16_t u16;
    uint32_t u32;
    uint64_t u64;
    switch (type) {
    case SKV_GGUF_U8:
    case SKV_GGUF_BOOL: return *p;
    case SKV_GGUF_I8: return (uint64_t)(int64_t)(int8_t)*p;
    case SKV_GGUF_U16: memcpy(&u16, p, sizeof u16); return u16;
    case SKV_GGUF_I16: memcpy(&u16, p, sizeof u16); return (uint64_t)(int64_t)(int16_t)u16;
    case SKV_GGUF_U32: memcpy(&u32, p, sizeof u32); return u32;
    case SKV_GGUF_I32: memcpy(&u32, p, sizeof u32); return (uint64_t)(int64_t)(int32_t)u32;
    case SKV_GGUF_U64:
    case SKV_GGUF_I64: memcpy(&u64, p, sizeof u64); return u64;
    default: return 0;
    }
}

static bool is_signed(skv_gguf_type type)
{
    return type == SKV_GGUF_I8 || type == SKV_GGUF_I16 || type == SKV_GGUF_I32 ||
           type == SKV_GGUF_I64;
}

static bool is_integer(skv_gguf_type type)
{
    return is_signed(type) || type == SKV_GGUF_U8 || type == SKV_GGUF_U16 || type == SKV_GGUF_U32 ||
           type == SKV_GGUF_U64;
}

static skv_status wrong_type(const skv_gguf_value *v, const char *expected, skv_error *err)
{
    return skv_fail(err, SKV_FORMAT, "%s: %s: type %s, expected %s", v->file, v->key,
                    type_name(v->type), expected);
}

skv_status skv_gguf_string(const skv_gguf_value *v, const char **text, size_t *n, skv_error *err)
{
    if (v->type != SKV_GGUF_STRING) return wrong_type(v, "STRING", err);
    *text = (const char *)v->data;
    *n = v->count;
    return SKV_OK;
}

skv_status skv_gguf_u64(const skv_gguf_value *v, uint64_t *out, skv_error *err)
{
    if (!is_integer(v->type)) return wrong_type(v, "an integer", err);
    uint64_t value = load_integer(v->type, v->data);
    SKV_REQUIRE(!is_signed(v->type) || (int64_t)value >= 0, err, SKV_FORMAT,
                "%s: %s: %lld is negative", v->file, v->key, (long long)value);
    *out = value;
    return SKV_OK;
}

skv_status skv_gguf_i64(const skv_gguf_value *v, int64_t *out, skv_error *err)
{
    if (!is_integer(v->type)) return wrong_type(v, "an integer", err);
    uint64_t value = load_integer(v->type, v->data);
    SKV_REQUIRE(is_signed(v->type) || value <= INT64_MAX, err, SKV_FORMAT,
                "%s: %s: %llu does not fit", v->file, v->key, (unsigned long long)value);
    *out = (int64_t)value;
    return SKV_OK;
}

skv_status skv_gguf_f64(const skv_gguf_value *v, double *out, skv_error *err)
{
    float f32;
    uint64_t bits;
    switch (v->type) {
    case SKV_GGUF_F32:
        memcpy(&f32, v->data, sizeof f32);
        *out = (double)f32;
        return SKV_OK;
    case SKV_GGUF_F64: memcpy(out, v->data, sizeof *out); return SKV_OK;
    default: break;
    }
    if (!is_integer(v->type)) return wrong_type(v, "a number", err);
    bits = load_integer(v->type, v->data);
    *out = is_signed(v->type) ? (double)(int64_t)bits : (double)bits;
    return SKV_OK;
}

skv_status skv_gguf_bool(const skv_gguf_value *v, bool *out, skv_error *err)
{
    if (v->type != SKV_GGUF_BOOL) return wrong_type(v, "BOOL", err);
    *out = *v->data != 0;
    return SKV_OK;
}

skv_status skv_gguf_array(const skv_gguf_value *v, skv_gguf_type element, size_t *count,
                          skv_error *err)
{
    SKV_REQUIRE(v->type == SKV_GGUF_ARRAY && v->element == element, err, SKV_FORMAT,
                "%s: %s: type %s%s, expected an array of %s", v->file, v->key,
                v->type == SKV_GGUF_ARRAY ? "array of " : "", type_name(v->element),
                type_name(element));
    *count = v->count;
    return SKV_OK;
}

const char *skv_gguf_string_at(const skv_gguf_value *v, size_t i, size_t *n)
{
    assert(v->starts && i < v->count);
    *n = v->starts[i + 1] - 8 - v->starts[i];
    return (const char *)v->data + v->starts[i];
}

int32_t skv_gguf_i32_at(const skv_gguf_value *v, size_t i)
{
    assert(v->element == SKV_GGUF_I32 && i < v->count);
    int32_t value;
    memcpy(&value, v->data + 4 * i, sizeof value);
    return value;
}

float skv_gguf_f32_at(const skv_gguf_value *v, size_t i)
{
    assert(v->element == SKV_GGUF_F32 && i < v->count);
    float value;
    memcpy(&value, v->data + 4 * i, sizeof value);
    return value;
}

int64_t skv_gguf_integer_at(const skv_gguf_value *v, size_t i)
{
    assert((is_integer(v->element) || v->element == SKV_GGUF_BOOL) && i < v->count);
    uint64_t value = load_integer(v->element, v->data + skv_gguf_type_bytes(v->element) * i);
    if (!is_signed(v->element) && value > INT64_MAX) return INT64_MAX;
    return (int64_t)value;
}
