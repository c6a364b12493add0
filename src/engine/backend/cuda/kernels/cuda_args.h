/*
 * What each kernel takes: one struct, passed by value. The host (C11), nvcc (C++) and the emulated
 * build of the tests (C11) read this file, so it has plain types alone. Pointers are the device's.
 *
 * Keys and values lie in pages, byte for byte as kernels/kv_page.h says. A sequence has one table
 * of 32-bit numbers: its pages by bundle, and for each track how many rows it has lost.
 *
 * Structs of launches that are recorded have no padding, since they are compared (cuda_graphs.c).
 */
#ifndef SKV_BACKEND_CUDA_ARGS_H
#define SKV_BACKEND_CUDA_ARGS_H

#include <stdint.h>

enum { SKV_CUDA_PAGE_ROWS = 64, SKV_CUDA_HEAD_DIM_MAX = 256 };

/* Types of numbers in rows. */
enum { SKV_CUDA_F32, SKV_CUDA_BF16, SKV_CUDA_E4M3 };

/* Types of pages: those of skv_kv_type. */
enum { SKV_CUDA_KV_F32 = 0, SKV_CUDA_KV_BF16 = 1, SKV_CUDA_KV_FP8 = 2, SKV_CUDA_KV_INT8 = 3 };

/* Row i begins at element i * ld. */
typedef struct skv_cuda_rows {
    void *at;         /* NULL: there are none */
    uint32_t ld;      /* elements */
    uint32_t type;    /* SKV_CUDA_F32, .. */
    uint32_t aligned; /* every row begins at a multiple of 8 elements */
    uint32_t unused;
} skv_cuda_rows;

/* y[i] = norm(x[rows[i]]), or with `sum` (sum[i] + norm(x[rows[i]])) * factor. y may be x, and sum.
 */
typedef struct skv_cuda_norm_args {
    skv_cuda_rows y, x;   /* [n_rows, n], [*, n] */
    skv_cuda_rows sum;    /* [n_rows, n] or none */
    const uint32_t *rows; /* [n_rows]; NULL: i */
    skv_cuda_rows weight; /* f32 [1, n] or none */
    float *scales;        /* [n_rows], which this writes: y is E4M3 and n a multiple of 8 */
    uint32_t n;
    uint32_t n_zeros; /* columns after n that become zeros; y is not E4M3 */
    uint32_t normed;  /* 0: there is no norm, so y is x rounded */
    float eps, offset, factor;
} skv_cuda_norm_args;

enum {
    SKV_CUDA_COPY, /* y[i] = x[rows[i]] * factor */
    SKV_CUDA_ADD,  /* y[i] += x[rows[i]] * factor */
    SKV_CUDA_CAP   /* y[i] = factor * tanh(x[rows[i]] / factor) */
};

/* Embedding, gathering, copies between types, sums, and what is done to each element alone. */
typedef struct skv_cuda_move_args {
    skv_cuda_rows y, x;   /* [n_rows, n], [*, n] */
    const uint32_t *rows; /* [n_rows]; NULL: i. Then y may be x */
    /* With n_first x has rows first, .. first + n_first alone: x[0] is row `first`, and others are
     * zeros. */
    uint32_t first, n_first;
    const float *bias; /* [n], added to x[rows[i]] * factor; or NULL. Not with CAP */
    uint32_t n;
    uint32_t op; /* SKV_CUDA_COPY, .. */
    float factor;
    uint32_t unused;
} skv_cuda_move_args;

enum { SKV_CUDA_SILU, SKV_CUDA_GELU, SKV_CUDA_CLAMPED, SKV_CUDA_RELU2, SKV_CUDA_NO_ACT };

/* y[i] = act(x[i, 0..n)) * x[i, n..2n); RELU2: max(x[i, 0..n), 0)^2 */
typedef struct skv_cuda_glu_args {
    skv_cuda_rows y, x; /* [n_rows, n], [n_rows, 2 n] or [n_rows, n] */
    const float *bias;  /* [2 n] or [n], added to each row of x; or NULL */
    uint32_t n;
    uint32_t act;       /* SKV_CUDA_SILU, .. */
    float limit, alpha; /* of CLAMPED */
} skv_cuda_glu_args;

typedef struct skv_cuda_argmax_args {
    const float *x; /* [n_rows, ld] */
    uint32_t *at;   /* [n_rows]: the first of the largest */
    uint32_t n, ld;
} skv_cuda_argmax_args;

