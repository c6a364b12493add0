/* Rows of pages that move: bytes that must be those of other rows, and keys that are turned. */
#include <math.h>
#include <string.h>

#include "base/size.h"
#include "cuda_case.h"

enum { CASES = 12, PAGES = 3, ROWS = PAGES * SKV_PAGE_ROWS, NUMBERS = 2048 };

static const size_t dims[] = {16, 80, 256};

/* Two sequences, full of rows. */
static cuda_cache full_cache(cuda_case *c, int i)
{
    const skv_kv_type type = (skv_kv_type)(SKV_KV_TYPE_F32 + i % 4);
    cuda_cache cache = cuda_new_cache(c, type, dims[cuda_below(c, 3)], 2, 2, PAGES, 0);
    const float *numbers = cuda_normals(c, NUMBERS, 1);
    for (size_t r = 0; r < 4 * ROWS; r++) {
        const size_t row = r % ROWS, seq = r / ROWS / 2, head = r / ROWS % 2;
        for (size_t which = 0; which < 2; which++) {
            cuda_set_row(&cache, cuda_page(&cache, cache.pool, seq, head, row), row % SKV_PAGE_ROWS,
                         which, numbers + cuda_below(c, NUMBERS - cache.head_dim));
        }
    }
    cuda_put_cache(&cache);
    return cache;
}

/* Row `to` of a page becomes row `from` of another: K (which 0) or V, as bytes. */
static void copy_row(const cuda_cache *cache, unsigned char *to_page, size_t to,
                     const unsigned char *from_page, size_t from, size_t which)
{
    const size_t n = cache->head_dim, n_bytes = n * skv_kv_size(cache->type);
    const size_t rows = skv_page_rows_at(cache->type, n, which);
    memmove(to_page + rows + to * n_bytes, from_page + rows + from * n_bytes, n_bytes);
    if (!skv_kv_has_scales(cache->type)) return;
    const size_t scales = skv_page_scales_at(cache->type, n, which);
    to_page[scales + to] = from_page[scales + from];
}

static const uint32_t *pages_of(const cuda_cache *cache, size_t seq, size_t head)
{
    return cache->tables + seq * cache->table_words + cache->tracks[head].pages;
}

static void no_other_byte(cuda_case *c, const cuda_cache *cache, const unsigned char *got)
{
    size_t n_wrong = 0;
    for (size_t i = 0; i < cache->n_pool * cache->page_bytes; i++) {
        n_wrong += got[i] != cache->pool[i];
    }
    cuda_none(c, "bytes are not those of the rows", n_wrong);
}

/* Some rows of a head to its first ones, or to those of the other sequence. */
static void check_compact(cuda_case *c, int i)
{
    cuda_cache cache = full_cache(c, i);
    const size_t to_seq = cuda_below(c, 2), to_head = to_seq ? cuda_below(c, 2) : 0;
    const uint32_t *from = pages_of(&cache, 0, 0), *to = pages_of(&cache, to_seq, to_head);
    uint32_t rows[ROWS], n = 0;
    for (uint32_t r = 0; r < ROWS; r++) {
        if (cuda_one_in(c, 2) || r == ROWS - 1) rows[n++] = r;
    }
    for (uint32_t j = 0; j < 2 * n; j++) {
        const size_t at = j / 2;
        copy_row(&cache, cuda_page(&cache, cache.pool, to_seq, to_head, at), at % SKV_PAGE_ROWS,
                 cuda_page(&cache, cache.pool, 0, 0, rows[at]), rows[at] % SKV_PAGE_ROWS, j % 2);
    }
    const skv_cuda_compact_job job = {.to = cuda_upload(c, to, PAGES * sizeof *to),
                                      .from = cuda_upload(c, from, PAGES * sizeof *from),
                                      .rows = cuda_upload(c, rows, n * sizeof *rows),
                                      .to_offset = cache.tracks[to_head].offset,
                                      .from_offset = cache.tracks[0].offset,
                                      .head_dim = (uint32_t)cache.head_dim,
                                      .n = n};
    const skv_cuda_compact_args a = {.pool = cache.d_pool,
                                     .jobs = cuda_upload(c, &job, sizeof job),
                                     .page_bytes = (uint32_t)cache.page_bytes,
                                     .type = (uint32_t)cache.type};
    device_launch(SKV_CUDA_skv_compact_rows, (device_grid){.x = 1}, &a);
    no_other_byte(c, &cache, cuda_download(c, cache.d_pool, cache.n_pool * cache.page_bytes));
}

/* Rows of one sequence to another, with other angles. */
typedef struct turn_case {
    cuda_cache cache;
    size_t to_row, from_row, n, n_angles;
    float *cosine, *sine; /* [n, n_angles] */
    uint32_t *moves;      /* [n] */
} turn_case;

