/* Rows of a training step for AVX-512: see train_rows.inc. */
#define TRAIN_ROWS_TABLE skv_train_rows_avx512
#include "kernels/train_rows.inc"