/* ---- picks from logits ---- */

typedef struct skv_cuda_bias {
    int32_t id;
    float bias;
} skv_cuda_bias;

typedef struct skv_cuda_penalty {
    int32_t id;
    uint32_t n_seen, n_generated;
} skv_cuda_penalty;

typedef struct skv_cuda_candidate {
    int32_t id;
    float logit;
} skv_cuda_candidate;

/* A wish for a row of logits, as skv_pick_row has it; lists and room are the device's. */
typedef struct skv_cuda_wish {
    const float *x;              /* [n] */
    float *changed;              /* [n] room for the changed row; NULL: x is changed by bits */
    const uint32_t *may;         /* [ceil(n / 32)] bits of ids that may come; NULL: all */
    const uint32_t *held;        /* bits of those that are held back; NULL: none */
    const skv_cuda_bias *biases; /* [n_biases] */
    const skv_cuda_penalty *penalties; /* [n_penalties] */
    const int32_t *ids;                /* [n_ids] */
    skv_cuda_candidate *top;           /* [n_top]: the largest of x, in no order */
    float *at;                         /* [n_ids]: logits of the ids in x */
    double repetition, presence, frequency;
    double factor; /* log2(e) / temperature; 0: the best is taken */
    double top_p, u;
    uint64_t least; /* weight of the least likely that may come, at least 1 */
    uint32_t top_k; /* 0: all */
    uint32_t n_biases, n_penalties, n_ids, n_top;
    uint32_t norm; /* `norm_sum` is wanted */
} skv_cuda_wish;

typedef struct skv_cuda_pick {
    uint64_t norm_sum; /* weights of x, SKV_LOGIT_ONE for `norm_max`, the largest */
    float norm_max;
    skv_cuda_candidate best;
    int32_t id;
    float logit; /* of `id` in x */
    uint32_t n_top, released;
} skv_cuda_pick;

/* The grid has as many blocks as there are wishes. */
typedef struct skv_cuda_pick_args {
    const skv_cuda_wish *wishes;
    skv_cuda_pick *out;
    uint32_t n;
    uint32_t unused;
} skv_cuda_pick_args;

/* ---- weights as codes ---- */

/* Kinds of codes. */
enum {
    SKV_CUDA_CODES_4, /* code i of eight is in bits 4 i of 32, its value levels[code] */
    SKV_CUDA_CODES_8, /* from -128 to 127 */
    SKV_CUDA_CODES_E4M3
};

/* A matrix as codes: w[n, k] = scale * value + min, in base/quant.h's words. Column k has scale
 * k >> scale_shift of its row, and fine scale k >> fine_shift. Rows have whole groups of 32
 * columns, of which those at the end are never multiplied by anything but zeros. */
typedef struct skv_cuda_codes {
    const uint8_t *codes;    /* [N, row_bytes] */
    const void *scales;      /* [N, n_scales] f16 or bf16; of E4M3 f32 */
    const uint16_t *mins;    /* [N, n_scales], as scales; or NULL: they are 0 */
    const int8_t *fine;      /* [N, n_fine] or NULL */
    const uint8_t *fine_min; /* [N, n_fine] or NULL */
    uint32_t row_bytes, n_scales, n_fine;
    uint32_t scale_shift, fine_shift;
    uint32_t kind;      /* SKV_CUDA_CODES_4, .. */
    uint32_t bf16;      /* scales and mins; else f16 */
    uint32_t zeros;     /* mins are multiples of the scale */
    uint32_t even;      /* levels[c] == levels[0] + c */
    uint32_t levels[4]; /* 16 bytes */
    uint32_t unused;
} skv_cuda_codes;

/* y[m, n] = sum over k of x[m, k] w[n, k] + bias[n], for n < N, or y += it. */
typedef struct skv_cuda_few_args {
    skv_cuda_rows y;   /* [M, N] f32 or bf16 */
    const uint16_t *x; /* [M, K] bf16 */
    const float *bias; /* [N] or NULL */
    skv_cuda_codes w;  /* [N, K] */
    uint32_t M, N, K;  /* M is at most SKV_CUDA_FEW; K a multiple of 32 */
    uint32_t add;      /* y += */
} skv_cuda_few_args;

