/* Which rows of a training step each level uses: see train_rows.h. */
#include "kernels/train_rows.h"

void skv_train_rows_init(skv_train_rows *k, skv_cpu_level level, unsigned features)
{
    (void)level;
    (void)features;
    skv_train_rows_init_ref(k);
}
