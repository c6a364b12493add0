/*
 * How a matrix product is cut into tasks for the threads: panels of W side by side are strips, and
 * blocks of rows of X are parts.
 */
#ifndef SKV_CPU_CUT_H
#define SKV_CPU_CUT_H

#include <stdbool.h>
#include <stddef.h>

enum {
    SKV_CUT_STRIP_MAX = 16,  /* panels of a strip */
    SKV_CUT_HALVES_FROM = 32 /* threads from which panels may be halved */
};

typedef struct skv_cut_shape {
    size_t n_threads, n_rows;
    size_t n_blocks, mr; /* of at most mr rows each */
    size_t n_columns;    /* panels, or pairs of them */
    size_t piece_bytes;  /* of one that pass by together */
    bool halves;         /* a panel can be halved (skv_matmul) */
    bool alone;          /* one thread runs all of it */
} skv_cut_shape;

/* The tasks are n_strips times n_row_parts. */
typedef struct skv_cut {
    size_t n_strips;
    size_t n_row_parts; /* tasks that share a strip, each with a part of the blocks */
    bool halved;        /* a strip is half a panel, or half a pair */
    bool by_rows;       /* neighbouring tasks have the same rows, not the same strip */
} skv_cut;

skv_cut skv_cpu_cut_product(const skv_cut_shape *shape);

#endif
