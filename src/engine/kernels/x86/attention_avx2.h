/* What the AVX2 sources of attention share. */
#ifndef SKV_KERNELS_X86_ATTENTION_AVX2_H
#define SKV_KERNELS_X86_ATTENTION_AVX2_H

#include "kernels/kernels.h"

skv_kv_store_fn skv_kv_store_avx2;
skv_kv_load_fn skv_kv_load_avx2;

#endif
