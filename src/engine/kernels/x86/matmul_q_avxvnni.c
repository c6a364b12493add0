/* The product with quantised weights with AVX-VNNI: see matmul_q_vnni.inc. */
#include "kernels/quant_panel.h"
#include "kernels/x86/matmul_vec_avx2.h"

enum { STRIP = MR * COLUMNS, AHEAD_SINGLE = 0 };

INLINE ints dot4(ints dot, ints w, ints x)
{
    __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(dot) : "x"(w), "x"(x));
    return dot;
}

#include "kernels/x86/matmul_q_vnni.inc"

const skv_matmul skv_matmul_q_avxvnni = MATMUL_Q;
