/*
 * What the guarded back end holds, for guarded_backend.c and guarded_pages.c, which has its pages
 * and tables.
 */
#ifndef SKV_TESTS_GUARDED_STATE_H
#define SKV_TESTS_GUARDED_STATE_H

#include <stdatomic.h>
#include <sys/types.h>

#include "guarded_backend.h"

enum {
    MAX_MAPS = 16,
    MAX_READS = 256, /* of pages, at a time */
    MAX_OPERANDS = 12,
    MAX_RECORDINGS = 64,
    NONSENSE = 0xff, /* four of them are a NaN */
    PADDING = 3      /* floats between mapped rows that do not stand close together */
};

typedef struct guarded guarded;

struct skv_area {
    const guarded *of; /* NULL: it has been freed */
    skv_area *inner;   /* its memory; where there are `bits`, they are unpacked there */
    uint16_t *bits;    /* owned, [n]: bfloat16; NULL: the numbers are those of `inner` */
    skv_area_spec spec;
    size_t n;         /* elements */
    size_t n_used;    /* elements up to the last that was named since a step began */
    unsigned n_maps;  /* that it has now */
    size_t n_created; /* together with it, if it is the first of them */
    skv_area *next;   /* of those that are there, or that have been freed */
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

/* Memory that lasts for a while, and is overwritten when that has ended: a copy of the host's for
 * an operation, or of a result for the host. */
typedef struct kept {
    struct kept *next;
    size_t n_bytes;
    max_align_t bytes[];
} kept;

/* A pick of a step. */
typedef struct pick_state {
    size_t n_ids;
    bool is_read; /* the host has seen it */
} pick_state;

/* A step, and what it was described by. */
struct skv_backend_step {
    const guarded *of;
    skv_backend_step *inner;
    size_t max_rows, max_picks, max_numbers;
    bool is_under_way;
    size_t n_picks, n_numbers;        /* that it has picked */
    pick_state *picks;                /* owned, [max_picks] */
    kept *results, *ended;            /* owned: what it has seen; nonsense since the next pick 0 */
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

/* Rows that an operation names. */
typedef struct operand {
    skv_area *area;
    size_t at, ld, n_rows, n;
} operand;

/* What computes an operation: on the CPU's back end, by arguments that name its areas. */
typedef void guarded_replay(guarded *g, void *args);

typedef struct record {
    guarded_replay *replay;
    void *args; /* owned, [n_bytes] */
    size_t n_bytes;
    operand operands[MAX_OPERANDS];
    size_t n_operands;
    kept *lists; /* owned */
} record;

/* What a decoding step looks like from outside, and the operations that steps like it had. */
typedef struct recording {
    const void *step, *slots;
    size_t n_rows, n_spans, n_kept, n_wanted, n_items;
    unsigned char *tape; /* owned, [n_bytes]; NULL: free */
    size_t n_bytes;
} recording;

/* Rows that save_rows was given, on their way to `host`. */
typedef struct saving {
    struct saving *next;
    unsigned char *host, *copy;
    size_t n_bytes;
} saving;

struct guarded {
    skv_backend base; /* first */
    skv_backend *cpu; /* owned */
    bool rounds;      /* activations are bfloat16: the emulated device */
    atomic_bool is_inside;
    record next;     /* the operands and lists of the operation that is being recorded */
    record *records; /* owned, [n_room]: the first n_records have not run yet */
    size_t n_records, n_room;
    recording taping; /* of the step under way; no tape: it does not repeat */
    size_t n_tape_room;
    recording recordings[MAX_RECORDINGS];
    size_t i_recording;
    saving *savings;        /* owned */
    skv_area *areas, *gone; /* owned */
    size_t n_areas, n_pools, n_experts, n_tables, n_slots, n_states, n_steps, n_angles;
    mapping maps[MAX_MAPS];
    page_view views[MAX_MAPS];
    reading readings[MAX_READS];
    skv_ticket last_ticket;
    size_t n_under_way; /* steps */
    routed routed;
    bool is_busy;             /* something was computed, and nobody has waited for it */
    size_t n_waits, n_mapped; /* n_mapped: numbers, for reading */
};

/* The harness of alloc_fail.h counts the library's allocations, not these. */
void *__real_malloc(size_t n_bytes);
void *__real_calloc(size_t count, size_t size);
void *__real_mmap(void *at, size_t n_bytes, int access, int flags, int fd, off_t offset);

_Noreturn void guarded_die(const char *what);
void *guarded_take(size_t n_bytes);

/* A function of the table begins, and one that starts an operation:
 *     guarded *g LEAVES = guarded_begin(base);
 * One thread at a time is inside. */
guarded *guarded_inside(skv_backend *base);
guarded *guarded_begin(skv_backend *base);
void guarded_leave(guarded *const *g);
#define LEAVES __attribute__((cleanup(guarded_leave)))

/* ---- guarded_list.c: operations are recorded, and run at a wait ---- */

#if defined __has_builtin
#if __has_builtin(__builtin_clear_padding)
#define GUARDED_COMPARES 1 /* arguments byte for byte */
#endif
#endif
#ifdef GUARDED_COMPARES
#define CLEAR_PADDING(a) __builtin_clear_padding(a)
#else
#define CLEAR_PADDING(a) ((void)(a))
#endif

/* An operation of the table that takes a struct: its replay, and its recording with arguments that
 * were translated. */
#define REPLAYS(op) REPLAYS_OF(op, skv_##op##_args)
#define REPLAYS_OF(op, type)                                                                       \
    static void replay_##op(guarded *g, void *args)                                                \
    {                                                                                              \
        g->cpu->op(g->cpu, (const type *)args);                                                    \
    }
#define LATER(g, op, args)                                                                         \
    do {                                                                                           \
        CLEAR_PADDING(&(args));                                                                    \
        guarded_later(g, replay_##op, &(args), sizeof(args));                                      \
    } while (0)

void guarded_later(guarded *g, guarded_replay *replay, const void *args, size_t n_bytes);
/* A copy in a list of such. */
void *guarded_copy(kept **list, const void *from, size_t n_bytes);
void guarded_spoil_copies(const kept *list);
void guarded_free_copies(kept *list);
/* A copy of memory of the host for the operation that is being recorded; NULL for NULL. */
void *guarded_keep(guarded *g, const void *from, size_t n_bytes);
/* All operations so far run. */
void guarded_run(guarded *g);
/* The host reads results. */
void guarded_wait(guarded *g);
/* A step that repeats begins: what follows is compared with steps like it. */
void guarded_tape(guarded *g, const skv_backend_step *step);
/* n elements of an area as the host sees them. */
void guarded_load(const guarded *g, const skv_area *area, size_t at, float *out, size_t n);
/* A row of the CPU's. */
float *guarded_row(const guarded *g, skv_rows inner, size_t i);
/* What was recorded and compared goes. */
void guarded_list_free(guarded *g);

/* Where a step begins beside no other: areas that do not last hold nothing. */
void guarded_forget(guarded *g);
/* Rows that save_rows was given go to the host. */
void guarded_deliver(guarded *g);
/* Becomes the emulated device. */
void guarded_emulate(guarded *g);

/* Fills the functions of pages, slots and tables of a table, those of steps, of linear
 * attention, of experts and of picks. */
void guarded_add_pages(skv_backend *base);
void guarded_add_steps(skv_backend *base);
void guarded_add_states(skv_backend *base);
void guarded_add_experts(skv_backend *base);
/* Those of tables of embeddings, and `sum`. */
void guarded_add_tables(skv_backend *base);
void guarded_add_picks(skv_backend *base);
void guarded_free_picks(skv_backend_step *step);
/* A step of this back end, which is under way. */
skv_backend_step *guarded_step(const guarded *g, const skv_backend_step *step);

/* ---- operands ---- */

/* The CPU's rows for n_rows rows of n columns of any kind, which are an operand. */
skv_rows guarded_rows(guarded *g, skv_rows rows, size_t n_rows, size_t n);
/* The same of floats, of rows that may be none, of a vector, of a norm over n numbers. */
skv_rows guarded_floats(guarded *g, skv_rows rows, size_t n_rows, size_t n);
skv_rows guarded_rows_or_none(guarded *g, skv_rows rows, size_t n_rows, size_t n);
skv_vec guarded_vec(const guarded *g, skv_vec vec, size_t n);
skv_norm guarded_norm_of(const guarded *g, skv_norm norm, size_t n);
/* x and y of an operation that must not overlap. */
void guarded_check_apart(skv_rows x, size_t x_rows, size_t nx, skv_rows y, size_t y_rows,
                         size_t ny);
/* Columns of y. */
size_t guarded_columns_of(const skv_linear *w, const skv_linear_args *args);
/* n_rows rows of the CPU's hold nothing when the operations so far have run. */
void guarded_spoil(guarded *g, skv_rows inner, size_t n_rows, size_t n);
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
