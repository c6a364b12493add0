/* Joins coded matrices from their tensors: see coded.h. Their shapes determine the layout; all of
 * them are checked. */
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "format/coded.h"

enum { CODES = 8, BLOCK = 128 }; /* of 4 bits in an int32; rows or columns */

static skv_status refuse(const skv_tensor *t, const char *expected, skv_error *err)
{
    char shape[96];
    (void)skv_tensor_shape_text(t->dims, t->n_dims, shape, sizeof shape);
    return skv_fail(err, SKV_FORMAT, "%s: shape %s of %s, expected %s", t->name, shape,
                    t->type < SKV_DTYPE_COUNT ? skv_dtype_name(t->type) : "another type", expected);
}

static bool is_float(skv_dtype type)
{
    return type == SKV_DTYPE_F32 || type == SKV_DTYPE_F16 || type == SKV_DTYPE_BF16;
}

static bool is_matrix(const skv_tensor *t, skv_dtype type, size_t rows, size_t columns)
{
    return t->type == type && t->n_dims == 2 && t->dims[0] == rows && t->dims[1] == columns;
}

static skv_tensor_part part_of(const skv_tensor *t)
{
    return (skv_tensor_part){t->data, t->file};
}

static size_t n_elements(const skv_tensor *t)
{
    return t->n_dims == 0 ? 1 : skv_tensor_rows(t) * skv_tensor_columns(t);
}

/* Blocks that divide n into n_blocks: of the usual size, or of one that stays within them. */
static size_t guess_block(size_t n, size_t n_blocks, bool *unsure)
{
    if (skv_ceil_div(n, BLOCK) == n_blocks) return BLOCK;
    *unsure = true;
    return skv_ceil_div(n, n_blocks);
}

/* Scales of codes [N, K]: one, one a row, one a group of a row, or one a block. */
static skv_status set_row_scales(const skv_tensor *scales, skv_tensor *t, skv_error *err)
{
    const size_t N = t->dims[0], K = t->dims[1];
    skv_tensor_coded *c = &t->coded;
    if (!is_float(scales->type)) return refuse(scales, "F32, F16 or BF16", err);
    c->scales = part_of(scales);
    c->scale_type = scales->type;
    c->scale_step = 1;
    c->block_rows = 1;
    c->block_columns = K;
    c->n_row_blocks = N;
    c->scale_row_step = c->n_groups = 1;
    const bool vector = scales->n_dims == 1 && scales->dims[0] == N;
    const bool matrix = scales->n_dims == 2 && scales->dims[0] > 0 && scales->dims[1] > 0;
    if (n_elements(scales) == 1) {
        c->block_rows = N;
        c->n_row_blocks = 1;
        return SKV_OK;
    }
    if (vector) return SKV_OK;
    if (!matrix) return refuse(scales, "one, one a row, or one a block", err);
    c->scale_row_step = c->n_groups = scales->dims[1];
    if (scales->dims[0] == N && K % scales->dims[1] == 0) {
        c->block_columns = K / scales->dims[1];
        return SKV_OK;
    }
    c->n_row_blocks = scales->dims[0];
    c->block_rows = guess_block(N, c->n_row_blocks, &c->block_unsure);
    c->block_columns = guess_block(K, c->n_groups, &c->block_unsure);
    const bool fits = skv_ceil_div(N, c->block_rows) == c->n_row_blocks &&
                      skv_ceil_div(K, c->block_columns) == c->n_groups;
    if (!fits) return refuse(scales, "one a block of the weight", err);
    return SKV_OK;
}

