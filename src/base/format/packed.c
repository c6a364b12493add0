/* Packed codes: see packed.h. */
#include "format/packed.h"

#include <string.h>

#include "base/size.h"

static uint64_t load_int(const unsigned char *p, size_t n)
{
    uint64_t value = 0;
    for (size_t i = 0; i < n; i++) value |= (uint64_t)p[i] << 8 * i;
    return value;
}

static skv_status refuse(const skv_tensor *t, const char *field, const char *expected,
                         skv_error *err)
{
    char shape[96];
    (void)skv_tensor_shape_text(t->dims, t->n_dims, shape, sizeof shape);
    return skv_fail(err, SKV_FORMAT, "%s: shape %s of %s, expected %s", field, shape,
                    t->type < SKV_DTYPE_COUNT ? skv_dtype_name(t->type) : "another type", expected);
}

/* N and K, which are those of the codes. */
static skv_status read_shape(const skv_tensor *shape, const skv_tensor *codes, size_t dims[2],
                             skv_error *err)
{
    const bool is_int = shape->type == SKV_DTYPE_I64 || shape->type == SKV_DTYPE_I32;
    if (!is_int || shape->n_dims != 1 || shape->dims[0] != 2) {
        return refuse(shape, "weight_shape", "[2] of I64 or I32", err);
    }
    if (codes->n_dims != 2) return refuse(codes, "weight_packed", "two dimensions", err);
    const size_t n_bytes = skv_dtype_block_bytes(shape->type);
    const uint64_t N = load_int(shape->data, n_bytes), K = load_int(shape->data + n_bytes, n_bytes);
    SKV_REQUIRE(N == codes->dims[0] && N > 0 && K > 0 && K <= SIZE_MAX / 64, err, SKV_FORMAT,
                "weight_shape: [%llu, %llu], expected [%zu, 1 to %zu]", (unsigned long long)N,
                (unsigned long long)K, codes->dims[0], SIZE_MAX / 64);
    dims[0] = (size_t)N;
    dims[1] = (size_t)K;
    return SKV_OK;
}

static skv_status set_scales(const skv_tensor *scales, const size_t dims[2], skv_tensor_scales *out,
                             skv_error *err)
{
    const bool is_float = scales->type == SKV_DTYPE_F32 || scales->type == SKV_DTYPE_F16 ||
                          scales->type == SKV_DTYPE_BF16;
    if (!is_float || scales->n_dims != 2 || scales->dims[0] != dims[0] || !scales->dims[1] ||
        dims[1] % scales->dims[1] != 0) {
        return refuse(scales, "weight_scale", "[rows, groups of a row]", err);
    }
    *out = (skv_tensor_scales){scales->data, scales->file, scales->type, dims[1] / scales->dims[1]};
    return SKV_OK;
}

skv_status skv_packed_join(skv_tensor *codes, const skv_tensor *scales, const skv_tensor *shape,
                           const char **unusable, skv_error *err)
{
    size_t dims[2] = {0, 0};
    skv_tensor out = *codes;
    SKV_TRY(read_shape(shape, codes, dims, err));
    SKV_TRY(set_scales(scales, dims, &out.scales, err));
    const skv_dtype types[] = {SKV_DTYPE_PACKED_I4, SKV_DTYPE_PACKED_I8};
    out.type = SKV_DTYPE_COUNT;
    for (size_t i = 0; i < 2; i++) {
        const size_t n_codes = skv_dtype_block_elements(types[i]);
        if (skv_ceil_div(dims[1], n_codes) == codes->dims[1]) out.type = types[i];
    }
    if (out.type == SKV_DTYPE_COUNT) {
        *unusable = "a packed matrix that is neither of 4 nor of 8 bits";
    } else if (dims[1] % skv_dtype_block_elements(out.type) != 0) {
        *unusable = "a packed matrix whose rows end inside an int32";
    } else {
        *unusable = NULL;
    }
    memcpy(out.dims, dims, sizeof dims);
    *codes = out;
    return SKV_OK;
}
