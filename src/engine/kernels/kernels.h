/*
 * The arithmetic of a transformer on raw pointers: one function type for each operation and one
 * table that holds an implementation of each.
 *
 * A kernel is pure: it does not allocate, start threads, do I/O, keep state or fail. Its caller has
 * checked the sizes, owns the memory and decides which thread does which portion.
 * kernels/ref/ is the specification, written plainly; x86/ and arm/ overlay it at run time by the
 * processor's features (skv_kernels_init). docs/explanation/kernels.md tells how to add one.
 *
 * Notation (docs/reference/notation.md): T tokens, D model width, H query heads, Hk KV heads, G = H
 * / Hk, Dh head width, F feed-forward width, V vocabulary, M x N x K the sizes of a matrix product.
 */
#ifndef SKV_KERNELS_H
#define SKV_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/cpu.h"
#include "kernels/kv_page.h"

/* ------------------------------------------------------------------------------------------
 * Matrix products:  C[M, N] = X[M, K] * W[N, K]^T
 *
 * W is packed once into panels of `nr` of its rows (columns of C); X is packed for each product
 * into blocks of up to `mr` of its rows. Packed forms are opaque outside the kernel: a set of
 * functions that belong together is one skv_matmul. The caller loops over panels and blocks.
 *
 *   kind   packed weights                      packed rows                        arithmetic
 *   f32    float                               float                              f32
 *   wide   bfloat16, rounded to nearest even   float                              f32
 *   bf16   the same                            bfloat16                           f32 sums
 *   i8     int8, one bfloat16 scale for each   int8 = round(x / scale),           int32 in a group,
 *          row of W and group along K          one f32 scale a row and group      f32 across groups
 *   q      4 or 8 bits with the scales and     the same                           int32 where both
 *          minimums of a quantised file                                           have a scale, f32
 *   q_wide the same                            float                              f32
 *
 * Panels of `q` and `q_wide` come from skv_quant_pack (quant_panel.h), which keeps the codes it is
 * given; these sets of functions have no w_bytes and no pack_w. K is a multiple of SKV_QUANT_GROUP
 * there. `q_wide` is for comparing, and plain C at every level.
 *
 * An int8 scale is amax / 127 of its group, or 0 if amax < 127 * FLT_MIN. A weight's scale is
 * rounded before its codes are made, so bfloat16 costs nothing and has no range to leave.
 *
 * Narrow products, K up to SKV_NARROW_K, are those of models so small that their arithmetic costs
 * little time, and every rounding shows in their likelihoods. Their bfloat16 weights
 * meet rows of floats (`wide`), their int8 groups are short.
 */
enum {
    SKV_NARROW_K = 512,      /* longest narrow product */
    SKV_I8_GROUP = 128,      /* length of an int8 group along K; the last one may be shorter */
    SKV_I8_GROUP_NARROW = 32 /* the same where K is narrow */
};

/** Length of an int8 group of a product over K, where a skv_matmul has no other (group). */
static inline size_t skv_i8_group(size_t K)
{
    return K <= SKV_NARROW_K ? SKV_I8_GROUP_NARROW : SKV_I8_GROUP;
}

/* How to compute a tile: any of these together. */
enum {
    SKV_TILE_ADD = 1,      /* add to the sums in c */
    SKV_TILE_PREFETCH = 2, /* the panel is in memory, not in a cache, and so are the bytes after
                            * it, which are read next: prefetching them pays */
    SKV_TILE_LEFT = 4,     /* columns [0, nr / 2) alone, and */
    SKV_TILE_RIGHT = 8,    /* [nr / 2, nr) alone, to the same bits, where there are `halves` */
    SKV_TILE_UNPACKED = 16 /* `panel` is what `unpack` wrote */
};

