/* The tile and the vectors of matmul_i8.inc and matmul_q_level.inc on 512 bits. */
#ifndef SKV_KERNELS_X86_MATMUL_VEC_AVX512_H
#define SKV_KERNELS_X86_MATMUL_VEC_AVX512_H

#include "kernels/matmul.h"
#include "kernels/peak.h"
#include "kernels/x86/matmul_pack.h"
#include "kernels/x86/matmul_tile_avx512.h"
#include "kernels/x86/vec_avx512.h"

enum { COLUMNS = SKV_NR512 / LANES, NR = SKV_NR512, MR = SKV_MR512, KC = SKV_KC512 };

#include "kernels/x86/matmul_vec.inc"

#endif
