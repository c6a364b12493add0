/*
 * Where tensors live and who computes: one small table of functions.
 *
 * model/, prefill/ and engine/ call these operations and never know which back end runs them.
 * Tensors (`float *` arguments and pages) are the back end's memory, from `alloc`. Nothing outside
 * of the back end may read or write it: `put`, `get` and `copy` move it, and `map` makes it the
 * host's for a while. Lists of rows, tables of pages, counts and votes are the host's. On the CPU
 * both are the same memory, and mapping costs nothing; tests/support/guarded_backend.c tells them
 * apart. Operations run one after the other, started by one thread; they cannot fail, since all
 * sizes are checked and all memory is taken beforehand.
 *
 * A step works on T rows; an operation may work on a subset of them, given as a list of row
 * numbers (NULL: rows 0..n_rows-1).
 */
#ifndef SKV_BACKEND_H
#define SKV_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/fail.h"
#include "base/pool.h"
#include "base/quant.h"
#include "base/size.h"
#include "kernels/cpu.h"
#include "kernels/kv_page.h"

typedef struct skv_backend skv_backend;
typedef struct skv_linear skv_linear;

/* Memory of a device and of the host. The processor has only the host's. */
typedef struct skv_bytes {
    size_t device, host;
} skv_bytes;

/** SIZE_MAX stands for more than can be counted. */
static inline skv_bytes skv_bytes_add(skv_bytes a, skv_bytes b)
{
    if (!skv_size_add(a.device, b.device, &a.device)) a.device = SIZE_MAX;
    if (!skv_size_add(a.host, b.host, &a.host)) a.host = SIZE_MAX;
    return a;
}

/** Both together, where they share one memory. */
static inline size_t skv_bytes_sum(skv_bytes bytes)
{
    size_t sum;
    return skv_size_add(bytes.device, bytes.host, &sum) ? sum : SIZE_MAX;
}

typedef enum skv_weight_type {
    SKV_WEIGHT_F32,
    SKV_WEIGHT_BF16,
    SKV_WEIGHT_I8,
    SKV_WEIGHT_QUANT,    /* codes as a file holds them, or rounded to skv_quant_form_int4 */
    SKV_WEIGHT_QUANT_F32 /* the same beside rows of f32: slow, for comparing */
} skv_weight_type;

static inline bool skv_weight_is_quant(skv_weight_type type)
{
    return type == SKV_WEIGHT_QUANT || type == SKV_WEIGHT_QUANT_F32;
}

/* What a product over K takes where `type` was asked for: groups of codes are whole ones. */
static inline skv_weight_type skv_weight_type_over(skv_weight_type type, size_t K)
{
    return skv_weight_is_quant(type) && K % SKV_QUANT_GROUP != 0 ? SKV_WEIGHT_I8 : type;
}

/* Some rows of a weight matrix, read as f32 while the back end packs them. Called by several
 * threads at once. */
typedef struct skv_row_source {
    void (*read)(const void *ctx, size_t row0, size_t n, float *out /* [n, K] */);
    const void *ctx;   /* borrowed while the matrix is being prepared */
    size_t n_rows;     /* N of this part */
    const float *bias; /* [n_rows] or NULL; copied */
    /* The name of quantised weights, which are refused unless all are finite; NULL: of others. */
    const char *quantised;
    /* Rows that are quantised already, or NULL: then `read` is not called where weights are QUANT.
     */
    const skv_quant_form *form;
    void (*read_codes)(const void *ctx, size_t row0, size_t n, skv_quant_rows *out /* [n, K] */);
} skv_row_source;

/*
 * Which matrix to prepare: W[N, K] made of parts stacked on one another (q | k | v), each of
 * which can be computed alone. With `paired` there are two parts of the same height, gate and
 * up, whose rows are interleaved so that act(gate) * up is formed while both are in registers.
 */
typedef struct skv_linear_spec {
    skv_weight_type type;        /* QUANT: K is a multiple of SKV_QUANT_GROUP */
    const skv_row_source *parts; /* [n_parts] */
    size_t n_parts;
    size_t K;
    bool paired;
} skv_linear_spec;