typedef struct skv_matmul {
    size_t nr;    /* rows of W in a panel */
    size_t mr;    /* most rows of X in a block */
    size_t kc;    /* a good length of K for one `tile` call: a multiple of skv_matmul_group */
    bool halves;  /* `tile` takes SKV_TILE_LEFT and SKV_TILE_RIGHT */
    size_t group; /* length of an int8 group of products that are not narrow; 0: SKV_I8_GROUP */
    /* Bytes of one packed panel of W (always nr rows, missing ones are zero). */
    size_t (*w_bytes)(size_t K);
    /* Bytes of one packed block of m <= mr rows of X. */
    size_t (*x_bytes)(size_t m, size_t K);
    /* Packs w [n, K] (row-major, rows `ldw` floats apart), 1 <= n <= nr, zero-filling to nr. */
    void (*pack_w)(void *panel, const float *w, size_t ldw, size_t n, size_t K);
    /* Packs x [m, K] (row-major, rows `ldx` floats apart), 1 <= m <= mr. */
    void (*pack_x)(void *block, const float *x, size_t ldx, size_t m, size_t K);
    /* The same panel from w stored [K, n], the same block from x stored [K, m]: the transposed
     * operands of training. NULL where a set of functions has no short way. */
    void (*pack_w_t)(void *panel, const float *w, size_t ldw, size_t n, size_t K);
    void (*pack_x_t)(void *block, const float *x, size_t ldx, size_t m, size_t K);
    /*
     * c[i * ldc + j] (= or, with SKV_TILE_ADD, +=) sum over k in [k0, k1) of x[i, k] * w[j, k] for
     * i < m, j < nr: always nr whole columns. k0 is a multiple of skv_matmul_group; k1 is one
     * too or equals K. m is the m that the block was packed with. c needs no alignment.
     */
    void (*tile)(float *c, size_t ldc, const void *block, const void *panel, size_t m, size_t K,
                 size_t k0, size_t k1, unsigned mode);
    /* A thread calls this after its last `tile`; or NULL: gives back state that the processor
     * keeps for the next one. */
    void (*finish)(void);
    /*
     * NULL, or a way to unpack weights once for many blocks of rows: writes elements [k0, k1) of a
     * panel to `to`, which is aligned to 64 bytes, and of whose modes only SKV_TILE_PREFETCH
     * counts. A `tile` with SKV_TILE_UNPACKED reads them there instead of in the panel, to the same
     * bits, if its block has at least mr / 2 rows. k0 and k1 are as for `tile`; a tile that begins
     * at a later k reads from unpacked_bytes(K, k - k0) on.
     */
    void (*unpack)(void *to, const void *panel, size_t K, size_t k0, size_t k1, unsigned mode);
    /* Bytes of n elements along K of an unpacked panel. */
    size_t (*unpacked_bytes)(size_t K, size_t n);
} skv_matmul;

/** Ends a thread's calls of `tile`. */
static inline void skv_matmul_finish(const skv_matmul *mm)
{
    if (mm->finish) mm->finish();
}

/** Length of an int8 group along K of these products. */
static inline size_t skv_matmul_group(const skv_matmul *mm, size_t K)
{
    return K > SKV_NARROW_K && mm->group > 0 ? mm->group : skv_i8_group(K);
}

/* Rounds a row x [K] of weights to 4 bits, skv_quant_form_int4 (base/quant.h): codes [K] of one
 * byte and an f16 scale [K / 32] for each group, that of least squared error among nine around amax
 * / 8. K is a multiple of SKV_QUANT_GROUP. Every level gives the same codes. */
typedef void skv_round_int4_fn(uint8_t *codes, uint16_t *scales, const float *x, size_t K);

/* ------------------------------------------------------------------------------------------
 * Rows of the KV cache: kernels/kv_page.h
 */

/* Stores one row k [Dh], v [Dh] at row `row` of a page. */
typedef void skv_kv_store_fn(void *page, skv_kv_type type, size_t row, const float *k,
                             const float *v, size_t head_dim);
/* Reads it back (tests, similarity, eviction): k, v [Dh], either may be NULL. */
typedef void skv_kv_load_fn(const void *page, skv_kv_type type, size_t row, float *k, float *v,
                            size_t head_dim);
/* The specification. */
skv_kv_store_fn skv_kv_store_ref;
skv_kv_load_fn skv_kv_load_ref;

