/*
 * Panels of quantised weights, for skv_kernels.q: the codes and scales of base/quant.h sorted for
 * the products of every level. A panel holds nr rows of W and says itself which form it has.
 *
 *   header                                            SKV_QUANT_HEADER bytes
 *   fine scales, per SKV_QUANT_SPAN of K:             d [nr] | dmin [nr] if there are minimums
 *   groups wider than SKV_QUANT_GROUP, per group:     scale [nr] | min [nr] if there are minimums
 *   per SKV_QUANT_GROUP of K:
 *     other groups, per `group` of it (one or two):   scale [nr] | min [nr] if there are minimums
 *     per SKV_QUANT_HALF of it, units [nr][4], of a byte for element e = 0..3:
 *       4 bits: two       unit u has element 8u + e in the low nibble, 8u + 4 + e in the high one
 *       6 bits: three     two of the low four bits, as above; then the high two bits of elements
 *                         e, 4 + e, 8 + e and 12 + e, from bit 0 on
 *       8 bits: four      unit u has element 4u + e
 *
 * A code of 6 bits stands as value + 32.
 *
 * d, dmin, and scales that are not fine, have 16 bits, fine ones and their minimums 8. The first
 * two lines of the table are called spans.
 *
 * The rows that meet them, packed for blocks of m, per skv_i8_group(K) of K:
 *   scale [m] f32, amax / 127 (skv_i8_scale)
 *   per SKV_QUANT_GROUP:  sums [3][m] int32, of the codes, of their first and of their second half
 *                         codes [SKV_QUANT_GROUP / 4][m][4] int8
 * and after the last one SKV_QUANT_SLACK bytes that packing may overwrite.
 */
#ifndef SKV_KERNELS_QUANT_PANEL_H
#define SKV_KERNELS_QUANT_PANEL_H

#include "base/quant.h"
#include "kernels/kernels.h"

enum {
    SKV_QUANT_HEADER = 64,
    SKV_QUANT_HALF = SKV_QUANT_GROUP / 2,
    SKV_QUANT_SLACK = 32,
    /* Most bias of even levels: with codes of at most 127 half of a group's products and
     * -bias times the sum of all its codes fit 16 bits together. */
    SKV_QUANT_EVEN = 8,
    /* Most magnitude of small levels: with such codes half of a group's products fit 16 bits. */
    SKV_QUANT_SMALL = 16
};

typedef struct skv_quant_header {
    uint8_t bits, group;
    bool fine, has_min, bf16, zeros;  /* as in skv_quant_form */
    bool wide;                        /* group > SKV_QUANT_GROUP */
    bool even;                        /* as there, and 0 <= bias <= SKV_QUANT_EVEN */
    bool small;                       /* 4 bits: no level is beyond SKV_QUANT_SMALL */
    uint8_t n_parts;                  /* SKV_QUANT_GROUP / group, at least 1 */
    uint8_t span_groups;              /* SKV_QUANT_GROUP of K that a span has */
    int32_t bias;                     /* makes every value unsigned */
    int8_t levels[SKV_QUANT_LEVELS];  /* of 4 bits */
    uint8_t biased[SKV_QUANT_LEVELS]; /* levels + bias */
} skv_quant_header;

/** Bytes of one panel of nr rows. */
size_t skv_quant_panel_bytes(const skv_quant_form *form, size_t nr, size_t K);
/** Packs rows [1 <= n <= nr, K], zero-filling to nr. */
void skv_quant_pack(void *panel, size_t nr, const skv_quant_form *form, const skv_quant_rows *rows);
/** out [n][nr] = the values of elements [k0, k0 + n) along K as f32; k0 and n are multiples of
 * SKV_QUANT_GROUP. The specification of a panel's contents. */
void skv_quant_unpack(float *out, const void *panel, size_t nr, size_t K, size_t k0, size_t n);

/** Scales of 16 bits of each span: their place in a panel, and their bytes. */
static inline size_t skv_quant_span_bytes(const skv_quant_header *h, size_t nr)
{
    return h->fine || h->wide ? nr * sizeof(uint16_t) * (h->has_min ? 2 : 1) : 0;
}

/** Bytes of the scale and min of one group where it stands. */
static inline size_t skv_quant_scale_bytes(const skv_quant_header *h, size_t nr)
{
    return h->wide ? 0 : nr * (h->fine ? 1 : sizeof(uint16_t)) * (h->has_min ? 2 : 1);
}

/** Bytes of SKV_QUANT_GROUP elements along K. */
static inline size_t skv_quant_group_bytes(const skv_quant_header *h, size_t nr)
{
    return h->n_parts * skv_quant_scale_bytes(h, nr) + nr * SKV_QUANT_GROUP * h->bits / 8;
}

/** Bytes of all spans. */
static inline size_t skv_quant_spans_bytes(const skv_quant_header *h, size_t nr, size_t K)
{
    return skv_ceil_div(K, (size_t)h->span_groups * SKV_QUANT_GROUP) * skv_quant_span_bytes(h, nr);
}

/** Where group i_group begins. */
static inline const unsigned char *skv_quant_group(const skv_quant_header *h, size_t nr, size_t K,
                                                   size_t i_group)
{
    const unsigned char *spans = (const unsigned char *)h + SKV_QUANT_HEADER;
    return spans + skv_quant_spans_bytes(h, nr, K) + i_group * skv_quant_group_bytes(h, nr);
}

/** Where the d [nr] of its span stands, before its dmin [nr]. */
static inline const uint16_t *skv_quant_span(const skv_quant_header *h, size_t nr, size_t i_group)
{
    const unsigned char *spans = (const unsigned char *)h + SKV_QUANT_HEADER;
    size_t i = i_group / h->span_groups;
    return (const uint16_t *)(const void *)(spans + i * skv_quant_span_bytes(h, nr));
}

/** Where the scales [nr] stand that a group at `group` uses, before its minimums. */
static inline const unsigned char *skv_quant_scales(const skv_quant_header *h, size_t nr,
                                                    const unsigned char *group, size_t i_group)
{
    return h->wide ? (const unsigned char *)skv_quant_span(h, nr, i_group) : group;
}

/** Bytes of SKV_QUANT_GROUP of K of m packed rows. */
static inline size_t skv_quant_x_group(size_t m)
{
    return m * (3 * sizeof(int32_t) + SKV_QUANT_GROUP);
}

/** Bytes of them up to k, which is where a scale begins, or K. */
static inline size_t skv_quant_x_offset(size_t m, size_t K, size_t k)
{
    return skv_ceil_div(k, skv_i8_group(K)) * m * sizeof(float) +
           k / SKV_QUANT_GROUP * skv_quant_x_group(m);
}

/** Bytes of a packed block of m rows. */
static inline size_t skv_quant_x_bytes(size_t m, size_t K)
{
    return skv_quant_x_offset(m, K, K) + SKV_QUANT_SLACK;
}

#endif
