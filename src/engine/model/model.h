/*
 * The weights of one model in a back end's memory, and how they are brought there.
 *
 * Products that share their input are one matrix with parts: q|k|v of a layer, gate|up, and the
 * k|v of all SwiftKV layers, which share norm_swiftkv(x_l). Which projections are loaded follows
 * from what the engine is asked to run: the student's, the teacher's, or both.
 */
#ifndef SKV_MODEL_H
#define SKV_MODEL_H

#include "backend/backend.h"
#include "base/pool.h"
#include "format/source.h"
#include "format/tensor.h"
#include "model/ranks_sum.h"

/* ---- matrix.c: a matrix that can be read by rows, of a file or of random numbers (presets) ----
 */

typedef struct skv_matrix {
    const skv_tensor *tensor; /* borrowed; NULL: random */
    uint64_t seed;            /* random: the same seed gives the same numbers */
    float scale;              /* random: uniform in (-scale, scale) around `center` */
    float center;
    size_t n_rows, n_columns;
    float times;    /* a factor of the values read; 0: 1 */
    size_t row0;    /* the first row that is read */
    size_t column0; /* and column 0 this one: n_columns are read, of a tensor that may have more */
} skv_matrix;

/** out [n, n_columns] = rows [row0, row0 + n); `matrix` is a const skv_matrix *. */
void skv_matrix_read(const void *matrix, size_t row0, size_t n, float *out);
/** Rows [row0, row0 + n) as codes, where the file holds codes. */
void skv_matrix_read_codes(const void *matrix, size_t row0, size_t n, skv_quant_rows *out);
/** The same for FP8: skv_row_source.read_fp8. */
void skv_matrix_read_fp8(const void *matrix, size_t row0, size_t n, uint8_t *codes, float *scales);
/** out [n_columns] = one row, fetched from its file: for rows that are read while a model runs. */
SKV_MUST_CHECK skv_status skv_matrix_fetch_row(const skv_matrix *matrix, size_t row, float *out,
                                               skv_error *err);
/** The same, but only the first n_columns are sure to be read; out has room for the whole row. */
SKV_MUST_CHECK skv_status skv_matrix_fetch_start(const skv_matrix *matrix, size_t row,
                                                 size_t n_columns, float *out, skv_error *err);
/** Whether its file is still whole; skv_matrix_read is for between two of these. */
SKV_MUST_CHECK skv_status skv_matrix_check(const skv_matrix *matrix, skv_error *err);
/** Lets the system drop the pages of its file: they have been packed. */
void skv_matrix_forget(const skv_matrix *matrix);

/* ---- rope.c: rotary position embedding ---- */

/* The frequencies of one skv_rope, short and long form (they differ for longrope only). */
typedef struct skv_rope_table {
    size_t n;              /* n_rot / 2 */
    float *frequencies[2]; /* [n] each, owned; radians a position; 0: short, 1: long */
    float amplitude;       /* cos and sin are multiplied by it */
    size_t short_context;  /* sequences made for more positions use the long form; 0: never */
    size_t growth_context; /* 0: no growth, see skv_rope.position_growth */
    double growth;
} skv_rope_table;

SKV_MUST_CHECK skv_status skv_rope_table_init(skv_rope_table *table, const skv_rope *rope,
                                              skv_error *err);
void skv_rope_table_release(skv_rope_table *table);
/** Whether the angles of both are the same at every position. */
bool skv_rope_table_same(const skv_rope_table *a, const skv_rope_table *b);

/** cos, sin [n] of one position; `context` is the length the sequence was made for. */
void skv_rope_angles(const skv_rope_table *table, size_t position, size_t context, float *cos_out,
                     float *sin_out);
/** The same, for skv_angles_spec; `table` is a const skv_rope_table *. */
void skv_rope_read_angles(const void *table, size_t position, size_t context, float *cos_out,
                          float *sin_out);

/* ---- moe.c ---- */

/** How a row of a layer with so many experts chooses among them. */
skv_experts_choice skv_config_experts_choice(const skv_config *c, size_t n_experts);

/* ---- load.c ---- */

/* Parts of skv_projections.w. */
enum { SKV_PART_Q, SKV_PART_K, SKV_PART_V, SKV_PART_QKV_END };

