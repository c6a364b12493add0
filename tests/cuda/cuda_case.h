/* Random inputs of kernels, and comparison of results with numbers in double precision. */
#ifndef SKV_TESTS_CUDA_CASE_H
#define SKV_TESTS_CUDA_CASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/rng.h"
#include "device.h"
#include "kernels/kv_page.h"

enum { CUDA_CASE_BLOCKS = 128 };

/* Everything that a case has made lives until cuda_case_end. */
typedef struct cuda_case {
    skv_rng rng;
    const char *what; /* is tested */
    int n_failed, n_checks;
    void *host[CUDA_CASE_BLOCKS], *device[CUDA_CASE_BLOCKS];
    size_t n_host, n_device;
} cuda_case;

void cuda_case_end(cuda_case *c);

/** Runs a check in each order of lanes and warps; returns the number of results that are wrong. */
int cuda_run(void (*check)(cuda_case *c), uint64_t seed);

size_t cuda_below(cuda_case *c, size_t n);
bool cuda_one_in(cuda_case *c, size_t n);

void *cuda_host(cuda_case *c, size_t n_bytes); /* zeros */
void *cuda_device(cuda_case *c, size_t n_bytes);
void *cuda_upload(cuda_case *c, const void *host, size_t n_bytes);
void *cuda_download(cuda_case *c, const void *device, size_t n_bytes);
float *cuda_normals(cuda_case *c, size_t n, double size);

/* Rows on the device, with NaNs between and around them, and what they are. */
typedef struct cuda_rows {
    skv_cuda_rows at;
    unsigned char *memory; /* of the device */
    size_t n_bytes, first; /* of it; the first row's element */
    size_t n_rows, n;
    float *host; /* [n_rows, n]; NULL: undefined as yet */
} cuda_rows;

/** Undefined rows. */
cuda_rows cuda_new_rows(cuda_case *c, uint32_t type, bool aligned, size_t n_rows, size_t n);
/** Normal numbers of this size, rounded to the type. */
cuda_rows cuda_random_rows(cuda_case *c, uint32_t type, bool aligned, size_t n_rows, size_t n,
                           double size);
/** The rows as they are now, [n_rows, n]; e4m3 without scales. What is around them must still be
 * NaNs. */
float *cuda_fetch_rows(cuda_case *c, const cuda_rows *rows);

/** |got - want| is at most `most` times |want|, as vectors. */
void cuda_near(cuda_case *c, const float *got, const double *want, size_t n, double most);
/** Nothing was wrong. */
void cuda_none(cuda_case *c, const char *what, size_t n_wrong);

/* ---- weights as codes ---- */

enum { CUDA_CODED_FORMS = 7, CUDA_CODED_GROUP = 64 };

/* A matrix as the kernels take it, and its numbers. */
typedef struct cuda_coded {
    skv_cuda_codes at;
    size_t N, K;
    double *w; /* [N, K] */
} cuda_coded;

/** Of a random form; K is a multiple of CUDA_CODED_GROUP. */
cuda_coded cuda_random_coded(cuda_case *c, size_t N, size_t K);
/** Number i of it, rounded to bf16, as the kernels multiply it. */
double cuda_coded_value(const cuda_coded *m, size_t i);

/* ---- keys and values ---- */

/* The pages of a slot, in some sequences. */
typedef struct cuda_cache {
    skv_kv_type type;
    size_t head_dim, n_heads, n_seqs, max_pages;
    size_t page_bytes, n_pool, table_words;
    unsigned char *pool;    /* [n_pool][page_bytes], the host's; so is: */
    uint32_t *tables;       /* [n_seqs][table_words] */
    skv_cuda_track *tracks; /* [n_heads] */
    unsigned char *d_pool;  /* the device's, which cuda_put_cache fills; so is: */
    uint32_t *d_tables;
    skv_cuda_kv kv;
} cuda_cache;

/** Pages in random places, full of bytes 0xff; a head has lost fewer than most_dropped rows. */
cuda_cache cuda_new_cache(cuda_case *c, skv_kv_type type, size_t head_dim, size_t n_heads,
                          size_t n_seqs, size_t max_pages, size_t most_dropped);
void cuda_put_cache(cuda_cache *cache);
const uint32_t *cuda_table(const cuda_cache *cache, size_t seq); /* the device's */
size_t cuda_dropped(const cuda_cache *cache, size_t seq, size_t head);
/** Where a head's page is in `pool`, which has the rows from `row` on. */
unsigned char *cuda_page(const cuda_cache *cache, unsigned char *pool, size_t seq, size_t head,
                         size_t row);
/** Row `row` of K (which 0) or V of a page, from x [head_dim] and as it is stored. */
void cuda_set_row(const cuda_cache *cache, unsigned char *page, size_t row, size_t which,
                  const float *x);
void cuda_get_row(const cuda_cache *cache, const unsigned char *page, size_t row, size_t which,
                  float *x);

/* ---- the checks, each some random cases ---- */

void check_cuda_rows(cuda_case *c);
void check_cuda_picks(cuda_case *c);
void check_cuda_place(cuda_case *c);
void check_cuda_attention(cuda_case *c);
void check_cuda_votes(cuda_case *c);
void check_cuda_codes(cuda_case *c);
void check_cuda_pages(cuda_case *c);
void check_cuda_experts(cuda_case *c);
void check_cuda_states(cuda_case *c);

#endif
