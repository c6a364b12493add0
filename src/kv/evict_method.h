/*
 * A method that chooses which rows stay, as a row of the table in evict.c, and what it is asked
 * about: one slot.
 */
#ifndef SKV_KV_EVICT_METHOD_H
#define SKV_KV_EVICT_METHOD_H

#include "kv/kv_cache.h"
#include "skv/eviction.h"

/* One slot as a method sees it. */
typedef struct skv_evict_slot {
    const skv_eviction *how;
    size_t i_slot, n_slots; /* among those that lose rows */
    size_t n_heads;
    const size_t *n_rows; /* [n_heads] */
    size_t n_window;      /* of each head, at most its rows */
    float *votes;         /* [n_heads][stride], of the prefix of each */
    size_t stride;
    float *scratch; /* [stride] */
} skv_evict_slot;

/* Rows of a head that are not its window. */
static inline size_t skv_evict_prefix(const skv_evict_slot *slot, size_t head)
{
    return slot->n_rows[head] - slot->n_window;
}

typedef enum skv_evict_voting {
    SKV_VOTES_NONE,   /* where a row stands is all that counts */
    SKV_VOTES_WINDOW, /* the last w tokens of the prompt */
    SKV_VOTES_ALL     /* every token of it */
} skv_evict_voting;

/* What a method's options may say beside C: a bit each. */
enum {
    SKV_EVICT_TAKES_WINDOW = 1,
    SKV_EVICT_TAKES_KERNEL = 2,
    SKV_EVICT_TAKES_SINKS = 4, /* before C */
    SKV_EVICT_TAKES_BETA = 8,
    SKV_EVICT_TAKES_FLOOR = 16,
    SKV_EVICT_TAKES_POOLING = 32, /* max|avg */
    SKV_EVICT_TAKES_HEADS = 64,   /* kv|query */
    SKV_EVICT_TAKES_DEPTH = 128   /* exact|last */
};

typedef struct skv_evict_method {
    const char *name, *form, *about;
    skv_evictor id;
    skv_evict_voting voting;
    unsigned takes;
    size_t window; /* the default; 0: half of the capacity */
    size_t kernel; /* the default */
    /* Turns a head's votes into scores, in place. */
    void (*score)(const skv_evict_slot *slot, size_t head);
    /* Rows of the prefix that each head keeps: n_kept [n_heads], at most what it has. */
    void (*share)(const skv_evict_slot *slot, size_t *n_kept);
} skv_evict_method;

extern const skv_evict_method skv_evict_snapkv, skv_evict_pyramidkv, skv_evict_adakv, skv_evict_h2o,
    skv_evict_streaming;

#endif
