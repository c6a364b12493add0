/* The kernels, for nvcc. */
#include "gpu.inc"

#include "all_kernels.inc"
