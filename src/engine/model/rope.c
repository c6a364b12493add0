/* Rotary position embedding: see model.h. */
#include "model/model.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

static const double TWO_PI = 6.283185307179586;

/* The dimension, of n_rot, whose pair turns so many times within the original context. */
static double yarn_dimension(const skv_rope *rope, double turns)
{
    double period = (double)rope->original_context / (turns * TWO_PI);
    return (double)rope->n_rot * log(period) / (2 * log(rope->theta));
}

/* YaRN, section 3.2: pairs that turn often within the original context are kept, slow ones are
 * divided by factor, and a ramp over pairs lies between. */
static double yarn_frequency(const skv_rope *rope, size_t i, double frequency)
{
    double low = yarn_dimension(rope, rope->beta_fast);
    double high = yarn_dimension(rope, rope->beta_slow);
    low = fmax(rope->ramp_exact ? low : floor(low), 0);
    high = fmin(rope->ramp_exact ? high : ceil(high), (double)rope->n_rot - 1);
    if (low == high) high += 0.001; /* as published */
    double ramp = fmin(fmax(((double)i - low) / (high - low), 0), 1);
    return frequency / rope->factor * ramp + frequency * (1 - ramp);
}

static float scaled_frequency(const skv_rope *rope, size_t i, bool long_form)
{
    double frequency = pow(rope->theta, -2.0 * (double)i / (double)rope->n_rot);
    switch (rope->scaling) {
    case SKV_ROPE_PLAIN: break;
    case SKV_ROPE_LINEAR: frequency /= rope->factor; break;
    case SKV_ROPE_LLAMA3: frequency = skv_rope_llama3(rope, frequency); break;
    case SKV_ROPE_LONGROPE:
        frequency /= (double)(long_form ? rope->long_factor[i] : rope->short_factor[i]);
        break;
    case SKV_ROPE_FACTORS: frequency /= (double)rope->long_factor[i]; break;
    case SKV_ROPE_YARN: frequency = yarn_frequency(rope, i, frequency); break;
    case SKV_ROPE_NONE: frequency = 0; break;
    }
    return (float)frequency;
}

skv_status skv_rope_table_init(skv_rope_table *table, const skv_rope *rope, skv_error *err)
{
    size_t n = rope->n_rot / 2;
    *table = (skv_rope_table){.n = n, .amplitude = 1};
    if (rope->scaling == SKV_ROPE_LONGROPE || rope->scaling == SKV_ROPE_YARN) {
        table->amplitude = (float)rope->attention_factor;
    }
    if (rope->scaling == SKV_ROPE_LONGROPE) table->short_context = rope->original_context;
    if (rope->position_growth != 0.0) {
        table->growth = rope->position_growth;
        table->growth_context = rope->original_context;
    }
    for (int form = 0; form < 2; form++) {
        table->frequencies[form] = skv_alloc(n, sizeof(float));
        if (!table->frequencies[form]) {
            skv_rope_table_release(table);
            return skv_fail(err, SKV_MEMORY, "rope: no memory for %zu frequencies", n);
        }
        for (size_t i = 0; i < n; i++) {
            table->frequencies[form][i] = scaled_frequency(rope, i, form == 1);
        }
    }
    return SKV_OK;
}

void skv_rope_table_release(skv_rope_table *table)
{
    skv_free(table->frequencies[0]);
    skv_free(table->frequencies[1]);
    *table = (skv_rope_table){0};
}

bool skv_rope_table_same(const skv_rope_table *a, const skv_rope_table *b)
{
    const size_t n_bytes = a->n * sizeof(float);
    return a->n == b->n && a->amplitude == b->amplitude && a->short_context == b->short_context &&
           a->growth == b->growth && a->growth_context == b->growth_context &&
           memcmp(a->frequencies[0], b->frequencies[0], n_bytes) == 0 &&
           memcmp(a->frequencies[1], b->frequencies[1], n_bytes) == 0;
}

void skv_rope_angles(const skv_rope_table *table, size_t position, size_t context, float *cos_out,
                     float *sin_out)
{
    bool long_form = table->short_context > 0 && context > table->short_context;
    const float *frequencies = table->frequencies[long_form];
    float amplitude = table->amplitude;
    if (table->growth_context > 0) {
        const size_t n = position / table->growth_context;
        amplitude *= (float)(1 + table->growth * log1p((double)n));
    }
    for (size_t i = 0; i < table->n; i++) {
        /* f32 product, as in the published implementations, which models were trained with. */
        float angle = (float)position * frequencies[i];
        cos_out[i] = cosf(angle) * amplitude;
        sin_out[i] = sinf(angle) * amplitude;
    }
}

void skv_rope_read_angles(const void *table, size_t position, size_t context, float *cos_out,
                          float *sin_out)
{
    skv_rope_angles(table, position, context, cos_out, sin_out);
}
