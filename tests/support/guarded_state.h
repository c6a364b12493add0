/*
 * What the guarded back end holds, for guarded_backend.c and guarded_pages.c, which has its pages
 * and tables.
 */
#ifndef SKV_TESTS_GUARDED_STATE_H
#define SKV_TESTS_GUARDED_STATE_H

#include <sys/types.h>

#include "guarded_backend.h"

enum {
    MAX_MAPS = 16,
    MAX_READS = 256, /* of pages, at a time */
    NONSENSE = 0xff, /* four of them are a NaN */
    PADDING = 3      /* floats between mapped rows that do not stand close together */
};

typedef struct guarded guarded;

struct skv_area {
    const guarded *of;
    skv_area *inner;
    skv_area_spec spec;
    size_t n;         /* elements */
    unsigned n_maps;  /* that it has now */
    size_t n_created; /* together with it, if it is the first of them */
};

struct skv_linear {
    skv_linear *inner;
    size_t n_parts, K;
    bool paired;
    size_t n_rows[]; /* [n_parts] */
};

/* The processor keeps no tables of embeddings: this is one as a device has it. */
struct skv_embedding {
    const guarded *of;
    size_t first_id, n_rows, K;
    float rows[]; /* [n_rows, K] */
};

struct skv_experts {
    skv_experts *inner;
    const skv_linear *first;
    size_t n;
};

/* What the last `route` has chosen; zeros: another step has begun since. */
typedef struct routed {
    size_t n_rows, n_pairs, n_experts;
    bool shared;
} routed;

struct skv_states {
    const guarded *of;
    skv_states *inner;
    size_t n_states;
    skv_state_layer layers[]; /* [n_layers] */
};

struct skv_page_pool {
    const guarded *of;
    skv_page_pool *inner;
    size_t page_bytes, n_pages;
    uint32_t *holders; /* [n_pages]: entries of tables that are this page */
};

struct skv_slots {
    const guarded *of;
    skv_slots *inner;
    skv_page_pool *pool;
    skv_kv_type type;
    size_t n_slots, n_bundles, n_tracks, max_pages, n_tables;
    size_t *track0;
    skv_track_spec *tracks;
};

struct skv_table {
    const guarded *of;
    skv_table *inner;
    skv_slots *slots;
    uint32_t *pages; /* [n_bundles][max_pages]: NO_PAGE where there is none */
    size_t *dropped; /* [n_tracks] */
};

#define NO_PAGE UINT32_MAX

struct skv_angles {
    const guarded *of;
    skv_angles *inner;
    size_t n;
};

/* A step, and what it was described by. */
struct skv_backend_step {
    const guarded *of;
    skv_backend_step *inner;
    size_t max_rows;
    bool is_under_way;
    size_t n_rows, n_spans, n_angles; /* n_rows: T */
    const skv_angles *angles[SKV_STEP_ANGLES];
    size_t angle_columns;
    uint32_t *positions;     /* owned, [n_rows] */
    const int32_t *ids;      /* owned, [n_rows] or NULL */
    skv_backend_span *spans; /* owned, [n_spans] */
    /* With lists that are owned; none where a set has not been described. */
    skv_set_spec sets[SKV_SET_COUNT];
};

/* Pages that are on their way to `host`; `copy` is what they were. */
typedef struct reading {
    skv_ticket ticket; /* 0: free */
    unsigned char *copy, *host;
    size_t n_bytes;
    bool asked; /* they arrive when they are asked for once more */
} reading;

/* A page as the host sees it. */
typedef struct page_view {
    unsigned char *at; /* owned; NULL: free */
    size_t n_bytes;
} page_view;

typedef struct mapping {
    float *host; /* owned; NULL: free */
    skv_rows rows;
    size_t n_rows, n, ld;
    skv_map_access access;
} mapping;

struct guarded {
    skv_backend base; /* first */
    skv_backend *cpu; /* owned */
    size_t n_areas, n_pools, n_experts, n_tables, n_slots, n_states, n_steps, n_angles;
    mapping maps[MAX_MAPS];
    page_view views[MAX_MAPS];
    reading readings[MAX_READS];
    skv_ticket last_ticket;
    size_t n_under_way; /* steps */
    routed routed;
    bool is_busy; /* something was computed, and nobody has waited for it */
    size_t n_waits;
};

/* The harness of alloc_fail.h counts the library's allocations, not these. */
void *__real_malloc(size_t n_bytes);
void *__real_calloc(size_t count, size_t size);
void *__real_mmap(void *at, size_t n_bytes, int access, int flags, int fd, off_t offset);

_Noreturn void guarded_die(const char *what);
void *guarded_take(size_t n_bytes);
/* The host reads results. */
void guarded_wait(guarded *g);
/* The back end before an operation. */
guarded *guarded_enter(skv_backend *base);

/* Fills the functions of pages, slots and tables of a table, and those of steps. */
void guarded_add_pages(skv_backend *base);
void guarded_add_steps(skv_backend *base);
/* The CPU's rows for n_rows rows of n columns of any kind. */
skv_rows guarded_rows(const guarded *g, skv_rows rows, size_t n_rows, size_t n);
/* n_rows rows of the CPU's hold nothing from now on. */
void guarded_spoil(const guarded *g, skv_rows inner, size_t n_rows, size_t n);
/* A set of a step that is under way, which an operation names. */
const skv_set_spec *guarded_set(const guarded *g, const skv_backend_step *step, skv_row_set set);
/* The slots of a table that an operation names, which have this one. */
const skv_slots *guarded_slots_of(const skv_table *table, size_t slot);
/* All rows that tokens [n_past, n_past + n_q) see in a slot have pages. */
void guarded_check_seen(const skv_table *table, size_t slot, size_t n_past, size_t n_q,
                        size_t window);
/* Every row of a step is written in every head of a slot. */
void guarded_check_written(const skv_backend_step *step, size_t slot);

#endif
