/*
 * Where tensors live and who computes: one small table of functions, which model/, prefill/ and
 * engine/ call without knowing which back end runs them.
 *
 * MEMORY   Tensors lie in areas, and an operation names rows of one: which memory stands behind an
 *          area, and how large its elements are, only the back end knows. `map` makes rows the
 *          host's for a while. Keys and values lie in pages of a pool, which have numbers: which
 *          are free, shared or in whose sequence is the caller's to know. Lists of rows and counts
 *          are the host's.
 * LISTS    Host memory that a call reads or fills is used before it returns: the caller may change
 *          it at once. Two functions fill memory later, which belongs to the back end until then:
 *          pages_read until pages_done, save_rows until step_wait.
 * ORDER    Operations run one after the other, started by one thread at a time. They may return
 *          before they are done: `map` for reading, page_map and step_wait wait. They cannot fail:
 *          all sizes are checked and all memory is taken beforehand.
 *
 * STEP     A step works on T rows of any number of sequences. It is described once, before its
 *          first operation: which rows go on, where they are in their sequences, how attention
 *          takes them. Operations name the step and a set of its rows.
 */
#ifndef SKV_BACKEND_H
#define SKV_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/bytes.h"
#include "backend/page_specs.h"
#include "backend/pick.h"
#include "backend/rank_sums.h"
#include "backend/turn_job.h"
#include "base/fail.h"
#include "base/quant.h"
#include "base/size.h"
#include "kernels/cpu.h"
#include "kernels/experts.h"
#include "kernels/kv_page.h"

typedef struct skv_backend skv_backend;
typedef struct skv_area skv_area; /* memory for a tensor */
typedef struct skv_linear skv_linear;
typedef struct skv_experts skv_experts; /* matrices of the experts of a layer, as one argument */
typedef struct skv_embedding skv_embedding; /* a table of embeddings, a row for each id */
/* skv_page_pool (page_specs.h): pages. */
typedef struct skv_slots skv_slots;   /* how the KV slots of a plan lie in pages */
typedef struct skv_table skv_table;   /* the pages of one sequence */
typedef struct skv_states skv_states; /* states of linear attention of some sequences */
/* skv_angles (turn_job.h): cosines and sines of one rotary embedding. */
typedef struct skv_backend_step skv_backend_step; /* the rows of a step and all lists about them */

/* ---- areas and rows ---- */

typedef enum skv_area_kind {
    SKV_AREA_F32,        /* floats of 4 bytes on every back end: x, logits, norm weights */
    SKV_AREA_ACTIVATIONS /* the type that the back end chooses: f32 on the processor */
} skv_area_kind;

typedef struct skv_area_spec {
    skv_area_kind kind;
    size_t n_rows, n_columns; /* room for n_rows * n_columns elements */
    bool moves;               /* `gather` compacts it: a device may keep two copies and swap them */
    bool lasts; /* it outlives steps; else it is undefined where a step begins beside no other */
} skv_area_spec;

/* Row i is at element `at` + i * `ld` of the area: elements, whatever their size. Rows may have any
 * length, and lie within the area's elements. area NULL: there are none. */
typedef struct skv_rows {
    skv_area *area;
    size_t at, ld;
} skv_rows;

/* A vector in an F32 area. area NULL: there is none. */
typedef struct skv_vec {
    const skv_area *area;
    size_t at;
} skv_vec;

/** The same rows from row `row` and column `column` on. */
static inline skv_rows skv_rows_from(skv_rows rows, size_t row, size_t column)
{
    rows.at += row * rows.ld + column;
    return rows;
}

/** Rows of another length from the same element on. */
static inline skv_rows skv_rows_as(skv_rows rows, size_t ld)
{
    rows.ld = ld;
    return rows;
}

/* How the host uses rows that it has mapped. */
typedef enum skv_map_access {
    SKV_MAP_READ = 1,
    SKV_MAP_WRITE = 2, /* every element of them; the old contents may be lost */
    SKV_MAP_BOTH = 3
} skv_map_access;

/* Rows as the host sees them: always f32. */
typedef struct skv_mapped {
    float *at; /* [n_rows, ld] */
    size_t ld; /* n, where n columns of rows that stand close together were mapped */
} skv_mapped;

/* ---- keys and values: page_specs.h ---- */

/* Pages on their way to the host. 0: they have arrived. */
typedef uint64_t skv_ticket;

/* ---- a step ---- */

/* Angles of one rotary embedding, by position, and by the length that a sequence was made for. */
typedef struct skv_angles_spec {
    /* cos, sin [n] of one position. Called by several threads at once, while a step is described.
     */
    void (*angles)(const void *ctx, size_t position, size_t context, float *cos, float *sin);
    const void *ctx; /* borrowed until angles_free */
    size_t n;        /* half as many as numbers of a head that are rotated */
} skv_angles_spec;

/* Rows of a step are numbered through all of its spans, 0..T-1, and a set is an ascending list of
 * them. x has the rows of one set at a time: `gather` and step_choose leave it with fewer. */
