/* Launches are recorded (cuda_graphs.h), which the programs do not do yet: tools/gpu/card.sh times
 * `swiftkv` with and without. */
#include "backend/cuda/cuda_graphs.h"

void __real_skv_cuda_graphs_begin(skv_cuda_device *d);
void __wrap_skv_cuda_graphs_begin(skv_cuda_device *d);

/* A driver that cannot record turns it off again. */
void __wrap_skv_cuda_graphs_begin(skv_cuda_device *d)
{
    if (d->graphs && d->graphs->n_lists == 0) d->graphs->off = false;
    __real_skv_cuda_graphs_begin(d);
}
