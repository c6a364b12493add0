/* The inside of a model in training, shared by the files net*.c: see net.h. */
#ifndef SKV_TRAIN_NET_IMPL_H
#define SKV_TRAIN_NET_IMPL_H

#include "kernels/train_rows.h"
#include "model/model.h"
#include "train/delta_rule.h"
#include "train/gemm.h"
#include "train/net.h"

enum { SKV_NET_PARTS = 64 /* partial sums over rows, whatever the number of threads */ };

/* A frozen matrix as the codes of its file, nibbles where they have 4 bits: made floats for each
 * product, in memory that all such matrices share. */
typedef struct skv_net_codes {
    const skv_quant_form *form; /* NULL: no codes are held */
    size_t N, K;
    uint8_t *memory; /* owned, mapped */
    size_t n_bytes;
} skv_net_codes;

typedef struct skv_net_linear {
    skv_param *w;                  /* [N, K] */
    skv_param *bias;               /* [N] or NULL */
    skv_gemm_packed forward, back; /* of a frozen W: for x W^T, and for dy W if needed */
    skv_net_codes codes;           /* in place of both */
    bool exact;                    /* f32 products, whatever the others are: a router's */
} skv_net_linear;

typedef struct skv_net_expert {
    skv_net_linear gate, up; /* [F, D] */
    skv_net_linear down;     /* [D, F] */
} skv_net_expert;

/* The experts that rows meet: k = n_active pairs of row and expert a row, sorted by expert, then
 * by row. */
typedef struct skv_net_routes {
    float *logits;    /* [T, E]; in the backward pass their gradient */
    float *weights;   /* [T, k] */
    uint32_t *chosen; /* [T, k]: experts, the most likely first */
    uint32_t *place;  /* [T, k]: the position of a pair among the sorted ones */
    uint32_t *row;    /* [T k]: the row of a sorted pair */
    uint32_t *first;  /* [E + 1]: where the pairs of an expert begin */
} skv_net_routes;

/* q, k, v with the norms of the heads: a layer's own, or its *_swiftkv ones. In a layer that keeps
 * a state, all that makes the state. */
typedef struct skv_net_projections {
    skv_net_linear q, k, v;     /* k, v are absent (w NULL) in layers that read another's */
    skv_param *q_norm, *k_norm; /* [Dh] or NULL */
    skv_net_linear a, b;        /* of a state: [nv, D] */
    skv_param *conv;            /* [C, K]: taps of the channels q|k|v */
    skv_param *a_log, *dt_bias; /* [nv] */
} skv_net_projections;

/* The activations that a layer keeps for its backward pass. Without head norms q_raw is q and k_raw
 * is k. In an AcrossKV group k, k_raw and v are the first layer's. Of a layer with a state q_raw,
 * k_raw and v_raw enter the convolution and q, k and v leave it; they have its columns. */
typedef struct skv_net_kept {
    float *x;              /* [T, D]: its input */
    float *q, *q_raw;      /* [T, H Dh]: rotated; before norm and rotation */
    float *k, *k_raw, *v;  /* [T, Hk Dh] */
    float *o;              /* [T, H Dh]: out of attention */
    float *lse;            /* [T, H]: log sum exp of the scores */
    float *z;              /* [T, columns of o]: the gate of o, before its sigmoid or SiLU */
    float *v_raw;          /* [T, nv dv] */
    float *q_older;        /* [T, nk dk]: inputs of q's convolution for later rows; or q_raw */
    float *a, *b;          /* [T, nv] */
    float *states;         /* of skv_delta_rule */
    float *mid;            /* [T, D]: after attention */
    float *gate, *up;      /* [T, F]; of a mixture [T k, F], in the order of its sorted pairs */
    skv_net_routes routes; /* of a mixture */
} skv_net_kept;

