/* The kernels of a program that runs on the emulated GPU: fake_driver.c has its own, whatever this
 * is. */
#include "backend/cuda/cuda_image.h"

const void *__wrap_skv_cuda_image(void);

const void *__wrap_skv_cuda_image(void)
{
    return "emulated";
}
