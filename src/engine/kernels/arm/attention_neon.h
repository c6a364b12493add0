/* Declarations that the NEON sources of attention share. */
#ifndef SKV_KERNELS_ARM_ATTENTION_NEON_H
#define SKV_KERNELS_ARM_ATTENTION_NEON_H

#include "kernels/kernels.h"

skv_kv_store_fn skv_kv_store_neon;
skv_kv_load_fn skv_kv_load_neon;

#endif