typedef struct skv_net_layer {
    skv_param *attn_norm, *ffn_norm; /* [D] */
    skv_net_projections own, swiftkv;
    skv_net_linear z;                 /* makes the gate of the output; absent in most models */
    skv_param *state_norm;            /* [dv]: of a state's output */
    skv_net_linear o, gate, up, down; /* of a mixture o alone, and the next two */
    skv_net_linear router;            /* [E, D] */
    skv_net_expert *experts;          /* borrowed, [n_experts]; NULL: the block is dense */
    size_t n_experts;
    unsigned char *expert_panels; /* owned, mapped: the packed weights of all of them; or NULL */
    size_t expert_panels_bytes;
    bool keep; /* it has a backward pass */
    skv_net_kept kept;
} skv_net_layer;

typedef struct skv_net_predict skv_net_predict; /* net_predict.c */

struct skv_net {
    const skv_config *config; /* borrowed */
    skv_net_options options;
    skv_pool *pool;           /* owned unless options.pool */
    skv_net_predict *predict; /* owned; of an auxiliary model, NULL otherwise */
    skv_kernels kernels;
    skv_train_rows rows;
    skv_gemm *gemm;  /* owned */
    skv_gemm *exact; /* owned, in f32; NULL where gemm is that too, or there is no router */
    skv_params params;
    skv_net_layer *layers;   /* owned, [L] */
    skv_net_expert *experts; /* owned, those of all layers; NULL: none has any */
    skv_param *embedding;    /* [V, D] */
    skv_param *final_norm;   /* [D] */
    skv_net_linear head;     /* [V, D]: the embedding when tied */
    skv_net_linear exit;     /* [V, D]: of norm_swiftkv(x_l); absent (w NULL) in most models */
    skv_param *norm_swiftkv;
    skv_rope_table ropes[2];
    size_t teacher_from; /* teacher and student agree on the layers before */
    size_t kv_from;      /* l of a student; L otherwise */

    /* Memory of a step: one mapped block. */
    float *memory;
    size_t n_memory, n_kept;                 /* floats */
    size_t packed_bytes;                     /* of frozen weights */
    size_t max_heads, max_kv_heads, max_ffn; /* max_ffn: of skv_net_inner */
    size_t max_experts;                      /* 0: no layer has any */
    size_t loss_rows;                        /* rows of a tile of logits */
    skv_net_kept scratch;                    /* output of layers that keep nothing */
    skv_net_kept scratch_state;              /* of those with a state: x and others are shared */
    float *x_last;                           /* [T, D]: x_L */
    float *x_shared;            /* [T, D]: x_l, where the teacher's pass met the student's */
    float *swift;               /* [T, D]: norm_swiftkv(x_l) */
    float *normed;              /* [T, D] */
    float *final, *final_t;     /* [T, D]: norm(x_L), of the student and of the teacher */
    float *hidden_t;            /* [T, D]: the teacher's x_{L-1} */
    float *h, *dh;              /* [T, F]; of a mixture [T k, F] */
    float *expert_x, *expert_y; /* [T k, D]: of sorted pairs, in and out of their experts */
    float *dweights;            /* [T k]: of sorted pairs */
    float *balance;             /* [E]: pairs of an expert / rows, over all trained routers */
    float balance_scale;        /* of the balancing loss's gradient by logits; 0: there is none */
    float *dx, *da, *dswift;    /* [T, D] */
    float *dq, *d_o;            /* [T, H Dh] */
    float *dk, *dv;             /* [T, Hk Dh]: summed over a group */
    float *dk_heads, *dv_heads; /* [T, H Dh]: one for each query head */
    float *delta;               /* [T, H] */
    float *gated, *ungated;     /* [T, the widest o]: o after its gate; after its norm */
    float *d_gated;             /* [T, the widest o] */
    float *dstate;              /* [T, of net_state.c]: gradients around the convolution */
    float *rates;               /* [4, nv]: of net_state.c */
    float *delta_scratch;       /* [threads, skv_delta_rule_scratch] */
    float *attention_tiles;     /* [threads, ...] */
    float *partial;             /* [SKV_NET_PARTS, max(D, F, H Dh, dv)] */
    float *cos[2], *sin[2];     /* [T, n_rot / 2] */
    float *wide;                /* the largest matrix of those held as codes, as floats */
    uint8_t *wide_codes;        /* [n_threads, K]: rows of codes, a byte each */
    size_t widest, widest_row;  /* elements of that matrix, and of the longest row */
    float *logits, *logits_t;   /* [loss_rows, V] */
    float *tile, *tile_t;       /* [loss_rows, D] */
    double *row_loss;           /* [T] */
    double *exit_loss;          /* [T] of the exit head, NULL without one in training */
    uint32_t *top;              /* [T] likewise: the final logits' most likely token */
    uint32_t *exit_seen;        /* [T] likewise: 0: not sampled; 1 + 2 * bin + agreed */
    uint32_t *loss_list;        /* [T]: positions with a loss */
    uint32_t *segments;         /* [T + 1]: tokens at which runs of whole documents begin */
    size_t n_segments;
};

