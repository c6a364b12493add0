/*
 * One step: the new rows of any number of sequences through the layers, as a plan says.
 *
 * The caller has grown the caches, so row r of a span lies at cache row n_past + r, and wants
 * the logits, or the hidden states, of some rows. Rows whose output nobody wants stop at the plan's
 * last boundary.
 */
#ifndef SKV_MODEL_FORWARD_H
#define SKV_MODEL_FORWARD_H

#include "kv/votes.h"
#include "model/model.h"
#include "model/plan.h"
#include "skv/work.h"

typedef enum skv_rows_wanted { SKV_ROWS_NONE, SKV_ROWS_LAST, SKV_ROWS_ALL } skv_rows_wanted;

/* Consecutive new tokens of one sequence. */
typedef struct skv_forward_span {
    const int32_t *ids; /* [n] in [0, V), checked */
    size_t n;
    size_t n_past;    /* rows before the first, evicted ones included */
    size_t position0; /* true position of the first */
    size_t context;   /* the length the sequence was made for (longrope) */
    const skv_kv_cache *cache;
    skv_rows_wanted wanted;
    bool hidden;         /* wanted as hidden states, not as logits */
    bool unskipped;      /* its rows run every layer, whoever wants them */
    skv_kv_votes *votes; /* of the prompt that these rows are part of; NULL: nobody votes */
    size_t deep_from;    /* rows from here on run every layer, since they vote; n: none */
} skv_forward_span;

/* The buffers of a step; sized once for max_rows. */
typedef struct skv_workspace {
    size_t max_rows;
    float *x;               /* [T, D]: the residual stream */
    float *qkv;             /* [T, (H + 2 Hk) Dh], or the k|v of several SwiftKV layers */
    float *o;               /* [T, H Dh]: what attention returns; [T, D] in feed_forward.c */
    float *h;               /* [T, F]; also [T, D] in front of a post-norm */
    float *logits;          /* [logit_rows, V]; also [logit_rows, D] behind the final norm */
    float *cos[2], *sin[2]; /* [T, n_rot / 2] for each rope */
    size_t qkv_columns;     /* columns that qkv has room for */
    size_t h_columns;
    uint32_t *alive;           /* [T]: step rows that x's rows are */
    uint32_t *gathered;        /* [T]: rows of x to keep */
    bool *unread;              /* [T]: rows whose embedding could not be read */
    size_t *kv_rows;           /* [T] */
    void *const **tables;      /* [T] */
    const size_t **dropped;    /* [T] */
    float *vote_norms;         /* [T, H] */
    skv_attention_item *items; /* [T] */
    uint32_t *item_spans;      /* [T]: whose they are */
    uint16_t *mlp_left;        /* [T]: of x's rows, see forward_impl.h */
    void *block;               /* owned by the back end: everything above lies in it */
    size_t block_bytes;
} skv_workspace;

enum { SKV_LOGIT_ROWS = 32 }; /* rows whose logits exist at the same time */

size_t skv_workspace_bytes(const skv_config *config, size_t max_rows);
SKV_MUST_CHECK skv_status skv_workspace_init(skv_workspace *ws, const skv_config *config,
                                             skv_backend *be, size_t max_rows, skv_error *err);
void skv_workspace_release(skv_workspace *ws, skv_backend *be);

/* Gets wanted row i_row of span i_span, in order (but rows that leave early come first): its logits
 * [V], or [D] behind the final norm. */
typedef void skv_row_sink(void *user, size_t i_span, size_t i_row, const float *row);
/* Gets x [n_rows, D] as it enters layer i (i == L: as it leaves the last): of all rows up to the
 * last boundary, and beyond it where skip == false. */
typedef void skv_hidden_sink(void *user, size_t i_layer, const float *x, size_t n_rows);

/* Gets the keys and values of layer i_layer as its projections leave them, before norm and
 * rotation: k, v [n_rows, ld], a row for each token of the step; valid during the call. */
typedef void skv_kv_sink(void *user, size_t i_layer, const float *k, const float *v, size_t ld,
                         size_t n_rows);

/* Gets the queries of layer i_layer as they go into attention: q [n_rows, ld] of the rows that are
 * left; valid during the call. */
typedef void skv_query_sink(void *user, size_t i_layer, const float *q, size_t ld, size_t n_rows);

/* Rows that leave a step between two layers: of one span, whose slots then hold different rows. */
typedef struct skv_row_drop {
    size_t *slot_rows; /* [n_slots]: rows that each slot has; those of the step are added */
    /* Which of the n rows that are left run layer i_layer, the last one among them: rows ascending,
     * how many of them is returned; n: all, and nothing is written. */
    size_t (*choose)(void *user, size_t i_layer, size_t n, uint32_t *rows);
    void *user;
} skv_row_drop;

/*
 * Rows that leave out feed-forward blocks. What decides is a row's own way through the layers, so
 * neither chunks nor what runs beside it change anything.
 */
typedef struct skv_mlp_gate {
    size_t first_layer, end_layer; /* blocks of other layers are never left out */
    size_t warm_up;                /* rows at positions before this leave out nothing */
    /* How many of the next blocks a row leaves out that was `before` [n] and is `after`. */
    size_t (*choose)(const void *user, const float *before, const float *after, size_t n);
    const void *user;
} skv_mlp_gate;

/* Whether the logits [n] of the exit head end a row before the deep layers of SwiftKV. */
typedef struct skv_exit_gate {
    bool (*leaves)(const void *user, const float *logits, size_t n);
    const void *user;
} skv_exit_gate;

typedef struct skv_forward {
    const skv_model *model;
    const skv_plan *plan;
    skv_workspace *ws;
    const skv_forward_span *spans; /* [n_spans]; at most ws->max_rows tokens in all */
    size_t n_spans;
    skv_row_sink *on_row;
    skv_hidden_sink *on_hidden; /* may be NULL */
    void *user;
    skv_kv_sink *on_kv; /* of layers that make their own; may be NULL */
    void *kv_user;
    skv_query_sink *on_query; /* may be NULL */
    void *query_user;
    const skv_row_drop *drop;  /* NULL: all rows stay */
    const skv_mlp_gate *gate;  /* NULL: all rows run all blocks */
    const skv_exit_gate *exit; /* NULL: nobody leaves early; else the model has its head */
    skv_work *work;            /* added to; may be NULL */
    size_t first_layer;        /* the first to run; 0: behind the embedding */
    size_t end_layer;          /* the rows stop before it, and no output is made; 0: none */
    float *rows; /* [T, D]: of one span, x as it enters first_layer, when that is not 0, and as it
                  * leaves the layer before end_layer; NULL: with neither */
    bool (*cancelled)(void *user); /* may be NULL; asked between layers */
} skv_forward;

/** SKV_CANCELLED when `cancelled` said so; the caches are then incomplete for these rows. */
SKV_MUST_CHECK skv_status skv_forward_run(const skv_forward *f, skv_error *err);
/** The deep slots alone of one span of a SwiftKV model, whose rows norm_swiftkv(x_l) stand in
 * ws->x: the same bits as skv_forward_run writes there. `ids` are not read. */
void skv_forward_deep_kv(const skv_forward *f);
/** One of the deep slots alone, of one span whose x_l is `rows`. A step whose first_layer is l or
 * beyond does not write these slots. */
void skv_forward_deep_slot(const skv_forward *f, size_t group);

#endif
