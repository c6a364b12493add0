/* The int8 matrix product with AVX-VNNI, on processors without AVX-512: see matmul_i8_vnni.inc. */
#include "kernels/x86/matmul_vec_avx2.h"

/* Without the prefix the assembler would take the instruction of AVX-512. */
INLINE ints dot4(ints dot, ints w, ints x)
{
    __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(dot) : "x"(w), "x"(x));
    return dot;
}

enum { AHEAD = 0 };

#include "kernels/x86/matmul_i8_vnni.inc"

const skv_matmul skv_matmul_i8_avxvnni = MATMUL_I8;
const skv_peak_loop skv_peak_i8_avxvnni = PEAK_I8("VPDPBUSD on 256 bits");
