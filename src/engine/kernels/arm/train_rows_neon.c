/* Rows of a training step for NEON: see train_rows.inc. */
#define TRAIN_ROWS_TABLE skv_train_rows_neon
#include "kernels/train_rows.inc"