/* The projections of a layer's attention. */
typedef struct skv_projections {
    skv_linear *w;  /* [(H + 2 Hk) Dh, D], or q alone [H Dh, D] */
    skv_vec q_norm; /* [Dh], joined [H Dh], or none */
    skv_vec k_norm; /* [Dh], joined [Hk Dh], or none */
} skv_projections;

typedef struct skv_expert {
    skv_linear *gate_up; /* paired [2 F, D]; RELU2: up alone, [F, D] */
    skv_linear *down;    /* [D, F] */
} skv_expert;

/* A layer of the gated delta rule or of Mamba-2; what comes out of it is projected by the layer's
 * o. Of Mamba-2, C is q, B is k, x is v, and dt is a. */
typedef struct skv_delta {
    skv_linear *in;    /* parts q, k, v, z: SKV_DELTA_*; NULL: not loaded, or no such state */
    skv_linear *gates; /* [2 nv, D]: b, then a; Mamba-2: [nv, D] */
    skv_vec conv_q;    /* [K, nk dk]: the convolution's taps, of q */
    skv_vec conv_kv;   /* [K, nk dk + nv dv], of k and v */
    skv_vec conv_q_bias, conv_kv_bias; /* Mamba-2: [nk dk], [nk dk + nv dv]; or none */
    skv_vec norm;                      /* [dv]; Mamba-2: [nv dv] */
    skv_vec rate, dt_bias;             /* [nv] */
    skv_vec skip;                      /* Mamba-2: [nv] */
    skv_linear *out;                   /* [D, nv dv], where the layer has attention too; or NULL */
} skv_delta;

/* Parts of skv_delta.in. */
enum { SKV_DELTA_Q, SKV_DELTA_K, SKV_DELTA_V, SKV_DELTA_Z, SKV_DELTA_END };

/* A layer of a short convolution alone, projected by the layer's o as well. */
typedef struct skv_conv_layer {
    skv_linear *in; /* parts B, x, C of [D, D] each: SKV_CONV_*; NULL: the layer is none */
    skv_vec taps;   /* [K, D] */
} skv_conv_layer;

/* Parts of skv_conv_layer.in: the input of the convolution, and the gate after it. */
enum { SKV_CONV_B, SKV_CONV_X, SKV_CONV_C, SKV_CONV_END };

typedef struct skv_layer {
    skv_vec attn_norm;       /* [D] or none */
    skv_vec ffn_norm;        /* [D] or none */
    skv_vec post_attn_norm;  /* [D] or none */
    skv_vec post_ffn_norm;   /* [D] or none */
    skv_vec sinks;           /* [H] or none */
    skv_projections own;     /* q alone in a layer that has a donor; w NULL: not loaded */
    skv_projections stacked; /* q, where k and v are parts of the model's stack; else w NULL */
    skv_linear *gate;        /* [H Dh, D], of the result of attention; or NULL */
    skv_delta delta;         /* in place of the four before, */
    skv_delta fed;           /* the same where the stack's boundary feeds the state; else zeros */
    skv_conv_layer conv;     /* or this */
    skv_linear *o;           /* [D, H Dh], [D, nv dv] or [D, D] */
    skv_linear *gate_up;     /* as an expert's; NULL where these stand alone, as the next */
    skv_linear *down;        /* [D, F] */

    /* Gemma 4: what the token's embedding of this layer adds, and a number times all of x. */
    skv_vec post_embed_norm; /* [D] or none */
    skv_linear *embed_gate;  /* [P, D] or NULL */
    skv_linear *embed_out;   /* [D, P] */
    float scale;             /* 1: none */

    /* Mixtures of experts. Where a dense block stands beside them, both end in norms of their own,
     * and their sum in post_ffn_norm. */
    skv_linear *router;        /* [E, D], and a row for the gate of the shared expert */
    skv_expert shared;         /* that every token meets; or NULLs */
    skv_linear **expert_parts; /* owned, [2 E]: gate_up of each, then down of each, */
    skv_experts *experts;      /* as arguments: the first; NULL: the block is dense; */
    skv_experts *experts_down; /* and the second */
    skv_vec router_norm;       /* [D], before the router: ffn_norm where it has none */
    skv_vec expert_norm;       /* [D], before the experts: the same */
    skv_vec post_expert_norm;  /* [D] or none */
    skv_vec post_dense_norm;   /* [D] or none */
    skv_vec expert_scale;      /* [E]: of each expert's result; or none */
    skv_vec choice_bias;       /* [E]: added when experts are chosen; or none */
    skv_linear *latent_in;     /* [Dl, D], before the experts of such models, */
    skv_linear *latent_out;    /* [D, Dl], and after them; or NULL */
} skv_layer;