/* y[n, k] = w[n, k] as bf16. */
typedef struct skv_cuda_unpack_args {
    uint16_t *y; /* [N, K] */
    skv_cuda_codes w;
    uint32_t K; /* a multiple of 32 */
    uint32_t unused;
} skv_cuda_unpack_args;

/* ---- mixtures of experts ---- */

/* The experts of rows, as skv_route_args has them; the grid has as many rows. */
typedef struct skv_cuda_route_args {
    const float *logits;              /* [n_rows, ld] */
    const float *bias, *expert_scale; /* [n_experts] or NULL */
    uint32_t *chosen;                 /* [n_rows, n_active] */
    uint32_t *places;                 /* [n_rows, n_terms]: of the shared expert alone */
    float *weights;                   /* [n_rows, n_terms] */
    uint32_t ld, n_experts, n_active, n_terms;
    uint32_t sigmoid, renormalise, shared_gate;
    float eps, scale;
    uint32_t unused;
} skv_cuda_route_args;

/* Pairs sorted by expert, then by row; the grid has as many experts. */
typedef struct skv_cuda_sort_args {
    const uint32_t *chosen; /* [n_pairs] */
    uint32_t *first;        /* [n_experts + 1]: where the pairs of each begin */
    uint32_t *rows;         /* [n_pairs]: of each place its row */
    uint32_t *places;       /* [n_rows, n_terms] */
    uint32_t n_pairs, n_active, n_terms;
    uint32_t unused;
} skv_cuda_sort_args;

/* The matrix of an expert. As codes its rows from n_first on are those of the second run. */
typedef struct skv_cuda_expert {
    const void *at;    /* [N, K] bf16, or f32 for experts_exact; NULL: codes */
    const float *bias; /* [N] or NULL */
    skv_cuda_codes runs[2];
    uint32_t n_first;
} skv_cuda_expert;

/* y[place] = act(x[row of place] W^T) of the pairs at places [begin, end) that are of the experts
 * [first_expert, end_expert). */
typedef struct skv_cuda_experts_args {
    skv_cuda_rows y;
    const uint16_t *x;        /* bf16, rows at multiples of 16 bytes; f32 for experts_exact */
    const uint32_t *rows;     /* [n_pairs]: x has a row for each row; NULL: one for each place */
    const skv_cuda_expert *w; /* [n_experts] */
    const uint32_t *first;    /* [n_experts + 1] */
    uint16_t *unpacked; /* tiles of these experts as bf16, [*, n_tiles, 64, ld_w]; NULL: w has it */
    uint32_t first_expert, end_expert, begin, end;
    uint32_t first_tile, n_tiles; /* of 64 rows of W: those that are unpacked */
    uint32_t x_first;             /* the place that x begins with, without `rows` */
    uint32_t ld_x, ld_w, N;
    uint32_t K;       /* a multiple of 8, of codes of 32 */
    uint32_t paired;  /* rows of W: N / 2 of gate, then as many of up */
    uint32_t by_pair; /* tile i begins at the i-th pair: with fewer pairs than experts */
    uint32_t act;     /* SKV_CUDA_SILU, .. */
    float limit, alpha;
    uint32_t unused;
} skv_cuda_experts_args;

/* x[i] += the sum of weights[i, t] y[places[i, t]], or it is that. */
typedef struct skv_cuda_mix_args {
    skv_cuda_rows x, y;
    const uint32_t *places; /* [n_rows, n_terms] */
    const float *weights;   /* [n_rows, n_terms] */
    uint32_t n, n_terms, store;
    uint32_t unused;
} skv_cuda_mix_args;

/* ---- two operations on rows in one launch ---- */

/* How the first one leaves each row. */
typedef union skv_cuda_first_args {
    skv_cuda_norm_args norm; /* skv_norm_rows; y is not E4M3 */
    skv_cuda_move_args move; /* skv_move_rows */
    skv_cuda_glu_args glu;   /* skv_glu_rows */
    skv_cuda_mix_args mix;   /* skv_mix_rows */
} skv_cuda_first_args;

enum { SKV_CUDA_FIRST_NORM, SKV_CUDA_FIRST_MOVE, SKV_CUDA_FIRST_GLU, SKV_CUDA_FIRST_MIX };

/* `first`, then skv_norm_rows of the rows that it leaves: then.x are these, and then.rows is NULL.
 * No row that `first` reads is written by `then`. */