typedef enum skv_row_set {
    SKV_SET_ALL,    /* every row */
    SKV_SET_KEPT,   /* rows that go on beyond the plan's last boundary */
    SKV_SET_WANTED, /* rows whose output is wanted; of KEPT */
    SKV_SET_TAPS,   /* KEPT, and rows whose part of a convolution KEPT or a later step needs */
    SKV_SET_CHOSEN, /* rows that a hook has left: step_choose */
    SKV_SET_COUNT
} skv_row_set;

/* Consecutive new tokens of one sequence. */
typedef struct skv_backend_span {
    size_t n;         /* rows, at least 1 */
    size_t n_past;    /* rows of the sequence before the first of them, evicted ones included: row i
                       * of the span is row n_past + i of the sequence */
    size_t position0; /* true position of the first */
    size_t context;   /* the length that the sequence was made for */
    /* Borrowed until step_wait; all of a step have the same slots. NULL, in all of them: the step
     * has no keys and values. */
    const skv_table *table;
    /* Where a layer keeps a state: the sequence's, and how many of the last rows may be taken back
     * by a later span, whose n_past is smaller by up to as much (drafts). Otherwise n_past is where
     * the span before ended. Every layer's conv and scan see every row of a sequence once, in
     * order. A span with n_past 0 begins anew, whatever the state holds. Spans of a step have
     * different states. */
    size_t state, n_undo;
} skv_backend_span;

/* A run of consecutive tokens of one sequence, for attention. */
typedef struct skv_attention_item {
    size_t row0;   /* its first row in the set */
    size_t n_q;    /* tokens, whose rows follow each other in their span */
    size_t n_past; /* rows of the sequence before the first of them, evicted ones included */
    size_t span;
    bool follows; /* the next token of the item before; both have n_q = 1 and are computed as if
                   * each were the only one of its sequence, so a draft changes no bit */
} skv_attention_item;

typedef struct skv_set_spec {
    const uint32_t *rows; /* [n_rows], ascending; NULL: 0..n_rows-1 */
    size_t n_rows;        /* may be 0 */
    /* [n_items], in the order of rows, each of which is in one. WANTED and TAPS need none. */
    const skv_attention_item *items;
    size_t n_items;
} skv_set_spec;

enum { SKV_STEP_ANGLES = 2 }; /* that a step can have */

typedef struct skv_backend_step_spec {
    const skv_backend_span *spans; /* [n_spans], at least one */
    size_t n_spans;
    const uint32_t *positions;        /* [T] in place of position0 + i; NULL: those */
    const int32_t *ids;               /* [T], which `embed` reads; NULL: it is not called */
    skv_set_spec sets[SKV_SET_COUNT]; /* ALL has every row; CHOSEN is not looked at */
    const skv_angles *angles[SKV_STEP_ANGLES]; /* [n_angles]: operations name them by index */
    size_t n_angles;
    /* A step under way, with rows at the same positions in sequences of the same contexts: angles
     * that both have are taken from it. It ends later. NULL: there is none. */
    const skv_backend_step *angles_of;
    /* A decoding step that only step_wait will interrupt. Its operations have the same arguments as
     * those of the last such step with as many rows, in as many spans, of the same slots: a device
     * may replay a recording of their launches. */
    bool repeats;
} skv_backend_step_spec;

/* The largest step that a skv_backend_step is for. */
typedef struct skv_backend_step_limits {
    size_t max_rows;      /* T */
    size_t angle_columns; /* n of all angles of a step together */
    size_t max_picks;     /* picked rows that a step has at a time */
    size_t max_numbers;   /* n_top and n_ids of all of these together */
} skv_backend_step_limits;

/* ---- weights ---- */

typedef enum skv_weight_type {
    SKV_WEIGHT_F32,
    SKV_WEIGHT_BF16,
    SKV_WEIGHT_I8,
    SKV_WEIGHT_QUANT,     /* codes as a file holds them, or rounded to skv_quant_form_int4 */
    SKV_WEIGHT_QUANT_F32, /* the same beside rows of f32: slow, for comparing */
    SKV_WEIGHT_FP8 /* e4m3, with the file's scales or one for each row: where `fits` has it */
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
    /* Rows that are e4m3 already: columns that share a scale, K or a power of two from 32 on, and
     * what reads them where weights are FP8. 0: there are none. */
    size_t fp8_group;
    void (*read_fp8)(const void *ctx, size_t row0, size_t n, uint8_t *codes /* [n, K] */,
                     float *scales /* [n, ceil(K / fp8_group)] */);
    size_t layer; /* that multiplies by these rows; the model's number of layers: the last of all */
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
    SKV_EPILOGUE_RELU2,    /* y = max(c + bias, 0)^2; not of a paired W */
    SKV_EPILOGUE_SILU_GLU, /* paired only: y = silu(gate) * up */
    SKV_EPILOGUE_GELU_GLU, /* paired only: y = gelu_tanh(gate) * up */
    SKV_EPILOGUE_CLAMPED   /* paired only: skv_config.swiglu_limit says what of gate and up */
} skv_epilogue;