/* An order of columns that is no order is left out: each group in turn, or -1 everywhere. */
static skv_status set_groups(const skv_tensor *groups, skv_tensor *t, skv_error *err)
{
    const size_t K = t->dims[1];
    skv_tensor_coded *c = &t->coded;
    if (groups->type != SKV_DTYPE_I32 || groups->n_dims != 1 || groups->dims[0] != K) {
        return refuse(groups, "I32, one a column", err);
    }
    bool in_turn = true;
    size_t n_unset = 0;
    for (size_t k = 0; k < K; k++) {
        const unsigned char *p = groups->data + 4 * k;
        const uint32_t g =
            (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
        n_unset += g == UINT32_MAX && n_unset == k; /* -1 is a group of none but of all columns */
        in_turn = in_turn && g == k / c->block_columns;
        SKV_REQUIRE(g < c->n_groups || n_unset == k + 1, err, SKV_RANGE,
                    "%s[%zu]: %lld, expected 0 to %zu", groups->name, k, (long long)(int32_t)g,
                    c->n_groups - 1);
    }
    SKV_REQUIRE(n_unset == 0 || n_unset == K, err, SKV_RANGE, "%s[0]: -1, expected 0 to %zu",
                groups->name, c->n_groups - 1);
    if (!in_turn && n_unset == 0) c->groups = part_of(groups);
    c->says_groups = n_unset == 0;
    return SKV_OK;
}

/* X.qweight of GPTQ and AWQ, distinguished by the shape of the scales [G, N]. */
static skv_status join_columns(skv_tensor *t, const skv_coded_parts *parts, skv_error *err)
{
    const skv_tensor *scales = parts->scales;
    skv_tensor_coded *c = &t->coded;
    if (t->n_dims != 2 || !t->dims[0] || !t->dims[1] || t->dims[0] > SIZE_MAX / CODES) {
        return refuse(t, "two dimensions", err);
    }
    if (!is_float(scales->type) || scales->n_dims != 2 || !scales->dims[0] || !scales->dims[1]) {
        return refuse(scales, "[groups, rows] of F16, BF16 or F32", err);
    }
    const size_t N = scales->dims[1], G = scales->dims[0];
    const bool awq = N % CODES == 0 && t->dims[1] == N / CODES;
    if (!awq && t->dims[1] != N)
        return refuse(t, "as many columns as its scales, or an eighth", err);
    const size_t K = awq ? t->dims[0] : t->dims[0] * CODES;
    SKV_REQUIRE(K % CODES == 0, err, SKV_UNSUPPORTED, "%s: %zu columns, expected a multiple of 8",
                t->name, K);
    if (K % G != 0) return refuse(scales, "groups that divide the columns", err);
    *c = (skv_tensor_coded){.layout = awq ? SKV_CODES_AWQ : SKV_CODES_GPTQ,
                            .n_rows = N,
                            .n_groups = G,
                            .scales = part_of(scales),
                            .scale_type = scales->type,
                            .block_rows = 1,
                            .block_columns = K / G,
                            .scale_row_step = 1,
                            .scale_step = N};
    t->dims[0] = N;
    t->dims[1] = K;
    SKV_REQUIRE(parts->zeros, err, SKV_FORMAT, "the qzeros beside it are missing");
    if (!is_matrix(parts->zeros, SKV_DTYPE_I32, G, skv_ceil_div(N, CODES))) {
        return refuse(parts->zeros, "zero points, I32 [groups, rows / 8]", err);
    }
    c->zeros = part_of(parts->zeros);
    return SKV_OK;
}

static uint64_t load_int(const unsigned char *p, size_t n)
{
    uint64_t value = 0;
    for (size_t i = 0; i < n; i++) value |= (uint64_t)p[i] << 8 * i;
    return value;
}

/* N and K of X.weight_packed [N, ...]. */
static skv_status read_shape(const skv_tensor *shape, skv_tensor *t, skv_error *err)
{
    const bool is_int = shape->type == SKV_DTYPE_I64 || shape->type == SKV_DTYPE_I32;
    if (!is_int || shape->n_dims != 1 || shape->dims[0] != 2) {
        return refuse(shape, "[2] of I64 or I32", err);
    }
    if (t->n_dims != 2) return refuse(t, "two dimensions", err);
    const size_t n_bytes = skv_dtype_block_bytes(shape->type);
    const uint64_t N = load_int(shape->data, n_bytes), K = load_int(shape->data + n_bytes, n_bytes);
    SKV_REQUIRE(N == t->dims[0] && N > 0 && K > 0 && K <= SIZE_MAX / 64, err, SKV_FORMAT,
                "%s: [%llu, %llu], expected [%zu, 1 to %zu]", shape->name, (unsigned long long)N,
                (unsigned long long)K, t->dims[0], SIZE_MAX / 64);
    t->dims[1] = (size_t)K;
    return SKV_OK;
}

/* X.weight_packed of int32: 4 or 8 bits, depending on its shape. */
static skv_status join_packed(skv_tensor *t, const skv_coded_parts *parts, const char **unusable,
                              skv_error *err)
{
    const size_t n_words = t->dims[1];
    SKV_TRY(read_shape(parts->shape, t, err));
    const size_t N = t->dims[0], K = t->dims[1];
    const bool nibbles = skv_ceil_div(K, CODES) == n_words;
    t->type = nibbles ? SKV_DTYPE_PACKED_I4 : SKV_DTYPE_PACKED_I8;
    t->coded =
        (skv_tensor_coded){.layout = nibbles ? SKV_CODES_PACKED : SKV_CODES_BYTES, .n_rows = N};
    SKV_TRY(set_row_scales(parts->scales, t, err));
    if (t->coded.block_rows > 1 || t->coded.block_unsure) {
        return refuse(parts->scales, "[rows, groups of a row]", err);
    }
    if (!nibbles && skv_ceil_div(K, CODES / 2) != n_words) {
        *unusable = "a packed matrix that is neither of 4 nor of 8 bits";
    } else if (K % (nibbles ? CODES : CODES / 2) != 0) {
        *unusable = "a packed matrix whose rows end inside an int32";
    } else if (!nibbles && (parts->zeros || parts->groups)) {
        *unusable = "a packed matrix of 8 bits with zero points or columns in another order";
    }
    if (!parts->zeros) return SKV_OK;
    if (!is_matrix(parts->zeros, SKV_DTYPE_I32, skv_ceil_div(N, CODES), t->coded.n_groups)) {
        return refuse(parts->zeros, "I32 [rows / 8, groups]", err);
    }
    t->coded.zeros = part_of(parts->zeros);
    return SKV_OK;
}

/* Floats of 4 bits: X_blocks [E, N, K / 32, 16] or X.weight_packed [N, K / 2]. */
static skv_status join_mxfp4(skv_tensor *t, const skv_tensor *scales, skv_error *err)
{
    const bool blocks = t->n_dims == 4;
    const size_t n_dims = blocks ? 3 : 2, n_bytes = blocks ? t->dims[3] : SKV_QUANT_GROUP / 2;
    bool fits = (blocks || t->n_dims == 2) && n_bytes == SKV_QUANT_GROUP / 2;
    if (!blocks) fits = fits && t->dims[1] % n_bytes == 0;
    if (!fits) return refuse(t, "U8 [experts, rows, groups, 16] or [rows, 16 * groups]", err);
    if (!blocks) t->dims[1] /= n_bytes;
    fits = scales->type == SKV_DTYPE_U8 && scales->n_dims == n_dims;
    for (size_t i = 0; i < n_dims; i++) {
        fits = fits && scales->dims[i] == t->dims[i] && t->dims[i] > 0;
    }
    if (!fits) return refuse(scales, "U8, one for 32 columns", err);
    const size_t G = t->dims[n_dims - 1];
    t->type = SKV_DTYPE_PACKED_E2M1;
    t->n_dims = n_dims;
    t->dims[n_dims - 1] *= SKV_QUANT_GROUP; /* no more than the bytes of the file, twice */
    t->coded = (skv_tensor_coded){.layout = SKV_CODES_E2M1,
                                  .n_rows = skv_tensor_rows(t),
                                  .n_groups = G,
                                  .scales = part_of(scales),
                                  .scale_type = scales->type,
                                  .block_rows = 1,
                                  .block_columns = SKV_QUANT_GROUP,
                                  .scale_row_step = G,
                                  .scale_step = 1};
    return SKV_OK;
}

/* X.weight of FP8 or int8. */
static skv_status join_bytes(skv_tensor *t, const skv_coded_parts *parts, skv_error *err)
{
    const bool fp8 = t->type == SKV_DTYPE_F8_E4M3;
    if (t->n_dims != 2 || !t->dims[0] || !t->dims[1]) return refuse(t, "two dimensions", err);
    SKV_REQUIRE(!parts->zeros, err, SKV_UNSUPPORTED, "%s: not supported beside codes of 8 bits",
                parts->zeros ? parts->zeros->name : "");
    t->coded =
        (skv_tensor_coded){.layout = fp8 ? SKV_CODES_FP8 : SKV_CODES_I8, .n_rows = t->dims[0]};
    return set_row_scales(parts->scales, t, err);
}

skv_status skv_coded_join(skv_tensor *codes, const skv_coded_parts *parts, const char **unusable,
                          skv_error *err)
{
    skv_tensor t = *codes;
    *unusable = NULL;
    if (t.type == SKV_DTYPE_U8) {
        SKV_TRY(join_mxfp4(&t, parts->scales, err));
    } else if (t.type != SKV_DTYPE_I32) {
        SKV_TRY(join_bytes(&t, parts, err));
    } else if (parts->shape) {
        SKV_TRY(join_packed(&t, parts, unusable, err));
    } else {
        SKV_TRY(join_columns(&t, parts, err));
        t.type = SKV_DTYPE_PACKED_I4;
    }
    if (parts->groups && !*unusable) SKV_TRY(set_groups(parts->groups, &t, err));
    *codes = t;
    return SKV_OK;
}

/* Beside blocks, compressed-tensors may have matrices with one scale, or one a row. */
static bool may_be_whole(const skv_tensor_coded *c, const skv_quant_config *config)
{
    const bool whole = c->block_rows == 1 || (c->n_row_blocks == 1 && c->n_groups == 1);
    return whole && strcmp(config->method, "compressed-tensors") == 0;
}

static skv_status settle_blocks(skv_tensor *t, const skv_quant_config *config, skv_error *err)
{
    skv_tensor_coded *c = &t->coded;
    const size_t K = t->dims[1], *block = config->block;
    SKV_REQUIRE(block[0] || !c->block_unsure, err, SKV_FORMAT,
                "%s: %zux%zu scales of %zux%zu weights: quantization_config does not say the size "
                "of a block",
                t->name, c->n_row_blocks, c->n_groups, c->n_rows, K);
    if (!block[0] || may_be_whole(c, config)) return SKV_OK;
    const bool fits = skv_ceil_div(c->n_rows, block[0]) == c->n_row_blocks &&
                      skv_ceil_div(K, block[1]) == c->n_groups;
    SKV_REQUIRE(fits, err, SKV_FORMAT,
                "%s: %zux%zu scales, expected one a block of [%zu, %zu], as quantization_config "
                "says",
                t->name, c->n_row_blocks, c->n_groups, block[0], block[1]);
    c->block_unsure = false;
    c->block_rows = block[0];
    c->block_columns = block[1];
    return SKV_OK;
}

static bool fits_scheme(const skv_tensor *t, const skv_quant_scheme *scheme)
{
    const skv_tensor_coded *c = &t->coded;
    const bool all = c->n_groups == 1 && scheme->group >= t->dims[1];
    const bool fits = scheme->group == 0 || scheme->group == c->block_columns || all;
    if (scheme->ordered && !c->says_groups) return false;
    return fits && (scheme->bits == 0 || scheme->bits == (skv_coded_has_nibbles(c) ? 4 : 8));
}

/* Whether some group of modules is quantised as the matrix is. */
static skv_status check_schemes(const skv_tensor *t, const skv_quant_config *config, skv_error *err)
{
    const skv_quant_scheme *scheme = config->schemes;
    bool fits = config->n_schemes == 0 || config->n_schemes > SKV_QUANT_SCHEMES_MAX;
    for (size_t i = 0; i < config->n_schemes && !fits; i++) fits = fits_scheme(t, &scheme[i]);
    if (fits) return SKV_OK;
    char text[96], group[48] = "";
    skv_coded_text(t, text, sizeof text);
    if (scheme->group) (void)snprintf(group, sizeof group, " in groups of %zu", scheme->group);
    return skv_fail(err, SKV_FORMAT, "%s: %s, quantization_config says %zu bits%s%s", t->name, text,
                    scheme->bits, group, scheme->ordered ? " and an order (g_idx)" : "");
}

/* GPTQ's and AWQ's layouts have the names of their tensors in common. */
static skv_status check_method(const skv_tensor *t, const skv_quant_config *config, skv_error *err)
{
    const bool awq = t->coded.layout == SKV_CODES_AWQ;
    if (!awq && t->coded.layout != SKV_CODES_GPTQ) return SKV_OK;
    const char *expected = awq ? "awq" : "gptq";
    SKV_REQUIRE(strcmp(config->method, expected) == 0, err, SKV_FORMAT,
                "%s: stands as %s has it, quantization_config: quant_method is \"%s\"", t->name,
                expected, config->method);
    return SKV_OK;
}

skv_status skv_coded_settle(skv_tensor *t, const skv_quant_config *config, skv_error *err)
{
    skv_tensor_coded *c = &t->coded;
    if (c->layout == SKV_CODES_NONE) return SKV_OK;
    SKV_TRY(check_method(t, config, err));
    SKV_TRY(check_schemes(t, config, err));
    c->zero_offset = c->layout == SKV_CODES_GPTQ && config->zeros_minus_one;
    const bool by_block = c->layout == SKV_CODES_FP8 || c->layout == SKV_CODES_I8;
    return by_block ? settle_blocks(t, config, err) : SKV_OK;
}