/* Predicted keys and values of a layer of a base, for all tokens of a batch. */
typedef struct skv_net_foreign_kv {
    float *k, *v;   /* [T, Hk Dh]: k normed and rotated */
    float *dk, *dv; /* their gradients, added up */
} skv_net_foreign_kv;

/*
 * The batch of a base with predicted keys and values: the rows of a batch that have a loss, packed
 * into a batch of their own. Query t is row row[t] of the whole; it sees predicted rows from its
 * document's first to end[t], and its own rows [own[t], t]. Without `answers` (training as in the
 * paper) all rows are predicted, including the query's own. With `answers` (as in use) a run of
 * rows with a loss is an answer: its first row is the last of the prompt, earlier rows are
 * predicted, and within the run keys and values are the base's own. If a document begins with its
 * loss, so that it has no question, each row of the run ends a prompt.
 */
typedef struct skv_net_foreign {
    const skv_train_batch *all; /* of the step */
    skv_train_batch learnt;     /* of the pass, in the arrays that follow */
    int32_t *ids, *targets;
    uint32_t *positions, *doc_start;
    uint32_t *row, *end, *own;
    bool answers;
    skv_net_foreign_kv *layers; /* [L] */
    float *dk_heads, *dv_heads; /* [T, H Dh]: one for each query head */
} skv_net_foreign;

typedef struct skv_net_pass skv_net_pass;

/* Callbacks of KV Prediction on a layer's own keys and values. Either may be NULL. */
typedef struct skv_net_watch {
    /* k of layer i, before its norm and rotation, and v. */
    void (*read)(void *user, const skv_net_pass *p, size_t i, const skv_net_kept *a);
    /* Adds to their gradients. */
    void (*add)(void *user, const skv_net_pass *p, size_t i, float *dk, float *dv);
    void *user;
} skv_net_watch;

/* One pass through the layers. */
struct skv_net_pass {
    skv_net *net;
    const skv_train_batch *batch;
    bool student; /* SwiftKV from l on */
    bool teacher; /* computes with the teacher's weights */
    bool keep;
    const skv_net_watch *watch;     /* NULL: none */
    const skv_net_foreign *foreign; /* a base's predicted keys and values, or NULL */
};

static inline const float *skv_net_values(const skv_net_pass *p, const skv_param *param)
{
    return p->teacher ? param->teacher : param->w;
}

static inline bool skv_net_has_teacher(const skv_net *net)
{
    return net->options.loss == SKV_LOSS_KL || net->options.hidden_mult > 0;
}

/* ---- net_foreign.c ---- */
SKV_MUST_CHECK skv_status skv_net_foreign_create(skv_net_foreign *f, size_t max_tokens,
                                                 size_t n_layers, skv_error *err);
void skv_net_foreign_release(skv_net_foreign *f);
void skv_net_foreign_select(skv_net_foreign *f, const skv_train_batch *all);

/* ---- net_predict.c: KV Prediction ---- */
/* Adds the predictor's parameters to those of the auxiliary; opens the base. */
SKV_MUST_CHECK skv_status skv_net_predict_create(skv_net *net, skv_error *err);
SKV_MUST_CHECK skv_status skv_net_predict_load(skv_net *net, skv_error *err);
void skv_net_predict_free(skv_net_predict *predict);
SKV_MUST_CHECK skv_status skv_net_predict_run(skv_net *net, const skv_train_batch *batch,
                                              const skv_net_scale *scale, bool backward,
                                              skv_net_sums *sums, skv_error *err);
