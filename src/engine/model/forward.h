/*
 * One step: the new rows of any number of sequences through the layers, as a plan says.
 *
 * The caller has grown the caches, so row r of a span lies at cache row n_past + r, and wants
 * the logits, or the hidden states, of some rows. Rows whose output nobody wants stop at the plan's
 * last boundary.
 */
#ifndef SKV_MODEL_FORWARD_H
#define SKV_MODEL_FORWARD_H

#include <stdatomic.h>

#include "kv/votes.h"
#include "model/hook.h"
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
    size_t told_span, told_row; /* as whose row the first wanted one is told; the others follow */
    bool hidden;                /* wanted as hidden states, not as logits */
    bool unskipped;             /* its rows run every layer, whoever wants them */
    bool singly;                /* attention takes each row as if it came in a step of its own */
    skv_kv_votes *votes;        /* of the prompt that these rows are part of; NULL: nobody votes */
    const struct skv_adapter_mix *adapters; /* of its sequence; NULL: none */
    size_t deep_from; /* rows from here on run every layer, since they vote; n: none */
    size_t state;     /* of its sequence, among skv_forward.states; not read where there are none */
    size_t n_undo;    /* its last rows that a later span may take back out of the state */
    skv_rows x; /* [n, D]: the rows as they enter the first layer, when that is not 0; none: as
                 * skv_forward.rows says */
} skv_forward_span;

/*
 * A caller states its wishes row by row, while the logits are there, and gets the picks when the
 * step ends, or earlier, in the same order.
 */
enum {
    SKV_LOGIT_ROWS = 32,                            /* rows whose logits exist at the same time */
    SKV_ROW_PICKS = 17,                             /* picks of a row, at most */
    SKV_PICKS_MAX = SKV_LOGIT_ROWS * SKV_ROW_PICKS, /* that have not been told */
    SKV_PICK_NUMBERS = 24 * SKV_PICKS_MAX           /* n_top and n_ids of all of them */
};

/* A row as its span names it, and a pointer of the caller's. */
typedef struct skv_wish_owner {
    size_t i_span, i_row;
    void *owner;
} skv_wish_owner;

/* Room for the wishes of a row. */
typedef struct skv_wishes {
    size_t i_span, i_row;
    skv_pick_row *picks;    /* [SKV_ROW_PICKS]; `row` is filled in afterwards */
    skv_wish_owner *owners; /* [SKV_ROW_PICKS]; of which `owner` alone is the caller's */
    size_t n;
} skv_wishes;

/* Lists the wishes for a row; their lists must stay until the picks are told. False: they depend on
 * picks for rows before it, so it is asked again when these have been told. */
typedef bool skv_wish_fn(void *user, skv_wishes *wishes);
typedef void skv_picked_fn(void *user, const skv_wish_owner *owner, const skv_picked *picked);

enum { SKV_WORKSPACE_AREAS = 12 };

/* The buffers of a step; sized once for max_rows. Rows are as long as their areas have room for:
 * those of qkv, o, h and logits are used with other lengths, too. */