typedef struct skv_cuda_join_args {
    skv_cuda_first_args first;
    skv_cuda_norm_args then;
    uint32_t kind; /* of `first`: SKV_CUDA_FIRST_NORM, .. */
    uint32_t unused;
} skv_cuda_join_args;

/* ---- linear attention ---- */

/* Rows [row0, row0 + n) of a step, which are a sequence's from row n_past on. */
typedef struct skv_cuda_span {
    uint32_t state, row0, n, n_past, n_undo;
} skv_cuda_span;

enum { SKV_CUDA_TAPS_MAX = 8 };

/* As skv_conv_args has it. */
typedef struct skv_cuda_conv_args {
    skv_cuda_rows x, gate_in;          /* rows `given` */
    skv_cuda_rows newest, y, gate_out; /* rows `rows` */
    const float *weight, *bias;        /* [n_taps, n], [n] or NULL */
    const skv_cuda_span *spans;
    const uint32_t *given, *rows; /* [n_given], [n_rows]; NULL: 0, 1, .. */
    unsigned char *states;        /* [*][state_bytes] */
    uint64_t state_bytes;
    uint64_t ring; /* floats from a state's beginning to [ring_rows, ring_ld] */
    uint32_t ring_rows, ring_ld;
    uint32_t n_given, n_rows, n, n_taps, silu;
    uint32_t unused;
} skv_cuda_conv_args;

enum {
    SKV_CUDA_SCAN_CHUNK = 64,   /* rows of a chunk, which ends at a multiple of as many */
    SKV_CUDA_SCAN_BLOCK = 16,   /* and of a block of it */
    SKV_CUDA_SCAN_BLOCKS = 10,  /* of a chunk's rows by its rows, on the diagonal and below */
    SKV_CUDA_SCAN_FEW = 16,     /* a span, or a part of a chunk, of fewer rows takes scan_rows */
    SKV_CUDA_SCAN_COLUMNS = 64, /* of S, of a block of threads of scan_chunks */
    SKV_CUDA_SCAN_KEYS = 256    /* most numbers of a key that scan_chunks takes */
};

/* Of a scan: all rows are scan_rows', or it takes those before chunks, or those after them. */
enum { SKV_CUDA_SCAN_NO_CHUNKS, SKV_CUDA_SCAN_BEFORE, SKV_CUDA_SCAN_BEHIND };

/* As skv_scan_args has it. */
typedef struct skv_cuda_scan_args {
    skv_cuda_rows q, out;        /* rows `rows` */
    skv_cuda_rows k, v;          /* rows of the step */
    const float *decay, *write;  /* [T, decay_ld], [T, write_ld] or NULL */
    const float *rate, *dt_bias; /* [n_value_heads]; dt_bias may be NULL */
    const float *skip;           /* [n_value_heads] or NULL */
    const skv_cuda_span *spans;
    const uint32_t *rows; /* [n_rows]; NULL: 0, 1, .. */
    unsigned char *states;
    uint64_t state_bytes;
    uint64_t s, kept; /* floats from a state's beginning to S, and to rows that are kept */
    uint32_t kept_ld, max_undo;
    uint32_t layer, n_rows, decay_ld, write_ld;
    uint32_t n_key_heads, n_value_heads, key_dim, value_dim;
    uint32_t tiled, mamba2;
    float dt_min, dt_max, write_max;
    uint32_t chunks; /* SKV_CUDA_SCAN_NO_CHUNKS, ..; with chunks q and k are bf16 */
} skv_cuda_scan_args;

/* What the threads of a block of scan_chunks share of a chunk, beside its keys and queries. Blocks
 * [16, 16] are bf16, in two parts whose sum they are; block (i, j) is number i (i + 1) / 2 + j. */
typedef struct skv_cuda_scan_chunk {
    unsigned char errors[2][SKV_CUDA_SCAN_BLOCKS][512]; /* -A; (I + A)^-1 on the diagonal */
    unsigned char reads[2][SKV_CUDA_SCAN_BLOCKS][512];  /* of q from u */
    float lower[4][16][17];                             /* A of the diagonal's blocks */
    float within[64][17]; /* of row j: the decay after it, up to row i of its block */
    float first[64];      /* decay from a block's beginning up to a row, it included */
    float rest[64];       /* and after the row to the block's end */
    float whole[4];       /* and of all of a block */
    float alpha[64], beta[64], k_scale[64], q_scale[64];
    uint32_t out[64]; /* rows of out */
} skv_cuda_scan_chunk;

