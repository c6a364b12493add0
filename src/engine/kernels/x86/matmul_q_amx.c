/* The product with quantised weights with AMX, in two forms: see matmul_q_amx.inc. */
#include "kernels/x86/amx.h"
#include "kernels/x86/amx_rows.h"
#include "kernels/x86/matmul_q_parts.h"

#define AMX_LARGEST amx_largest
#define AMX_QUANTISE amx_quantise
#define AMX_Q_BELOW() (&skv_matmul_q_avx512vnni)
#define AMX_Q_VALUES skv_q_values_avx512
#define AMX_Q_SCALES skv_q_scales_avx512
#define AMX_Q_END skv_q_end_avx512

#include "kernels/x86/matmul_q_amx.inc"

const skv_matmul skv_matmul_q_amx = AMX_MATMUL_Q;
const skv_matmul skv_matmul_q_amx_once = AMX_MATMUL_Q_ONCE;
