/* The code that dtype.c and quant_blocks.c share for ggml's types with uneven levels. */
#ifndef SKV_FORMAT_QUANT_LEVELS_H
#define SKV_FORMAT_QUANT_LEVELS_H

#include <stddef.h>

/* Of IQ4_NL and IQ4_XS. */
#define SKV_IQ4_LEVELS                                                                             \
    {                                                                                              \
        -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113                   \
    }
/* Twice the values of E2M1, floats of 4 bits. */
#define SKV_E2M1_LEVELS                                                                            \
    {                                                                                              \
        0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12                                    \
    }

/** The six-bit scale, less 32, of group j < 8 in a block of IQ4_XS. */
static inline int skv_iq4_xs_scale(const unsigned char *block, size_t j)
{
    int low = block[4 + j / 2] >> (j % 2 * 4) & 15, high = block[2 + j / 4] >> (j % 4 * 2) & 3;
    return (low | high << 4) - 32;
}

#endif