/* As skv_gated_norm_args has it, in place. */
typedef struct skv_cuda_gated_norm_args {
    skv_cuda_rows x, z;
    const float *weight; /* [groups, n] with per_group, else [n]; NULL: there is no norm */
    uint32_t n, per_group, sigmoid, gate_first;
    float eps, offset;
} skv_cuda_gated_norm_args;

/* ---- keys and values ---- */

/* A head of a slot. */
typedef struct skv_cuda_track {
    uint32_t pages;   /* where the pages of its bundle begin in a table */
    uint32_t dropped; /* where a table says how many rows the head has lost */
    uint32_t offset;  /* bytes from the beginning of a page to its rows: a multiple of 16 */
} skv_cuda_track;

/* A slot: page p is pool + p * page_bytes. */
typedef struct skv_cuda_kv {
    unsigned char *pool;
    const skv_cuda_track *tracks; /* [KV heads] */
    uint32_t page_bytes;          /* a multiple of 16 */
    uint32_t type;                /* SKV_CUDA_KV_BF16, .. */
} skv_cuda_kv;

/* A row of a step. */
typedef struct skv_cuda_step_row {
    const uint32_t *table; /* of its sequence */
    uint32_t place;        /* in it, evicted rows included */
} skv_cuda_step_row;

typedef struct skv_cuda_angles {
    const float *cosine, *sine; /* [T, n] */
    uint32_t n;                 /* half as many as numbers of a head that are rotated; may be 0 */
    uint32_t unused;
} skv_cuda_angles;

typedef struct skv_cuda_head_norm {
    const float *weight; /* [head_dim]; NULL: no norm */
    float eps, offset;
} skv_cuda_head_norm;

/* Norm and rotation of q_from, which becomes q, and of k; k and v go to their pages. A warp takes a
 * head of a row: n_heads of q, then n_kv_heads of k, then as many of v. */
typedef struct skv_cuda_place_args {
    skv_cuda_rows q, q_from;       /* [n_q, n_heads * head_dim]; they may be one */
    skv_cuda_rows k, v;            /* [T, n_kv_heads * head_dim]; v may be k */
    const uint32_t *rows;          /* [n_q]: the step's rows that q has; NULL: i */
    const skv_cuda_step_row *step; /* [T] */
    skv_cuda_angles q_angles, k_angles;
    skv_cuda_head_norm q_norm, k_norm;
    skv_cuda_kv kv;
    uint32_t n_q, n_rows; /* rows of q; T */
    uint32_t n_heads, n_kv_heads, n_copies, head_dim;
    float v_eps; /* of v's norm, which has no weight; 0: none */
    uint32_t unused;
} skv_cuda_place_args;

/* ---- attention ---- */

/* n_q consecutive tokens of a sequence; n_past rows of it are before them, evicted ones included.
 */
typedef struct skv_cuda_item {
    const uint32_t *table;
    uint32_t row0, n_q, n_past;
} skv_cuda_item;

/* A block of an item's (token, query head) pairs, of one KV head: from pair `row` on, which is
 * token row / n_group and query head row % n_group. */
typedef struct skv_cuda_block {
    uint32_t item, row;
} skv_cuda_block;

/* out, q: bf16, aligned, but for attention_exact, which takes any. attention_decode makes portions
 * where n_splits > 1, which attention_merge joins: block z takes the pages [z * n_pages, ..). */
typedef struct skv_cuda_attention_args {
    skv_cuda_rows out, q;         /* [n_rows, n_heads * head_dim] */
    const skv_cuda_item *items;   /* [n_items] */
    const skv_cuda_block *blocks; /* blockIdx.x */
    const float *sinks;           /* [n_heads] or NULL */
    skv_cuda_kv kv;
    uint32_t n_heads, n_group, head_dim;
    uint32_t window; /* 0: none */
    float scale, softcap;
    float *part_o;  /* [n_rows, n_heads, n_splits, head_dim] */
    float *part_ml; /* [n_rows, n_heads, n_splits, 2]: largest score, sum of weights */
    uint32_t n_pages, n_splits;
} skv_cuda_attention_args;

