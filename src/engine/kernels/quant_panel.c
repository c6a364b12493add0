/* Panels of quantised weights: see quant_panel.h. */
#include "kernels/quant_panel.h"

#include <string.h>

#include "base/float16.h"

enum { BIAS_6 = 32, BIAS_8 = 128, MAX_UNITS = 4 };

static skv_quant_header make_header(const skv_quant_form *form)
{
    skv_quant_header h = {
        .bits = form->bits,
        .group = form->group,
        .fine = form->fine,
        .has_min = form->has_min,
        .bf16 = form->bf16,
        .zeros = form->zeros,
        .wide = form->group > SKV_QUANT_GROUP,
        .n_parts = (uint8_t)(form->group < SKV_QUANT_GROUP ? SKV_QUANT_GROUP / form->group : 1),
        .span_groups = (form->fine ? SKV_QUANT_SPAN : form->group) / SKV_QUANT_GROUP,
        .bias = form->bits == 6 ? BIAS_6 : BIAS_8,
    };
    if (h.span_groups == 0) h.span_groups = 1; /* of groups of 16 without spans */
    if (form->bits != 4) return h;
    int8_t least = form->levels[0], most = form->levels[0];
    for (size_t i = 1; i < SKV_QUANT_LEVELS; i++) {
        if (form->levels[i] < least) least = form->levels[i];
        if (form->levels[i] > most) most = form->levels[i];
    }
    h.bias = -least;
    h.small = least <= 0 && least >= -SKV_QUANT_SMALL && most <= SKV_QUANT_SMALL;
    h.even = form->even && least <= 0 && least >= -SKV_QUANT_EVEN;
    for (size_t i = 0; i < SKV_QUANT_LEVELS; i++) {
        h.levels[i] = form->levels[i];
        h.biased[i] = (uint8_t)(form->levels[i] - least);
    }
    return h;
}

size_t skv_quant_panel_bytes(const skv_quant_form *form, size_t nr, size_t K)
{
    skv_quant_header h = make_header(form);
    return SKV_QUANT_HEADER + skv_quant_spans_bytes(&h, nr, K) +
           skv_ceil_div(K, SKV_QUANT_GROUP) * skv_quant_group_bytes(&h, nr);
}

/* out [nr] = column s of from [n, n_scales]; rows that are missing are zero. */
static unsigned char *put_u16(unsigned char *out, const uint16_t *from, size_t n_scales, size_t s,
                              size_t n, size_t nr)
{
    for (size_t j = 0; j < nr; j++, out += sizeof *from) {
        uint16_t value = j < n ? from[j * n_scales + s] : 0;
        memcpy(out, &value, sizeof value);
    }
    return out;
}

static unsigned char *put_u8(unsigned char *out, const void *from, size_t n_scales, size_t s,
                             size_t n, size_t nr)
{
    const unsigned char *bytes = from;
    for (size_t j = 0; j < nr; j++) *out++ = j < n ? bytes[j * n_scales + s] : 0;
    return out;
}

/* The scale and min of group g. */
static unsigned char *put_scales(unsigned char *out, const skv_quant_header *h,
                                 const skv_quant_rows *rows, size_t g, size_t nr)
{
    size_t n_groups = rows->K / h->group;
    if (h->fine) {
        out = put_u8(out, rows->fine, n_groups, g, rows->n, nr);
        return h->has_min ? put_u8(out, rows->fine_min, n_groups, g, rows->n, nr) : out;
    }
    out = put_u16(out, rows->scales, n_groups, g, rows->n, nr);
    return h->has_min ? put_u16(out, rows->mins, n_groups, g, rows->n, nr) : out;
}

/* The units [4 bytes] of one column from the codes of SKV_QUANT_HALF elements. A 32-bit number
 * holds four codes, so each operation works on four at once. Returns the number of units. */
static size_t make_units(uint32_t units[MAX_UNITS], const skv_quant_header *h,
                         const uint8_t codes[SKV_QUANT_HALF])
{
    const uint32_t sign = 0x20202020, low = 0x0f0f0f0f, high = 0x30303030;
    uint32_t c[MAX_UNITS];
    memcpy(c, codes, sizeof c);
    switch (h->bits) {
    case 4:
        units[0] = c[0] | c[1] << 4;
        units[1] = c[2] | c[3] << 4;
        return 2;
    case 6:
        for (size_t i = 0; i < MAX_UNITS; i++) c[i] ^= sign;
        units[0] = (c[0] & low) | (c[1] & low) << 4;
        units[1] = (c[2] & low) | (c[3] & low) << 4;
        units[2] = (c[0] & high) >> 4 | (c[1] & high) >> 2 | (c[2] & high) | (c[3] & high) << 2;
        return 3;
    default: memcpy(units, c, sizeof c); return 4;
    }
}

