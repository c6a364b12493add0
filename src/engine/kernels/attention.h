/*
 * Attention and the pages of the KV cache: the functions that belong together, one constant table
 * for each instruction set, and the functions that put those of a level into the kernel table.
 */
#ifndef SKV_KERNELS_ATTENTION_H
#define SKV_KERNELS_ATTENTION_H

#include "kernels/kernels.h"

/* These entries of the kernel table are always replaced together. */
typedef struct skv_attention_kernels {
    skv_kv_store_fn *kv_store;
    skv_kv_load_fn *kv_load;
    skv_attention_tokens_fn *tokens;
    skv_attention_scratch_fn *scratch;
    skv_attention_fn *attention;
    skv_attention_part_fn *part;
} skv_attention_kernels;

/* The specification, in every build. */
extern const skv_attention_kernels skv_attention_kernels_ref;
skv_attention_join_fn skv_attention_join_ref;
/* x86-64 builds only. */
extern const skv_attention_kernels skv_attention_kernels_avx2, skv_attention_kernels_avx512;
extern const skv_attention_kernels skv_attention_kernels_avx512vnni;
extern const skv_attention_kernels skv_attention_kernels_avx512bf16;
extern const skv_attention_kernels skv_attention_kernels_amx;
/* AArch64 builds only. */
extern const skv_attention_kernels skv_attention_kernels_neon;

void skv_attention_init_ref(skv_kernels *k);
/* The caller has checked the level's own feature; `features` chooses among the extensions beyond
 * it. */
void skv_attention_init_avx2(skv_kernels *k, unsigned features);
/* With SKV_CPU_AVX512_BF16, pages of 16 and 8 bits go through VDPBF16PS, otherwise through f32;
 * with SKV_CPU_AVX512_VNNI prompts over pages of int8 go through VPDPBUSD. */
void skv_attention_init_avx512(skv_kernels *k, unsigned features);
/* Prompts over pages of 16 and 8 bits go through TDPBF16PS, those over pages of int8 through
 * TDPBUSD. */
void skv_attention_init_amx(skv_kernels *k);
void skv_attention_init_neon(skv_kernels *k, unsigned features);

#endif
