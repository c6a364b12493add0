/*
 * Rows of boundary l instead of deep keys and values.
 *
 * With SwiftKV the K,V of all layers from l on are one product of norm_swiftkv(x_l). Whoever stores
 * the rows of that product's input can make the deep slots again, bit for bit: by the same code, in
 * the form in which the product reads its input. Weights of bfloat16 read rows of bfloat16, int8
 * weights read codes with a scale for each group; narrow products and f32 weights read floats.
 */
#ifndef SKV_ENGINE_BOUNDARY_ROWS_H
#define SKV_ENGINE_BOUNDARY_ROWS_H

#include "engine/engine.h"

/** Bytes of a token's row; 0: the engine's own method makes no deep slots. */
size_t skv_boundary_row_bytes(const skv_engine *engine);
/** Tracks of the slots below l, which stand before those that the rows stand for. */
size_t skv_boundary_tracks(const skv_engine *engine);
/** The layer before which skv_engine_forward's sink gets x_l. */
size_t skv_boundary_layer(const skv_engine *engine);
/** Rows x [n, D] at boundary l as bytes; called by that sink. */
void skv_boundary_take(skv_engine *engine, const float *x, size_t n, unsigned char *rows);
/** Writes the deep slots of a page row: SKV_PAGE_ROWS tokens from `position` on of a sequence made
 * for `context` tokens, into pages [n_tracks]. No step may be running. */
void skv_boundary_restore(skv_engine *engine, const unsigned char *rows, size_t position,
                          size_t context, void **pages);

#endif
