/* The int8 matrix product with AVX-512 where the processor has no VNNI: see
 * matmul_i8_widened.inc. */
#include "kernels/x86/matmul_vec_avx512.h"

/* dot += two int16 of w times two of x in every lane. In assembly, or gcc 12 spills. */
INLINE ints dot2(ints dot, ints w, ints x)
{
    ints pairs;
    __asm__("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0" : "+v"(dot), "=&v"(pairs) : "v"(w), "v"(x));
    return dot;
}

enum { AHEAD = 0 };

#include "kernels/x86/matmul_i8_widened.inc"

const skv_matmul skv_matmul_i8_avx512 = MATMUL_I8;