typedef enum skv_epilogue {
    SKV_EPILOGUE_STORE,    /* y = c + bias; of a paired W gate's columns, then those of up */
    SKV_EPILOGUE_ADD,      /* y += c + bias; not of a paired W */
    SKV_EPILOGUE_SILU_GLU, /* paired only: y = silu(gate) * up */
    SKV_EPILOGUE_GELU_GLU, /* paired only: y = gelu_tanh(gate) * up */
    SKV_EPILOGUE_CLAMPED   /* paired only: skv_config.swiglu_limit says what of gate and up */
} skv_epilogue;

/* RMSNorm in front of a product or behind a block. weight NULL: none. */
typedef struct skv_norm {
    const float *weight; /* [n] */
    float offset;        /* 0, or 1 for Gemma */
    float eps;
    bool joined; /* of heads: over all of them together, weight [n_heads * head_dim] */
} skv_norm;

/* y[i, :] = epilogue(norm(x[rows[i], :]) W^T) for i < n_rows; parts [part0, part1) of W, whose
 * first column is column 0 of y. */
typedef struct skv_linear_args {
    const skv_linear *w;
    size_t part0, part1; /* 0, 0: all */
    float *y;            /* [n_rows, ldy] */
    size_t ldy;
    const float *x; /* [*, ldx] */
    size_t ldx;
    const uint32_t *rows; /* [n_rows] or NULL */
    size_t n_rows;
    skv_norm norm;
    skv_epilogue epilogue;
    float limit, alpha; /* CLAMPED */
} skv_linear_args;

/* One of several products that run at once, each with rows of its own. */
typedef struct skv_linear_group {
    const skv_linear *w;
    size_t row0, n_rows;
} skv_linear_group;

/* x[i, :] += sum_j weights[i, j] * y[places[i, j], :] for i < n_rows, in the order of j. */
typedef struct skv_mix_args {
    float *x;       /* [n_rows, n] */
    const float *y; /* [*, n] */
    size_t n_rows, n, n_terms;
    const float *weights;   /* [n_rows, n_terms], the host's */
    const uint32_t *places; /* [n_rows, n_terms], the host's */
    bool store;             /* x is the sum, whatever it was */
} skv_mix_args;

/* Head-wise norm, then rotation, in place: q[i, h, :] for i < n_rows, h < n_heads. */
typedef struct skv_rotate_args {
    float *q; /* [n_rows, ldq] */
    size_t ldq;
    size_t n_rows, n_heads, head_dim, n_rot;
    const float *cos, *sin; /* [T, n_rot / 2]: row rows[i] belongs to q's row i */
    const uint32_t *rows;   /* [n_rows] or NULL */
    skv_norm norm;          /* over head_dim, or joined */
} skv_rotate_args;

/* Norm and rotation of k, then k and v go to the cache. Row i of k belongs to step row i. */
typedef struct skv_store_args {
    float *k;       /* [n_rows, ld]; changed in place */
    const float *v; /* [n_rows, ld] */
    size_t ld;
    size_t n_rows, n_heads, head_dim, n_rot;
    const float *cos, *sin; /* [n_rows, n_rot / 2] */
    skv_norm norm;          /* of k, over head_dim, or joined */
    float v_eps; /* of v's norm over head_dim, which has no weight; 0: none. v may be k then */
    /* Page p of head h of step row i's sequence is tables[i][h * table_stride + p]. */
    void *const *const *tables; /* [n_rows] */
    size_t table_stride;
    const size_t *kv_rows; /* [n_rows]: the row's place in its sequence */
    /* dropped[i][h] fewer in head h's pages, where rows were evicted; dropped[i] NULL: none. */
    const size_t *const *dropped; /* [n_rows] */
    /* Each head is stored so many times, under the heads h * n_copies .. of tables and dropped. */
    size_t n_copies;
    skv_kv_type type;
} skv_store_args;

/* A run of consecutive tokens of one sequence, for attention. */
typedef struct skv_attention_item {
    size_t row0;           /* first row of q and out */
    size_t n_q;            /* tokens */
    size_t n_past;         /* rows before the first of them, */
    const size_t *dropped; /* of which head h lacks dropped[h]; NULL: none */
    void *const *table;    /* page p of head h: table[h * table_stride + p] */
    bool follows; /* the next token of the item before; both have n_q = 1 and are computed as if
                   * each were the only one of its sequence, so a draft changes no bit */
} skv_attention_item;

