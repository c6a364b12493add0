/* The totals of the loops that measure limits: see check_peak.h. */
#include "check_peak.h"

#include <stdbool.h>
#include <string.h>

#include "amx_model.h"
#include "base/rng.h"
#include "kernels/bf16.h"
#include "kernels/peak.h"

typedef enum element { ELEMENT_F32, ELEMENT_BF16, ELEMENT_I8 } element;

/* What operands are made of. */
typedef struct filling {
    int a_min, a_max, b_min, b_max;
} filling;

static int draw(skv_rng *rng, int low, int high)
{
    return low + (int)(skv_rng_next(rng) % (uint64_t)(high - low + 1));
}

static void put(void *operand, size_t k, element e, int value)
{
    uint16_t bits = skv_f32_to_bf16((float)value);
    switch (e) {
    case ELEMENT_F32: ((float *)operand)[k] = (float)value; break;
    case ELEMENT_BF16: memcpy((uint16_t *)operand + k, &bits, sizeof bits); break;
    default: ((int8_t *)operand)[k] = (int8_t)value; break;
    }
}

/* One call: whole numbers, so small that every sum is exact in any order. */
static int check_call(skv_rng *rng, const skv_peak_loop *loop, element e, filling fill,
                      size_t n_rounds, FILE *out)
{
    _Alignas(64) float a[SKV_PEAK_BYTES / sizeof(float)] = {0},
                                          b[SKV_PEAK_BYTES / sizeof(float)] = {0};
    double dot = 0.0;
    for (size_t k = 0; k < loop->n_operands; k++) {
        int x = draw(rng, fill.a_min, fill.a_max), y = draw(rng, fill.b_min, fill.b_max);
        put(a, k, e, x);
        put(b, k, e, y);
        dot += (double)x * (double)y;
    }
    double expected = dot * (double)n_rounds * (double)(loop->n_products / loop->n_operands);
    double total = loop->run(a, b, n_rounds);
    if (total == expected) return 0;
    fprintf(out, "peak %s: %zu rounds, a %d..%d, b %d..%d: %.0f, expected %.0f\n",
            loop->instructions, n_rounds, fill.a_min, fill.a_max, fill.b_min, fill.b_max, total,
            expected);
    return 1;
}

/* Ones count the products, the extremes would overflow sums of 16 bits, and others tell lanes
 * apart. */
static int check_loop(skv_rng *rng, const skv_peak_loop *loop, element e, filling any, FILE *out)
{
    const filling fillings[] = {{1, 1, 1, 1},
                                {any.a_max, any.a_max, any.b_min, any.b_min},
                                {any.a_max, any.a_max, any.b_max, any.b_max},
                                any};
    int n_failed = loop->n_products % loop->n_operands != 0;
    for (size_t i = 0; i < sizeof fillings / sizeof fillings[0]; i++) {
        for (size_t n_rounds = 0; n_rounds < 4; n_rounds++) {
            n_failed += check_call(rng, loop, e, fillings[i], n_rounds, out);
        }
        n_failed += check_call(rng, loop, e, fillings[i], 1000, out);
    }
    return n_failed;
}

static int check_level(skv_rng *rng, skv_cpu_level level, unsigned features, FILE *out)
{
    skv_peak_loops peak;
    skv_peak_init(&peak, level, features);
    bool ref = skv_cpu_level_clamp(level, features) == SKV_CPU_LEVEL_REF;
    /* The reference multiplies its sums by a: 1 alone keeps them. */
    const filling f32 = {ref, ref ? 1 : 8, -8, 8}, i8 = {0, 127, -127, 127},
                  i4 = {0, 15, -127, 127};
    const bool is_f32 = peak.bf16.run == peak.f32.run;
    int n_failed = 0;
    n_failed += check_loop(rng, &peak.f32, ELEMENT_F32, f32, out);
    n_failed += check_loop(rng, &peak.bf16, is_f32 ? ELEMENT_F32 : ELEMENT_BF16, f32, out);
    n_failed += check_loop(rng, &peak.i8, ELEMENT_I8, i8, out);
    n_failed += check_loop(rng, &peak.i4, ELEMENT_I8, i4, out);
    return n_failed;
}

/* The model of AMX is slow: a few rounds. */
static int check_amx_model(skv_rng *rng, FILE *out)
{
    const skv_peak_loop bf16 = AMX_PEAK(bf16, 32, "model of TDPBF16PS");
    const skv_peak_loop i8 = AMX_PEAK(i8, 64, "model of TDPBSSD");
    int n_failed = 0;
    for (size_t n_rounds = 0; n_rounds < 4; n_rounds++) {
        n_failed += check_call(rng, &bf16, ELEMENT_BF16, (filling){-8, 8, -8, 8}, n_rounds, out) +
                    check_call(rng, &i8, ELEMENT_I8, (filling){0, 127, -127, 127}, n_rounds, out);
    }
    return n_failed;
}

int skv_check_peak(uint64_t seed, FILE *out)
{
    const skv_cpu_level levels[] = {SKV_CPU_LEVEL_REF,    SKV_CPU_LEVEL_AVX2, SKV_CPU_LEVEL_AVXVNNI,
                                    SKV_CPU_LEVEL_AVX512, SKV_CPU_LEVEL_AMX,  SKV_CPU_LEVEL_NEON};
    const unsigned extras = SKV_CPU_AVX_VNNI | SKV_CPU_AVX512_VNNI | SKV_CPU_AVX512_BF16 |
                            SKV_CPU_NEON_DOT | SKV_CPU_NEON_I8MM | SKV_CPU_NEON_BF16;
    const unsigned features = skv_cpu_detect();
    skv_rng rng;
    skv_rng_init(&rng, seed);
    int n_failed = check_amx_model(&rng, out);
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++) {
        if (!skv_cpu_level_runs(levels[i], features)) continue;
        n_failed += check_level(&rng, levels[i], features & ~extras, out);
        n_failed += check_level(&rng, levels[i], features, out);
    }
    return n_failed;
}
