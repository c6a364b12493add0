/* Processor features: see cpu.h. */
#include "kernels/cpu.h"

#include <stdio.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <stdint.h>
#endif

#include "base/system.h"

#if defined(__x86_64__)

/* The register sets that the system saves on a context switch (XCR0). */
static uint64_t saved_registers(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

static int has_bits(uint64_t value, uint64_t bits)
{
    return (value & bits) == bits;
}

/* AMX-TILE, AMX-INT8 and AMX-BF16, if the system saves tiles and lets this process use them. */
static bool has_amx(uint64_t saved)
{
    const unsigned amx_d7 = 1u << 22 | 1u << 24 | 1u << 25; /* of leaf 7, subleaf 0 */
    const uint64_t save_tiles = 3ull << 17;                 /* their shapes and their data */
    unsigned a, b, c, d;
    if (!has_bits(saved, save_tiles) || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
    return has_bits(d, amx_d7) && (skv_processor_features() & SKV_SYSTEM_TILES);
}

unsigned skv_cpu_detect(void)
{
    const unsigned avx2_c1 = bit_FMA | bit_F16C | bit_AVX | bit_OSXSAVE;
    const unsigned avx512_b7 = bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL;
    const unsigned avx_vnni_a7 = 1u << 4; /* of leaf 7, subleaf 1: older compilers have no name */
    const uint64_t save_ymm = 0x06, save_zmm = 0xe6; /* SSE, AVX; opmask, both halves of ZMM */
    unsigned a, b, c, d, features = 0;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !has_bits(c, avx2_c1)) return 0;
    uint64_t saved = saved_registers();
    if (!has_bits(saved, save_ymm) || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return 0;
    if (!(b & bit_AVX2)) return 0;
    features |= SKV_CPU_AVX2;
    const bool avx512 = has_bits(saved, save_zmm) && has_bits(b, avx512_b7);
    const bool vnni = avx512 && (c & bit_AVX512VNNI);
    if (avx512) features |= SKV_CPU_AVX512;
    if (vnni) features |= SKV_CPU_AVX512_VNNI;
    if (!__get_cpuid_count(7, 1, &a, &b, &c, &d)) return features;
    if (a & avx_vnni_a7) features |= SKV_CPU_AVX_VNNI;
    /* The files for BF16 are compiled for VNNI too: BF16 alone is not enough. */
    if (vnni && (a & bit_AVX512BF16)) features |= SKV_CPU_AVX512_BF16;
    if ((features & SKV_CPU_AVX512_BF16) && has_amx(saved)) features |= SKV_CPU_AMX;
    return features;
}

#elif defined(__aarch64__)

/* Every processor of AArch64 has NEON; the system tells of the rest. */
unsigned skv_cpu_detect(void)
{
    const unsigned told = skv_processor_features();
    unsigned features = SKV_CPU_NEON;
    if (told & SKV_SYSTEM_DOTPROD) features |= SKV_CPU_NEON_DOT;
    if (told & SKV_SYSTEM_I8MM) features |= SKV_CPU_NEON_I8MM;
    if (told & SKV_SYSTEM_BF16) features |= SKV_CPU_NEON_BF16;
    return features;
}

#else

unsigned skv_cpu_detect(void)
{
    return 0;
}

#endif

void skv_cpu_features_text(unsigned features, char *out, size_t n)
{
    static const struct {
        unsigned feature;
        const char *name;
    } rows[] = {
        {SKV_CPU_AVX2, "AVX2"},
        {SKV_CPU_AVX_VNNI, "AVX_VNNI"},
        {SKV_CPU_AVX512, "AVX512"},
        {SKV_CPU_AVX512_VNNI, "AVX512_VNNI"},
        {SKV_CPU_AVX512_BF16, "AVX512_BF16"},
        {SKV_CPU_AMX, "AMX"},
        {SKV_CPU_NEON, "NEON"},
        {SKV_CPU_NEON_DOT, "DotProd"},
        {SKV_CPU_NEON_I8MM, "I8MM"},
        {SKV_CPU_NEON_BF16, "BF16"},
    };
    size_t used = 0;
    if (n > 0) out[0] = 0;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0] && used < n; i++) {
        if (!(features & rows[i].feature)) continue;
        used += (size_t)snprintf(out + used, n - used, "%s%s", used > 0 ? " " : "", rows[i].name);
    }
}

void skv_cpu_name(char *out, size_t n)
{
    if (!skv_processor_name(out, n)) (void)snprintf(out, n, "unknown");
}

static const struct {
    skv_cpu_level level;
    const char *name;
    unsigned needs; /* features without which the level cannot run */
} levels[] = {
    {SKV_CPU_LEVEL_BEST, "best", 0},
    {SKV_CPU_LEVEL_REF, "ref", 0},
    {SKV_CPU_LEVEL_AVX2, "avx2", SKV_CPU_AVX2},
    {SKV_CPU_LEVEL_AVXVNNI, "avxvnni", SKV_CPU_AVX2 | SKV_CPU_AVX_VNNI},
    {SKV_CPU_LEVEL_AVX512, "avx512", SKV_CPU_AVX2 | SKV_CPU_AVX512},
    {SKV_CPU_LEVEL_AMX, "amx",
     SKV_CPU_AVX2 | SKV_CPU_AVX512 | SKV_CPU_AVX512_VNNI | SKV_CPU_AVX512_BF16 | SKV_CPU_AMX},
    {SKV_CPU_LEVEL_NEON, "neon", SKV_CPU_NEON},
};

enum { N_LEVELS = sizeof levels / sizeof levels[0] };

const char *skv_cpu_level_name(skv_cpu_level level)
{
    for (size_t i = 0; i < N_LEVELS; i++) {
        if (levels[i].level == level) return levels[i].name;
    }
    return "unknown";
}

bool skv_cpu_level_parse(const char *name, skv_cpu_level *level)
{
    for (size_t i = 0; i < N_LEVELS; i++) {
        if (strcmp(levels[i].name, name) != 0) continue;
        *level = levels[i].level;
        return true;
    }
    return false;
}

bool skv_cpu_level_runs(skv_cpu_level level, unsigned features)
{
    for (size_t i = 0; i < N_LEVELS; i++) {
        if (levels[i].level == level) return (features & levels[i].needs) == levels[i].needs;
    }
    return false;
}

skv_cpu_level skv_cpu_level_clamp(skv_cpu_level level, unsigned features)
{
#if defined(__x86_64__)
    const skv_cpu_level ladder[] = {SKV_CPU_LEVEL_AMX, SKV_CPU_LEVEL_AVX512, SKV_CPU_LEVEL_AVXVNNI,
                                    SKV_CPU_LEVEL_AVX2};
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