/*
 * Attention of n_q new tokens of one sequence, for the G query heads that share one KV head.
 * Online softmax: no more than a tile of scores exists at any time.
 *     s[j, r] = scale * q[j] . k[r]            (softcap c > 0: s = c * tanh(s / c))
 *     out[j]  = sum_r softmax_r(s[j, :]) v[r]
 * With sinks the softmax has one more score, the head's, which has no v.
 * Token j sees the rows r with n_past + j - window < r <= n_past + j (window 0: r <= n_past + j),
 * so n_past + n_q rows must be stored before. Rows are in pages of SKV_PAGE_ROWS:
 * row r is row r % SKV_PAGE_ROWS of pages[r / SKV_PAGE_ROWS].
 * With f32 pages the arithmetic is f32; with the others it may round q, k, v and the softmax
 * weights to bfloat16, with f32 sums. With int8 pages q may become whole numbers of at least 7 bits
 * and a sign, and the softmax weights of a page of at least 8 bits, with exact sums within a page.
 */
typedef struct skv_attention {
    float *out;               /* token j, head g at out + j * ld_out + g * head_dim */
    const float *q;           /* token j, head g at q + j * ld_q + g * head_dim */
    size_t ld_out, ld_q;      /* floats between tokens */
    size_t n_q;               /* tokens, >= 1 */
    size_t n_group;           /* G, >= 1 */
    size_t head_dim;          /* Dh: a multiple of 4, at most SKV_HEAD_DIM_MAX */
    const void *const *pages; /* [ceil((n_past + n_q) / SKV_PAGE_ROWS)] */
    skv_kv_type type;
    size_t n_past;
    size_t window;
    float scale;
    float softcap;
    const float *sinks; /* [G], a logit for each head; NULL: none */
    bool invariant;     /* a token's bits do not depend on n_q, */
    bool singly;        /* or are those of a call for it alone */
    /* [n_q] token j is token rows[j] of q, for attention_part only; NULL: token j. */
    const uint32_t *rows;
} skv_attention;

enum { SKV_HEAD_DIM_MAX = 512 };

/* The n_q of one call at which `attention` works best (a task of a prompt), for this G and Dh. */
typedef size_t skv_attention_tokens_fn(size_t n_group, size_t head_dim);
/* Bytes of 64-byte aligned scratch that one call needs, for any n_q up to the one above. */
typedef size_t skv_attention_scratch_fn(size_t n_group, size_t head_dim);
typedef void skv_attention_fn(const skv_attention *a, void *scratch);

/*
 * The same for at most attention_tokens tokens, split along the rows so that several threads can
 * share one long sequence, or several sequences the rows of a common prefix. A portion covers rows
 * [row0, row1) of those that token j sees and leaves, for each of the G heads g,
 * o [Dh] = sum_r exp(s_r - m) v_r, m = max s_r and l = sum exp(s_r - m):
 *     partial + j * ld_out + g * (head_dim + 2) = { o[0..Dh), m, l }.
 */
typedef void skv_attention_part_fn(const skv_attention *a, size_t row0, size_t row1, float *partial,
                                   void *scratch);
/* Joins n_parts portions [G][Dh + 2] of one token, `ld` floats apart, into out. Sinks count here,
 * not before. */
typedef void skv_attention_join_fn(const skv_attention *a, const float *partials, size_t ld,
                                   size_t n_parts);

/* ------------------------------------------------------------------------------------------
 * Rows of activations: y, x [n]; everything f32.
 */

/* y[i] = x[i] / sqrt(mean(x^2) + eps) * (w[i] + w_offset); y may be x. Sums in f32 or better.
 * w_offset is 0 for Llama and 1 for Gemma. w NULL: no weight. */
typedef void skv_rmsnorm_fn(float *y, const float *x, const float *w, float w_offset, float eps,
                            size_t n);
/* Rotates x [Dh] in place, rotate-half form: pairs (i, i + n_rot / 2) for i < n_rot / 2 by the
 * angle whose cos and sin are given, [n_rot / 2] each. n_rot <= Dh is even; the rest stays. */
typedef void skv_rope_fn(float *x, const float *cos, const float *sin, size_t n_rot);
/* h[i] = act(gate[i]) * up[i]; h may be gate or up. */
typedef void skv_glu_fn(float *h, const float *gate, const float *up, size_t n);
/* y[i] += a * x[i]. */
typedef void skv_axpy_fn(float *y, float a, const float *x, size_t n);
/* x[i] = cap * tanh(x[i] / cap). */
typedef void skv_softcap_fn(float *x, float cap, size_t n);
/* log(sum_i exp(x[i])) with the maximum taken out; *i_max (may be NULL) is the first index of it.
 */
