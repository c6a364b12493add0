/* Linear attention for AVX2 and FMA: see scan_level.inc. */
#include "kernels/x86/lanes_avx2.h"

#define TILE 4
#define PANELS 2
#include "kernels/scan_level.inc"
