/*
 * Token pruning, the baseline of KV Prediction (arXiv:2410.08391, section 5; after LazyLLM,
 * arXiv:2407.14057): a prompt is read without some of its tokens. The remaining tokens stand at
 * consecutive positions, as if the others had never been there. Tokens whose output is wanted
 * always stay.
 */
#ifndef SKV_PREFILL_PRUNING_H
#define SKV_PREFILL_PRUNING_H

#include "model/forward.h"

/** kept [n]: the n_keep highest scores, the first of equals. */
void skv_prune_by_score(const double *scores, size_t n, size_t n_keep, bool *kept);

/** Scores of tokens [position0, position0 + n) of a prompt: their values do not matter. */
void skv_prune_random(uint64_t seed, size_t position0, size_t n, double *scores);

/** Layers that are run to see which tokens matter: a quarter of all. */
size_t skv_prune_probe_layers(size_t n_layers);

/* The attention that the last row of a step pays to rows before it, summed over heads and layers.
 */
typedef struct skv_prune_probe {
    const skv_model *model;
    const skv_plan *plan;
    const skv_kv_cache *cache;
    size_t n_rows;   /* of the layer's slot, the asking one last */
    size_t row0, n;  /* rows [row0, row0 + n) have scores */
    double *scores;  /* [n], added to */
    double *weights; /* [n_rows], scratch */
    skv_work *work;  /* the work of looking is added */
} skv_prune_probe;

/** on_query of a hook whose state is a skv_prune_probe. */
void skv_prune_look(void *user, size_t i_layer, skv_rows q, size_t n_rows);

/* ---- lazyllm.c ---- */

/* A prompt on its way: its first n_left rows may be dropped, those after them are wanted. Every
 * slot then has rows of its own. */
typedef struct skv_lazy {
    skv_prune_probe probe;
    size_t
        *slot_rows; /* [n_slots], borrowed: rows that each slot has; those of the step are added */
    double keep, end;
    size_t n_all, n_left; /* rows that may be dropped: at first, and now */
    bool *kept;           /* [n_all], scratch */
} skv_lazy;

/** Drops rows between the layers of a step of one span; the prompt is borrowed. */
skv_hook skv_lazy_hook(skv_lazy *lazy);

#endif
