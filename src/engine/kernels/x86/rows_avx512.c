/* Rows of activations with AVX-512: see rows_level.inc. */
#include "kernels/x86/lanes_avx512.h"

#include "kernels/rows_level.inc"
