/* The back end of two from inside: shared by split_*.c. See split.h. */
#ifndef SKV_SPLIT_BACKEND_H
#define SKV_SPLIT_BACKEND_H

#include "backend/split/split.h"

enum { SKV_SPLIT_FIRST, SKV_SPLIT_SECOND, SKV_SPLIT_SIDES, SKV_SPLIT_MAPPINGS = 16 };

struct skv_area {
    skv_area *of[SKV_SPLIT_SIDES];
    unsigned valid; /* bits: the sides that have the contents */
    size_t end;     /* elements before it may have been written; of others both have the same */
    bool lasts;
    skv_area *next;                    /* of all areas */
    skv_area **inner[SKV_SPLIT_SIDES]; /* owned, by the first of those created together: theirs */
};

struct skv_linear {
    skv_linear *of[SKV_SPLIT_SIDES]; /* owned; NULL: no part is there */
    size_t n_parts, n_first;         /* parts [0, n_first) are the first's */
    bool paired;
    size_t column0[]; /* [n_parts + 1]: where parts begin */
};

struct skv_experts {
    skv_experts *of; /* owned, by `side` */
    unsigned side;
    size_t n_columns;
    bool paired;
};

/* Pages [0, n_first) have memory of the first back end, pages from `second0` on of the second. */
struct skv_page_pool {
    skv_page_pool *of[SKV_SPLIT_SIDES]; /* owned */
    size_t page_bytes, n_first, second0;
};

struct skv_slots {
    skv_slots *of[SKV_SPLIT_SIDES]; /* owned */
    size_t n_slots, n_bundles;
    size_t *track0;                           /* owned, [n_slots + 1] */
    unsigned char *slot_sides, *bundle_sides; /* owned: bits */
};

struct skv_table {
    skv_table *of[SKV_SPLIT_SIDES]; /* owned */
    const skv_slots *slots;
};

struct skv_angles {
    skv_angles *of[SKV_SPLIT_SIDES]; /* owned */
};

struct skv_states {
    skv_states *of[SKV_SPLIT_SIDES]; /* owned; NULL: no layer is there */
    size_t n_layers;
    skv_state_layer *layers;             /* owned */
    size_t *index;                       /* owned: which of its side's a layer is */
    size_t state_bytes[SKV_SPLIT_SIDES]; /* of one state */
};

struct skv_backend_step {
    skv_backend_step *of[SKV_SPLIT_SIDES]; /* owned */
    skv_backend_span *spans;               /* owned, [max_rows]: scratch */
    size_t max_rows;
    size_t n_rows[SKV_SET_COUNT];
    const skv_slots *slots; /* of its tables; NULL: it has none */
    unsigned picked;        /* the side that picks */
};

typedef struct skv_split_mapping {
    float *host;          /* [n_rows, ld], which the caller has; NULL: it is free */
    skv_mapped of, other; /* `other` gets the same when it is unmapped; at NULL: it does not */
    unsigned side;        /* of `of` */
    size_t n_rows, n;
} skv_split_mapping;

typedef struct skv_split_backend {
    skv_backend base;
    skv_backend *of[SKV_SPLIT_SIDES]; /* owned */
    size_t n_layers;
    skv_area *areas; /* all that there are */
    skv_split_mapping mappings[SKV_SPLIT_MAPPINGS];
    unsigned current; /* the side where the last operation ran that could run on one alone */
    size_t n_under_way;
    unsigned routed; /* bits: the sides of the last `route`; its rows and its pairs */
    size_t n_routed, n_pairs;
    skv_status read_failed; /* of pages_read */
    unsigned page_side;     /* of page_map */
    skv_split_counts counts;
} skv_split_backend;

static inline skv_split_backend *skv_split_of(skv_backend *be)
{
    return (skv_split_backend *)be;
}

static inline unsigned skv_split_bit(unsigned side)
{
    return 1U << side;
}

enum { SKV_SPLIT_BOTH = 3 };

static inline unsigned skv_split_side(const skv_split_backend *be, size_t layer)
{
    return layer < be->n_layers ? SKV_SPLIT_FIRST : SKV_SPLIT_SECOND;
}

/* ---- split_areas.c ---- */

/** Copies the contents of the area to the memory of `side`. */
void skv_split_bring(skv_split_backend *be, skv_area *area, unsigned side);
/** An operation of `side` uses rows as `access` says, which become those of its back end: all that
 * are read come before those that are written. */
void skv_split_use(skv_split_backend *be, unsigned side, skv_rows *rows, size_t n_rows, size_t n,
                   skv_map_access access);
/** The same of a vector. */
void skv_split_use_vec(skv_split_backend *be, unsigned side, skv_vec *vec);
/** Where an operation can run that has these operands, `b` may be none. */
unsigned skv_split_choose(const skv_split_backend *be, skv_rows a, skv_rows b);
/** Areas that do not outlive steps have no contents. */
void skv_split_forget(skv_split_backend *be);

/* ---- the parts of the table ---- */

void skv_split_fill_areas(skv_backend *table);
void skv_split_fill_weights(skv_backend *table);
void skv_split_fill_pages(skv_backend *table);
void skv_split_fill_steps(skv_backend *table);
void skv_split_fill_rows(skv_backend *table);
void skv_split_fill_attention(skv_backend *table);
void skv_split_fill_states(skv_backend *table);

#endif
