/*
 * A pass: new rows of any number of sequences through the layers of a model, as a plan says. A
 * driver (engine/steps/step.h) describes the run. How far it is stands beside it, for the files
 * that walk it (forward.c, keys_values.c, forward_output.c) and for hooks that change which rows go
 * on (model/hook.h).
 *
 * The caches have been grown, so row r of a span lies at cache row n_past + r. Rows whose output is
 * not wanted stop at the plan's last boundary.
 */
#ifndef SKV_MODEL_PASS_H
#define SKV_MODEL_PASS_H

#include <stdatomic.h>

#include "model/forward.h"

enum { SKV_PASS_HOOKS = 3 }; /* the sink's, the driver's and the early exit's */

struct skv_pass {
    /* -- the run -- */
    const skv_model *m;
    const skv_plan *plan;
    skv_workspace *ws;
    skv_pass_span *spans; /* [n_spans]; at most ws->max_rows tokens in all; hooks may change them */
    size_t n_spans;
    const skv_step_sink *sink;
    const struct skv_adapters *adapters;   /* that spans may have; NULL: none */
    const skv_hook *hooks[SKV_PASS_HOOKS]; /* [n_hooks] */
    size_t n_hooks;
    const struct skv_ffn_skipper *ffn_skipper; /* NULL: rows leave out no block */
    skv_states *states; /* of layers that keep one; NULL: all layers have attention */
    skv_work *work;     /* the work done is added here */
    size_t first_layer; /* the first to run; 0: after the embedding */
    size_t end_layer;   /* the rows stop before it, and no output is made; 0: none */
    bool stack_only; /* of layers [first_layer, end_layer) nothing but their parts of the stack */
    skv_rows rows;   /* [T, D]: of one span, x as it enters first_layer, when that is not 0, and as
                      * it leaves the layer before end_layer; none: with neither. With stack_only: x
                      * at the stack's boundary; none: `saved` */
    const unsigned char *saved; /* [T] rows that save_rows made of it, for the stack's product */
    atomic_bool *cancel;        /* asked between layers, and false again when it was; may be NULL */

    /* -- how far it is: zeros before skv_pass_run -- */
    const skv_config *c;
    skv_backend *be;
    skv_pool *pool; /* for work on the host */
    size_t n_rows;  /* T */
    size_t n_alive; /* rows of x: those of `set` */
    skv_row_set set;
    skv_backend_step_spec spec; /* as the back end knows the step, and CHOSEN; the lists are ws's */
    bool adapts;                /* some span has an adapter */
    size_t n_picks;             /* ws->picks that have not been told, */
    size_t n_picked;            /* the first of which the back end has, */
    size_t n_numbers;           /* and the numbers that they want */
};

/** Runs a pass, once. SKV_CANCELLED when `cancel` was set; the caches are then incomplete for these
 * rows. Keys and values of the stack are written before the first of its layers runs, but not where
 * that is first_layer: then they are there. */
SKV_MUST_CHECK skv_status skv_pass_run(skv_pass *p, skv_error *err);

/* Step rows that the rows of x are, as operations take a list; NULL: all of them. */
static inline const uint32_t *skv_pass_rows(const skv_pass *p)
{
    return p->spec.sets[p->set].rows;
}

/* The step row that row i of x is. */
static inline size_t skv_pass_row(const skv_pass *p, size_t i)
{
    return skv_pass_rows(p) ? skv_pass_rows(p)[i] : i;
}

static inline skv_norm skv_pass_norm(const skv_pass *p, skv_vec weight)
{
    return (skv_norm){weight, p->c->norm_offset_one ? 1.0f : 0.0f, (float)p->c->norm_eps, false};
}

/* Operations of a product of n_rows rows. */
static inline double skv_work_product(size_t n_rows, size_t n_in, size_t n_out)
{
    return 2 * (double)n_rows * (double)n_in * (double)n_out;
}

/** A product of layer i, which hooks see. */
void skv_pass_linear(const skv_pass *p, size_t i, skv_product product, const skv_linear_args *args);

/** Rows x [n_rows, D] become their sums over ranks, where there are any. */
void skv_pass_sum(const skv_pass *p, skv_rows x, size_t n_rows);