static turn_case random_turn(cuda_case *c, int i)
{
    turn_case t = {.cache = full_cache(c, i), .n = 1 + cuda_below(c, 20)};
    t.to_row = cuda_below(c, SKV_PAGE_ROWS);
    t.from_row = cuda_below(c, SKV_PAGE_ROWS);
    t.n_angles = t.cache.head_dim / 2 / (1 + cuda_below(c, 2));
    t.cosine = cuda_host(c, t.n * t.n_angles * sizeof(float));
    t.sine = cuda_host(c, t.n * t.n_angles * sizeof(float));
    t.moves = cuda_host(c, t.n * sizeof *t.moves);
    for (size_t j = 0; j < t.n * t.n_angles; j++) {
        const double angle = 6 * skv_rng_uniform(&c->rng);
        t.cosine[j] = (float)cos(angle);
        t.sine[j] = (float)sin(angle);
    }
    for (size_t j = 0; j < t.n; j++) t.moves[j] = !cuda_one_in(c, 3);
    return t;
}

/* The key of row i where it was, turned. */
static void want_key(cuda_case *c, const turn_case *t, size_t i, double *want)
{
    const size_t n = t->n_angles, at = t->from_row + i;
    float *x = cuda_host(c, t->cache.head_dim * sizeof *x);
    cuda_get_row(&t->cache, cuda_page(&t->cache, t->cache.pool, 0, 0, at), at % SKV_PAGE_ROWS, 0,
                 x);
    for (size_t j = 0; j < t->cache.head_dim; j++) want[j] = (double)x[j];
    for (size_t j = 0; j < n; j++) {
        const double cosine = (double)t->cosine[i * n + j], sine = (double)t->sine[i * n + j];
        want[j] = (double)x[j] * cosine - (double)x[n + j] * sine;
        want[n + j] = (double)x[n + j] * cosine + (double)x[j] * sine;
    }
}

/* What was turned is compared as numbers, and then taken over: every other byte is known. */
static void compare_turned(cuda_case *c, turn_case *t, const unsigned char *got)
{
    static const double bounds[] = {[SKV_KV_TYPE_F32] = 1e-6,
                                    [SKV_KV_TYPE_BF16] = 4e-3,
                                    [SKV_KV_TYPE_FP8] = 5e-2,
                                    [SKV_KV_TYPE_INT8] = 2e-2};
    cuda_cache *cache = &t->cache;
    const size_t n = cache->head_dim;
    double *want = cuda_host(c, n * sizeof *want);
    float *x = cuda_host(c, n * sizeof *x);
    unsigned char *there = cuda_host(c, cache->n_pool * cache->page_bytes);
    memcpy(there, got, cache->n_pool * cache->page_bytes);
    for (size_t i = 0; i < t->n; i++) {
        const size_t at = t->to_row + i, old = t->from_row + i, to = at % SKV_PAGE_ROWS;
        unsigned char *page = cuda_page(cache, cache->pool, 1, 0, at);
        const unsigned char *from = cuda_page(cache, cache->pool, 0, 0, old);
        copy_row(cache, page, to, from, old % SKV_PAGE_ROWS, 1);
        if (!t->moves[i]) {
            copy_row(cache, page, to, from, old % SKV_PAGE_ROWS, 0);
            continue;
        }
        const unsigned char *new_page = cuda_page(cache, there, 1, 0, at);
        want_key(c, t, i, want);
        cuda_get_row(cache, new_page, to, 0, x);
        cuda_near(c, x, want, n, bounds[cache->type]);
        copy_row(cache, page, to, new_page, to, 0);
    }
    no_other_byte(c, cache, got);
}

static void check_turn(cuda_case *c, int i)
{
    turn_case t = random_turn(c, i);
    const uint32_t *to = pages_of(&t.cache, 1, 0), *from = pages_of(&t.cache, 0, 0);
    const size_t n_bytes = t.n * t.n_angles * sizeof(float);
    const skv_cuda_turn_args a = {.pool = t.cache.d_pool,
                                  .angles = {.cosine = cuda_upload(c, t.cosine, n_bytes),
                                             .sine = cuda_upload(c, t.sine, n_bytes),
                                             .n = (uint32_t)t.n_angles},
                                  .moves = cuda_upload(c, t.moves, t.n * sizeof *t.moves),
                                  .page_bytes = (uint32_t)t.cache.page_bytes,
                                  .type = (uint32_t)t.cache.type,
                                  .offset = t.cache.tracks[0].offset,
                                  .head_dim = (uint32_t)t.cache.head_dim,
                                  .to = {to[0], to[1]},
                                  .from = {from[0], from[1]},
                                  .to_row = (uint32_t)t.to_row,
                                  .from_row = (uint32_t)t.from_row};
    const uint32_t shared = (uint32_t)(t.cache.head_dim * sizeof(float));
    device_launch(SKV_CUDA_skv_turn_rows, (device_grid){(uint32_t)t.n, 1, 1, shared}, &a);
    compare_turned(c, &t, cuda_download(c, t.cache.d_pool, t.cache.n_pool * t.cache.page_bytes));
}

void check_cuda_pages(cuda_case *c)
{
    for (int i = 0; i < CASES; i++) {
        c->what = "compact";
        check_compact(c, i);
        cuda_case_end(c);
        c->what = "turn";
        check_turn(c, i);
        cuda_case_end(c);
    }
}
