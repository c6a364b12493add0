/*
 * Picks from rows of logits: the host states a wish for a row, and gets a few numbers in place of
 * the whole row. See `pick` of backend.h.
 */
#ifndef SKV_BACKEND_PICK_H
#define SKV_BACKEND_PICK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "skv/skv.h"

enum {
    SKV_PICK_MAX = 256,        /* of the largest */
    SKV_PICK_IDS_MAX = 256,    /* whose logits are wanted */
    SKV_PICK_BIASES_MAX = 1024 /* as many as serving takes of a request */
};

typedef struct skv_candidate {
    int32_t id;
    float logit;
} skv_candidate;

/* A token that penalties look at. */
typedef struct skv_penalty {
    int32_t id;
    uint32_t n_seen;      /* times in prompt and answer */
    uint32_t n_generated; /* times in the answer */
} skv_penalty;

/*
 * A wish for row `row` of logits x [V]. `top`, `norm` and `at` describe x as it is; `best` and `id`
 * describe a copy that is changed for this pick alone:
 *
 *     ids that the mask lacks become -inf; biases are added
 *     penalties, in double, rounded to f32 at the end of each id:
 *         x = x > 0 ? x / repetition : x * repetition
 *         x -= presence     if n_generated > 0
 *         x -= frequency * n_generated
 *     held ids become -inf, unless nothing else is left
 *
 * NaN is never one of the largest and has no probability. Ids are below V, but for those that are
 * held, of which others mean nothing.
 */
typedef struct skv_pick_row {
    size_t row;
    size_t n_top; /* at most SKV_PICK_MAX */
    bool norm;
    const int32_t *ids; /* [n_ids]: `at` has their logits; at most SKV_PICK_IDS_MAX */
    size_t n_ids;
    const uint32_t *mask;         /* [ceil(V / 32)], bits of the ids that may come; NULL: all */
    const skv_logit_bias *biases; /* [n_biases], at most SKV_PICK_BIASES_MAX */
    size_t n_biases;
    const skv_penalty *penalties; /* [n_penalties], each id once; with the numbers of `sampling` */
    size_t n_penalties;
    const int32_t *held[2]; /* [n_held[i]] */
    size_t n_held[2];
    /* How `id` is drawn, by `u` in [0, 1), which is the host's. Each id has a part of [0, 1) as
     * large as it is likely. Where the parts lie is the back end's to say, but the same row,
     * options and number give the same id. NULL: it is `best`. */
    const skv_sampling *sampling;
    double u;
} skv_pick_row;

/* The result: the back end's memory, until the next pick that begins with row 0. */
typedef struct skv_picked {
    const skv_candidate *top; /* [n_top]: the larger logit first, the lower id of equals */
    size_t n_top;             /* fewer than were wanted where there are fewer */
    const float *at;          /* [n_ids] */
    double norm;              /* log(sum of exp(x)): log p(i) = x_i - norm; not wanted: NaN */
    skv_candidate best;       /* the first of the largest. -inf: nothing is left */
    int32_t id;               /* the one that was drawn */
    float logit;              /* of `id` in x as it is */
    bool released;            /* nothing but held ids was left, so they could come */
} skv_picked;

/* Whether a draw is the best one, whatever number comes. */
static inline bool skv_sampling_is_greedy(const skv_sampling *s)
{
    return s->temperature <= 0 || s->top_k == 1 || s->top_p <= 0;
}

#endif