/* The codes of SKV_QUANT_GROUP elements from k on; rows that are missing have whatever codes, since
 * their scales are zero. */
static unsigned char *put_codes(unsigned char *out, const skv_quant_header *h,
                                const skv_quant_rows *rows, size_t k, size_t nr)
{
    static const uint8_t none[SKV_QUANT_HALF];
    const size_t unit_bytes = nr * sizeof(uint32_t);
    for (size_t end = k + SKV_QUANT_GROUP; k < end; k += SKV_QUANT_HALF) {
        size_t n_units = 0;
        for (size_t j = 0; j < nr; j++) {
            uint32_t units[MAX_UNITS];
            n_units = make_units(units, h, j < rows->n ? rows->codes + j * rows->K + k : none);
            for (size_t u = 0; u < n_units; u++) {
                memcpy(out + u * unit_bytes + j * sizeof *units, units + u, sizeof *units);
            }
        }
        out += n_units * unit_bytes;
    }
    return out;
}

void skv_quant_pack(void *panel, size_t nr, const skv_quant_form *form, const skv_quant_rows *rows)
{
    skv_quant_header h = make_header(form);
    unsigned char *out = panel;
    memset(out, 0, SKV_QUANT_HEADER);
    memcpy(out, &h, sizeof h);
    out += SKV_QUANT_HEADER;
    size_t n_spans = skv_quant_spans(form, rows->K);
    for (size_t s = 0; (h.fine || h.wide) && s < n_spans; s++) {
        out = put_u16(out, rows->scales, n_spans, s, rows->n, nr);
        if (h.has_min) out = put_u16(out, rows->mins, n_spans, s, rows->n, nr);
    }
    for (size_t k = 0; k < rows->K; k += SKV_QUANT_GROUP) {
        for (size_t i = 0; !h.wide && i < h.n_parts; i++) {
            out = put_scales(out, &h, rows, k / h.group + i, nr);
        }
        out = put_codes(out, &h, rows, k, nr);
    }
}

/* ---- reading, plainly ---- */

static float load_16(const skv_quant_header *h, const unsigned char *from, size_t j)
{
    uint16_t bits;
    memcpy(&bits, from + j * sizeof bits, sizeof bits);
    return h->bf16 ? skv_float_of_bf16(bits) : skv_float_of_f16(bits);
}

/* The scale and min of column j in part `part` of a group. */
static void load_scale(const skv_quant_header *h, size_t nr, size_t i_group, size_t part, size_t j,
                       const unsigned char *group, float *scale, float *min)
{
    const unsigned char *at =
        skv_quant_scales(h, nr, group, i_group) + part * skv_quant_scale_bytes(h, nr);
    *min = 0.0F;
    if (!h->fine) {
        *scale = load_16(h, at, j);
        if (h->has_min) *min = load_16(h, at, nr + j) * (h->zeros ? *scale : 1.0F);
        return;
    }
    const unsigned char *span = (const unsigned char *)skv_quant_span(h, nr, i_group);
    *scale = load_16(h, span, j) * (float)(int8_t)at[j];
    if (h->has_min) *min = -load_16(h, span, nr + j) * (float)at[nr + j];
}

/* The value of element k = 0..31 of column j. */
static int load_value(const skv_quant_header *h, size_t nr, const unsigned char *codes, size_t k,
                      size_t j)
{
    const size_t unit_bytes = 4 * nr, e = k % SKV_QUANT_HALF;
    codes += k / SKV_QUANT_HALF * (SKV_QUANT_HALF / 8 * h->bits) * nr + 4 * j + k % 4;
    if (h->bits == 8) return (int8_t)codes[e / 4 * unit_bytes];
    int low = codes[e / 8 * unit_bytes] >> e / 4 % 2 * 4 & 15;
    if (h->bits == 4) return h->levels[low];
    int high = codes[2 * unit_bytes] >> e / 4 * 2 & 3;
    return (low | high << 4) - BIAS_6;
}

void skv_quant_unpack(float *out, const void *panel, size_t nr, size_t K, size_t k0, size_t n)
{
    const skv_quant_header *h = panel;
    for (size_t k = 0; k < n; k++) {
        size_t i_group = (k0 + k) / SKV_QUANT_GROUP, within = (k0 + k) % SKV_QUANT_GROUP;
        const unsigned char *group = skv_quant_group(h, nr, K, i_group);
        const unsigned char *codes = group + h->n_parts * skv_quant_scale_bytes(h, nr);
        for (size_t j = 0; j < nr; j++) {
            float scale, min;
            load_scale(h, nr, i_group, h->wide ? 0 : within / h->group, j, group, &scale, &min);
            out[k * nr + j] = scale * (float)load_value(h, nr, codes, within, j) + min;
        }
    }
}
