/* Rows of a training step for AVX2: see train_rows.inc. */
#define TRAIN_ROWS_TABLE skv_train_rows_avx2
#include "kernels/train_rows.inc"
