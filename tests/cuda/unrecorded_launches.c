/* Launches go one by one in place of recordings (cuda_graphs.h): tools/gpu/card.sh times `swiftkv`
 * with and without. */
#include "backend/cuda/cuda_graphs.h"

void __real_skv_cuda_graphs_begin(skv_cuda_device *d);
void __wrap_skv_cuda_graphs_begin(skv_cuda_device *d);

void __wrap_skv_cuda_graphs_begin(skv_cuda_device *d)
{
    if (d->graphs) d->graphs->off = true;
    __real_skv_cuda_graphs_begin(d);
}