/* Votes of the tokens [first, first + n) of an item, as skv_votes_args has them. */
typedef struct skv_cuda_votes_args {
    skv_cuda_item item;
    skv_cuda_rows q; /* bf16 [*, n_heads * head_dim]: the item begins at row0 */
    skv_cuda_kv kv;
    const float *sinks; /* [n_heads] or NULL */
    float *norms;       /* [n, n_heads]: log2 of the sum of a token's exponentials */
    float *votes;       /* [heads, votes_ld] */
    uint32_t first, n;
    uint32_t votes_ld, by_query_head;
    uint32_t n_heads, n_group, head_dim;
    uint32_t window; /* 0: none */
    float scale, softcap;
} skv_cuda_votes_args;

/* ---- rows of pages ---- */

/* A head's rows [0, n) of the pages `to` become rows[i] of the pages `from`, as skv_compact_job has
 * it. */
typedef struct skv_cuda_compact_job {
    const uint32_t *to, *from, *rows;
    uint32_t to_offset, from_offset, head_dim, n;
} skv_cuda_compact_job;

typedef struct skv_cuda_compact_args {
    unsigned char *pool;
    const skv_cuda_compact_job *jobs; /* blockIdx.x */
    uint32_t page_bytes, type;
} skv_cuda_compact_args;

/* Row to_row + i of a head becomes row from_row + i, for i < n <= 64: in pages to[0] and to[1],
 * which follows it, and so for `from`. Its key is turned by angles [n, angles.n] where moves[i] is
 * not 0. */
typedef struct skv_cuda_turn_args {
    unsigned char *pool;
    skv_cuda_angles angles;
    const uint32_t *moves; /* [n] */
    uint32_t page_bytes, type, offset, head_dim;
    uint32_t to[2], from[2];
    uint32_t to_row, from_row; /* less than 64 */
} skv_cuda_turn_args;

/* ---- the kernels ---- */

