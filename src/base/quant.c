/* Rows of codes: see quant.h. */
#include "base/quant.h"

#include <float.h>
#include <math.h>

#include "base/float16.h"

enum { ALIGN = 64 };

#define LEVELS                                                                                     \
    {                                                                                              \
        -8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7                                     \
    }

const skv_quant_form *skv_quant_form_int4(void)
{
    static const skv_quant_form form = {4, 32, false, false, false, true, LEVELS, false};
    return &form;
}

const skv_quant_form *skv_quant_form_zeros(size_t group, bool bf16)
{
    static const skv_quant_form forms[][2] = {{{4, 32, false, true, false, true, LEVELS, true},
                                               {4, 32, false, true, true, true, LEVELS, true}},
                                              {{4, 64, false, true, false, true, LEVELS, true},
                                               {4, 64, false, true, true, true, LEVELS, true}},
                                              {{4, 128, false, true, false, true, LEVELS, true},
                                               {4, 128, false, true, true, true, LEVELS, true}}};
    return &forms[group / 64][bf16];
}

typedef struct row_sizes {
    size_t codes, scales, fine; /* elements of a row */
} row_sizes;

static row_sizes sizes_of(const skv_quant_form *form, size_t K)
{
    return (row_sizes){K, skv_quant_spans(form, K), form->fine ? K / form->group : 0};
}

size_t skv_quant_rows_bytes(const skv_quant_form *form, size_t n, size_t K)
{
    row_sizes s = sizes_of(form, K);
    return skv_round_up(n * s.codes, ALIGN) + 2 * skv_round_up(n * s.scales * 2, ALIGN) +
           2 * skv_round_up(n * s.fine, ALIGN);
}

void skv_quant_rows_init(skv_quant_rows *rows, const skv_quant_form *form, size_t n, size_t K,
                         void *memory)
{
    row_sizes s = sizes_of(form, K);
    uint8_t *next = memory;
    *rows = (skv_quant_rows){.n = n, .K = K, .codes = next};
    next += skv_round_up(n * s.codes, ALIGN);
    rows->scales = (uint16_t *)(void *)next;
    next += skv_round_up(n * s.scales * 2, ALIGN);
    if (form->has_min) rows->mins = (uint16_t *)(void *)next;
    next += skv_round_up(n * s.scales * 2, ALIGN);
    if (!form->fine) return;
    rows->fine = (int8_t *)(void *)next;
    if (form->has_min) rows->fine_min = next + skv_round_up(n * s.fine, ALIGN);
}

skv_quant_row skv_quant_row_at(const skv_quant_rows *rows, const skv_quant_form *form, size_t i)
{
    row_sizes s = sizes_of(form, rows->K);
    return (skv_quant_row){
        .codes = rows->codes + i * s.codes,
        .scales = rows->scales + i * s.scales,
        .mins = rows->mins ? rows->mins + i * s.scales : NULL,
        .fine = rows->fine ? rows->fine + i * s.fine : NULL,
        .fine_min = rows->fine_min ? rows->fine_min + i * s.fine : NULL,
    };
}

void skv_quant_row_to_f32(const skv_quant_rows *rows, const skv_quant_form *form, size_t i,
                          float *out)
{
    skv_quant_row row = skv_quant_row_at(rows, form, i);
    float (*widen)(uint16_t) = form->bf16 ? skv_float_of_bf16 : skv_float_of_f16;
    for (size_t g = 0; g < rows->K / form->group; g++) {
        const size_t k0 = g * form->group, s = form->fine ? k0 / SKV_QUANT_SPAN : g;
        const float scale = widen(row.scales[s]) * (row.fine ? (float)row.fine[g] : 1.0F);
        float min = row.mins ? widen(row.mins[s]) : 0.0F;
        if (row.fine_min) min *= -(float)row.fine_min[g];
        if (form->zeros) min *= scale;
        for (size_t k = k0; k < k0 + form->group; k++) {
            const int value = form->bits == 4 ? form->levels[row.codes[k]] : (int8_t)row.codes[k];
            out[k] = scale * (float)value + min;
        }
    }
}

/* ---- files that hold no numbers ---- */

float skv_quant_row_fault(const skv_quant_rows *rows, const skv_quant_form *form, size_t i)
{
    const skv_quant_row row = skv_quant_row_at(rows, form, i);
    float (*widen)(uint16_t) = form->bf16 ? skv_float_of_bf16 : skv_float_of_f16;
    for (size_t s = 0; s < skv_quant_spans(form, rows->K); s++) {
        const float scale = widen(row.scales[s]), min = row.mins ? widen(row.mins[s]) : 0.0F;
        if (!isfinite(scale)) return scale;
        if (!isfinite(min)) return min;
    }
    return 0.0F;
}

float skv_quant_fault(const float *x, size_t n)
{
    bool found = false;
    for (size_t i = 0; i < n; i++) found |= !(fabsf(x[i]) <= FLT_MAX);
    for (size_t i = 0; found && i < n; i++) {
        if (!isfinite(x[i])) return x[i];
    }
    return 0.0F;
}
