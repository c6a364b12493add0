/* The kernels, for nvcc. */
#include "gpu.inc"

#include "gpu_wgmma.inc"

#include "all_kernels.inc"