typedef struct skv_attention_args {
    float *out;     /* [n_rows, ld_out] */
    const float *q; /* [n_rows, ld_q] */
    size_t ld_out, ld_q;
    const skv_attention_item *items;
    size_t n_items;
    size_t table_stride;
    size_t n_heads, n_kv_heads, head_dim;
    skv_kv_type type;
    size_t window;
    float scale, softcap;
    const float *sinks; /* [n_heads] or NULL */
} skv_attention_args;

/*
 * Votes: what consecutive tokens of one sequence attend to, added up by cached row. For query head
 * g, token j and cached row r:  votes[g or its KV head][r] += softmax_r(s[j, :]), with s as in
 * attention, in f32, over all rows that token j sees. Tokens are added in order.
 */
typedef struct skv_votes_args {
    const float *q; /* [n_q, ld_q], rotated */
    size_t ld_q, n_q;
    size_t n_past;         /* rows before the first token, */
    const size_t *dropped; /* of which KV head h lacks dropped[h]; NULL: none */
    void *const *table;    /* page p of KV head h: table[h * table_stride + p] */
    size_t table_stride;
    size_t n_heads, n_kv_heads, head_dim;
    skv_kv_type type;
    size_t window; /* rows that a token sees, its own included; 0: all */
    float scale, softcap;
    const float *sinks; /* [n_heads] or NULL: what they take is nobody's vote */
    float *votes;       /* [heads][votes_stride], the host's */
    size_t votes_stride;
    bool by_query_head; /* votes are kept for each query head, not for each KV head */
    float *norms;       /* scratch, [n_q][n_heads], the back end's */
} skv_votes_args;

/* Row i of page `to` becomes row rows[i] of the pages `from`: see skv_kv_page_gather. */
typedef struct skv_gather_kv_args {
    void *to;
    void *const *from;
    const uint32_t *rows; /* [n], ascending */
    size_t n;
    skv_kv_type type;
    size_t head_dim;
} skv_gather_kv_args;

/* y[i, :] = norm(x[i, :]) for i < n_rows; y may be x. */
typedef struct skv_norm_args {
    float *y;       /* [n_rows, n] */
    const float *x; /* [n_rows, n] */
    size_t n_rows, n;
    skv_norm norm;
} skv_norm_args;

/* x[i, :] = (x[i, :] + norm(y[i, :])) * scale for i < n_rows (Gemma's norms behind a block). */
typedef struct skv_norm_add_args {
    float *x; /* [n_rows, n] */
    float *y; /* [n_rows, n]; overwritten by its normed self */
    size_t n_rows, n;
    skv_norm norm;
    float scale; /* 0: 1 */
} skv_norm_add_args;

/* y[i, :] = act(x[i, 0..n)) * x[i, n..2n) for i < n_rows: what the epilogue of a paired product
 * does. */
typedef struct skv_glu_args {
    float *y; /* [n_rows, ldy] */
    size_t ldy;
    const float *x; /* [n_rows, 2 n] */
    size_t n_rows, n;
    skv_epilogue epilogue; /* SILU_GLU or GELU_GLU */
} skv_glu_args;

/* gate[i, :] = gelu_tanh(gate[i, :]) * (norm(part[i, :]) + token[rows[i], :]) / sqrt(2) for i <
 * n_rows (Gemma 4's per-layer embeddings). */
typedef struct skv_embed_gate_args {
    float *gate;        /* [n_rows, n] */
    float *part;        /* [n_rows, n]; overwritten */
    const float *token; /* [*, ld_token] */
    size_t ld_token;
    const uint32_t *rows; /* [n_rows] or NULL */
    size_t n_rows, n;
    skv_norm norm;
} skv_embed_gate_args;

/* The largest sizes a back end must be ready for. */
typedef struct skv_backend_limits {
    size_t max_rows;  /* T of a step */
    size_t max_K;     /* longest product */
    size_t max_heads; /* query heads of a layer */
    size_t head_dim;
    size_t max_group;      /* query heads to a KV head */
    size_t max_kv_rows;    /* longest sequence */
    size_t max_groups;     /* of linear_groups; 0: it is not called */
    size_t max_group_rows; /* rows of all of them */
    /* Results of a row do not depend, by one bit, on the rows that are computed beside it. */
    bool batch_invariant;
} skv_backend_limits;

