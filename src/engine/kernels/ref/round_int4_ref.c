/* Rounding floats to 4 bits: the specification. */
#include <math.h>

#include "base/float16.h"
#include "base/quant.h"
#include "kernels/matmul.h"
#include "kernels/round_int4.h"

/* The whole number nearest to v within -8 .. 7; -8 for NaN. Adding 1.5 * 2^23 leaves a float no
 * room for fractions: unlike rintf, that is a vector instruction everywhere. */
static inline float nearest_level(float v)
{
    const float no_fraction = 12582912.0F;
    v = v > -8.0F ? v : -8.0F;
    v = v < 7.0F ? v : 7.0F;
    return (v + no_fraction) - no_fraction;
}

static inline float inverse_of(float scale)
{
    return scale == 0.0F ? 0.0F : 1.0F / scale;
}

/* The squared error of a group x [32] for a scale. */
static float round_error(const float *x, float scale)
{
    float inverse = inverse_of(scale), sums[SKV_ROUND_SUMS] = {0};
    for (size_t k = 0; k < SKV_QUANT_GROUP; k += SKV_ROUND_SUMS) {
        for (size_t j = 0; j < SKV_ROUND_SUMS; j++) {
            float miss = nearest_level(x[k + j] * inverse) * scale - x[k + j];
            sums[j] += miss * miss;
        }
    }
    for (size_t n = SKV_ROUND_SUMS / 2; n > 0; n /= 2) {
        for (size_t j = 0; j < n; j++) sums[j] = sums[2 * j] + sums[2 * j + 1];
    }
    return sums[0];
}

/* The first element of largest magnitude of x [32]. */
static float extreme(const float *x)
{
    float most = 0.0F;
    for (size_t k = 0; k < SKV_QUANT_GROUP; k++) {
        if (fabsf(x[k]) > fabsf(most)) most = x[k];
    }
    return most;
}

/* The scale of a group x [32]: -8 has the extreme's sign; other scales trade its error for the
 * error of the rest. */
static uint16_t choose_scale(const float *x)
{
    float most = extreme(x), best = INFINITY;
    uint16_t chosen = 0;
    for (int t = 0; t < SKV_ROUND_TRIES; t++) {
        uint16_t scale = skv_f16_of_float(most / skv_round_level(t));
        float error = round_error(x, skv_float_of_f16(scale));
        if (error < best) {
            best = error;
            chosen = scale;
        }
    }
    return chosen;
}

void skv_round_int4_ref(uint8_t *codes, uint16_t *scales, const float *x, size_t K)
{
    for (size_t k = 0; k < K; k++) {
        if (k % SKV_QUANT_GROUP == 0) scales[k / SKV_QUANT_GROUP] = choose_scale(x + k);
        float inverse = inverse_of(skv_float_of_f16(scales[k / SKV_QUANT_GROUP]));
        codes[k] = (uint8_t)((int)nearest_level(x[k] * inverse) + 8);
    }
}
