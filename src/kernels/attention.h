/*
 * Attention and the pages of the KV cache: who fills which entries of the kernel table. Each
 * function overlays what `features` (skv_cpu_detect) can run and leaves the rest as it was;
 * skv_kernels_init calls them in rising order. attention, attention_tokens, attention_scratch,
 * attention_part and attention_join belong together and are always replaced together.
 */
#ifndef SKV_KERNELS_ATTENTION_H
#define SKV_KERNELS_ATTENTION_H

#include "kernels/kernels.h"

void skv_attention_init_ref(skv_kernels *k, unsigned features);
void skv_attention_init_avx2(skv_kernels *k, unsigned features);
/* With SKV_CPU_AVX512_BF16 pages of 16 and 8 bits go through VDPBF16PS, else through f32. */
void skv_attention_init_avx512(skv_kernels *k, unsigned features);
void skv_attention_init_neon(skv_kernels *k, unsigned features);

#endif
