/* Linear attention for NEON: see scan_level.inc. */
#include "kernels/arm/lanes_neon.h"

#define TILE 4
#define PANELS 2
#include "kernels/scan_level.inc"