/* RMSNorm before a product or after a block. weight.area NULL: none. */
typedef struct skv_norm {
    skv_vec weight; /* [n] */
    float offset;   /* 0, or 1 for Gemma */
    float eps;
    bool joined; /* of heads: over all of them together, weight [n_heads * head_dim] */
} skv_norm;

/* y[i, :] = epilogue(norm(x[i, :]) W^T) for i < n_rows; parts [part0, part1) of W, whose first
 * column is column 0 of y. */
typedef struct skv_linear_args {
    const skv_linear *w;
    size_t part0, part1; /* 0, 0: all */
    skv_rows y;          /* [n_rows, columns of the parts] */
    skv_rows x;          /* [n_rows, K]; does not overlap y */
    size_t n_rows;
    /* With a step, x is [T, K], n_rows is that of `set`, and row i of it is read where x[i, :] is.
     * NULL: none. */
    const skv_backend_step *step;
    skv_row_set set;
    skv_norm norm;
    skv_epilogue epilogue;
    float limit, alpha; /* CLAMPED */
} skv_linear_args;

/* Which experts each row meets, and what each counts there (kernels/experts.h). The result is the
 * back end's, until the next `route`: experts_linear and mix go by it. */
typedef struct skv_route_args {
    skv_rows logits; /* F32 [n_rows, n_experts]; a column more with shared_gate */
    size_t n_rows;
    skv_experts_choice how;
    skv_vec bias;         /* [n_experts], added to sigmoids for the choice alone; or none */
    skv_vec expert_scale; /* [n_experts], times the weight of each expert; or none */
    bool shared;          /* an expert that every row meets is the last term of its sum, times 1 */
    bool shared_gate;     /* or times sigmoid(logits[i, n_experts]) */
} skv_route_args;

/* The products of all pairs of row and expert of the last `route`: row p of y is that of pair p,
 * and pairs are sorted by expert, then by row. All matrices have one shape. */
typedef struct skv_experts_args {
    const skv_experts *w; /* of as many experts as `route` chose from */
    skv_rows y;           /* [n_rows * n_active, columns] */
    skv_rows x;           /* [n_rows * n_active, K], by pair; does not overlap y */
    bool by_row;          /* x is [n_rows, K]: of each pair its row */
    skv_norm norm;
    skv_epilogue epilogue;
    float limit, alpha; /* CLAMPED */
} skv_experts_args;

/* x[i, :] += the sum over the experts of row i by the last `route`, the first chosen first, of its
 * weight times y[pair, :]. The shared expert's row is y[n_rows * n_active + i, :], the last term.
 */
typedef struct skv_mix_args {
    skv_rows x; /* [n_rows, n] */
    skv_rows y; /* [n_rows * n_active, n], and n_rows more with a shared expert */
    size_t n;
    bool store; /* x is the sum, whatever it was */
} skv_mix_args;

/* Norm and rotation of q, in place. Norm and rotation of k and norm of v, which then go to the
 * cache. Either half may be absent. */
typedef struct skv_place_args {
    const skv_backend_step *step;
    size_t head_dim;
    skv_rows q; /* [rows of `set`, n_heads * head_dim] or none */
    skv_row_set set;
    size_t n_heads;
    skv_norm q_norm; /* over head_dim, or joined */
    size_t q_angles; /* of the step's */
    skv_rows k, v;   /* [T, n_kv_heads * head_dim] or none: of all rows of the step; k is undefined
                      * afterwards. v may be k where v_eps is not 0 */
    size_t n_kv_heads;
    skv_norm k_norm;
    size_t k_angles;
    float v_eps;     /* of v's norm over head_dim, which has no weight; 0: none */
    size_t slot;     /* where k and v go */
    size_t n_copies; /* each head is stored so many times, as heads h * n_copies .. of the slot */
} skv_place_args;

/* out[i, :] = the attention of row i of `set` to the rows of `slot` that it sees. */
typedef struct skv_attention_args {
    const skv_backend_step *step;
    skv_row_set set;          /* with an item at least */
    skv_rows out, q;          /* [rows of `set`, n_heads * head_dim] */
    size_t slot;              /* KV heads are its tracks */
    size_t n_heads, head_dim; /* query heads */
    size_t window;            /* rows that a token sees, its own included; 0: all */
    float scale, softcap;
    skv_vec sinks; /* [n_heads] or none */
} skv_attention_args;

/*
 * Votes: what consecutive tokens of one sequence attend to, added up by cached row. For query head
 * g, token j and cached row r:  votes[g or its KV head][r] += softmax_r(s[j, :]), with s as in
 * attention, in f32, over all rows that token j sees. Tokens are added in order.
 */
typedef struct skv_votes_args {
    const skv_backend_step *step;
    skv_row_set set;
    size_t item;     /* of the set: its tokens [first, first + n) vote */
    size_t first, n; /* n at least 1 */
    skv_rows q;      /* [rows of `set`, n_heads * head_dim], rotated */
    size_t slot;     /* KV heads are its tracks */
    size_t n_heads, head_dim;
    size_t window; /* rows that a token sees, its own included; 0: all */
    float scale, softcap;
    skv_vec sinks;      /* [n_heads] or none: their share counts for no row */
    skv_rows votes;     /* F32 [heads, rows of the sequence], added to */
    bool by_query_head; /* a row of votes for each query head, not for each KV head */
} skv_votes_args;

