/* Which rows of a training step each level uses: see train_rows.h. */
#include "kernels/train_rows.h"

static bool takes(skv_cpu_level asked, skv_cpu_level level, unsigned features)
{
    bool allowed = asked == SKV_CPU_LEVEL_BEST || asked == level ||
                   (asked == SKV_CPU_LEVEL_AVX512 && level == SKV_CPU_LEVEL_AVX2);
    return allowed && skv_cpu_level_runs(level, features);
}

void skv_train_rows_init(skv_train_rows *k, skv_cpu_level level, unsigned features)
{
    *k = skv_train_rows_ref;
#if defined(__x86_64__)
    if (takes(level, SKV_CPU_LEVEL_AVX2, features)) *k = skv_train_rows_avx2;
    if (takes(level, SKV_CPU_LEVEL_AVX512, features)) *k = skv_train_rows_avx512;
#elif defined(__aarch64__)
    if (takes(level, SKV_CPU_LEVEL_NEON, features)) *k = skv_train_rows_neon;
#else
    (void)takes;
    (void)level;
    (void)features;
#endif
}
