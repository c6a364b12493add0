/* Which kernels for rows of logits each level uses: see logits.h. */
#include "kernels/logits.h"

void skv_logits_init_ref(skv_kernels *k)
{
    k->logits = skv_logits_ref;
}

#if defined(__x86_64__)

void skv_logits_init_avx2(skv_kernels *k)
{
    k->logits = skv_logits_avx2;
}

void skv_logits_init_avx512(skv_kernels *k)
{
    k->logits = skv_logits_avx512;
}

#endif
