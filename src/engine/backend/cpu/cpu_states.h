/*
 * The layout of a sequence's state of linear attention in the CPU back end. A state is a header and
 * one part for each layer:
 *
 *     settled [n_layers]                     u64: rows that are folded into S, of each layer
 *     S [value head][panel][key_dim][16]     before row `settled`; f32, or bf16
 *     k [block][key head][key_dim][16]       of rows since then, normalised, a row in a column
 *     u [block][value head][panel][16][16]   of these rows
 *     alpha [block][value head][16]          of these rows
 *     conv [row][channel]                    inputs of the newest rows
 *
 * `settled` is a multiple of SKV_SCAN_BLOCK. Row r lies in block r / 16 modulo the number of
 * blocks; conv rows stand in a ring by r.
 */
#ifndef SKV_CPU_STATES_H
#define SKV_CPU_STATES_H

#include "backend/cpu/cpu_state.h"
#include "kernels/kernels.h"

enum { SKV_PANEL = SKV_SCAN_BLOCK * SKV_SCAN_BLOCK };

/* Where a layer's part lies, in floats from the beginning of the state. */
typedef struct skv_state_place {
    skv_state_layer layer;
    size_t s, keys, u, alpha, conv;
    size_t n_panels;           /* of a value head */
    size_t panel_floats;       /* of S; with bf16 half as many as its numbers */
    size_t conv_rows, conv_ld; /* of the ring */
} skv_state_place;

struct skv_states {
    skv_state_place *places; /* [n_layers], owned */
    size_t n_layers, n_states, max_undo;
    bool bf16;             /* S is */
    size_t n_blocks;       /* of rows that are not folded */
    size_t n_bytes;        /* of a state */
    unsigned char *memory; /* [n_states][n_bytes], owned */
};

/** The floats of a state. */
static inline float *skv_state_at(const skv_states *states, size_t i)
{
    return (float *)(void *)(states->memory + i * states->n_bytes);
}

static inline uint64_t *skv_state_settled(const skv_states *states, size_t i)
{
    return (uint64_t *)(void *)(states->memory + i * states->n_bytes);
}

/** Rows of a sequence that are folded into S when a span has been computed. */
static inline size_t skv_state_settles(size_t settled, const skv_state_span *span)
{
    const size_t sure = span->n_past + span->n - span->n_undo;
    const size_t whole = sure / SKV_SCAN_BLOCK * SKV_SCAN_BLOCK;
    return whole > settled ? whole : settled;
}

#endif