/* y[i, :] = norm(x[i, :]) for i < n_rows; y may be x. */
typedef struct skv_norm_args {
    skv_rows y, x; /* [n_rows, n] */
    size_t n_rows, n;
    skv_norm norm;
} skv_norm_args;

/* x[i, :] = (x[i, :] + norm(y[i, :])) * scale for i < n_rows (Gemma's norms after a block). */
typedef struct skv_norm_add_args {
    skv_rows x; /* F32 [n_rows, n] */
    skv_rows y; /* [n_rows, n]; undefined afterwards */
    size_t n_rows, n;
    skv_norm norm;
    float scale; /* 0: 1 */
} skv_norm_add_args;

/* y[i, :] = act(x[i, 0..n)) * x[i, n..2n) for i < n_rows: what the epilogue of a paired product
 * does. */
typedef struct skv_glu_args {
    skv_rows y; /* [n_rows, n] */
    skv_rows x; /* [n_rows, 2 n] */
    size_t n_rows, n;
    skv_epilogue epilogue; /* SILU_GLU or GELU_GLU */
} skv_glu_args;

/* gate[i, :] = gelu_tanh(gate[i, :]) * (norm(part[i, :]) + token[t, :]) / sqrt(2) for row i of
 * `set`, which is step row t (Gemma 4's per-layer embeddings). */
typedef struct skv_embed_gate_args {
    const skv_backend_step *step;
    skv_row_set set;
    skv_rows gate;  /* [rows of `set`, n] */
    skv_rows part;  /* [rows of `set`, n]; undefined afterwards */
    skv_rows token; /* F32 [T, n] */
    size_t n;
    skv_norm norm;
} skv_embed_gate_args;

/* ---- linear attention: states, short convolution, scan ----
 *
 * A layer of linear attention keeps a state of fixed size of a sequence in place of its keys and
 * values. For each value head that is a matrix S [key_dim, value_dim], zero before the first row.
 * Row t changes it and reads it; k, q, v are of the row, alpha and beta numbers of row and head:
 *
 *   gated delta rule (Yang et al., Gated Delta Networks, 2024, equation 10):
 *       S <- alpha S;  u = beta (v - S^T k);  S <- S + k u^T;  o = S^T q
 *       alpha = exp(rate softplus(a + dt_bias)), beta = write_max sigmoid(b),
 *       k and q normalised: x / sqrt(x.x + 1e-6); q times key_dim^-1/2 besides
 *   Mamba-2 (Dao and Gu, Transformers are SSMs, 2024, section 3; B is k, C is q, x is v):
 *       S <- alpha S + B (dt x)^T;  y = S^T C + skip x
 *       dt = clamp(softplus(a + dt_bias)), alpha = exp(rate dt)
 *
 * All of it is f32, but for S between blocks where it is kept in bfloat16. With SKV_PROMISE_CUTS a
 * row's bits do not depend on how its sequence is cut into steps, nor on what is computed beside it
 * (docs/explanation/kernels.md); without it that holds in spans of up to 15 rows alone.
 *
 * In front of it stands a causal convolution of each channel over the newest conv_taps rows, whose
 * inputs are kept too.
 */

typedef enum skv_scan_kind {
    SKV_SCAN_NONE, /* the layer has a convolution alone (LFM2) */
    SKV_SCAN_GATED_DELTA,
    SKV_SCAN_MAMBA2
} skv_scan_kind;

enum {
    SKV_CONV_TAPS_MAX = 8,   /* conv_taps */
    SKV_STATE_DIM_MAX = 512, /* key_dim and value_dim */
    SKV_STATE_UNDO_MAX = 48  /* max_undo: drafts are shorter */
};

/* The state of a sequence in one layer. */
typedef struct skv_state_layer {
    skv_scan_kind kind;
    /* n_value_heads is a multiple of n_key_heads. Mamba-2: groups, heads, d_state, d_head. */
    size_t n_key_heads, n_value_heads, key_dim, value_dim;
    /* Value head h has key head h % n_key_heads (GGUF of qwen35); else h / (n_value / n_key). */
    bool tiled;
    size_t conv_columns, conv_taps; /* channels, and K of the convolution; 0: none */
    size_t layer;                   /* of the model */
} skv_state_layer;

typedef struct skv_states_spec {
    const skv_state_layer *layers; /* [n_layers] */
    size_t n_layers;
    size_t n_states; /* numbered from 0: one for each sequence or kept beginning */
    size_t max_undo; /* the largest n_undo of a span */
    bool bf16;       /* S is kept in bfloat16: rounded whenever a block of rows is folded into it */
} skv_states_spec;

