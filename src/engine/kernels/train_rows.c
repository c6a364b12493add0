/* Which rows of a training step each level uses: see train_rows.h. */
#include "kernels/train_rows.h"

void skv_train_rows_init(skv_train_rows *k, skv_cpu_level level, unsigned features)
{
    switch (skv_cpu_level_clamp(level, features)) {
#if defined(__x86_64__)
    case SKV_CPU_LEVEL_AVX2:
    case SKV_CPU_LEVEL_AVXVNNI: *k = skv_train_rows_avx2; break;
    case SKV_CPU_LEVEL_AVX512:
    case SKV_CPU_LEVEL_AMX: *k = skv_train_rows_avx512; break;
#elif defined(__aarch64__)
    case SKV_CPU_LEVEL_NEON: *k = skv_train_rows_neon; break;
#endif
    default: *k = skv_train_rows_ref; break;
    }
}
