/* Which attention each level uses: see attention.h. */
#include "kernels/attention.h"

static void put(skv_kernels *k, const skv_attention_kernels *table)
{
    k->kv_store = table->kv_store;
    k->kv_load = table->kv_load;
    k->attention_tokens = table->tokens;
    k->attention_scratch = table->scratch;
    k->attention = table->attention;
    k->attention_part = table->part;
}

/* Portions of every level have the same form, so joining them is left to the reference. */
void skv_attention_init_ref(skv_kernels *k)
{
    put(k, &skv_attention_kernels_ref);
    k->attention_join = skv_attention_join_ref;
}

#if defined(__x86_64__)

void skv_attention_init_avx2(skv_kernels *k, unsigned features)
{
    (void)features;
    put(k, &skv_attention_kernels_avx2);
}

void skv_attention_init_avx512(skv_kernels *k, unsigned features)
{
    const unsigned both = SKV_CPU_AVX512_VNNI | SKV_CPU_AVX512_BF16;
    put(k, &skv_attention_kernels_avx512);
    if (features & SKV_CPU_AVX512_VNNI) put(k, &skv_attention_kernels_avx512vnni);
    if ((features & both) == both) put(k, &skv_attention_kernels_avx512bf16);
}

void skv_attention_init_amx(skv_kernels *k)
{
    put(k, &skv_attention_kernels_amx);
}

#elif defined(__aarch64__)

void skv_attention_init_neon(skv_kernels *k, unsigned features)
{
    (void)features;
    put(k, &skv_attention_kernels_neon);
}

#endif