typedef float skv_logsumexp_fn(const float *x, size_t n, size_t *i_max);
/* y[i] += exp(x[i] - shift). */
typedef void skv_add_exp_fn(float *y, const float *x, float shift, size_t n);
/* y[i] = float(x[i]) and back, rounded to nearest even. */
typedef void skv_from_bf16_fn(float *y, const uint16_t *x, size_t n);
typedef void skv_to_bf16_fn(uint16_t *y, const float *x, size_t n);
/* sum_i x[i] * y[i] in f32 or better. */
typedef float skv_dot_fn(const float *x, const float *y, size_t n);

/* ------------------------------------------------------------------------------------------
 * Rows of logits
 *
 * A logit x has the weight 2^42 exp((x - max) / temperature), rounded to a whole number, where max
 * is the largest of its row: skv_logit_weight says how. Whole numbers add up to the same sum in
 * any order, so sums, and tokens drawn by them, are the same at every level. Each level computes
 * weights by the same operations in double, without fused multiply-adds.
 *
 * NaN counts as minus infinity, which has no weight.
 */
enum {
    SKV_LOGIT_BLOCK = 64,     /* logits of a block, whose maximum is kept */
    SKV_LOGIT_BUCKETS = 2048, /* sums that the logits of an interval are sorted into */
    SKV_LOGIT_VOCAB_MAX = 1 << 21
};
#define SKV_LOGIT_ONE (UINT64_C(1) << 42) /* the weight of the largest logit */

typedef struct skv_logit_row {
    const float *x;      /* [n], n <= SKV_LOGIT_VOCAB_MAX */
    const float *maxima; /* [ceil(n / SKV_LOGIT_BLOCK)], of its blocks */
    size_t n;
} skv_logit_row;

/* How logits are weighed and sorted. All members are finite. */
typedef struct skv_logit_scale {
    float max;
    double factor;   /* log2(e) / temperature; 0: all weights are SKV_LOGIT_ONE */
    float low, high; /* logits outside of [low, high] do not count */
    double per;      /* x belongs to bucket (high - x) * per, or to the last one */
} skv_logit_scale;

/* maxima[b] = the largest of block b of x [n]. */
typedef void skv_logit_maxima_fn(float *maxima, const float *x, size_t n);
/* sums[b] = the weights of the logits of block b in [low, high]. */
typedef void skv_logit_weigh_fn(uint64_t *sums, const skv_logit_row *row,
                                const skv_logit_scale *scale);
/* sums[b] += the weights of the row's logits in [low, high] that belong to bucket b. */
typedef void skv_logit_spread_fn(uint64_t *sums /* [SKV_LOGIT_BUCKETS] */, const skv_logit_row *row,
                                 const skv_logit_scale *scale);
/* Lists the ids of the row's logits in [low, high], ascending, from block *i_block on, and returns
 * how many. Stops in front of the block where fewer than SKV_LOGIT_BLOCK of `most` places are
 * left; *i_block becomes the first that was not looked at. */
typedef size_t skv_logit_between_fn(uint32_t *ids, size_t most, const skv_logit_row *row, float low,
                                    float high, size_t *i_block);

typedef struct skv_logit_kernels {
    skv_logit_maxima_fn *maxima;
    skv_logit_weigh_fn *weigh;
    skv_logit_spread_fn *spread;
    skv_logit_between_fn *between;
} skv_logit_kernels;

/* ------------------------------------------------------------------------------------------
 * Linear attention: the recurrences of backend.h ("states, short convolution, scan") by blocks
 *
 * A block is SKV_SCAN_BLOCK rows, at a multiple of that in its sequence. Its first n0 rows were
 * computed before, by calls like this one, and are the same whatever is computed at once: each
 * number is one chain of fused multiply-adds in the order that is written here. S is cut into
 * panels of SKV_SCAN_BLOCK columns, [key_dim][16] each; columns that are missing in the last one
 * are zero.
 */
enum { SKV_SCAN_BLOCK = 16 };