/*
 * y[i, c] = act(bias[c] + sum_j weight[j, c] u_{t-K+1+j}[c]) (* gate_out[i, c]) for row i of `set`,
 * which is step row t; u = x (* gate_in), zero before the sequence's first row. Without a bias the
 * sum begins with tap 0. State: the last K - 1 u.
 *
 * A step may leave out u of rows that nobody needs: x then has the rows of `given`, among them the
 * K - 1 rows before each of `set`, and the last K - 1 + n_undo of each span.
 */
typedef struct skv_conv_args {
    const skv_backend_step *step; /* its spans say which state is whose */
    skv_row_set set;              /* without rows: the states advance, and nothing comes out */
    skv_states *states;
    size_t layer;
    size_t column0, n; /* channels [column0, column0 + n) of the layer */
    skv_row_set given; /* ALL, or TAPS */
    skv_rows x;        /* [rows of `given`, n] */
    skv_rows gate_in;  /* [rows of `given`, n] or none */
    skv_rows newest;   /* [rows of `set`, n] or none: in place of u_t itself, in the sum alone */
    skv_rows y; /* [rows of `set`, n]: x, where rows and columns are the same, newest, or apart */
    skv_rows gate_out; /* [rows of `set`, n] or none */
    skv_vec weight;    /* [K, n] */
    skv_vec bias;      /* [n] or none */
    bool silu;         /* act; else none */
} skv_conv_args;

/* The recurrence above over every row of each span, from its state and into it, with outputs for
 * the rows of `set`. */
typedef struct skv_scan_args {
    const skv_backend_step *step; /* its spans say which state is whose */
    skv_row_set set;              /* without rows: the states advance, and nothing comes out */
    skv_states *states;
    size_t layer;
    skv_rows q;      /* [rows of `set`, n_key_heads * key_dim], before normalisation; Mamba-2: C */
    skv_rows k;      /* [T, n_key_heads * key_dim], the same; Mamba-2: B */
    skv_rows v;      /* [T, n_value_heads * value_dim]; Mamba-2: x */
    skv_rows decay;  /* F32 [T, n_value_heads]: a; Mamba-2: dt as projected */
    skv_rows write;  /* F32 [T, n_value_heads]: b; Mamba-2: none */
    skv_rows out;    /* [rows of `set`, n_value_heads * value_dim], apart from the inputs */
    skv_vec rate;    /* [n_value_heads]: -exp(A_log), at most 0 */
    skv_vec dt_bias; /* [n_value_heads] */
    skv_vec skip;    /* [n_value_heads]: D; none with the delta rule */
    float dt_min, dt_max; /* Mamba-2's limits of dt; dt_max 0: no upper one */
    float write_max;      /* of the delta rule: 1, or 2 (negative eigenvalues) */
} skv_scan_args;

/*
 * By groups of n columns, in place, for i < n_rows:
 *     x[i, g, :] = norm(x[i, g, :]) * act(z[i, g, :])     or, with gate_first,
 *     x[i, g, :] = norm(x[i, g, :] * act(z[i, g, :]))
 * Without a weight there is no norm: x *= act(z), as after the attention of Qwen3.5.
 */
typedef struct skv_gated_norm_args {
    skv_rows x, z; /* [n_rows, n_groups * n] */
    size_t n_rows, n_groups, n;
    skv_norm norm;         /* over n; `joined` is not looked at */
    bool weight_per_group; /* the weight is [n_groups * n], not [n] for every group */
    bool sigmoid;          /* act is the sigmoid; else silu */
    bool gate_first;
} skv_gated_norm_args;

/* The largest sizes a back end must be ready for. */
typedef struct skv_backend_limits {
    size_t max_rows;  /* T of a step */
    size_t max_K;     /* longest product */
    size_t max_heads; /* query heads of a layer */
    size_t head_dim;
    size_t max_group;   /* query heads to a KV head */
    size_t max_kv_rows; /* longest sequence */
    size_t max_experts; /* of a layer; 0: `route` is not called */
    size_t max_active;  /* experts of a row */
    skv_backend_ranks ranks;
    /* The largest key_dim and value_dim of a scan; 0: it is not called. */
    size_t state_key_dim, state_value_dim;
    size_t vocab; /* longest row of logits; 0: nothing is picked */
    /* Results of a row do not depend, by one bit, on the rows that are computed beside it. Only
     * with SKV_PROMISE_INVARIANT. */
    bool batch_invariant;
    bool unpacks; /* some weights are codes: I8, QUANT or FP8 */
} skv_backend_limits;

/* Promises to the bit. src/engine/combine.c lists the methods that need them. */
enum {
    SKV_PROMISE_REPEATS = 1, /* the same calls on the same memory have the same results */
    SKV_PROMISE_SINGLY = 2,  /* skv_attention_item.follows: a draft's tokens are those of steps of
                              * their own; else the engine leaves it false, and
                              * answers with drafts differ by rounding */
    SKV_PROMISE_ROWS = 4,    /* a product of load_rows' rows is that of the rows that were saved */
    SKV_PROMISE_CUTS = 8,    /* a prompt is the same in any chunks */
    SKV_PROMISE_INVARIANT = 16, /* skv_backend_limits.batch_invariant can be had */
    SKV_PROMISE_ALL = 31
};

