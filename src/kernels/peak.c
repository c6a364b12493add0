/* Which loops measure the machine's limits: see peak.h. */
#include "kernels/peak.h"

#include "kernels/cpu.h"

/* Where the processor has no bfloat16 arithmetic, its limit is that of f32. */
void skv_peak_init(skv_peak_loops *peak, unsigned features)
{
    *peak =
        (skv_peak_loops){skv_peak_f32_ref, skv_peak_f32_ref, skv_peak_i8_ref, skv_peak_read_ref};
    (void)features;
#if defined(__x86_64__)
    if (!(features & SKV_CPU_AVX2)) return;
    *peak = (skv_peak_loops){skv_peak_f32_avx2, skv_peak_f32_avx2, skv_peak_i8_avx2,
                             skv_peak_read_avx2};
    if (!(features & SKV_CPU_AVX512)) return;
    peak->f32 = peak->bf16 = skv_peak_f32_avx512;
    peak->read = skv_peak_read_avx512;
    if (features & SKV_CPU_AVX512_BF16) peak->bf16 = skv_peak_bf16_avx512bf16;
    if (features & SKV_CPU_AVX512_VNNI) peak->i8 = skv_peak_i8_avx512vnni;
#elif defined(__aarch64__)
    if (!(features & SKV_CPU_NEON)) return;
    *peak = (skv_peak_loops){skv_peak_f32_neon, skv_peak_f32_neon, skv_peak_i8_neon,
                             skv_peak_read_neon};
    if (features & SKV_CPU_NEON_DOT) peak->i8 = skv_peak_i8_neondot;
#endif
}
