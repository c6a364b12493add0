/*
 * The votes of one prompt, from the step that casts them (model/forward.h) to the choice.
 *
 * Tokens vote layer by layer as they are computed, whatever chunks they come in: a token's softmax
 * needs no key behind its own. So no queries are kept, only sums, 4 bytes a row and head. A layer
 * remembers how far it has voted, so that a step that was cancelled half-way can be run again. The
 * sums lie in the back end, which adds them up; the choice reads them once.
 */
#ifndef SKV_KV_VOTES_H
#define SKV_KV_VOTES_H

#include "kv/evict.h"

typedef struct skv_kv_votes {
    size_t from, to;    /* tokens [from, to) of the sequence vote; `to` is the prompt's end */
    bool by_query_head; /* there are votes for each query head, not for each KV head */
    size_t n_layers, n_slots;
    size_t *voted;   /* [n_layers], owned: tokens before this one have voted in the layer */
    size_t *track0;  /* [n_slots + 1], owned: slot s has the votes [track0[s], track0[s + 1]) */
    skv_backend *be; /* borrowed */
    skv_area *votes; /* [tracks, stride], owned; NULL: no prompt is under way */
    size_t stride;
} skv_kv_votes;

/** Votes for rows [0, stride), all zero. n_heads [n_slots]. */
SKV_MUST_CHECK skv_status skv_kv_votes_init(skv_kv_votes *votes, skv_backend *be, size_t n_layers,
                                            const size_t *n_heads, size_t n_slots, size_t stride,
                                            skv_error *err);
void skv_kv_votes_release(skv_kv_votes *votes);
/** Bytes of the votes for so many rows, and of a choice that is made of them. */
skv_bytes skv_kv_votes_bytes(const skv_backend *be, size_t n_tracks, size_t stride);
/** The votes of a slot. */
skv_rows skv_kv_votes_of(const skv_kv_votes *votes, size_t slot);

/* What a slot keeps, by how far back the layers that read it see: SCORED: all see every row, so the
 * method chooses. WHOLE: some do and some do not, so all rows stay. Any other number: none sees
 * further back than so many rows, and those stay. */
#define SKV_SLOT_SCORED ((size_t)0)
#define SKV_SLOT_WHOLE SIZE_MAX

/**
 * What every track of the votes is to keep, by the method `how`. n_rows [tracks], the rows that it
 * has; last_rows [n_slots], as above. Overwrites the votes. The choice is released with
 * skv_kv_choice_release.
 */
SKV_MUST_CHECK skv_status skv_kv_votes_choose(skv_kv_votes *votes, const skv_eviction *how,
                                              const size_t *n_rows, const size_t *last_rows,
                                              skv_kv_choice *out, skv_error *err);
/** An empty choice for the votes' tracks. */
SKV_MUST_CHECK skv_status skv_kv_choice_init(skv_kv_choice *choice, const skv_kv_votes *votes,
                                             skv_error *err);
/** The same choice for the tracks of one slot; the others' entries of n_rows are not read. */
SKV_MUST_CHECK skv_status skv_kv_votes_choose_slot(skv_kv_votes *votes, const skv_eviction *how,
                                                   size_t slot, const size_t *n_rows,
                                                   const size_t *last_rows, skv_kv_choice *out,
                                                   skv_error *err);
void skv_kv_choice_release(skv_kv_choice *choice, size_t n_tracks);

#endif
