/* What the files of the CUDA back end share. */
#ifndef SKV_BACKEND_CUDA_BACKEND_H
#define SKV_BACKEND_CUDA_BACKEND_H

#include "backend/backend.h"
#include "backend/cuda/cuda_device.h"
#include "backend/cuda/cuda_graphs.h"
#include "backend/cuda/cuda_nccl.h"
#include "backend/cuda/cuda_upload.h"
#include "base/pool.h"
#include "kernels/kernels.h"

typedef struct skv_cuda_mapping skv_cuda_mapping;

/* Blocks of attention: which step, set and shape they are of. */
typedef struct skv_cuda_blocks {
    const skv_backend_step *step;
    uint64_t serial;          /* of the step's description */
    uint64_t used;            /* number of the last list of launches that use `blocks` */
    const skv_cuda_block *at; /* of the device: `blocks` or `singles` */
    skv_row_set set;
    size_t n_group, head_dim;
    size_t n_decode, n_prompt; /* those of attention_decode come first */
} skv_cuda_blocks;

/* The experts of rows, by the last `route`: of the device, in its working memory. */
typedef struct skv_cuda_routes {
    size_t n_rows, n_pairs, n_terms; /* terms of a row: with the shared expert */
    uint32_t *chosen;                /* [n_pairs] */
    uint32_t *rows;                  /* [n_pairs]: of the pair at each place */
    uint32_t *places;                /* [n_rows, n_terms] */
    float *weights;                  /* [n_rows, n_terms] */
    uint32_t *first;                 /* [experts + 1]: places of each */
} skv_cuda_routes;

/* Sums over ranks of one program. */
typedef struct skv_cuda_part skv_cuda_part;
typedef struct skv_cuda_sums {
    skv_cuda_part *parts; /* [ranks] owned; NULL: the host adds up */
    skv_cu_event written, read;
    bool reaches;         /* the others' devices */
    skv_nccl_comm comm;   /* owned; NULL: sums are by copies */
    skv_nccl_comm *comms; /* [ranks] of rank 0: owned; the communicators are not */
    int refused;          /* NCCL's reason why there are none */
} skv_cuda_sums;

typedef struct skv_cuda_backend {
    skv_backend base; /* first: a skv_backend * is this */
    skv_cuda_device device;
    uint32_t activations;       /* their type */
    skv_pool *pool;             /* the host's threads: borrowed */
    skv_cuda_mapping *mappings; /* owned: of rows that the host has */
    skv_ticket tickets;         /* that have been given */
    uint64_t n_described;       /* steps, each time */
    size_t n_under_way;         /* steps */
    skv_area *moving_areas;     /* that do not outlive steps: borrowed */
    skv_backend_limits limits;
    /* What `reserve` takes: owned. */
    void *work, *host_work; /* of the device, and of the host; in which lie: */
    size_t host_work_bytes;
    uint16_t *operand;       /* [n_operand] bf16: rows of a product, or queries */
    float *operand_scales;   /* [max_rows]: of rows of e4m3 in `operand` */
    uint16_t *unpacked;      /* [n_unpacked] bf16: rows of a matrix of codes */
    float *product;          /* [n_product]: results of a product, rows that are f32 for a while */
    uint32_t *list;          /* [max_rows]: rows that stay */
    skv_cuda_block *blocks;  /* of attention, as many as there can be */
    skv_cuda_block *singles; /* [n_singles]: block i is all of item i */
    float *part_o, *part_ml; /* [pairs, head_dim], [pairs, 2]: portions of attention */
    float *vote_norms;       /* [max_rows, max_heads] */
    unsigned char *moving;   /* [n_moving]: lists of rows of pages that move */
    unsigned char *wishes;   /* lists of wishes, as host_wishes; and rows that they change: */
    float *changed;          /* [SKV_CUDA_PICKS, vocab] */
    skv_cuda_block *host_blocks;
    unsigned char *host_moving;
    uint32_t *host_list;
    unsigned char *host_wishes; /* owned, pinned: n_wishes bytes are used */
    size_t n_wishes;
    size_t n_operand, n_unpacked, n_product, n_moving, n_singles;
    skv_cuda_upload upload; /* from `reserve` on */
    skv_round_int4_fn *round_int4;
    bool no_fp8;               /* cuBLASLt has refused a product of e4m3 */
    skv_cuda_blocks blocks_of; /* those in `blocks`; step NULL: none */
    skv_cuda_routes routes;
    skv_cuda_sums sums;
    skv_cuda_nccl nccl; /* of several ranks of one program, where it is there and wanted */
    bool needs_nccl;
} skv_cuda_backend;

enum { SKV_CUDA_PICKS = 32 }; /* wishes for rows of logits of a launch */

