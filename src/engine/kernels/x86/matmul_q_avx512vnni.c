/* The product with quantised weights with AVX-512 VNNI: see matmul_q_vnni.inc. */
#include "kernels/quant_panel.h"
#include "kernels/x86/matmul_vec_avx512.h"

enum { STRIP = 12 };

INLINE ints dot4(ints dot, ints w, ints x)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(dot) : "v"(w), "v"(x));
    return dot;
}

#include "kernels/x86/matmul_q_vnni.inc"

const skv_matmul skv_matmul_q_avx512vnni = MATMUL_Q;
