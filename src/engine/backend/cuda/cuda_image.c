#include "backend/cuda/cuda_image.h"

#include <stddef.h>

#ifdef SKV_CUDA_IMAGE
/* cmake/cuda.cmake names the file. */
extern const unsigned char skv_cuda_image_bytes[];
__asm__(".pushsection .rodata\n"
        ".balign 64\n"
        "skv_cuda_image_bytes:\n"
        ".incbin \"" SKV_CUDA_IMAGE "\"\n"
        ".byte 0\n"
        ".popsection\n");

const void *skv_cuda_image(void)
{
    return skv_cuda_image_bytes;
}
#else
const void *skv_cuda_image(void)
{
    return NULL;
}
#endif
