/*
 * The kernel table: the reference first, then one overlay after the other, as far as the level
 * allows and the processor can run. A family of kernels has one line at each step.
 */
#include "kernels/kernels.h"

#include "kernels/attention.h"
#include "kernels/logits.h"
#include "kernels/matmul.h"
#include "kernels/rows.h"
#include "kernels/scan.h"

static void init_ref(skv_kernels *k)
{
    skv_matmul_init_ref(k);
    skv_rows_init_ref(k);
    skv_logits_init_ref(k);
    skv_attention_init_ref(k);
    skv_scan_init_ref(k);
}

#if defined(__x86_64__)

static void init_avx2(skv_kernels *k, unsigned features)
{
    skv_matmul_init_avx2(k, features);
    skv_rows_init_avx2(k);
    skv_logits_init_avx2(k);
    skv_attention_init_avx2(k, features);
    skv_scan_init_avx2(k);
}

static void init_avxvnni(skv_kernels *k, unsigned features)
{
    if (features & SKV_CPU_AVX_VNNI) skv_matmul_init_avxvnni(k);
}

static void init_avx512(skv_kernels *k, unsigned features)
{
    skv_matmul_init_avx512(k, features);
    skv_rows_init_avx512(k);
    skv_logits_init_avx512(k);
    skv_attention_init_avx512(k, features);
    skv_scan_init_avx512(k);
}

#elif defined(__aarch64__)

static void init_neon(skv_kernels *k, unsigned features)
{
    skv_matmul_init_neon(k, features);
    skv_rows_init_neon(k);
    skv_attention_init_neon(k, features);
    skv_scan_init_neon(k);
}

#endif

void skv_kernels_init(skv_kernels *k, skv_cpu_level level, unsigned features)
{
    *k = (skv_kernels){.level = skv_cpu_level_clamp(level, features)};
    init_ref(k);
    if (k->level == SKV_CPU_LEVEL_REF) return;
#if defined(__x86_64__)
    init_avx2(k, features);
    if (k->level == SKV_CPU_LEVEL_AVX2) return;
    init_avxvnni(k, features);
    if (k->level == SKV_CPU_LEVEL_AVXVNNI) return;
    init_avx512(k, features);
    if (k->level == SKV_CPU_LEVEL_AMX) skv_matmul_init_amx(k);
#elif defined(__aarch64__)
    init_neon(k, features);
#endif
}
