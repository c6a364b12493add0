/* Reading rows of coded matrices: see coded.h. coded_join.c makes them. */
#include "format/coded.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/float16.h"
#include "base/size.h"
#include "format/quant_levels.h"

/* Codes of a row, and rows, that are unpacked at a time: a cache line's worth if codes are stored
 * by columns; codes of 4 bits in an int32. */
enum { PIECE = 256, ROWS = 16, CODES = 8 };

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

/* The eight codes of an int32, from the lowest on, as bytes. */
static uint64_t spread(uint64_t word)
{
    word = (word | word << 16) & UINT64_C(0x0000ffff0000ffff);
    word = (word | word << 8) & UINT64_C(0x00ff00ff00ff00ff);
    return (word | word << 4) & UINT64_C(0x0f0f0f0f0f0f0f0f);
}

static void put_codes(uint8_t *out, uint64_t codes)
{
    for (size_t i = 0; i < CODES; i++) out[i] = (uint8_t)(codes >> 8 * i);
}

/* An int32 has eight codes of a row: rows that are neighbours have theirs side by side. */
static void unpack_gptq(const skv_tensor *t, size_t row, size_t n_rows, size_t k0, size_t n,
                        uint8_t *out)
{
    for (size_t k = 0; k < n; k += CODES) {
        const unsigned char *from = t->data + 4 * ((k0 + k) / CODES * t->coded.n_rows + row);
        for (size_t i = 0; i < n_rows; i++) {
            put_codes(out + i * PIECE + k, spread(load_u32(from + 4 * i)));
        }
    }
}

/* An int32 has a code of each of eight rows, so that many rows and columns are read at a time. */
static void unpack_awq(const skv_tensor *t, size_t row, size_t n_rows, size_t k0, size_t n,
                       uint8_t *out)
{
    const size_t n_words = skv_ceil_div(t->coded.n_rows, CODES);
    for (size_t i = 0; i < n_rows;) {
        const size_t word = (row + i) / CODES, first = (row + i) % CODES;
        const size_t n_here = skv_min_size(CODES - first, n_rows - i);
        for (size_t k = 0; k < n; k += CODES) {
            uint64_t columns[CODES], codes[CODES];
            for (size_t c = 0; c < CODES; c++) {
                columns[c] = load_u32(t->data + 4 * ((k0 + k + c) * n_words + word));
            }
            for (size_t r = 0; r < n_here; r++) {
                codes[r] = 0;
                for (size_t c = 0; c < CODES; c++) {
                    codes[r] |= (columns[c] >> 4 * awq_place(first + r) & 15) << 8 * c;
                }
                put_codes(out + (i + r) * PIECE + k, codes[r]);
            }
        }
        i += n_here;
    }
}

/* out [n_rows][PIECE] = codes [k0, k0 + n) of rows from `row` on, n <= PIECE; k0 and, where an
 * int32 has codes of a column, n are multiples of 8. Those of 8 bits are signed. */
static void unpack(const skv_tensor *t, size_t row, size_t n_rows, size_t k0, size_t n,
                   uint8_t *out)
{
    const skv_tensor_coded *c = &t->coded;
    if (c->layout == SKV_CODES_GPTQ) {
        unpack_gptq(t, row, n_rows, k0, n, out);
        return;
    }
    if (c->layout == SKV_CODES_AWQ) {
        unpack_awq(t, row, n_rows, k0, n, out);
        return;
    }
    for (size_t end = row + n_rows; row < end; row++, out += PIECE) {
        const size_t at = row * skv_tensor_columns(t) + k0;
        if (!skv_coded_has_nibbles(c)) {
            const uint8_t flip = c->layout == SKV_CODES_BYTES ? 0x80 : 0;
            for (size_t i = 0; i < n; i++) out[i] = t->data[at + i] ^ flip;
            continue;
        }
        for (size_t i = 0; i < n; i++) out[i] = t->data[at / 2 + i / 2] >> i % 2 * 4 & 15;
    }
}

/* A code's value before the zero point. */
static float value_of(skv_code_layout layout, uint8_t code)
{
    static const int8_t twice[SKV_QUANT_LEVELS] = SKV_E2M1_LEVELS;
    float value;
    switch (layout) {
    case SKV_CODES_FP8: skv_dtype_to_f32(SKV_DTYPE_F8_E4M3, &value, &code, 1); return value;
    case SKV_CODES_I8:
    case SKV_CODES_BYTES: return (float)(int8_t)code;
    case SKV_CODES_E2M1: return 0.5F * (float)twice[code];
    default: return (float)code;
    }
}