typedef struct skv_cuda_picks skv_cuda_picks;

static inline skv_cuda_backend *skv_cuda_of(skv_backend *be)
{
    return (skv_cuda_backend *)be;
}

/* ACTIVATIONS are bf16, or f32 with keys and values of f32. */
struct skv_area {
    unsigned char *at;    /* of the device */
    unsigned char *other; /* NULL, or the target of gather: the two are swapped */
    bool is_swapped;
    skv_area *next; /* of be->moving_areas */
    float *host;    /* [n_rows * n_columns] of the host, for `map` */
    void *block;    /* owned by the first area: all of its group lie in it; so is: */
    void *host_block;
    size_t host_bytes;
    uint32_t type; /* SKV_CUDA_F32 or SKV_CUDA_BF16 */
};

struct skv_page_pool {
    unsigned char *at; /* of the device: owned, [n_pages][page_bytes] */
    size_t page_bytes, n_pages;
    unsigned char *host; /* owned: a page of the host, for page_map */
};

struct skv_slots {
    skv_slots_spec spec; /* its lists are `lists` */
    void *lists;         /* owned */
    size_t n_tracks;
    skv_cuda_track *tracks; /* of the device: owned, [n_tracks] */
};

/* Numbers of the device, as cuda_args.h has them: rows that each track has lost, then pages. */
struct skv_table {
    const skv_slots *slots;
    uint32_t *at;      /* of the device: owned */
    uint32_t *dropped; /* [n_tracks] of the host: owned */
};

/* Parts of a matrix that follow each other, and whose codes have one form. */
typedef struct skv_cuda_run {
    skv_cuda_codes codes;
    void *block;         /* of the device: owned; the codes lie in it */
    size_t row0, n_rows; /* of the matrix */
} skv_cuda_run;

struct skv_linear {
    void *at;           /* of the device: owned, [N, ld] of `type`, zeros beyond K; NULL: codes */
    skv_cuda_run *runs; /* [n_runs] owned; NULL: no codes */
    float *bias;        /* [N] of the device: owned */
    uint32_t type;      /* SKV_CUDA_BF16 or SKV_CUDA_F32 */
    bool has_bias;
    bool paired; /* gate, then up */
    size_t N, K, ld, n_parts, n_runs;
    size_t *first; /* [n_parts + 1] owned: rows of part i are [first[i], first[i + 1]) */
};

struct skv_experts {
    const skv_linear *w; /* one of them: all have its shape. Borrowed */
    skv_cuda_expert *at; /* of the device: owned, [n] */
    size_t n;
};

struct skv_embedding {
    void *at; /* of the device: owned, [n_rows, K] of the type of activations */
    size_t n_rows, K, first_id;
};

struct skv_angles {
    skv_angles_spec spec;
};

/* A set of rows. */
typedef struct skv_cuda_set {
    const uint32_t *rows;            /* of the device, [n_rows]; NULL: 0..n_rows-1 */
    const uint32_t *host_rows;       /* the same */
    const skv_cuda_item *items;      /* of the device, [n_items] */
    const skv_cuda_item *host_items; /* the same */
    size_t n_rows, n_items;
} skv_cuda_set;

typedef struct skv_cuda_step_angles {
    const skv_angles *of;
    skv_cuda_angles at; /* of the device */
} skv_cuda_step_angles;

/* Its lists lie in one block of pinned memory, which goes to a block of the device at once. What is
 * chosen lies after the rest and goes alone. */
struct skv_backend_step {
    uint64_t serial;
    const skv_slots *slots;        /* of all tables */
    const skv_table **tables;      /* [max_rows] owned: of the spans */
    size_t n_rows;                 /* T */
    const skv_cuda_step_row *rows; /* of the device, [T] */
    const uint32_t *ids;           /* of the device, [T] */
    const skv_cuda_span *spans;    /* of the device, [n_spans] */
    size_t n_spans, longest_span;
    skv_cuda_set sets[SKV_SET_COUNT];
    skv_cuda_step_angles angles[SKV_STEP_ANGLES];
    size_t n_angles;
    skv_backend_step_limits limits;
    unsigned char *host, *device; /* owned: the blocks, n_bytes each */
    size_t n_bytes;
    skv_cuda_picks *picks; /* owned */
};

/** Rows as kernels take them. */
skv_cuda_rows skv_cuda_rows_of(skv_rows rows);

/** Its two memories: gather has written the other one. */
void skv_cuda_swap(skv_area *area);

/** A vector as one row. */
static inline skv_cuda_rows skv_cuda_vec_of(skv_vec vec)
{
    return skv_cuda_rows_of((skv_rows){.area = (skv_area *)(uintptr_t)vec.area, .at = vec.at});
}

