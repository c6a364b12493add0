/* The kernels as nvcc has compiled them, within the program. */
#ifndef SKV_BACKEND_CUDA_IMAGE_H
#define SKV_BACKEND_CUDA_IMAGE_H

/** For the driver; NULL: this program was built without them. */
const void *skv_cuda_image(void);

#endif
