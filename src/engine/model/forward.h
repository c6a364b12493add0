/*
 * The data of a pass through the layers (model/pass.h): spans of new tokens, the buffers of a
 * step, and where its outputs go.
 */
#ifndef SKV_MODEL_FORWARD_H
#define SKV_MODEL_FORWARD_H

#include "kv/votes.h"
#include "model/hook.h"
#include "model/model.h"
#include "model/plan.h"
#include "skv/work.h"

/* Consecutive new tokens of one sequence. */
typedef struct skv_pass_span {
    skv_backend_span at;        /* as the back end knows them: at.n tokens, and where they are */
    const int32_t *ids;         /* [at.n] in [0, V), checked */
    const skv_kv_cache *cache;  /* with the table `at.table`; NULL: no row attends */
    size_t n_wanted;            /* the last of them, whose output is wanted */
    size_t told_span, told_row; /* as whose row the first wanted one is told; the others follow */
    bool hidden;                /* wanted as hidden states, not as logits */
    bool unskipped;             /* its rows run every layer */
    bool singly;                /* attention takes each row as if it came in a step of its own */
    skv_kv_votes *votes;        /* of the prompt that these rows are part of; NULL: no votes */
    const struct skv_adapter_mix *adapters; /* of its sequence; NULL: none */
    size_t deep_from; /* rows from here on run every layer, since they vote; at.n: none */
    skv_rows x; /* [at.n, D]: the rows as they enter the first layer, when that is not 0; none: as
                 * skv_pass.rows says */
} skv_pass_span;

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

/* Where the wanted rows of a step go, in order (but rows that a hook ends come first), and what
 * watches it. Rows are named as their spans say. */
typedef struct skv_step_sink {
    skv_logits_fn *on_row; /* logits [V], or the hidden state [D] after the final norm; or NULL */
    skv_wish_fn *on_wish;  /* in its place, for logits; may be NULL */
    skv_picked_fn *on_picked; /* with it */
    /* The device computes, and the host has time until the last picks are told; or NULL. It is not
     * called where the host itself computes. */
    void (*on_started)(void *user);
    void *user;
    const skv_hook *tap; /* may be NULL */
} skv_step_sink;

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
    skv_rows o;          /* [T, H Dh]: the result of attention */
    skv_rows h;          /* [T, F]; also [T n_active, F] */
    skv_rows router;     /* [T, E], or [T, E + 1] */
    skv_rows expert_out; /* [T n_active, D], sorted by expert; then [T, D] of a shared one */
    skv_rows gates;      /* [T, 2 nv]: b|a of layers that keep a state */
    skv_rows boundary;   /* [T, D]: x at the stack's boundary, for the states that it feeds */
    skv_rows ffn_sum;    /* [T, D]: of experts and the dense block beside them */
    skv_rows logits;     /* [logit_rows, V]; also [logit_rows, D] after the final norm */
    size_t qkv_columns;  /* columns that qkv has room for */
    skv_area *areas[SKV_WORKSPACE_AREAS]; /* owned: the memory of the rows */
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
    void *lists;            /* owned: the memory of the lists */
    size_t list_bytes;
} skv_workspace;

skv_bytes skv_workspace_bytes(const skv_config *config, const skv_backend *be, size_t max_rows);
SKV_MUST_CHECK skv_status skv_workspace_init(skv_workspace *ws, const skv_config *config,
                                             skv_backend *be, size_t max_rows, skv_error *err);
void skv_workspace_release(skv_workspace *ws, skv_backend *be);

#endif
