/* The tile and the vectors of matmul_i8.inc and matmul_q_level.inc on 256 bits. */
#ifndef SKV_KERNELS_X86_MATMUL_VEC_AVX2_H
#define SKV_KERNELS_X86_MATMUL_VEC_AVX2_H

#include "kernels/matmul.h"
#include "kernels/peak.h"
#include "kernels/x86/matmul_pack.h"
#include "kernels/x86/matmul_tile_avx2.h"
#include "kernels/x86/vec_avx2.h"

enum { COLUMNS = SKV_NR256 / LANES, NR = SKV_NR256, MR = SKV_MR256, KC = SKV_KC256 };

#include "kernels/x86/matmul_vec.inc"

#endif