typedef struct skv_workspace {
    size_t max_rows;
    skv_rows x;          /* [T, D]: the residual stream */
    skv_rows x0;         /* [T, D]: x as it enters layer 0, for per-layer embeddings */
    skv_rows embeds;     /* [T, L P]: these, of the rows' tokens */
    skv_rows qkv;        /* [T, (H + 2 Hk) Dh], or the k|v of several layers; [T, D] before a
                          * norm */
    skv_rows o;          /* [T, H Dh]: what attention returns; [T, D] in ffn_skip.c */
    skv_rows h;          /* [T, F]; also [T n_active, F] */
    skv_rows router;     /* [T, E], or [T, E + 1] */
    skv_rows expert_out; /* [T n_active, D], sorted by expert; then [T, D] of a shared one */
    skv_rows gates;      /* [T, 2 nv]: b|a of layers that keep a state */
    skv_rows boundary;   /* [T, D]: x at the stack's boundary, for the states that it feeds */
    skv_rows ffn_sum;    /* [T, D]: of experts and the dense block beside them */
    skv_rows logits;     /* [logit_rows, V]; also [logit_rows, D] behind the final norm */
    size_t qkv_columns;  /* columns that qkv has room for */
    skv_area *areas[SKV_WORKSPACE_AREAS]; /* owned: what the rows lie in */
    size_t n_areas;
    skv_backend_step *step; /* owned */
    /* Lists, the host's memory. */
    skv_backend_span *step_spans;             /* [T] */
    uint32_t *set_rows[SKV_SET_COUNT];        /* [T] each; not of ALL */
    skv_attention_item *items[SKV_SET_COUNT]; /* [T] each; not of WANTED, TAPS */
    uint32_t *gathered;                       /* [T]: rows of x to keep */
    bool *unread;                             /* [T]: rows whose embedding could not be read */
    int32_t *ids;                             /* [T]: for a back end that has the embeddings */
    uint32_t *positions;                      /* [T]: where rows have dropped out of spans */
    skv_pick_row *picks;    /* [SKV_PICKS_MAX]: wishes, for rows of logits that are there */
    skv_wish_owner *owners; /* [SKV_PICKS_MAX]: the row and the caller's part of each */
    void *lists;            /* owned: what the lists lie in */
    size_t list_bytes;
} skv_workspace;

skv_bytes skv_workspace_bytes(const skv_config *config, const skv_backend *be, size_t max_rows);
SKV_MUST_CHECK skv_status skv_workspace_init(skv_workspace *ws, const skv_config *config,
                                             skv_backend *be, size_t max_rows, skv_error *err);
void skv_workspace_release(skv_workspace *ws, skv_backend *be);

/* Gets wanted row i_row of span i_span, as the spans name them, in order (but rows that a hook ends
 * come first): its logits [V], or its hidden state [D] after the final norm. */
typedef void skv_row_sink(void *user, size_t i_span, size_t i_row, const float *row);

typedef struct skv_forward {
    const skv_model *model;
    const skv_plan *plan;
    skv_workspace *ws;
    const skv_forward_span *spans; /* [n_spans]; at most ws->max_rows tokens in all */
    size_t n_spans;
    skv_row_sink *on_row; /* may be NULL */
    /* In its place, for logits; may be NULL. */
    skv_wish_fn *on_wish;
    skv_picked_fn *on_picked;
    void *user;
    const struct skv_adapters *adapters; /* that spans may have; NULL: none */
    const skv_hook *const *hooks;        /* [n_hooks] */
    size_t n_hooks;
    skv_states *states; /* of layers that keep one; NULL: all layers have attention */
    skv_work *work;     /* added to; may be NULL */
    size_t first_layer; /* the first to run; 0: after the embedding */
    size_t end_layer;   /* the rows stop before it, and no output is made; 0: none */
    bool stack_only; /* of layers [first_layer, end_layer) nothing but their parts of the stack */
    skv_rows rows;   /* [T, D]: of one span, x as it enters first_layer, when that is not 0, and as
                      * it leaves the layer before end_layer; none: with neither. With stack_only: x
                      * at the stack's boundary; none: `saved` */
    const unsigned char *saved; /* [T] rows that save_rows made of it, for the stack's product */
    atomic_bool *cancel;        /* asked between layers; may be NULL */
} skv_forward;

/** SKV_CANCELLED when `cancel` was set; the caches are then incomplete for these rows. Keys and
 * values of the stack are written before the first of its layers runs, but not where that is
 * first_layer: then they are there. */
SKV_MUST_CHECK skv_status skv_forward_run(const skv_forward *f, skv_error *err);

/** The most likely of n logits, the first of equals. */
size_t skv_logits_best(const float *logits, size_t n);
/** The sum of exp(logit - that of *best), which is the most likely one: log p of logit i is
 * logits[i] - logits[*best] - log(sum). */
double skv_logits_sum(const float *logits, size_t n, size_t *best);

#endif