/* Requests that a back end may refuse. */
typedef struct skv_backend_shape {
    const skv_backend_limits *limits;
    size_t least_head_dim; /* the narrowest of any layer; 0: limits->head_dim */
    skv_weight_type weights;
    skv_kv_type kv;
    bool adapters;
    bool states; /* layers of linear attention */
} skv_backend_shape;

struct skv_backend {
    const char *name;  /* of the device: "cpu" */
    const char *level; /* of its kernels: "avx512" */
    const char *form;  /* of their products, each choice: "amx-few, amx-q"; NULL: none */
    const char *capability, *activations, *sums; /* "9.0", "bf16", "copies"; or NULL */
    unsigned promises;                           /* SKV_PROMISE_* */
    size_t n_nodes; /* memory nodes that pages are divided among (skv_node_pages); 0: one */
    /* Tables of embeddings lie here, and `embed` reads them. Else the host writes rows by `map` (a
     * table would be a copy of the file's pages), and the functions of skv_embedding are NULL. */
    bool keeps_embeddings;
    /* A back end of two (split/split.h): layers before this one are the first's. A slot's `sides`
     * has bit 0 where such a layer reads it and bit 1 where another does, its pages come from that
     * range, and no product has parts of both. 0: the back end is one. */
    size_t first_layers;
    void (*free)(skv_backend *be);

    /* -- before anything is created -- */

    /* SKV_UNSUPPORTED names the first thing that it cannot do. Where it refuses mixtures of
     * experts, or states, the functions of these are NULL: experts_* and route, experts_linear and
     * mix; states_* and state_*, conv, scan and gated_norm. */
    skv_status (*fits)(const skv_backend *be, const skv_backend_shape *shape, skv_error *err);
    /* Bytes that may be taken. `device` is 0 where memory is the host's alone. */
    skv_bytes (*available)(const skv_backend *be);

    /* -- areas -- */

    /* All n areas or none, in one block, placed so that equal rows of two of them do not compete
     * for the same lines of a cache. They begin as zeros and cost nothing until they are touched.
     */
    skv_status (*areas_create)(skv_backend *be, const skv_area_spec *specs, size_t n,
                               skv_area **out /* [n] */, skv_error *err);
    /* Areas [n] as they were created together. All NULL: nothing happens. */
    void (*areas_free)(skv_backend *be, skv_area **areas, size_t n);
    skv_bytes (*areas_bytes)(const skv_backend *be, const skv_area_spec *specs, size_t n);
    /* Host memory that stands for n_rows rows of n columns until unmap, which comes before any
     * operation on the area. READ and BOTH hold what all operations so far have computed. The
     * processor returns its own memory. */
    skv_mapped (*map)(skv_backend *be, skv_rows rows, size_t n_rows, size_t n,
                      skv_map_access access);
    void (*unmap)(skv_backend *be, skv_mapped mapped);

    /* -- pages and tables -- */

    /* n_pages pages of page_bytes, numbered from 0. They begin as zeros and cost nothing until they
     * are touched. */
    skv_status (*pool_create)(skv_backend *be, size_t page_bytes, size_t n_pages,
                              skv_page_pool **out, skv_error *err);
    /* SIZE_MAX: more than can be counted. */
    skv_bytes (*pool_bytes)(const skv_backend *be, size_t page_bytes, size_t n_pages);
    /* The same of a back end of two, with so many pages of each range; else NULL. */
    skv_status (*pool_create_in)(skv_backend *be, size_t page_bytes,
                                 const size_t n_pages[SKV_PAGE_RANGES], skv_page_pool **out,
                                 skv_error *err);
    skv_bytes (*pool_bytes_in)(const skv_backend *be, size_t page_bytes,
                               const size_t n_pages[SKV_PAGE_RANGES]);
    /* NULL: nothing happens. */
    void (*pool_free)(skv_backend *be, skv_page_pool *pool);
    /* Page to[i] becomes a copy of page from[i], for i < n; no page is in both lists. */
    void (*pages_copy)(skv_backend *be, skv_page_pool *pool, const uint32_t *to,
                       const uint32_t *from, size_t n);
    /* All jobs, in any order: the rows that a job writes are in no other one. */
    void (*pages_compact)(skv_backend *be, skv_page_pool *pool, skv_kv_type type,
                          const skv_compact_job *jobs, size_t n);
    /* All jobs, in any order, as pages_compact. */
    void (*pages_turn)(skv_backend *be, skv_page_pool *pool, skv_kv_type type,
                       const skv_turn_job *jobs, size_t n);
    /* Copies n pages to host [n][page_bytes] as they are now, whatever is written to them later.
     * `host` belongs to the back end until pages_done returns true for the ticket. */
    skv_ticket (*pages_read)(skv_backend *be, skv_page_pool *pool, const uint32_t *pages, size_t n,
                             void *host);
    /* Whether the copy has arrived, which it has when this waited for it. *status is SKV_OK, or
     * tells that the device failed and the copy is worthless. A ticket that has arrived is not
     * asked for again. */
    bool (*pages_done)(skv_backend *be, skv_ticket ticket, bool wait, skv_status *status);
    /* n pages become host [n][page_bytes]. */
    void (*pages_write)(skv_backend *be, skv_page_pool *pool, const uint32_t *pages, size_t n,
                        const void *host);
    /* The bytes of a page for the host to read, until page_unmap: one of a pool at a time. It
     * waits: for probes and tests. */
    const void *(*page_map)(skv_backend *be, skv_page_pool *pool, uint32_t page);
    void (*page_unmap)(skv_backend *be, const void *host);

