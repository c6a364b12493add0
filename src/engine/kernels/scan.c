/* Which kernels of linear attention each level uses: see scan.h. */
#include "kernels/scan.h"

void skv_scan_init_ref(skv_kernels *k)
{
    k->scan = skv_scan_ref;
}
