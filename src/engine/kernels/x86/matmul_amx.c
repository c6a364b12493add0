/*
 * The matrix products with AMX: see matmul_amx.inc. The instructions are assembly with memory
 * clobbers, because the compiler's intrinsics do not say that a load reads memory.
 */
#include "kernels/matmul.h"
#include "kernels/x86/matmul_pack.h"

typedef struct amx_tiles {
    char nothing;
} amx_tiles;

#define AMX_CONFIGURE(t, shapes) __asm__ volatile("ldtilecfg %0" : : "m"(*(shapes)) : "memory")
#define AMX_RELEASE(t) __asm__ volatile("tilerelease" : : : "memory")
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
#define AMX_DOT(t, bf16, c, a, b)                                                                  \
    do {                                                                                           \
        if (bf16) {                                                                                \
            __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c : :);                  \
        } else {                                                                                   \
            __asm__ volatile("tdpbssd %%tmm" #b ", %%tmm" #a ", %%tmm" #c : :);                    \
        }                                                                                          \
    } while (0)
#define AMX_PACK_W_I8(panel, w, ldw, n, K)                                                         \
    skv_pack_w_i8_avx2(panel, (skv_pack_rows){w, ldw, n, K}, AMX_NR, 0)
#define AMX_PACK_W_BF16(panel, w, ldw, n, K)                                                       \
    skv_pack_w_bf16_avx2(panel, (skv_pack_rows){w, ldw, n, K}, AMX_NR)

#include "kernels/x86/matmul_amx.inc"

const skv_matmul skv_matmul_i8_amx = AMX_MATMUL(i8);
const skv_matmul skv_matmul_bf16_amx = AMX_MATMUL(bf16);
const skv_peak_loop skv_peak_i8_amx = AMX_PEAK(i8, 64, "TDPBSSD");
const skv_peak_loop skv_peak_bf16_amx = AMX_PEAK(bf16, 32, "TDPBF16PS");
