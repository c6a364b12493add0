/* Linear attention for AVX-512: see scan_level.inc. */
#include "kernels/x86/lanes_avx512.h"

#define TILE 16
#define PANELS 4
#include "kernels/scan_level.inc"
