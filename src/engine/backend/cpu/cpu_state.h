/* The CPU back end: threads, kernels, workspace and memory of weights. */
#ifndef SKV_CPU_STATE_H
#define SKV_CPU_STATE_H

#include "backend/backend.h"
#include "base/pool.h"
#include "kernels/kernels.h"

/* A stretch of memory that packed weights are laid into one after the other. Large stretches lie
 * in huge pages almost whole, which decoding, that reads all weights for every token, feels. */
typedef struct skv_cpu_chunk {
    struct skv_cpu_chunk *next; /* owned */
    unsigned char *base;        /* owned, mapped */
    size_t size, used;          /* bytes */
} skv_cpu_chunk;

/* The floats of a tensor. */
struct skv_area {
    float *at;            /* [n_rows, n_columns] as they were asked for */
    unsigned char *block; /* owned by the first of those created together: where all of them lie */
    size_t block_bytes;
};

/* Where rows or a vector begin; NULL: there are none. */
static inline float *skv_cpu_at(skv_rows rows)
{
    return rows.area ? rows.area->at + rows.at : NULL;
}

static inline const float *skv_cpu_row_at(skv_rows rows, size_t i, size_t column)
{
    return skv_cpu_at(rows) + i * rows.ld + column;
}

static inline const float *skv_cpu_vec(skv_vec vec)
{
    return vec.area ? vec.area->at + vec.at : NULL;
}

struct skv_page_pool {
    unsigned char *memory; /* owned, mapped: [n_pages][page_bytes] */
    size_t page_bytes, n_pages;
};

struct skv_slots {
    skv_slots_spec spec; /* with lists of its own, in one block after this */
    size_t n_tracks;
    size_t *first; /* [n_bundles]: a track of each; */
    size_t *next;  /* [n_tracks]: the next one of the bundle, n_tracks: there is none */
};

struct skv_table {
    const skv_slots *slots; /* borrowed */
    void **pages;           /* owned, mapped: [n_tracks][max_pages], where a track's rows begin */
    size_t n_lost;          /* tracks that have lost rows */
    size_t dropped[];       /* [n_tracks]: how many */
};

/* The pages of a track. */
static inline void **skv_cpu_track(const skv_table *table, size_t track)
{
    return table->pages + track * table->slots->spec.max_pages;
}

struct skv_angles {
    skv_angles_spec spec;
};

/* Angles of the rows of a step. */
typedef struct skv_cpu_angles {
    const skv_angles *of;
    float *cos, *sin; /* [n_rows, n], of the step or of another one */
} skv_cpu_angles;

/* A row of a step. */
typedef struct skv_cpu_row {
    const skv_table *table;
    size_t place; /* in its sequence */
    size_t position, context;
} skv_cpu_row;

/* A span, in the state of its sequence. */
typedef struct skv_state_span {
    size_t state;
    size_t row0, n, n_past, n_undo;
} skv_state_span;

/* An item of skv_backend_step_spec, with its table. */
typedef struct skv_cpu_item {
    size_t row0, n_q, n_past;
    const skv_table *table;
    bool follows;
} skv_cpu_item;

/* A set of rows. */
typedef struct skv_cpu_set {
    const uint32_t *rows; /* [n_rows] or NULL, as in skv_set_spec */
    size_t n_rows;
    const skv_cpu_item *items; /* [n_items] */
    size_t n_items;
} skv_cpu_set;

/* A picked row, and where its lists are. */
typedef struct skv_cpu_picked {
    skv_picked told;
    skv_candidate *top; /* [told.n_top] */
    float *at;          /* [n_ids] */
} skv_cpu_picked;

struct skv_backend_step {
    const skv_slots *slots; /* of all tables */
    skv_cpu_set sets[SKV_SET_COUNT];
    const skv_table **tables; /* [n_spans]: of the spans */
    skv_cpu_row *row;         /* [n_rows] */
    size_t n_rows;            /* T */
    skv_state_span *spans;    /* [n_spans] */
    size_t n_spans;
    skv_cpu_angles angles[SKV_STEP_ANGLES];
    size_t n_angles;
    float *numbers; /* [max_rows, 2 angle_columns]: the step's own angles */
    size_t angle_columns;
    uint32_t *rows[SKV_SET_COUNT];      /* [max_rows] each: the lists of the sets; */
    skv_cpu_item *items[SKV_SET_COUNT]; /* NULL where a set has none */
    size_t max_rows;
    skv_cpu_picked *picked;    /* [max_picks] */
    skv_candidate *candidates; /* [max_numbers], of them all, n_numbers of which are used; */
    float *found;              /* [max_numbers], likewise */
    size_t n_numbers, max_picks, max_numbers;
    void *lists; /* owned: the memory of all of it */
    size_t list_bytes;
};

struct skv_experts {
    size_t n;
    const skv_linear *w[]; /* [n], borrowed */
};

/* The choices of the last `route`; room for the limits of the back end. */
typedef struct skv_cpu_routes {
    size_t n_rows, n_terms; /* n_terms: of a row's sum, the shared expert's included */
    uint32_t *places;       /* [n_rows, n_terms]: rows of y, as skv_mix_args has it */
    float *weights;         /* [n_rows, n_terms] */
    uint32_t *rows;         /* [n_rows * n_active]: of each pair */
    size_t *first;          /* [n_experts + 1]: expert e has pairs [first[e], first[e + 1]) */
    void *lists;            /* owned: their memory; NULL: there is no room for any */
    size_t list_bytes;
} skv_cpu_routes;

typedef struct skv_cpu_desk skv_cpu_desk; /* cpu_pick.c */

typedef struct skv_cpu_backend {
    skv_backend base; /* first: a skv_backend * is this */
    skv_pool *pool;   /* borrowed */
    skv_kernels kernels;
    char form[96]; /* base.form, where it is not NULL: each choice that was made */
    bool halves;   /* single rows of few panels may be cut into halves of them (cpu_cut.h) */
    skv_backend_limits limits;
    unsigned char *packed; /* rows of a product, packed: owned, packed_bytes */
    size_t packed_bytes;
    unsigned char *scratch; /* [n_threads][scratch_bytes], 64-byte aligned: owned */
    size_t scratch_bytes;
    float *partials;            /* [n_partials], owned: attention portions */
    size_t n_partials;          /* floats */
    struct skv_cpu_task *tasks; /* attention tasks: owned */
    size_t n_tasks_max;
    float *vote_norms;                /* [max_rows][max_heads], owned: of tokens that vote */
    struct skv_cpu_product *products; /* [limits.max_experts], owned: products that run at once */
    skv_cpu_routes routes;
    unsigned char *pick_memory; /* owned, pick_bytes; NULL: nothing is picked */
    size_t pick_bytes;
    skv_cpu_desk *desks;   /* [n_threads] */
    uint64_t *team_sums;   /* [n_threads - 1][SKV_LOGIT_BUCKETS] */
    skv_cpu_chunk *chunks; /* owned: weights, the newest chunk first */
} skv_cpu_backend;

static inline void *skv_cpu_scratch(const skv_cpu_backend *be, size_t i_thread)
{
    return be->scratch + i_thread * be->scratch_bytes;
}

/** Zeroed memory for packed weights, NULL when there is none; it lives as long as the back end. */
void *skv_cpu_take_weights(skv_cpu_backend *be, size_t n_bytes);

/** Gives all of that memory back. */
void skv_cpu_release_weights(skv_cpu_backend *be);

#endif
