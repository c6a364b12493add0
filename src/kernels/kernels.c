/*
 * The kernel table: the reference first, then one overlay after the other, as far as the level
 * allows and the processor can run. A family of kernels has one line at each step.
 */
#include "kernels/kernels.h"

#include "kernels/attention.h"
#include "kernels/matmul.h"
#include "kernels/rows.h"

/* The best level of this build that the processor runs, at most `level`. */
static skv_cpu_level clamp_level(skv_cpu_level level, unsigned features)
{
#if defined(__x86_64__)
    const skv_cpu_level ladder[] = {SKV_CPU_LEVEL_AVX512, SKV_CPU_LEVEL_AVX2};
#elif defined(__aarch64__)
    const skv_cpu_level ladder[] = {SKV_CPU_LEVEL_NEON};
#else
    const skv_cpu_level ladder[] = {SKV_CPU_LEVEL_REF};
#endif
    if (level == SKV_CPU_LEVEL_REF) return level;
    for (size_t i = 0; i < sizeof ladder / sizeof ladder[0]; i++) {
        if (level != SKV_CPU_LEVEL_BEST && ladder[i] > level) continue;
        if (skv_cpu_level_runs(ladder[i], features)) return ladder[i];
    }
    return SKV_CPU_LEVEL_REF;
}

static void init_ref(skv_kernels *k)
{
    skv_matmul_init_ref(k);
    skv_rows_init_ref(k, 0);
    skv_attention_init_ref(k, 0);
}

#if defined(__x86_64__)

static void init_avx2(skv_kernels *k, unsigned features)
{
    skv_matmul_init_avx2(k, features);
    skv_rows_init_avx2(k, features);
    skv_attention_init_avx2(k, features);
}

static void init_avx512(skv_kernels *k, unsigned features)
{
    skv_matmul_init_avx512(k, features);
    skv_rows_init_avx512(k, features);
    skv_attention_init_avx512(k, features);
}

#elif defined(__aarch64__)

static void init_neon(skv_kernels *k, unsigned features)
{
    skv_matmul_init_neon(k, features);
    skv_rows_init_neon(k, features);
    skv_attention_init_neon(k, features);
}

#endif

void skv_kernels_init(skv_kernels *k, skv_cpu_level level, unsigned features)
{
    *k = (skv_kernels){.level = clamp_level(level, features)};
    init_ref(k);
    if (k->level == SKV_CPU_LEVEL_REF) return;
#if defined(__x86_64__)
    init_avx2(k, features);
    if (k->level == SKV_CPU_LEVEL_AVX2) return;
    init_avx512(k, features);
#elif defined(__aarch64__)
    init_neon(k, features);
#endif
}