size_t skv_net_predict_bytes(const skv_net *net);
double skv_net_predict_flops(const skv_net *net, size_t n_tokens, size_t n_loss);

/* ---- net_life.c: one model, whatever else is trained with it ---- */
/* Describes the parameters: more may follow before skv_net_fill loads all that the model names. */
SKV_MUST_CHECK skv_status skv_net_open(const skv_config *config, const skv_net_options *options,
                                       skv_net **out, skv_error *err);
SKV_MUST_CHECK skv_status skv_net_fill(skv_net *net, const skv_source *source, skv_error *err);
/* Packs frozen weights and allocates the memory of a step. */
SKV_MUST_CHECK skv_status skv_net_finish(skv_net *net, skv_error *err);
void skv_net_close(skv_net *net);

/* ---- net_flops.c ---- */
/* Returns the cost of a step without a prediction. */
double skv_net_own_flops(const skv_net *net, size_t n_tokens, size_t n_loss);

/* ---- net_ops.c ---- */
/* Before a batch: angles of its positions, and its runs of documents. */
void skv_net_begin(skv_net *net, const skv_train_batch *batch);

/* ---- net_memory.c ---- */
SKV_MUST_CHECK skv_status skv_net_memory_take(skv_net *net, skv_error *err);

/* ---- net_load.c ---- */
/* Describes one more parameter, and asks the options whether it is trained. */
skv_param *skv_net_add(skv_net *net, size_t layer, skv_param_role role, const char *name,
                       size_t n_rows, size_t n_columns);
SKV_MUST_CHECK skv_status skv_net_describe(skv_net *net, skv_error *err);
SKV_MUST_CHECK skv_status skv_net_load(skv_net *net, const skv_source *source, skv_error *err);

/* ---- net_init.c: a model from scratch ---- */
/* Random values of one parameter, the i_param-th. */
void skv_net_draw(const skv_net *net, skv_param *p, size_t i_param);
/* Sets the initial values of attention, once all parameters are drawn. */
void skv_net_shape_attention(skv_net *net);

/* ---- net_codes.c ---- */
size_t skv_net_codes_bytes(const skv_quant_form *form, size_t N, size_t K);
/* The tensor has a form. */
SKV_MUST_CHECK skv_status skv_net_codes_read(skv_net_codes *c, skv_pool *pool, const skv_tensor *t,
                                             skv_error *err);
void skv_net_codes_release(skv_net_codes *c);
/* out [N, K]; codes [n_threads, K] is scratch. */
void skv_net_codes_widen(const skv_net_codes *c, skv_pool *pool, float *out, uint8_t *codes);

/* ---- net_ops.c: operations over rows, on all threads ---- */
void skv_net_copy(skv_net *net, float *y, const float *x, size_t n);
/* y [n_rows, n] = norm(x). */
void skv_net_norm(skv_net *net, float *y, const float *x, const float *w, size_t n_rows, size_t n);
/* dx += and, where `w` is trained, its gradient +=. */
void skv_net_norm_back(skv_net *net, float *dx, const float *dy, const float *x, const skv_param *w,
                       size_t n_rows, size_t n);
/* Rotates x [T, n_heads Dh] by the angles of the positions, or back. */
void skv_net_rotate(skv_net *net, float *x, size_t n_tokens, size_t n_heads, size_t i_rope,
                    bool back);
void skv_net_silu_glu(skv_net *net, float *h, const float *gate, const float *up, size_t n);
/* gate and up become their gradients. */
void skv_net_silu_glu_back(skv_net *net, float *gate, float *up, const float *dh, size_t n);
/* grad of a bias += the sum of the rows of dy. */
void skv_net_bias_back(skv_net *net, skv_param *bias, const float *dy, size_t n_rows);