/* The bytes of a scale. */
static const unsigned char *scale_data(const skv_tensor_coded *c, size_t row, size_t group)
{
    const size_t at = row / c->block_rows * c->scale_row_step + group * c->scale_step;
    return c->scales.data + at * skv_dtype_block_bytes(c->scale_type);
}

static float scale_at(const skv_tensor_coded *c, size_t row, size_t group)
{
    float scale;
    skv_dtype_to_f32(c->scale_type, &scale, scale_data(c, row, group), 1);
    return scale;
}

static float zero_at(const skv_tensor_coded *c, size_t row, size_t group)
{
    if (!c->zeros.data)
        return skv_coded_has_nibbles(c) && c->layout != SKV_CODES_E2M1 ? 8.0F : 0.0F;
    const bool by_row = c->layout == SKV_CODES_PACKED;
    const size_t word = row / CODES, n_words = skv_ceil_div(c->n_rows, CODES);
    const size_t at = by_row ? word * c->n_groups + group : group * n_words + word;
    const unsigned place = c->layout == SKV_CODES_AWQ ? awq_place(row) : (unsigned)(row % CODES);
    return (float)((load_u32(c->zeros.data + 4 * at) >> 4 * place & 15) + c->zero_offset);
}

/* Returns the group of column k. The file's value was checked on opening, but may have changed
 * since. */
static size_t group_at(const skv_tensor_coded *c, size_t k)
{
    if (!c->groups.data) return k / c->block_columns;
    return skv_min_size(load_u32(c->groups.data + 4 * k), c->n_groups - 1);
}

/* out [n] = values of codes [k0, k0 + n) of a row. */
static void widen(const skv_tensor *t, size_t row, size_t k0, size_t n, const uint8_t *codes,
                  float *out)
{
    const skv_tensor_coded *c = &t->coded;
    size_t last = SIZE_MAX;
    float scale = 0, zero = 0;
    for (size_t i = 0; i < n; i++) {
        const size_t group = group_at(c, k0 + i);
        if (group != last) {
            scale = scale_at(c, row, group);
            zero = zero_at(c, row, group);
            last = group;
        }
        out[i] = (value_of(c->layout, codes[i]) - zero) * scale;
    }
}

void skv_coded_read_rows(const skv_tensor *t, size_t row, size_t n_rows, size_t column0,
                         size_t n_columns, float *out)
{
    uint8_t codes[ROWS * PIECE];
    for (size_t i = 0; i < n_rows; i += ROWS) {
        const size_t n_here = skv_min_size(ROWS, n_rows - i);
        for (size_t k = 0; k < n_columns; k += PIECE) {
            const size_t n = skv_min_size(PIECE, n_columns - k);
            unpack(t, row + i, n_here, column0 + k, n, codes);
            for (size_t r = 0; r < n_here; r++) {
                widen(t, row + i + r, column0 + k, n, codes + r * PIECE,
                      out + (i + r) * n_columns + k);
            }
        }
    }
}

/* The widest group of a form that divides those of the file, and the columns that are read. */
static size_t group_of(const skv_tensor_coded *c, size_t column0, size_t n_columns)
{
    size_t group = SKV_QUANT_WIDE;
    while (group > SKV_QUANT_GROUP &&
           (c->block_columns % group || column0 % group || n_columns % group)) {
        group /= 2;
    }
    return group;
}

const skv_quant_form *skv_coded_form(const skv_tensor *t, size_t column0, size_t n_columns)
{
    const skv_tensor_coded *c = &t->coded;
    const bool whole = c->block_columns % SKV_QUANT_GROUP == 0;
    if (c->layout == SKV_CODES_FP8 || c->groups.data || !whole) return NULL;
    if (c->scale_type == SKV_DTYPE_F32) return NULL;
    const bool bf16 = c->scale_type != SKV_DTYPE_F16;
    const size_t group = group_of(c, column0, n_columns);
    if (c->zeros.data) return skv_quant_form_zeros(group, bf16);
    const skv_dtype type = c->layout == SKV_CODES_E2M1 ? SKV_DTYPE_PACKED_E2M1
                           : skv_coded_has_nibbles(c)  ? SKV_DTYPE_PACKED_I4
                                                       : SKV_DTYPE_PACKED_I8;
    return skv_quant_form_packed(type, group, bf16);
}

/* A scale in the type of the form. */
static uint16_t scale_bits(const skv_tensor_coded *c, size_t row, size_t group)
{
    const unsigned char *from = scale_data(c, row, group);
    /* The codes' levels are twice their values. */
    if (c->layout == SKV_CODES_E2M1) return skv_bf16_of_half_e8m0(*from);
    return (uint16_t)(from[0] | from[1] << 8);
}

