/* A step on its way, shared by the files that walk it: forward.c, feed_forward.c, forward_output.c.
 */
#ifndef SKV_MODEL_FORWARD_IMPL_H
#define SKV_MODEL_FORWARD_IMPL_H

#include "model/forward.h"

/* Which rows are still alive, and for whom. */
typedef struct skv_pass {
    const skv_forward *f;
    const skv_model *m;
    const skv_config *c;
    skv_backend *be;
    skv_workspace *ws;
    skv_work *work; /* what is done is added here */
    size_t n_rows;  /* T */
    size_t n_alive; /* rows of x; step row of row i is ws->alive[i] */
    size_t n_items;
    bool all_alive;         /* alive is 0..T-1 */
    bool normed;            /* x has been through norm_swiftkv already */
    skv_forward_span *span; /* where rows are dropped: what is left of the only span */
} skv_pass;

static inline skv_norm skv_pass_norm(const skv_pass *p, const float *weight)
{
    return (skv_norm){weight, p->c->norm_offset_one ? 1.0f : 0.0f, (float)p->c->norm_eps};
}

/* Rows of hidden states. */
typedef struct skv_pass_rows {
    float *x; /* [n, D] */
    size_t n;
} skv_pass_rows;

/* A row's state in ws->mlp_left: how many blocks it still leaves out, or that it runs all. */
#define SKV_MLP_ALL UINT16_MAX

/* Operations of a product of n_rows rows. */
static inline double skv_work_product(size_t n_rows, size_t n_in, size_t n_out)
{
    return 2 * (double)n_rows * (double)n_in * (double)n_out;
}

/** First of the span's rows that is wanted: its end when none is. */
size_t skv_span_wanted(const skv_forward_span *span);
/** First of the span's rows that goes on beyond the last boundary. */
size_t skv_span_kept(const skv_forward_span *span);

/** x becomes the rows ws->gathered [n] of it, ascending. */
void skv_pass_gather(skv_pass *p, size_t n);
/** The same, and the rows that are not among them have ended. */
void skv_pass_keep(skv_pass *p, size_t n);

/** rows += W y [n, ldy], by way of a norm where the architecture has one behind the block. */
void skv_pass_project(const skv_pass *p, const skv_pass_rows *rows, const skv_linear *w,
                      const float *y, size_t ldy, const float *post_norm);
/** The block behind attention of layer i. */
void skv_pass_feed_forward(skv_pass *p, size_t i);

/** Tells the exit's logits of wanted rows that are sure of them: those rows end here. */
void skv_pass_exit(skv_pass *p);
/** Tells the wanted ones of the rows that came through the layers. */
void skv_pass_report(skv_pass *p);

#endif