/* ---- net_linear.c: products with weights ---- */
/* Packs frozen weights, once; for a plan it only counts the bytes. */
SKV_MUST_CHECK skv_status skv_net_pack(skv_net *net, skv_error *err);
void skv_net_unpack(skv_net *net);
/* y [T, N] = x W^T + bias; with add, onto y. */
void skv_net_mul(const skv_net_pass *p, float *y, const float *x, const skv_net_linear *l,
                 bool add);
/* As skv_net_mul, for two or three matrices of one x; a NULL y[i] ends the list. */
void skv_net_mul_all(const skv_net_pass *p, float *const y[3], const float *x,
                     const skv_net_linear *const l[3]);
/* dx [T, K] (+)= dy W. */
void skv_net_mul_back(const skv_net_pass *p, float *dx, const float *dy, const skv_net_linear *l,
                      bool add);
/* Gradients of W and bias, if they are trained; x is only read in that case. */
void skv_net_mul_grad(const skv_net_pass *p, const float *dy, const float *x,
                      const skv_net_linear *l);
bool skv_net_linear_trained(const skv_net_linear *l);

/* ---- net_state.c: layers that keep a state ---- */
/* a->o from NORM(a->x) in net->normed and, in a deep layer, from net->swift. */
void skv_net_run_state(const skv_net_pass *p, size_t i, const skv_net_kept *a);
/* From d_gated, the gradient by the gated output: sets net->da to the gradient of the layer's
 * normed input, which is in net->normed; that of a deep layer's other input is added to
 * net->dswift. */
void skv_net_back_state(const skv_net_pass *p, size_t i, const skv_net_kept *a);
/* net->gated [T, nv dv] = NORM(a->o) silu(z). */
void skv_net_gate_state(const skv_net_pass *p, size_t i, const skv_net_kept *a);
/* Floats of net->dstate in a row. */
size_t skv_net_state_columns(const skv_config *c);
skv_delta_shape skv_net_delta_shape(const skv_config *c);

/* ---- net_ops.c: the gate of attention's output ---- */
/* y = o sigmoid(z). */
void skv_net_gate(skv_net *net, float *y, const float *o, const float *z, size_t n);
/* From dy: d_o, and z becomes its gradient. */
void skv_net_gate_back(skv_net *net, float *d_o, float *z, const float *dy, const float *o,
                       size_t n);

/* ---- net_experts.c: mixtures of experts ---- */
/* Floats in a row of the block's activation output: F, or k F. */
size_t skv_net_inner(const skv_net *net, size_t i);
/* out [T, D] = mid + the block's output; net->normed holds the norm of mid. */
void skv_net_run_experts(const skv_net_pass *p, size_t i, const skv_net_kept *a, float *out);
/* From dx: net->da [T, D] is set to the gradient of the block's normed input. */
void skv_net_back_experts(const skv_net_pass *p, size_t i);

/* ---- net_balance.c ---- */
/* After the forward pass: computes the balancing loss and the state that its gradient needs. */
void skv_net_balance(const skv_net_pass *p, const skv_net_scale *scale, skv_net_sums *sums);

/* ---- net_attention.c ---- */
void skv_net_segments(skv_net *net, const skv_train_batch *batch);
void skv_net_attend(const skv_net_pass *p, size_t i, const skv_net_kept *a);
/* From d_o: dq is set, dk and dv are added to. */
void skv_net_attend_back(const skv_net_pass *p, size_t i, const skv_net_kept *a);
size_t skv_net_attention_tile_floats(void);

/* ---- net_forward.c, net_backward.c, net_loss.c ---- */
SKV_MUST_CHECK skv_status skv_net_embed(const skv_net_pass *p, float *x, skv_error *err);
/* Runs layers [first, end); x_first is in skv_net_boundary(p, first). */
void skv_net_forward(const skv_net_pass *p, size_t first, size_t end);
float *skv_net_boundary(const skv_net_pass *p, size_t i);
void skv_net_backward(const skv_net_pass *p, const skv_net_scale *scale);
/* Sums of the batch; with `backward`, dx becomes the gradient of the final norm's output and
 * dswift that of norm_swiftkv's by way of the exit head. */
void skv_net_loss(const skv_net_pass *p, const skv_net_scale *scale, bool backward,
                  skv_net_sums *sums);

#endif
