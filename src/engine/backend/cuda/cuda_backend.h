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

/** Rows as kernels take them. */
skv_cuda_rows skv_cuda_rows_of(skv_rows rows);

/* The table's functions, by their names in backend.h. */
void skv_cuda_fill_areas(skv_backend *table);
void skv_cuda_fill_pages(skv_backend *table);

#endif
