/*
 * Attention in tiles: the loop that every fast level shares, and the five small operations that
 * each level supplies for each kind of page.
 *
 * A task is M = tokens x G query rows of one KV head. For each page that any of them sees:
 *
 *     K of the page -> panel [Dh / unit][64][unit]       S [M][64] = Q K^T
 *     V of the page -> panel [64 / unit][ld_v][unit]     P = 2^(S - max), in place of S
 *                                                        O [M][ld_v] += P V
 *
 * unit is 1 for f32, 2 for pairs of bfloat16 and 4 for codes of 8 bits. Scores are in units of
 * log 2: Q is packed times scale * log2 e. A row's maximum is only raised when a score passes it by
 * more than `slack`, so most pages need neither a horizontal maximum nor a multiplication of O;
 * weights are then at most 2^slack, and their quotient is the same. Panels of 8-bit rows hold the
 * codes: the scales of K multiply the scores, those of V the weights. (Online softmax in tiles:
 * FlashAttention-2, arXiv:2307.08691, Algorithm 1; the slack as in FlashAttention-4.)
 *
 * Where the tiles multiply whole numbers, a row of Q, and the weights of a row for one page, are
 * whole numbers too, times a step of their own (SageAttention, arXiv:2410.02367, Section 4, has
 * such steps for blocks).
 */
#ifndef SKV_KERNELS_ATTENTION_TILES_H
#define SKV_KERNELS_ATTENTION_TILES_H

#include "base/size.h"
#include "kernels/kernels.h"

enum {
    SKV_TILE_ROWS = 6,     /* query rows that one softmax, and most products, work on */
    SKV_TILE_FEW = 4,      /* query rows that one call of few_* below works on */
    SKV_TILE_SUMS = 16,    /* partial sums of the weights of one row */
    SKV_TILE_V_ALIGN = 16, /* columns of a V panel and of O are padded to a multiple of this */
};

/* The rows [row0, row1) of one page that become a panel; the others are zero in it. */
typedef struct skv_tile_page {
    const unsigned char *page;
    skv_kv_type type;
    size_t head_dim;
    size_t row0, row1;
    size_t ld_v;     /* columns of a V panel */
    int32_t *starts; /* [64] out, of whole numbers: see skv_tile_product */
} skv_tile_page;

/* c [m, n] = (or, with add, +=) a [m, k] * b [k, n]; of whole numbers, steps * (starts + a * b). */
typedef struct skv_tile_product {
    float *c;
    size_t ldc;             /* floats */
    const unsigned char *a; /* rows of Q or P, unit elements after each other */
    size_t lda;             /* bytes */
    const unsigned char *b; /* panel */
    size_t ldb;             /* columns of the panel */
    size_t m, n, k;         /* m <= skv_attention_tiles.rows; n a multiple of 16; k of unit */
    bool add;
    const float *steps;    /* [m] between the whole numbers of a row of a */
    const int32_t *starts; /* [n] initial sums; NULL: 0 */
} skv_tile_product;

/* Scores of up to SKV_TILE_ROWS rows that become weights. */
typedef struct skv_tile_softmax {
    float *s;                /* [m][64] scores; then [m] rows of 64 weights, 256 bytes apart */
    size_t m;                /* rows */
    const uint64_t *visible; /* [m], bit c: the row sees column c; NULL: every row sees all */
    float *max;              /* [m] running maxima */
    float *sums;             /* [m][SKV_TILE_SUMS] partial sums of the weights */
    float *shrink;           /* [m] out: factors for O and older sums */
    float *steps;            /* [m] out: between the whole numbers that are a row's weights */
    const float *k_scales;   /* [64] factors of the columns of the scores; or NULL */
    const float *v_scales;   /* [64] the same for the weights, after they are summed; or NULL */
    float slack;
    float cap; /* > 0: s becomes cap * tanh(s) first */
} skv_tile_softmax;

/* Up to SKV_TILE_FEW query rows, which all see the same rows of the page. */
typedef struct skv_tile_few {
    float *s;               /* [m][64] scores; then [m] rows of 64 weights, 256 bytes apart */
    float *o;               /* [m][ld_v] */
    const unsigned char *q; /* [m] packed rows */
    size_t q_bytes;         /* between rows of q */
    const float *q_steps;   /* [m] from few_q, if there is one, else pack_q */
    size_t m;
    const unsigned char *ahead; /* rows to ask for while those of the page are read; or NULL */
} skv_tile_few;

/* Asks for n bytes of `ahead`. They are used once, so they need not stay in the caches: of the
 * hints this one is the fastest, and spread over the loop it costs no waiting. Always inlined: gcc
 * 12 seems to take a function of hints for one without effect and to drop its calls. */
static inline __attribute__((always_inline)) void skv_tile_fetch(const skv_tile_few *f, size_t at,
                                                                 size_t n)
{
    if (!f->ahead) return;
    for (size_t i = 0; i < n; i += SKV_ALIGN) __builtin_prefetch(f->ahead + at + i, 0, 0);
}

typedef struct skv_attention_tiles {
    size_t unit;    /* elements of k that belong together */
    size_t element; /* bytes of an element of Q, K, V and P as packed */
    size_t rows;    /* query rows that one product works on */
    size_t step;    /* bytes of a packed row of Q, and of a column of K, are a multiple of this */
    /* The step between the whole numbers of a row; 1 where they are floats. */
    float (*pack_q)(void *y, const float *x, float scale, size_t n);
    void (*pack_k)(void *panel, const skv_tile_page *page);
    void (*pack_v)(void *panel, const skv_tile_page *page);
    void (*product)(const skv_tile_product *p);
    /* Multiplies the sums by shrink itself; true when any shrink is not 1. */
    bool (*softmax)(const skv_tile_softmax *t);
    /* Called once for each packed row of a single token's q, if not NULL. Converts it to whole
     * numbers if few_scores takes those for pages of the type, and returns their step. */
    float (*few_q)(void *q, size_t n, skv_kv_type type);
    /* For single tokens, straight from the page: S = Q K^T, and O += P V. A row's bits do not
     * depend on those beside it. NULL: use panels. Their order of addition differs from that of
     * panels, so they are not used if skv_attention.invariant is set. */
    void (*few_scores)(const skv_tile_few *f, const skv_tile_page *page);
    void (*few_values)(const skv_tile_few *f, const skv_tile_page *page);
} skv_attention_tiles;

/* The tiles of a level. */
typedef struct skv_attention_ways {
    const skv_attention_tiles *f32;    /* for pages of f32, */
    const skv_attention_tiles *narrow; /* of 16 and 8 bits, */
    const skv_attention_tiles *int8;   /* and of int8, but for few_*; NULL: narrow */
} skv_attention_ways;

skv_attention_tokens_fn skv_attention_tokens_tiles;
skv_attention_scratch_fn skv_attention_scratch_tiles;

/** All of a->n_q tokens, a task's worth at a time. */
void skv_attention_run(const skv_attention *a, const skv_attention_ways *ways, void *scratch);
/** The portion [row0, row1) of each token, as skv_attention_part_fn. */
void skv_attention_run_part(const skv_attention *a, const skv_attention_ways *ways, size_t row0,
                            size_t row1, float *partial, void *scratch);

#endif