/* ---- which rows go on ---- */

/** First of the span's rows that is wanted: its end when none is. */
size_t skv_span_wanted(const skv_pass_span *span);
/** First of the span's rows that goes on beyond the last boundary. */
size_t skv_span_kept(const skv_pass_span *span);

/** Describes the step to the back end, once, before anything runs. */
SKV_MUST_CHECK skv_status skv_pass_begin(skv_pass *p, skv_error *err);
/** Describes it anew: the rows that are left are all rows of p->spans. */
void skv_pass_change(skv_pass *p);
/** x becomes the rows ws->gathered [n] of it, ascending; the others have ended. */
void skv_pass_keep(skv_pass *p, size_t n);
/** Only rows whose output is wanted, and those of spans that skip nothing, go on. */
void skv_pass_keep_wanted(skv_pass *p);

/* ---- keys and values ---- */

/** Heads that the rows of layer i are cached for. */
size_t skv_pass_tracks(const skv_pass *p, size_t i);
/** Columns of the keys and values of layer i together. */
size_t skv_pass_kv_columns(const skv_pass *p, size_t i);
/** q of the rows that are left and k, v [T] of layer i, as the projections `by` have made them, or
 * a part of them: norm, rotation, and k and v into the layer's slot. */
void skv_pass_place(const skv_pass *p, size_t i, const skv_projections *by, skv_rows q, skv_rows k,
                    skv_rows v);
/** The same in a step that is not a pass's, of a set of its rows. */
void skv_place_layer(const skv_model *m, const skv_plan *plan, size_t i, const skv_projections *by,
                     skv_place_args args);
/** Keys and values of those layers of [i, end) that write a part of the stack, from x, normed by
 * `norm` [D]; none: it is normed already. */
void skv_pass_make_stack(const skv_pass *p, size_t i, size_t end, skv_vec norm);

/* ---- layers that keep a state: mixer.c ---- */

/** ws->o [n_alive, the columns that are returned] of layer i: the input of its last product.
 * `wanted_only`: rows drop out here. */
size_t skv_pass_mix(skv_pass *p, size_t i, bool wanted_only);
/** x is at the stack's boundary: it is kept for the states that it feeds, of layers before `end`.
 */
void skv_pass_keep_boundary(const skv_pass *p, size_t end);
/** All rows go into the states of those of layers [i, end) that this boundary feeds; none comes
 * out, and none has gone into them. */
void skv_pass_feed_states(const skv_pass *p, size_t i, size_t end);

/* ---- the feed-forward block ---- */

/** The part of a block after its first product. */
skv_epilogue skv_pass_activation(const skv_config *c);
/** Its experts, without counting work: moe.c. Where a dense block stands beside them, the result is
 * ws->ffn_sum instead of being added to x. */
void skv_pass_run_experts(const skv_pass *p, size_t i, skv_rows x, size_t n);

/* ---- rows that are wanted ---- */

/* A span of the step, and its first row there. */
typedef struct skv_span_place {
    size_t i_span, row0;
} skv_span_place;

/* The span of row `row` of x, searched from one that does not come after it. */
static inline skv_span_place skv_pass_find_span(const skv_pass *p, skv_span_place from, size_t row)
{
    while (skv_pass_row(p, row) >= from.row0 + p->spans[from.i_span].at.n) {
        from.row0 += p->spans[from.i_span++].at.n;
    }
    return from;
}

/** ws->logits [n, W] of rows of x by the exit head, which has W of the ids. */
void skv_pass_exit(const skv_pass *p, size_t row, size_t n);
/** Row `row` of x is told; its logits are row i of ws->logits. */
void skv_pass_tell(skv_pass *p, skv_span_place at, size_t row, size_t i);
/** Picks the largest logit of rows [0, n) of ws->logits [n, V], n at most SKV_LOGIT_ROWS, and how
 * likely it is; nothing is told. */
void skv_pass_pick_best(skv_pass *p, size_t V, size_t n);
/** The result of row i of them, until something else is picked. */
skv_picked skv_pass_picked(const skv_pass *p, size_t i);
/** Tells the wanted ones of the rows that came through the layers. */
void skv_pass_report(skv_pass *p);

#endif