/* Those of one size of heads. */
#define SKV_CUDA_ATTENTION(X, Dh)                                                                  \
    X(skv_attention_prompt_##Dh##_bf16, skv_cuda_attention_args, 128)                              \
    X(skv_attention_prompt_##Dh##_fp8, skv_cuda_attention_args, 128)                               \
    X(skv_attention_prompt_##Dh##_int8, skv_cuda_attention_args, 128)                              \
    X(skv_attention_decode_##Dh##_bf16, skv_cuda_attention_args, 128)                              \
    X(skv_attention_decode_##Dh##_fp8, skv_cuda_attention_args, 128)                               \
    X(skv_attention_decode_##Dh##_int8, skv_cuda_attention_args, 128)

/* Those of sizes that wgmma has, on cards that have it. */
#define SKV_CUDA_ATTENTION_WGMMA(X, Dh)                                                            \
    X(skv_attention_wgmma_##Dh##_bf16, skv_cuda_attention_args, SKV_CUDA_WGMMA_THREADS)            \
    X(skv_attention_wgmma_##Dh##_fp8, skv_cuda_attention_args, SKV_CUDA_WGMMA_THREADS)             \
    X(skv_attention_wgmma_##Dh##_int8, skv_cuda_attention_args, SKV_CUDA_WGMMA_THREADS)

/* X(name, struct, threads of a block). Sizes of heads ascend. */
#define SKV_CUDA_KERNELS(X)                                                                        \
    X(skv_norm_rows, skv_cuda_norm_args, 256)                                                      \
    X(skv_move_rows, skv_cuda_move_args, 128)                                                      \
    X(skv_glu_rows, skv_cuda_glu_args, 256)                                                        \
    X(skv_argmax_rows, skv_cuda_argmax_args, 256)                                                  \
    X(skv_pick_rows, skv_cuda_pick_args, SKV_CUDA_PICK_THREADS)                                    \
    X(skv_multiply_few, skv_cuda_few_args, 128)                                                    \
    X(skv_unpack_rows, skv_cuda_unpack_args, 128)                                                  \
    X(skv_route_rows, skv_cuda_route_args, 32)                                                     \
    X(skv_sort_pairs, skv_cuda_sort_args, 256)                                                     \
    X(skv_experts_16, skv_cuda_experts_args, 128)                                                  \
    X(skv_experts_64, skv_cuda_experts_args, 128)                                                  \
    X(skv_experts_few, skv_cuda_experts_args, 128)                                                 \
    X(skv_experts_exact, skv_cuda_experts_args, 128)                                               \
    X(skv_unpack_experts, skv_cuda_experts_args, 128)                                              \
    X(skv_mix_rows, skv_cuda_mix_args, 128)                                                        \
    X(skv_join_rows, skv_cuda_join_args, 256)                                                      \
    X(skv_conv_rows, skv_cuda_conv_args, 128)                                                      \
    X(skv_scan_rows, skv_cuda_scan_args, 128)                                                      \
    X(skv_scan_chunks_128, skv_cuda_scan_args, 128)                                                \
    X(skv_scan_chunks_256, skv_cuda_scan_args, 128)                                                \
    X(skv_scan_keep, skv_cuda_scan_args, 128)                                                      \
    X(skv_gated_norm_rows, skv_cuda_gated_norm_args, 256)                                          \
    X(skv_place_heads, skv_cuda_place_args, 128)                                                   \
    X(skv_attention_merge, skv_cuda_attention_args, 128)                                           \
    X(skv_attention_exact, skv_cuda_attention_args, 128)                                           \
    X(skv_vote_norms, skv_cuda_votes_args, 128)                                                    \
    X(skv_vote_sums, skv_cuda_votes_args, 64)                                                      \
    X(skv_compact_rows, skv_cuda_compact_args, 128)                                                \
    X(skv_turn_rows, skv_cuda_turn_args, 32)                                                       \
    SKV_CUDA_ATTENTION_WGMMA(X, 64)                                                                \
    SKV_CUDA_ATTENTION_WGMMA(X, 128)                                                               \
    SKV_CUDA_ATTENTION_WGMMA(X, 256)                                                               \
    SKV_CUDA_ATTENTION(X, 16)                                                                      \
    SKV_CUDA_ATTENTION(X, 32)                                                                      \
    SKV_CUDA_ATTENTION(X, 64)                                                                      \
    SKV_CUDA_ATTENTION(X, 80)                                                                      \
    SKV_CUDA_ATTENTION(X, 96)                                                                      \
    SKV_CUDA_ATTENTION(X, 128)                                                                     \
    SKV_CUDA_ATTENTION(X, 256)

typedef enum skv_cuda_kernel {
#define X(name, args, threads) SKV_CUDA_##name,
    SKV_CUDA_KERNELS(X)
#undef X
        SKV_CUDA_KERNEL_COUNT
} skv_cuda_kernel;

/* ---- the shapes of attention's tiles ---- */

enum {
    SKV_CUDA_ROWS_SHARED = 64, /* bytes of shared memory of kernels of rows and votes' reductions */
    SKV_CUDA_PICK_WAYS = 16,   /* sums that a thread of pick_rows adds up at a time */
    SKV_CUDA_PICK_THREADS = 32 * SKV_CUDA_PICK_WAYS,
    SKV_CUDA_PICK_SHARED = (SKV_CUDA_PICK_THREADS + 1) * (SKV_CUDA_PICK_WAYS + 1) * 8,
    SKV_CUDA_EXPERT_STAGES = 4,
    SKV_CUDA_DECODE_ROWS = 16, /* pairs of a block of attention_decode */
    SKV_CUDA_FEW = 32,         /* most rows of x of multiply_few */
    SKV_CUDA_FEW_COLUMNS = 16, /* columns of y that a block of it computes */
    SKV_CUDA_FEW_SHARED = 64 + 4 * SKV_CUDA_FEW * SKV_CUDA_FEW_COLUMNS * 4,
    SKV_CUDA_UNPACK_SHARED = 64,
    SKV_CUDA_EXPERTS_FEW_SHARED = SKV_CUDA_FEW_SHARED + 64,
    SKV_CUDA_SHARED_MAX = 99 * 1024,        /* of a block, on every card from sm_86 on */
    SKV_CUDA_WGMMA_SHARED_MAX = 227 * 1024, /* and on those with wgmma */
    SKV_CUDA_WGMMA_THREADS = 384,           /* two warpgroups compute and one brings tiles */
    SKV_CUDA_WGMMA_ROWS = 128,              /* pairs of a block of attention_wgmma */
    SKV_CUDA_WGMMA_STAGES = 2
};

/* Rows of tiles have whole groups of 8 chunks of 16 bytes, so that they can be swizzled. */
#define SKV_CUDA_STRIDE(Dh) (((Dh) / 8 + 7) / 8 * 8)
/* Pairs of a block of attention_prompt, and cached rows of its tiles: long heads take half. */
#define SKV_CUDA_PROMPT_ROWS(Dh) ((Dh) > 128 ? 64 : 128)
#define SKV_CUDA_PROMPT_KEYS(Dh) ((Dh) > 128 ? 32 : 64)
/* Cached rows of a tile of attention_wgmma: whole pages. */
#define SKV_CUDA_WGMMA_KEYS(Dh) ((Dh) > 128 ? 64 : 128)
/* Tiles that a warp of attention_decode has under way or in use. */
#define SKV_CUDA_DECODE_STAGES(Dh) ((Dh) > 128 ? 1 : 3)

static inline uint32_t skv_cuda_prompt_shared(uint32_t head_dim, uint32_t type)
{
    const uint32_t row = SKV_CUDA_STRIDE(head_dim) * 16, keys = SKV_CUDA_PROMPT_KEYS(head_dim);
    const uint32_t q = SKV_CUDA_PROMPT_ROWS(head_dim) * row, tile = 2 * keys * row;
    if (type == SKV_CUDA_KV_BF16) return q + 2 * tile;
    return q + tile + 2 * (2 * keys * head_dim + 2 * keys) + 2 * keys * 4;
}

/* Queries, tiles of keys and of values, scales, barriers. */
static inline uint32_t skv_cuda_wgmma_shared(uint32_t head_dim, uint32_t type)
{
    const uint32_t keys = SKV_CUDA_WGMMA_KEYS(head_dim), stages = SKV_CUDA_WGMMA_STAGES;
    const uint32_t scales = type == SKV_CUDA_KV_BF16 ? 0 : stages * 2 * keys * 4;
    return (SKV_CUDA_WGMMA_ROWS + stages * 2 * keys) * head_dim * 2 + scales + (1 + 4 * stages) * 8;
}

static inline int skv_cuda_needs_wgmma(skv_cuda_kernel kernel)
{
    return kernel >= SKV_CUDA_skv_attention_wgmma_64_bf16 &&
           kernel <= SKV_CUDA_skv_attention_wgmma_256_int8;
}

/* Bytes of shared memory that a block of a kernel has at most. */
static inline uint32_t skv_cuda_shared_most(skv_cuda_kernel kernel)
{
    return skv_cuda_needs_wgmma(kernel) ? SKV_CUDA_WGMMA_SHARED_MAX : SKV_CUDA_SHARED_MAX;
}

static inline uint32_t skv_cuda_decode_shared(uint32_t head_dim, uint32_t type)
{
    const uint32_t tile = 2 * 16 * SKV_CUDA_STRIDE(head_dim) * 16;
    const uint32_t stages = SKV_CUDA_DECODE_STAGES(head_dim), merge = 4 * 16 * (head_dim + 2) * 4;
    const uint32_t run = type == SKV_CUDA_KV_BF16 ? 4 * stages * tile
                                                  : 4 * (tile + stages * (2 * 16 * head_dim + 32));
    return run > merge ? run : merge;
}

/* A warp's query, and the weights of 32 rows. */
static inline uint32_t skv_cuda_exact_shared(uint32_t head_dim)
{
    return 4 * (head_dim + 32) * 4;
}

/* Of a product of experts with tiles of m rows. */
static inline uint32_t skv_cuda_experts_shared(uint32_t m)
{
    return SKV_CUDA_EXPERT_STAGES * (m + 64) * 128;
}

/* S of 32 columns, and k, q and all else of 4 rows. */
static inline uint32_t skv_cuda_scan_shared(uint32_t key_dim)
{
    return key_dim * (40 + 8) * 4 + 4 * 32;
}

/* Keys and queries of a chunk, of key_most numbers each, and the rest. */
static inline uint32_t skv_cuda_chunks_shared(uint32_t key_most)
{
    return 2 * SKV_CUDA_SCAN_CHUNK * key_most * 2 + (uint32_t)sizeof(skv_cuda_scan_chunk);
}

/* A token's query heads of one KV head, as f32, and room for reductions. */
static inline uint32_t skv_cuda_votes_shared(uint32_t head_dim, uint32_t n_group)
{
    return SKV_CUDA_ROWS_SHARED + n_group * head_dim * 4;
}

#endif
