/*
 * Choosing which rows of a prompt stay: a table of methods (SKV_EVICTOR_LIST in skv/eviction.h),
 * each a file of this folder, over one way of choosing. Pure arithmetic on votes; the cache does
 * the moving (kv_cache.h).
 *
 * Chosen is slot by slot. Of each head's n rows the last `n_window` stay; of the others, the
 * prefix, those with the highest scores, as many as the method's budget says.
 */
#ifndef SKV_KV_EVICT_H
#define SKV_KV_EVICT_H

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

/* The options that a method may have beside C: a bit each. The list of methods says which may
 * have HEADS. */
enum {
    SKV_EVICT_TAKES_WINDOW = 1,
    SKV_EVICT_TAKES_KERNEL = 2,
    SKV_EVICT_TAKES_SINKS = 4, /* before C */
    SKV_EVICT_TAKES_BETA = 8,
    SKV_EVICT_TAKES_FLOOR = 16,
    SKV_EVICT_TAKES_SMOOTHING = 32, /* max|avg */
    SKV_EVICT_TAKES_HEADS = 64,     /* kv|query */
    SKV_EVICT_TAKES_DEPTH = 128     /* exact|last */
};

enum { SKV_EVICT_ANY_ROWS = 0 };

typedef struct skv_evict_method {
    const char *form, *about;
    skv_evict_voting voting;
    unsigned takes;
    size_t window; /* the default; 0: half of the capacity */
    size_t kernel; /* the default */
    size_t most;   /* capacities that one head may keep; SKV_EVICT_ANY_ROWS: all of its rows */
    /* Turns a head's votes into scores, in place. */
    void (*score)(const skv_evict_slot *slot, size_t head);
    /* Rows of the prefix that each head keeps: n_kept [n_heads], at most all of its rows. */
    void (*share)(const skv_evict_slot *slot, size_t *n_kept);
} skv_evict_method;

#define SKV_EVICTOR_METHOD(id, name, rows, heads) extern const skv_evict_method skv_evict_##name;
SKV_EVICTOR_LIST(SKV_EVICTOR_METHOD)
#undef SKV_EVICTOR_METHOD

/** Rows that a head may keep of n; the eviction was checked. */
size_t skv_evict_most_rows(const skv_eviction *eviction, size_t n);
/** The rows that every head of a slot keeps: rows + h * rows_stride gets n_kept[h] of them,
 * window included. Overwrites the votes. */
void skv_evict_choose(const skv_evict_slot *slot, uint32_t *rows, size_t rows_stride,
                      size_t *n_kept);

/** SnapKV's scores: smoothed votes. */
void skv_evict_score_smoothed(const skv_evict_slot *slot, size_t head);
/** C - w rows for every head. */
void skv_evict_share_equally(const skv_evict_slot *slot, size_t *n_kept);
/** The `n_kept` highest of scores [n], the earlier of equals; ascending rows in kept [n_kept].
 * Scores are not negative. */
void skv_evict_top(const float *scores, size_t n, size_t n_kept, uint32_t *kept);
/** The n-th highest of `n_lists` lists of scores, and how many of that value are among the n. */
typedef struct skv_evict_limit {
    float score;    /* higher ones are chosen, */
    size_t n_equal; /* and so many that are equal to it */
} skv_evict_limit;
skv_evict_limit skv_evict_find_limit(const float *const *scores, const size_t *n, size_t n_lists,
                                     size_t n_chosen);

#endif