    /* The lists of `spec` are copied. */
    skv_status (*slots_create)(skv_backend *be, const skv_slots_spec *spec, skv_slots **out,
                               skv_error *err);
    /* After all of its tables. NULL: nothing happens. */
    void (*slots_free)(skv_backend *be, skv_slots *slots);
    /* A table without pages, whose tracks have lost nothing. */
    skv_status (*table_create)(skv_backend *be, const skv_slots *slots, skv_table **out,
                               skv_error *err);
    void (*table_free)(skv_backend *be, skv_table *table);
    /* Entries [first, first + n) of a bundle become pages [n]. NULL: they hold no page any longer,
     * and are not read before they are written again. Not while a step is under way. */
    void (*table_write)(skv_backend *be, skv_table *table, size_t bundle, size_t first,
                        const uint32_t *pages, size_t n);
    /* Track track0 + i has lost dropped[i] rows, for i < n: row r of the sequence is row r -
     * dropped[i] of it. Not while a step is under way. */
    void (*table_dropped)(skv_backend *be, skv_table *table, size_t track0, const size_t *dropped,
                          size_t n);

    /* -- steps -- */

    skv_status (*angles_create)(skv_backend *be, const skv_angles_spec *spec, skv_angles **out,
                                skv_error *err);
    /* NULL: nothing happens. */
    void (*angles_free)(skv_backend *be, skv_angles *angles);
    skv_status (*step_create)(skv_backend *be, const skv_backend_step_limits *limits,
                              skv_backend_step **out, skv_error *err);
    /* Not while it is under way. NULL: nothing happens. */
    void (*step_free)(skv_backend *be, skv_backend_step *step);
    skv_bytes (*step_bytes)(const skv_backend *be, const skv_backend_step_limits *limits);
    /* Describes the rows of a step, which is under way from here to step_wait: meanwhile no table
     * changes. Several may be. Fails only with the device's error; then it is not under way. */
    skv_status (*step_begin)(skv_backend *be, skv_backend_step *step,
                             const skv_backend_step_spec *spec, skv_error *err);
    /* Another description for the rest of the step, whose ALL are the rows that x has. */
    void (*step_change)(skv_backend *be, skv_backend_step *step, const skv_backend_step_spec *spec);
    /* CHOSEN becomes these rows, a part of `from`, whose rows x has until now: x [n columns] as in
     * gather. `from` may be CHOSEN. */
    void (*step_choose)(skv_backend *be, skv_backend_step *step, skv_row_set from,
                        const skv_set_spec *chosen, skv_rows x, size_t n);
    /* NULL: every operation is done when it returns. Else begins those that were put off, and
     * returns at once: the host has time until it reads results. */
    void (*start)(skv_backend *be);
    /* Ends the step when all of its operations are done. Waits, once a step, also where nothing is
     * wanted. What was computed is worthless where it fails, with the device's error. */
    skv_status (*step_wait)(skv_backend *be, skv_backend_step *step, skv_error *err);

    /* -- before anything runs -- */

    /* Takes the working memory of every operation below. */
    skv_status (*reserve)(skv_backend *be, const skv_backend_limits *limits, skv_error *err);
    skv_bytes (*reserve_bytes)(const skv_backend *be, const skv_backend_limits *limits);
    /* NULL, or called once on each rank when all are open: devices agree on how they add up. */
    skv_status (*join)(skv_backend *be, skv_error *err);
    /* Weights: their memory, and the packed form. */
    skv_bytes (*linear_bytes)(const skv_backend *be, const skv_linear_spec *spec);
    skv_status (*linear_create)(skv_backend *be, const skv_linear_spec *spec, skv_linear **out,
                                skv_error *err);
    void (*linear_free)(skv_backend *be, skv_linear *w);
    /* Matrices w [n] of one shape and type, each of which experts_linear computes whole; borrowed
     * until experts_free. */
    skv_status (*experts_create)(skv_backend *be, const skv_linear *const *w, size_t n,
                                 skv_experts **out, skv_error *err);
    /* NULL: nothing happens. */
    void (*experts_free)(skv_backend *be, skv_experts *experts);

    /* Rows of a table [source->n_rows, K], which are those of ids first_id, first_id + 1, ... */
    skv_bytes (*embedding_bytes)(const skv_backend *be, size_t n_rows, size_t K);
    skv_status (*embedding_create)(skv_backend *be, const skv_row_source *source, size_t K,
                                   size_t first_id, skv_embedding **out, skv_error *err);
    /* NULL: nothing happens. */
    void (*embedding_free)(skv_backend *be, skv_embedding *table);