/* Scales and minimums of row i of `rows`, which is row `row` of the matrix from column0 on. */
static void read_scales(const skv_tensor *t, size_t row, size_t column0, skv_quant_rows *rows,
                        size_t i)
{
    const skv_tensor_coded *c = &t->coded;
    const skv_quant_form *form = skv_coded_form(t, column0, rows->K);
    const skv_quant_row to = skv_quant_row_at(rows, form, i);
    for (size_t g = 0; g < rows->K / form->group; g++) {
        const size_t group = group_at(c, column0 + g * form->group);
        to.scales[g] = scale_bits(c, row, group);
        const float zero = 8.0F - zero_at(c, row, group); /* 4 bits: in either type exact */
        if (to.mins) to.mins[g] = form->bf16 ? skv_bf16_of_float(zero) : skv_f16_of_float(zero);
    }
}

void skv_coded_read_codes(const skv_tensor *t, size_t row, size_t column0, skv_quant_rows *rows,
                          size_t i, size_t n_rows)
{
    uint8_t codes[ROWS * PIECE];
    for (size_t end = i + n_rows; i < end; i += ROWS, row += ROWS) {
        const size_t n_here = skv_min_size(ROWS, end - i);
        for (size_t k = 0; k < rows->K; k += PIECE) {
            const size_t n = skv_min_size(PIECE, rows->K - k);
            unpack(t, row, n_here, column0 + k, n, codes);
            for (size_t r = 0; r < n_here; r++) {
                memcpy(rows->codes + (i + r) * rows->K + k, codes + r * PIECE, n);
            }
        }
        for (size_t r = 0; r < n_here; r++) read_scales(t, row + r, column0, rows, i + r);
    }
}

size_t skv_coded_fp8_group(const skv_tensor *t, size_t column0, size_t n_columns)
{
    const skv_tensor_coded *c = &t->coded;
    const size_t group = c->block_columns;
    if (c->layout != SKV_CODES_FP8 || c->groups.data || group == 0) return 0;
    if (column0 / group == (column0 + n_columns - 1) / group) return n_columns;
    const bool is_power = (group & (group - 1)) == 0;
    return is_power && group >= SKV_QUANT_GROUP && column0 % group == 0 ? group : 0;
}

void skv_coded_read_fp8(const skv_tensor *t, size_t row, size_t column0, size_t n_columns,
                        uint8_t *codes, float *scales)
{
    const size_t group = skv_coded_fp8_group(t, column0, n_columns);
    memcpy(codes, t->data + row * skv_tensor_columns(t) + column0, n_columns);
    for (size_t k = 0; group > 0 && k < n_columns; k += group) {
        scales[k / group] = scale_at(&t->coded, row, group_at(&t->coded, column0 + k));
    }
}

bool skv_coded_is_by_column(const skv_tensor *t)
{
    return t->coded.layout == SKV_CODES_GPTQ || t->coded.layout == SKV_CODES_AWQ;
}

void skv_coded_forget(const skv_tensor *t)
{
    const skv_tensor_coded *c = &t->coded;
    const size_t row_bytes = t->n_bytes / c->n_rows;
    const size_t n = skv_tensor_stored_rows(t);
    if (skv_coded_is_by_column(
            t)) { /* of all rows: the other parts of the matrix read them again */
        skv_file_map_forget(t->data, t->n_bytes);
        return;
    }
    skv_file_map_forget(t->data + c->row0 * row_bytes, n * row_bytes);
    if (c->block_rows > 1) return;
    skv_file_map_forget(scale_data(c, c->row0, 0),
                        n * c->n_groups * skv_dtype_block_bytes(c->scale_type));
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
    static const char *const names[] = {"",     "fp8",   "int8",      "int8",
                                        "int4", "MXFP4", "GPTQ int4", "AWQ int4"};
    const skv_tensor_coded *c = &t->coded;
    const char *name = names[c->layout];
    const size_t K = skv_tensor_columns(t);
    const char *zeros = c->zeros.data ? " with zero points" : "";
    const char *order = c->groups.data ? ", columns in another order" : "";
    if (c->block_rows > 1 && c->block_columns >= K) {
        (void)snprintf(out, size, "%s, one scale a matrix", name);
    } else if (c->block_rows > 1) {
        (void)snprintf(out, size, "%s in blocks of %zux%zu", name, c->block_rows, c->block_columns);
    } else if (c->block_columns >= K && !c->groups.data && c->layout != SKV_CODES_E2M1) {
        (void)snprintf(out, size, "%s, one scale a row%s", name, zeros);
    } else {
        (void)snprintf(out, size, "%s in groups of %zu%s%s", name, c->block_columns, zeros, order);
    }
}
