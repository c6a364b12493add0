/* Which kernels of linear attention each level uses: see scan.h. */
#include "kernels/scan.h"

void skv_scan_init_ref(skv_kernels *k)
{
    k->scan = skv_scan_ref;
}

#if defined(__x86_64__)

void skv_scan_init_avx2(skv_kernels *k)
{
    k->scan = skv_scan_avx2;
}

void skv_scan_init_avx512(skv_kernels *k)
{
    k->scan = skv_scan_avx512;
}

#elif defined(__aarch64__)

void skv_scan_init_neon(skv_kernels *k)
{
    k->scan = skv_scan_neon;
}

#endif