typedef struct skv_scan_block {
    size_t key_dim;
    size_t n0, n;         /* rows [n0, n) are new, n0 < n <= SKV_SCAN_BLOCK */
    size_t q0, q1;        /* rows [q0, q1) of them have an output; none: q0 >= q1 */
    const float *kt, *qt; /* [key_dim][16]: k and q of row i are column i */
    const float *decay;   /* [16]: alpha_0 ... alpha_i */
    const float *beta;    /* [16]; of the delta rule */
    const float *a;       /* [16][16]: beta_i (alpha_j+1 ... alpha_i) k_i . k_j for j < i; NULL:
                           * rows are not corrected (Mamba-2), u is what comes in */
    const float *b;       /* [16][16]: (alpha_j+1 ... alpha_i) q_i . k_j for j <= i */
} skv_scan_block;

/*
 * New rows of a block, for n_panels panels: S [n_panels][key_dim][16] before the block's first row,
 * u, out [n_panels][16][16] by row. u has v of the new rows and u of those before.
 *     u_i   = beta_i (v_i - decay_i (sum_d k_i[d] S[d])) - sum_{j<i} a_ij u_j
 *     out_i = decay_i (sum_d q_i[d] S[d]) + sum_{j<=i} b_ij u_j
 */
typedef void skv_scan_rows_fn(const skv_scan_block *block, const float *s, float *u, float *out,
                              size_t n_panels);
/* S after a whole block: S[d] = decay S[d] + sum_j kt[d][j] (weight[j] u_j). */
typedef void skv_scan_fold_fn(float *s, const float *kt, const float *u,
                              const float *weight /* [16] */, float decay, size_t key_dim,
                              size_t n_panels);
/* g[i][j] = sum_d xt[d][i] kt[d][j] for i0 <= i < i1 and all 16 j. */
typedef void skv_scan_gram_fn(float *g /* [16][16] */, const float *xt, const float *kt, size_t i0,
                              size_t i1, size_t key_dim);

/* y[c] = act(bias[c] + sum_j w[j * ldw + c] x[j][c]) for c < n, j < n_taps; bias may be NULL. */
typedef struct skv_conv_row {
    const float *const *x; /* [n_taps], the oldest row first */
    const float *w;        /* [n_taps, ldw] */
    const float *bias;
    size_t ldw, n_taps, n;
    bool silu;
} skv_conv_row;
typedef void skv_conv_fn(float *y, const skv_conv_row *row);

typedef struct skv_scan_kernels {
    skv_scan_rows_fn *rows;
    skv_scan_fold_fn *fold;
    skv_scan_gram_fn *gram;
    skv_conv_fn *conv;
} skv_scan_kernels;

/* ------------------------------------------------------------------------------------------ */

typedef struct skv_kernels {
    skv_cpu_level level; /* the requested level, after clamping to the processor */
    skv_matmul f32, wide, bf16, i8, q, q_wide;
    skv_round_int4_fn *round_int4;
    skv_kv_store_fn *kv_store;
    skv_kv_load_fn *kv_load;
    skv_attention_tokens_fn *attention_tokens;
    skv_attention_scratch_fn *attention_scratch;
    skv_attention_fn *attention;
    skv_attention_part_fn *attention_part;
    skv_attention_join_fn *attention_join;
    skv_rmsnorm_fn *rmsnorm;
    skv_rope_fn *rope;
    skv_glu_fn *silu_glu;      /* act(x) = x / (1 + exp(-x)) */
    skv_glu_fn *gelu_tanh_glu; /* act(x) = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) */
    skv_glu_fn *sigmoid_glu;   /* act(x) = 1 / (1 + exp(-x)) */
    skv_axpy_fn *axpy;
    skv_softcap_fn *softcap;
    skv_logsumexp_fn *logsumexp;
    skv_add_exp_fn *add_exp;
    skv_from_bf16_fn *from_bf16;
    skv_to_bf16_fn *to_bf16;
    skv_dot_fn *dot;
    skv_logit_kernels logits;
    skv_scan_kernels scan;
} skv_kernels;

/**
 * Fills the table with the reference and overlays the kernels that `level` allows and `features`
 * (from skv_cpu_detect) can run. SKV_CPU_BEST takes the best.
 */
void skv_kernels_init(skv_kernels *k, skv_cpu_level level, unsigned features);

#endif
