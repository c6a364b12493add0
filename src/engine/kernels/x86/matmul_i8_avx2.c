/* The int8 matrix product with AVX2: see matmul_i8_widened.inc. */
#include "kernels/x86/matmul_vec_avx2.h"

/* dot += two int16 of w times two of x in every lane. In assembly, because the sixteen registers
 * suffice for a tile only if each product is added at once. */
INLINE ints dot2(ints dot, ints w, ints x)
{
    ints pairs;
    __asm__("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0" : "+x"(dot), "=&x"(pairs) : "x"(w), "x"(x));
    return dot;
}

enum { AHEAD = 18432 };

#include "kernels/x86/matmul_i8_widened.inc"

const skv_matmul skv_matmul_i8_avx2 = MATMUL_I8;
