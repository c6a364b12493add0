/* Which loops measure the limits of a level: see peak.h. */
#include "kernels/peak.h"

/* Without bfloat16 arithmetic the limit of bf16 is that of f32, which its products use. */
static skv_peak_loops ref_loops(void)
{
    return (skv_peak_loops){skv_peak_f32_ref, skv_peak_f32_ref, skv_peak_i8_ref, skv_peak_i8_ref,
                            skv_peak_read_ref};
}

#if defined(__x86_64__)

static skv_peak_loops avx2_loops(void)
{
    return (skv_peak_loops){skv_peak_f32_avx2, skv_peak_f32_avx2, skv_peak_i8_avx2,
                            skv_peak_i4_avx2, skv_peak_read_avx2};
}

static skv_peak_loops avxvnni_loops(void)
{
    skv_peak_loops peak = avx2_loops();
    peak.i8 = peak.i4 = skv_peak_i8_avxvnni;
    return peak;
}

static skv_peak_loops avx512_loops(unsigned features)
{
    skv_peak_loops peak = {skv_peak_f32_avx512, skv_peak_f32_avx512, skv_peak_i8_avx512,
                           skv_peak_i4_avx512, skv_peak_read_avx512};
    if (features & SKV_CPU_AVX512_BF16) peak.bf16 = skv_peak_bf16_avx512bf16;
    if (features & SKV_CPU_AVX512_VNNI) peak.i8 = peak.i4 = skv_peak_i8_avx512vnni;
    return peak;
}

static skv_peak_loops amx_loops(unsigned features)
{
    skv_peak_loops peak = avx512_loops(features);
    peak.bf16 = skv_peak_bf16_amx;
    peak.i8 = skv_peak_i8_amx;
    return peak;
}

#elif defined(__aarch64__)

static skv_peak_loops neon_loops(unsigned features)
{
    skv_peak_loops peak = {skv_peak_f32_neon, skv_peak_f32_neon, skv_peak_i8_neon, skv_peak_i4_neon,
                           skv_peak_read_neon};
    if (features & SKV_CPU_NEON_DOT) peak.i8 = peak.i4 = skv_peak_i8_neondot;
    if (features & SKV_CPU_NEON_I8MM) peak.i8 = skv_peak_i8_neoni8mm;
    if (features & SKV_CPU_NEON_BF16) peak.bf16 = skv_peak_bf16_neonbf16;
    return peak;
}

#endif

void skv_peak_init(skv_peak_loops *peak, skv_cpu_level level, unsigned features)
{
    switch (skv_cpu_level_clamp(level, features)) {
#if defined(__x86_64__)
    case SKV_CPU_LEVEL_AVX2: *peak = avx2_loops(); break;
    case SKV_CPU_LEVEL_AVXVNNI: *peak = avxvnni_loops(); break;
    case SKV_CPU_LEVEL_AVX512: *peak = avx512_loops(features); break;
    case SKV_CPU_LEVEL_AMX: *peak = amx_loops(features); break;
#elif defined(__aarch64__)
    case SKV_CPU_LEVEL_NEON: *peak = neon_loops(features); break;
#endif
    default: *peak = ref_loops(); break;
    }
}
