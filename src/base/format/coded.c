/* Reading rows of coded matrices: see coded.h. coded_join.c makes them. */
#include "format/coded.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/float16.h"
#include "base/size.h"

enum { PIECE = 256, CODES = 8 }; /* codes unpacked at a time; of 4 bits in an int32 */

static uint32_t load_u32(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* Where AWQ has element i of eight, in nibbles from the lowest. */
static unsigned awq_place(size_t i)
{
    static const unsigned char places[CODES] = {0, 4, 1, 5, 2, 6, 3, 7};
    return places[i % CODES];
}

/* Codes [k0, k0 + n) of a row, n <= PIECE; k0 is a multiple of 8. */
static void unpack(const skv_tensor *t, size_t row, size_t k0, size_t n, uint8_t *out)
{
    const skv_tensor_coded *c = &t->coded;
    const size_t K = skv_tensor_columns(t), n_words = skv_ceil_div(c->n_rows, CODES);
    if (c->layout == SKV_CODES_FP8 || c->layout == SKV_CODES_I8) {
        memcpy(out, t->data + row * K + k0, n);
        return;
    }
    for (size_t i = 0; c->layout == SKV_CODES_AWQ && i < n; i++) {
        const uint32_t word = load_u32(t->data + 4 * ((k0 + i) * n_words + row / CODES));
        out[i] = word >> 4 * awq_place(row) & 15;
    }
    for (size_t i = 0; c->layout != SKV_CODES_AWQ && i < n; i += CODES) {
        const size_t at = (k0 + i) / CODES;
        const bool by_row = c->layout == SKV_CODES_PACKED;
        const size_t word_at = by_row ? row * (K / CODES) + at : at * c->n_rows + row;
        const uint32_t word = load_u32(t->data + 4 * word_at);
        for (size_t j = 0; j < CODES; j++) out[i + j] = word >> 4 * j & 15;
    }
}

/* A code's value before the zero point. */
static float value_of(skv_code_layout layout, uint8_t code)
{
    float value;
    if (layout == SKV_CODES_FP8) {
        skv_dtype_to_f32(SKV_DTYPE_F8_E4M3, &value, &code, 1);
        return value;
    }
    return layout == SKV_CODES_I8 ? (float)(int8_t)code : (float)code;
}

static float scale_at(const skv_tensor_coded *c, size_t row, size_t group)
{
    float scale;
    const size_t at = row / c->block_rows * c->scale_row_step + group * c->scale_step;
    skv_dtype_to_f32(c->scale_type, &scale,
                     c->scales.data + at * skv_dtype_block_bytes(c->scale_type), 1);
    return scale;
}

static float zero_at(const skv_tensor_coded *c, size_t row, size_t group)
{
    const bool nibbles = c->layout != SKV_CODES_FP8 && c->layout != SKV_CODES_I8;
    if (!c->zeros.data) return nibbles ? 8.0F : 0.0F;
    const bool by_row = c->layout == SKV_CODES_PACKED;
    const size_t word = row / CODES, n_words = skv_ceil_div(c->n_rows, CODES);
    const size_t at = by_row ? word * c->n_groups + group : group * n_words + word;
    const unsigned place = c->layout == SKV_CODES_AWQ ? awq_place(row) : (unsigned)(row % CODES);
    return (float)((load_u32(c->zeros.data + 4 * at) >> 4 * place & 15) + c->zero_offset);
}

/* The group of column k. What the file says was checked, but may have changed since. */
static size_t group_at(const skv_tensor_coded *c, size_t k)
{
    if (!c->groups.data) return k / c->block_columns;
    return skv_min_size(load_u32(c->groups.data + 4 * k), c->n_groups - 1);
}

void skv_coded_read_row(const skv_tensor *t, size_t row, float *out)
{
    const skv_tensor_coded *c = &t->coded;
    const size_t K = skv_tensor_columns(t);
    uint8_t codes[PIECE];
    size_t last = SIZE_MAX;
    float scale = 0, zero = 0;
    for (size_t k0 = 0; k0 < K; k0 += PIECE) {
        const size_t n = skv_min_size(PIECE, K - k0);
        unpack(t, row, k0, n, codes);
        for (size_t i = 0; i < n; i++) {
            const size_t group = group_at(c, k0 + i);
            if (group != last) {
                scale = scale_at(c, row, group);
                zero = zero_at(c, row, group);
                last = group;
            }
            out[k0 + i] = (value_of(c->layout, codes[i]) - zero) * scale;
        }
    }
}

const skv_quant_form *skv_coded_form(const skv_tensor *t)
{
    const skv_tensor_coded *c = &t->coded;
    const bool whole = c->block_columns % SKV_QUANT_GROUP == 0;
    if (c->layout == SKV_CODES_FP8 || c->groups.data || !whole) return NULL;
    if (c->scale_type == SKV_DTYPE_F32) return NULL;
    const bool bf16 = c->scale_type == SKV_DTYPE_BF16;
    if (c->layout == SKV_CODES_I8) return skv_quant_form_packed(SKV_DTYPE_PACKED_I8, bf16);
    return c->zeros.data ? skv_quant_form_zeros(bf16)
                         : skv_quant_form_packed(SKV_DTYPE_PACKED_I4, bf16);
}

void skv_coded_read_codes(const skv_tensor *t, size_t row, skv_quant_rows *rows, size_t i)
{
    const skv_tensor_coded *c = &t->coded;
    const skv_quant_form *form = skv_coded_form(t);
    const skv_quant_row to = skv_quant_row_at(rows, form, i);
    for (size_t k = 0; k < rows->K; k += PIECE) {
        unpack(t, row, k, skv_min_size(PIECE, rows->K - k), to.codes + k);
    }
    for (size_t g = 0; g < rows->K / SKV_QUANT_GROUP; g++) {
        const size_t group = group_at(c, g * SKV_QUANT_GROUP);
        const float scale = scale_at(c, row, group);
        to.scales[g] = form->bf16 ? skv_bf16_of_float(scale) : skv_f16_of_float(scale);
        const float zero = 8.0F - zero_at(c, row, group); /* 4 bits: in either type exact */
        if (to.mins) to.mins[g] = form->bf16 ? skv_bf16_of_float(zero) : skv_f16_of_float(zero);
    }
}

static skv_status check_part(const skv_tensor_part *part, skv_error *err)
{
    return part->file ? skv_file_map_check(part->file, err) : SKV_OK;
}

skv_status skv_coded_check(const skv_tensor *t, skv_error *err)
{
    SKV_TRY(check_part(&t->coded.scales, err));
    SKV_TRY(check_part(&t->coded.zeros, err));
    return check_part(&t->coded.groups, err);
}

void skv_coded_text(const skv_tensor *t, char *out, size_t size)
{
    static const char *const names[] = {"", "fp8", "int8", "int4", "GPTQ int4", "AWQ int4"};
    const skv_tensor_coded *c = &t->coded;
    const char *name = names[c->layout];
    const size_t K = skv_tensor_columns(t);
    const char *zeros = c->zeros.data ? " with zero points" : "";
    const char *order = c->groups.data ? ", columns in another order" : "";
    if (c->block_rows > 1 && c->block_columns >= K) {
        (void)snprintf(out, size, "%s, one scale a matrix", name);
    } else if (c->block_rows > 1) {
        (void)snprintf(out, size, "%s in blocks of %zux%zu", name, c->block_rows, c->block_columns);
    } else if (c->block_columns >= K && !c->groups.data) {
        (void)snprintf(out, size, "%s, one scale a row%s", name, zeros);
    } else {
        (void)snprintf(out, size, "%s in groups of %zu%s%s", name, c->block_columns, zeros, order);
    }
}
