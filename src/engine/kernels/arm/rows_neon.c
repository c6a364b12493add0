/* Rows of activations with AArch64 NEON: see rows_level.inc. */
#include "kernels/arm/lanes_neon.h"

#include "kernels/rows_level.inc"
