/* Which rows of activations each level uses: see rows.h. */
#include "kernels/rows.h"

static void put(skv_kernels *k, const skv_row_kernels *table)
{
    k->rmsnorm = table->rmsnorm;
    k->rope = table->rope;
    k->silu_glu = table->silu_glu;
    k->gelu_tanh_glu = table->gelu_tanh_glu;
    k->sigmoid_glu = table->sigmoid_glu;
    k->axpy = table->axpy;
    k->softcap = table->softcap;
    k->logsumexp = table->logsumexp;
    k->add_exp = table->add_exp;
    k->from_bf16 = table->from_bf16;
    k->to_bf16 = table->to_bf16;
    k->dot = table->dot;
}

void skv_rows_init_ref(skv_kernels *k)
{
    put(k, &skv_rows_ref);
}

#if defined(__x86_64__)

void skv_rows_init_avx2(skv_kernels *k)
{
    put(k, &skv_rows_avx2);
}

void skv_rows_init_avx512(skv_kernels *k)
{
    put(k, &skv_rows_avx512);
}

#elif defined(__aarch64__)

void skv_rows_init_neon(skv_kernels *k)
{
    put(k, &skv_rows_neon);
}

#endif