/* What the host does with memory that it has mapped. */
typedef enum skv_map_access {
    SKV_MAP_READ = 1,
    SKV_MAP_WRITE = 2, /* all of it: what was there need not be */
    SKV_MAP_BOTH = 3
} skv_map_access;

struct skv_backend {
    const char *name;
    const char *level; /* of its kernels: "avx512" */
    void (*free)(skv_backend *be);
    /* Memory that starts as zeros and costs nothing until it is touched. */
    void *(*alloc)(skv_backend *be, size_t n_bytes);
    void (*release)(skv_backend *be, void *block, size_t n_bytes);
    void (*put)(skv_backend *be, void *dst, const void *host, size_t n_bytes);
    void (*get)(skv_backend *be, void *host, const void *src, size_t n_bytes);
    void (*copy)(skv_backend *be, void *dst, const void *src, size_t n_bytes);
    /* Host memory that stands for n_bytes from `at` on until it is unmapped, which comes before any
     * operation on them. The CPU's is `at` itself. */
    void *(*map)(skv_backend *be, const void *at, size_t n_bytes, skv_map_access access);
    void (*unmap)(skv_backend *be, const void *host);
    /* Takes the working memory of every operation below. */
    skv_status (*reserve)(skv_backend *be, const skv_backend_limits *limits, skv_error *err);
    skv_bytes (*reserve_bytes)(const skv_backend *be, const skv_backend_limits *limits);
    /* Weights: what they will take, and the packed form. */
    skv_bytes (*linear_bytes)(const skv_backend *be, const skv_linear_spec *spec);
    skv_status (*linear_create)(skv_backend *be, const skv_linear_spec *spec, skv_linear **out,
                                skv_error *err);
    void (*linear_free)(skv_backend *be, skv_linear *w);
    /* Operations. */
    void (*linear)(skv_backend *be, const skv_linear_args *args);
    /* The products of all groups, which share K and N, all parts: group g has rows [row0, row0 +
     * n_rows) of args->y and of args->rows or, without these, of args->x. */
    void (*linear_groups)(skv_backend *be, const skv_linear_args *args,
                          const skv_linear_group *groups, size_t n_groups);
    void (*mix)(skv_backend *be, const skv_mix_args *args);
    void (*rotate)(skv_backend *be, const skv_rotate_args *args);
    void (*store)(skv_backend *be, const skv_store_args *args);
    void (*attention)(skv_backend *be, const skv_attention_args *args);
    void (*votes)(skv_backend *be, const skv_votes_args *args);
    void (*gather_kv)(skv_backend *be, const skv_gather_kv_args *args);
    void (*norm)(skv_backend *be, const skv_norm_args *args);
    void (*norm_add)(skv_backend *be, const skv_norm_add_args *args);
    void (*glu)(skv_backend *be, const skv_glu_args *args);
    void (*embed_gate)(skv_backend *be, const skv_embed_gate_args *args);
    /* x[i, :] = x[rows[i], :] for i < n_rows, rows ascending, in place. */
    void (*gather)(skv_backend *be, float *x, size_t n, const uint32_t *rows, size_t n_rows);
    /* x[i] *= factor. */
    void (*scale)(skv_backend *be, float *x, size_t n, float factor);
    /* x[i] = cap * tanh(x[i] / cap). */
    void (*softcap)(skv_backend *be, float *x, size_t n, float cap);
    /* Rows x [n, K] as bytes of the host, n times row_bytes of them, and back: a product with
     * weights of this type has the same result for x and for what comes back, to the bit. */
    size_t (*row_bytes)(const skv_backend *be, skv_weight_type type, size_t K);
    void (*save_rows)(skv_backend *be, skv_weight_type type, unsigned char *host, const float *x,
                      size_t n, size_t K);
    void (*load_rows)(skv_backend *be, skv_weight_type type, float *x, const unsigned char *host,
                      size_t n, size_t K);
};

/* ---- creating one ---- */

typedef struct skv_backend_options {
    const char *device;  /* "cpu"; NULL: the same */
    skv_pool *threads;   /* the host's, which "cpu" computes on; borrowed until `free` */
    skv_cpu_level level; /* of the processor's kernels */
} skv_backend_options;

/** SKV_UNSUPPORTED: there is no such device, or it cannot be used here. */
SKV_MUST_CHECK skv_status skv_backend_create(const skv_backend_options *options, skv_backend **out,
                                             skv_error *err);

#endif
