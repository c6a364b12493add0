/* What the files of the CUDA back end share. */
#ifndef SKV_BACKEND_CUDA_BACKEND_H
#define SKV_BACKEND_CUDA_BACKEND_H

#include "backend/backend.h"
#include "backend/cuda/cuda_device.h"

typedef struct skv_cuda_mapping skv_cuda_mapping;

typedef struct skv_cuda_backend {
    skv_backend base; /* first: a skv_backend * is this */
    skv_cuda_device device;
    skv_cuda_mapping *mappings; /* owned: of rows that the host has */
    skv_ticket tickets;         /* that have been given */
    /* Scratch of products, of the device: rows of x, bf16, and results, f32; and as many zeros as a
     * step has rows. */
    void *operand, *product;
    const uint32_t *zeros;
} skv_cuda_backend;

static inline skv_cuda_backend *skv_cuda_of(skv_backend *be)
{
    return (skv_cuda_backend *)be;
}

/* ACTIVATIONS are bf16. */
struct skv_area {
    unsigned char *at;    /* of the device */
    unsigned char *other; /* NULL, or where gather puts what it leaves: the two are swapped */
    void *block;          /* owned by the first area of a block: what all lie in */
    uint32_t type;        /* SKV_CUDA_F32 or SKV_CUDA_BF16 */
};

struct skv_page_pool {
    unsigned char *at; /* of the device: owned, [n_pages][page_bytes] */
    size_t page_bytes, n_pages;
};

struct skv_slots {
    skv_slots_spec spec; /* its lists are `lists` */
    void *lists;         /* owned */
    size_t n_tracks;
    skv_cuda_track *tracks; /* of the device: owned, [n_tracks] */
};

/* Numbers of the device, as cuda_args.h has them: what each track has lost, then pages. */
struct skv_table {
    const skv_slots *slots;
    uint32_t *at;      /* of the device: owned */
    uint32_t *dropped; /* [n_tracks] of the host: owned */
};

struct skv_linear {
    uint16_t *at; /* of the device: owned, [N, ld] bf16, zeros beyond K; so is: */
    float *bias;  /* [N] */
    bool has_bias;
    size_t N, K, ld, n_parts;
    size_t *first; /* [n_parts + 1] owned: rows of part i are [first[i], first[i + 1]) */
};

/** Rows as kernels take them. */
skv_cuda_rows skv_cuda_rows_of(skv_rows rows);

/** A vector as one row. */
static inline skv_cuda_rows skv_cuda_vec_of(skv_vec vec)
{
    return skv_cuda_rows_of((skv_rows){.area = (skv_area *)(uintptr_t)vec.area, .at = vec.at});
}

/* The table's functions, by their names in backend.h. */
void skv_cuda_fill_areas(skv_backend *table);
void skv_cuda_fill_pages(skv_backend *table);
void skv_cuda_fill_rows(skv_backend *table);
void skv_cuda_fill_linear(skv_backend *table);

/** y [n_rows, n] = norm(x[list[i]]); list NULL: i. */
void skv_cuda_norm_to(skv_cuda_backend *be, skv_cuda_rows y, skv_rows x, size_t n_rows, size_t n,
                      const skv_norm *norm, const uint32_t *list);
/** Of n_rows rows of n. */
void skv_cuda_move(skv_cuda_backend *be, skv_cuda_move_args args, size_t n_rows, size_t n);

#endif
