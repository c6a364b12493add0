/* Pages, sequences and steps for the checks of a back end: see check_backend.h. */
#ifndef SKV_TESTS_CHECK_BACKEND_KV_H
#define SKV_TESTS_CHECK_BACKEND_KV_H

#include "check_backend_impl.h"
#include "kernels/kv_page.h"

enum {
    STRIDE = (CHECK_KV_ROWS + SKV_PAGE_ROWS - 1) / SKV_PAGE_ROWS,
    KV_HEADS = 4,
    COPIES = 2,
    OTHERS = 2, /* heads of another slot */
    TRACKS = KV_HEADS * COPIES + 2 * OTHERS,
    SEQUENCES = 3,
    POOL = SEQUENCES * TRACKS * STRIDE + 40
};

/* Of those that the back end has. */
skv_kv_type check_draw_type(backend_check *c);
size_t check_draw_head_dim(backend_check *c);

/* ---- pages and tables ---- */

/* A pool, and three slots of which the operation uses the second one. */
typedef struct memory {
    skv_kv_type type;
    size_t n_heads, head_dim, page_bytes; /* of that slot */
    size_t track0, n_tracks;
    skv_track_spec tracks[TRACKS];
    size_t n_bundles;
    skv_page_pool *pool;
    skv_slots *slots;
    uint32_t order[POOL]; /* pages, the next ones to take from n_taken on */
    size_t n_taken;
    unsigned char *host; /* [POOL][page_bytes]: what pages hold */
} memory;

enum { SLOT = 1 };

/* The pages of one sequence. */
typedef struct sequence {
    memory *m;
    skv_table *table;
    uint32_t pages[TRACKS][STRIDE]; /* by bundle */
    size_t n_pages[TRACKS];
    size_t dropped[TRACKS];
} sequence;

/* Up to two heads lie beside each other in a page, whatever their slots. */
memory *check_draw_memory(backend_check *c, skv_kv_type type, size_t n_heads, size_t head_dim);
/* Pages for n_rows rows of each head, less those that it has lost: up to n_droppable. */
sequence *check_draw_sequence(backend_check *c, memory *m, size_t n_rows, size_t n_droppable);
/* Entries change piece by piece, and pages that were given up come back. */
void check_write_table(backend_check *c, const sequence *s);
/* Random rows in the pages of every head of the slot. */
void check_fill_sequence(backend_check *c, sequence *s, size_t n_rows);
/* Rows that a head of the slot has lost; row r of those it has. */
size_t check_dropped_of(const sequence *s, size_t h);
void check_load_row(const sequence *s, size_t h, size_t r, float *k, float *v);
/* The host's page becomes what the back end has, for every page of a sequence. */
void check_get_pages(backend_check *c, const sequence *s);
unsigned char *check_host_page(const memory *m, uint32_t page);
/* What rounding to a page may do to each of a row's numbers want [n], which are right within
 * size [n]. */
void check_page_bounds(skv_kv_type type, const double *want, const double *size, size_t n,
                       double *bound);

/* ---- steps ---- */

/* A step, and what the host believes of it. */
typedef struct step {
    memory *m;
    skv_backend_step *at;
    size_t n_spans, n_rows; /* T */
    sequence *of[SEQUENCES];
    skv_backend_span spans[SEQUENCES];
    bool singly[SEQUENCES];
    skv_set_spec sets[SKV_SET_COUNT]; /* the lists are the host's */
    uint32_t *positions;              /* [T] or NULL */
    int32_t *ids;                     /* [T], below CHECK_IDS */
    skv_angles_spec how[SKV_STEP_ANGLES];
    skv_angles *angles[SKV_STEP_ANGLES];
    const skv_backend_step *angles_of;
    size_t span_of[CHECK_ROWS], place[CHECK_ROWS]; /* of each row: its place in its sequence */
} step;

/* New rows of one to SEQUENCES sequences, behind at most most_past of each, and random sets. Heads
 * may have lost rows. */
step *check_draw_step(backend_check *c, memory *m, size_t most_past, bool drops);
/* Describes it, after another one that has nothing to do with it. */
void check_begin_step(backend_check *c, step *s);
/* One of the sets that attention can take; CHOSEN is chosen for it. */
skv_row_set check_draw_set(backend_check *c, step *s);
/* Number d of the cosines and sines of a row. */
void check_angle(const step *s, size_t i_angles, size_t row, size_t d, double *co, double *si);
/* The step row of row i of a set. */
size_t check_row_of(const step *s, skv_row_set set, size_t i);

#endif
