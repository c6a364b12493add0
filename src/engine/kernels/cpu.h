/* The processor's features as a bit mask, and the levels of kernels that --cpu names. */
#ifndef SKV_KERNELS_CPU_H
#define SKV_KERNELS_CPU_H

#include <stdbool.h>
#include <stddef.h>

enum {
    SKV_CPU_AVX2 = 1 << 0,        /* AVX2, FMA and F16C */
    SKV_CPU_AVX512 = 1 << 1,      /* AVX-512 F, BW, DQ, VL, with the system saving its registers */
    SKV_CPU_AVX512_VNNI = 1 << 2, /* VPDPBUSD */
    SKV_CPU_AVX512_BF16 = 1 << 3, /* VDPBF16PS, on a processor that also has VPDPBUSD */
    SKV_CPU_NEON = 1 << 4,        /* AArch64 Advanced SIMD */
    SKV_CPU_NEON_DOT = 1 << 5,    /* SDOT */
    SKV_CPU_NEON_I8MM = 1 << 7,   /* SMMLA */
    SKV_CPU_NEON_BF16 = 1 << 8,   /* BFMMLA */
    SKV_CPU_AVX_VNNI = 1 << 6,    /* VPDPBUSD on registers of 256 bits, without AVX-512 */
    SKV_CPU_AMX = 1 << 9          /* AMX-INT8 and AMX-BF16, with the system's leave to use tiles */
};

typedef enum skv_cpu_level {
    SKV_CPU_LEVEL_BEST,
    SKV_CPU_LEVEL_REF,
    SKV_CPU_LEVEL_AVX2,
    SKV_CPU_LEVEL_AVXVNNI,
    SKV_CPU_LEVEL_AVX512,
    SKV_CPU_LEVEL_AMX,
    SKV_CPU_LEVEL_NEON
} skv_cpu_level;

/** The features of the processor this runs on. Linux gives a process tiles only if it asks for
 * them: this asks. */
unsigned skv_cpu_detect(void);
/** Their names in the words of the processors' manuals, "AVX2 AVX512 VNNI", cut to n - 1 bytes. */
void skv_cpu_features_text(unsigned features, char *out, size_t n);
/** The processor's name as the system tells it, cut to n - 1 bytes; "unknown" if it does not. */
void skv_cpu_name(char *out, size_t n);
/** "best", "ref", "avx2", "avxvnni", "avx512", "amx", "neon". */
const char *skv_cpu_level_name(skv_cpu_level level);
bool skv_cpu_level_parse(const char *name, skv_cpu_level *level);
/** True when a processor with these features can run the level. */
bool skv_cpu_level_runs(skv_cpu_level level, unsigned features);
/** The best level of this build that such a processor runs, at most `level`. */
skv_cpu_level skv_cpu_level_clamp(skv_cpu_level level, unsigned features);

#endif
