/*
 * A fingerprint of everything that the rows of the KV cache are a function of: the model's shape,
 * what its layers make of a few fixed tokens (weights, their type, the kernels of this processor),
 * the type of the cache, the files, and the version of this program.
 */
#ifndef SKV_SERVE_ROWS_PRINT_H
#define SKV_SERVE_ROWS_PRINT_H

#include "base/sha256.h"
#include "engine/engine.h"

/** Runs a prompt of one page row through the engine, which must be idle. `context`: the length that
 * sequences are made for. */
SKV_MUST_CHECK skv_status skv_rows_print(skv_engine *engine, size_t context,
                                         uint8_t out[SKV_SHA256_BYTES], skv_error *err);

#endif
