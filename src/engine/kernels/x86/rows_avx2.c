/* Rows of activations with AVX2 and FMA: see rows_level.inc. */
#include "kernels/x86/lanes_avx2.h"

#include "kernels/rows_level.inc"