/* The keys and values of several layers, as one product of one normed hidden state. */
typedef struct skv_kv_stack {
    skv_vec norm;  /* [D] or none */
    skv_linear *w; /* parts k, v of each layer that writes: [2 Hk Dh each, D]; NULL: none */
    skv_weight_type type;
} skv_kv_stack;

typedef struct skv_model {
    const skv_config *config;       /* borrowed */
    skv_backend *be;                /* borrowed */
    skv_pool *pool;                 /* for work on the host, borrowed */
    skv_matrix embedding;           /* [V, D], read row by row from the file, */
    skv_embedding *embedding_table; /* or its rows `ids` in the back end; NULL: it keeps none */
    skv_layer *layers;              /* owned, [L] */
    skv_kv_stack stack; /* SwiftKV: norm_swiftkv, and k, v of layers l, l + g, l + 2g, ... */
    skv_vec final_norm; /* [D] */

    /* Per-layer embeddings, NULL where there are none. */
    skv_matrix token_embeds;    /* [V, L P], read row by row from the file, */
    skv_embedding *token_table; /* or in the back end */
    skv_linear *embed_part;     /* L parts [P, D]: of the embedding that enters layer 0 */
    skv_vec embed_norm;         /* [P], of a part's result */
    skv_vec head_norm;          /* [D]: final_norm, divided where logits are */
    skv_linear *head;           /* [V, D] */
    skv_linear *mtp_in;         /* [D, 2 D]: before the layer of skv_config.mtp; else NULL */
    skv_vec mtp_norms[2];       /* [D] each: of the embedding and of h, before it */
    skv_linear *exit_head;      /* [W, D], on the stack's input; NULL: no early exit */
    int32_t *exit_ids; /* owned, the host's, [W]: of its rows, ascending; NULL: all, W is V */
    size_t n_exit_ids; /* W */
    skv_rope_table ropes[2];
    size_t n_ropes;        /* that layers use: 1 or 2 */
    skv_angles *angles[2]; /* owned, [n_ropes]: those of the back end */
    skv_area *vectors;     /* owned: every norm above lies in it */
    size_t weight_bytes;   /* of the packed matrices */
    skv_ranks *ranks;      /* borrowed: that have the other parts; NULL: the model is whole */
    skv_ranks_ids ids;     /* of the head's rows; alone: all */
} skv_model;

typedef struct skv_load_options {
    skv_weight_type type; /* of matrices that the file holds as floats */
    bool keep_codes;      /* quantised ones stay as they are; else `type` */
    bool f32_rows;        /* which then meet rows of f32, not of int8 */
    bool student;         /* SwiftKV projections, where the model has them */
    bool teacher;         /* the layers' own projections, everywhere */
    bool exit_head;       /* the early exit's, which the model has */
    bool borrows;         /* embedding and head are to be another model's: neither is loaded */
    skv_ranks *ranks;     /* the configuration is of one; NULL: none */
    bool prompt_only;     /* no heads, and of layers from last_boundary on */
    size_t last_boundary; /* only the weights of keys and values: see plan.h */
    uint64_t seed;        /* of random weights */
    void (*progress)(void *user, double share); /* may be NULL; share in 0..1 */
    bool (*stopped)(void *user);                /* may be NULL; true: loading ends */
    void *user;
} skv_load_options;

/** Bytes that the packed weights will take; source NULL: random ones. */
SKV_MUST_CHECK skv_status skv_model_bytes(const skv_config *config, const skv_source *source,
                                          skv_backend *be, const skv_load_options *options,
                                          skv_bytes *n_bytes, skv_error *err);

/** source NULL: random weights of this shape (norms around 1). */
SKV_MUST_CHECK skv_status skv_model_load(skv_model *model, const skv_config *config,
                                         const skv_source *source, skv_backend *be, skv_pool *pool,
                                         const skv_load_options *options, skv_error *err);
void skv_model_release(skv_model *model);

#endif
