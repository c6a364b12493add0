/* The int8 matrix product with AVX-512 VNNI: see matmul_i8_vnni.inc. */
#include "kernels/x86/matmul_vec_avx512.h"

INLINE ints dot4(ints dot, ints w, ints x)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(dot) : "v"(w), "v"(x));
    return dot;
}

enum { AHEAD = 0 };

#include "kernels/x86/matmul_i8_vnni.inc"

const skv_matmul skv_matmul_i8_avx512vnni = MATMUL_I8;
const skv_peak_loop skv_peak_i8_avx512vnni = PEAK_I8("VPDPBUSD on 512 bits");