    /* -- states of linear attention -- */

    /* Memory costs nothing until it is touched. SKV_RANGE names a size that cannot be. */
    skv_status (*states_create)(skv_backend *be, const skv_states_spec *spec, skv_states **out,
                                skv_error *err);
    void (*states_free)(skv_backend *be, skv_states *states);
    skv_bytes (*states_bytes)(const skv_backend *be, const skv_states_spec *spec);
    /* State i of `to` becomes a copy of state j of `from`; both were made for the same layers and
     * max_undo. */
    void (*state_copy)(skv_backend *be, skv_states *to, size_t i, const skv_states *from, size_t j);
    /* State i becomes zeros, as before a sequence's first row. */
    void (*state_clear)(skv_backend *be, skv_states *states, size_t i);
    /* A state as bytes of the host, as many as states_bytes counts for one, for the same layers,
     * max_undo and back end. state_write refuses, with `false` and a state of zeros, bytes that
     * cannot be those of a sequence with n_past rows. */
    void (*state_read)(skv_backend *be, unsigned char *host, const skv_states *states, size_t i);
    bool (*state_write)(skv_backend *be, skv_states *states, size_t i, const unsigned char *host,
                        size_t n_past);

    /* -- operations -- */

    /* x[i, :] = scale * the table's row of id i of the step, for i < T; zeros for an id that it has
     * no row of. x is F32 [T, K]. */
    void (*embed)(skv_backend *be, const skv_backend_step *step, const skv_embedding *table,
                  skv_rows x, float scale);
    void (*linear)(skv_backend *be, const skv_linear_args *args);
    void (*route)(skv_backend *be, const skv_route_args *args);
    void (*experts_linear)(skv_backend *be, const skv_experts_args *args);
    void (*mix)(skv_backend *be, const skv_mix_args *args);
    void (*place)(skv_backend *be, const skv_place_args *args);
    void (*attention)(skv_backend *be, const skv_attention_args *args);
    void (*votes)(skv_backend *be, const skv_votes_args *args);
    void (*norm)(skv_backend *be, const skv_norm_args *args);
    void (*norm_add)(skv_backend *be, const skv_norm_add_args *args);
    void (*glu)(skv_backend *be, const skv_glu_args *args);
    void (*embed_gate)(skv_backend *be, const skv_embed_gate_args *args);
    void (*conv)(skv_backend *be, const skv_conv_args *args);
    void (*scan)(skv_backend *be, const skv_scan_args *args);
    void (*gated_norm)(skv_backend *be, const skv_gated_norm_args *args);
    /* x [n columns], which has the rows of set `from`, is left with those of `to`, a part of them,
     * in place: rows at the beginning of an area that moves. The rows after them are undefined
     * afterwards. */
    void (*gather)(skv_backend *be, const skv_backend_step *step, skv_rows x, size_t n,
                   skv_row_set from, skv_row_set to);
    /* x F32 [n_rows, n] becomes its sum over ranks; x.ld is n. A device that cannot reach the
     * others itself waits, and calls skv_backend_ranks.sum. */
    void (*sum)(skv_backend *be, skv_rows x, size_t n_rows, size_t n);
    /* to[i, :] = from[i, :] for i < n_rows, n columns; kinds may differ. */
    void (*copy_rows)(skv_backend *be, skv_rows to, skv_rows from, size_t n_rows, size_t n);
    /* x[i, :] *= factor, for i < n_rows, n columns. */
    void (*scale)(skv_backend *be, skv_rows x, size_t n_rows, size_t n, float factor);
    /* x = cap * tanh(x / cap); F32 [n_rows, n]. */
    void (*softcap)(skv_backend *be, skv_rows x, size_t n_rows, size_t n, float cap);
    /* Picks from logits F32 [.., V] by wishes `rows` [n]. The results are picks first .. first + n
     * of the step. Those before `first` stay; 0: there are none. */
    void (*pick)(skv_backend *be, skv_backend_step *step, skv_rows logits, size_t V,
                 const skv_pick_row *rows, size_t n, size_t first);
    /* Pick i of the step: the host reads results, as by map. */
    skv_picked (*picked)(skv_backend *be, const skv_backend_step *step, size_t i);
    /* Rows as bytes of the host, n times row_bytes of them, and back: host = norm(x [n, K]), and x
     * F32 [n, K] = host. With SKV_PROMISE_ROWS a product with weights of this type has the same
     * result for what comes back as for x by way of this norm, to the bit. What save_rows fills
     * belongs to the back end until the next step_wait, of any step. */
    size_t (*row_bytes)(const skv_backend *be, skv_weight_type type, size_t K);
    void (*save_rows)(skv_backend *be, skv_weight_type type, unsigned char *host, skv_rows x,
                      size_t n, size_t K, skv_norm norm);
    void (*load_rows)(skv_backend *be, skv_weight_type type, skv_rows x, const unsigned char *host,
                      size_t n, size_t K);
};

#endif
