/*
 * The tile instructions of AMX, as matmul_amx.inc, matmul_q_amx.inc and attention_amx.inc name
 * them. They are assembly with memory clobbers, because the compiler's intrinsics do not say that a
 * load reads memory. The tests have the same names for a model in plain C
 * (tests/engine/amx_model.h).
 */
#ifndef SKV_KERNELS_X86_AMX_H
#define SKV_KERNELS_X86_AMX_H

#include <immintrin.h>
#include <stddef.h>

typedef struct amx_tiles {
    char nothing;
} amx_tiles;

/* Asking for the shapes in use takes a thirteenth of the time that loading takes. */
static inline void amx_configure(const void *shapes)
{
    _Alignas(64) unsigned char used[64];
    __asm__ volatile("sttilecfg %0" : "=m"(used) : : "memory");
    const __m512i wanted = _mm512_loadu_si512(shapes);
    if (_mm512_cmpneq_epi32_mask(_mm512_load_si512(used), wanted) != 0) {
        __asm__ volatile("ldtilecfg (%0)" : : "r"(shapes) : "memory");
    }
}

#define AMX_CONFIGURE(t, shapes) ((void)(t), amx_configure(shapes))
#define AMX_RELEASE() __asm__ volatile("tilerelease" : : : "memory")
#define AMX_ZERO(t, tile) __asm__ volatile("tilezero %%tmm" #tile : :)
#define AMX_LOAD(t, tile, address, between)                                                        \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile                                            \
                     :                                                                             \
                     : "r"(address), "r"((size_t)(between))                                        \
                     : "memory")
#define AMX_STORE(t, tile, address, between)                                                       \
    __asm__ volatile("tilestored %%tmm" #tile ", (%0,%1,1)"                                        \
                     :                                                                             \
                     : "r"(address), "r"((size_t)(between))                                        \
                     : "memory")
/* c += a * b: 2 bfloat16 to a lane of 32 bits, or 4 codes; of a, in AMX_DOT_CODES, without signs.
 */
#define AMX_DOT(t, bf16, c, a, b)                                                                  \
    do {                                                                                           \
        if (bf16) {                                                                                \
            __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c : :);                  \
        } else {                                                                                   \
            __asm__ volatile("tdpbssd %%tmm" #b ", %%tmm" #a ", %%tmm" #c : :);                    \
        }                                                                                          \
    } while (0)
#define AMX_DOT_CODES(t, c, a, b) __asm__ volatile("tdpbusd %%tmm" #b ", %%tmm" #a ", %%tmm" #c : :)

#endif