static inline const float *skv_cuda_floats_of(skv_vec vec)
{
    return vec.area ? skv_cuda_vec_of(vec).at : NULL;
}

/** Rows [*, ld] of scratch: of `operand`, whose type is BF16, or of `product`. */
static inline skv_cuda_rows skv_cuda_scratch(void *at, uint32_t type, size_t ld)
{
    return (skv_cuda_rows){.at = at, .ld = (uint32_t)ld, .type = type, .aligned = ld % 8 == 0};
}

/* ---- cuda_weights.c: matrices on their way to the device ---- */

/** Bytes of a matrix; SIZE_MAX: more than can be counted. */
size_t skv_cuda_weights_bytes(const skv_linear_spec *spec);
/** Takes the memory of w, whose N, K, ld, type and `first` are known, and fills it. */
SKV_MUST_CHECK skv_status skv_cuda_weights_load(skv_cuda_backend *be, skv_linear *w,
                                                const skv_linear_spec *spec, skv_error *err);
/** Columns of a row as it is stored: whole groups. */
size_t skv_cuda_weights_ld(skv_weight_type type, size_t K);
/** A table [source->n_rows, K] of the type of activations, from a source, through pinned memory. */
SKV_MUST_CHECK skv_status skv_cuda_table_load(skv_cuda_backend *be, const skv_row_source *source,
                                              size_t K, void *to, skv_error *err);

/* ---- cuda_picks.c: the picks of a step, and the lists of wishes ---- */

skv_bytes skv_cuda_picks_bytes(const skv_backend_step_limits *limits);
SKV_MUST_CHECK skv_status skv_cuda_picks_create(skv_cuda_backend *be,
                                                const skv_backend_step_limits *limits,
                                                skv_cuda_picks **out, skv_error *err);
/** NULL: nothing happens. */
void skv_cuda_picks_free(skv_cuda_backend *be, skv_cuda_picks *picks);
/** Bytes of `wishes`, and of `host_wishes`. */
size_t skv_cuda_wishes_bytes(size_t vocab);

/* The table's functions, by their names in backend.h. */
void skv_cuda_fill_areas(skv_backend *table);
void skv_cuda_fill_pages(skv_backend *table);
void skv_cuda_fill_moves(skv_backend *table);
void skv_cuda_fill_rows(skv_backend *table);
void skv_cuda_fill_linear(skv_backend *table);
void skv_cuda_fill_steps(skv_backend *table);
void skv_cuda_fill_attention(skv_backend *table);
void skv_cuda_fill_experts(skv_backend *table);
void skv_cuda_fill_states(skv_backend *table);
void skv_cuda_fill_picks(skv_backend *table);
void skv_cuda_fill_sums(skv_backend *table);

/** y [n_rows, n] = norm(x[list[i]]), and n_zeros zeros after each; list NULL: i. Scales of e4m3 are
 * those of the operand. */
void skv_cuda_norm_to(skv_cuda_backend *be, skv_cuda_rows y, skv_rows x, size_t n_rows, size_t n,
                      size_t n_zeros, const skv_norm *norm, const uint32_t *list);
/** Of n_rows rows of n; `operand` may become their norm in the same launch. */
void skv_cuda_add(skv_cuda_backend *be, skv_cuda_move_args args, size_t n_rows, size_t n);
void skv_cuda_mix(skv_cuda_backend *be, skv_cuda_mix_args args, size_t n_rows, size_t n);
/** Of n_rows rows of n. */
void skv_cuda_move(skv_cuda_backend *be, skv_cuda_move_args args, size_t n_rows, size_t n);
/** So many gated products of each row, as skv_cuda_add. */
void skv_cuda_glu(skv_cuda_backend *be, skv_cuda_glu_args args, size_t n_rows, size_t n);

/** Lays the lists of `routes` out from `base` (NULL: only counts); returns their bytes. */
size_t skv_cuda_lay_out_routes(skv_cuda_routes *routes, const skv_backend_limits *limits,
                               unsigned char *base);

/** Whether there are kernels of attention for such heads. */
bool skv_cuda_has_heads_of(size_t head_dim);
/** Takes the events of sums, by be->limits. */
SKV_MUST_CHECK skv_status skv_cuda_sums_open(skv_cuda_backend *be, skv_error *err);
/** Also of sums that could not be opened. */
void skv_cuda_sums_close(skv_cuda_backend *be);
/** Bytes of `moving`. */
size_t skv_cuda_moving_bytes(size_t max_kv_rows);

/* Portions that there is room for: of pairs of a row and a query head. */
enum { SKV_CUDA_PART_PAIRS = 8192 };

#endif
