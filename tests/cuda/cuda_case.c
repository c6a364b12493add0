#include "cuda_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/float16.h"
#include "base/size.h"
#include "property_seed.h"

void cuda_case_end(cuda_case *c)
{
    while (c->n_host > 0) free(c->host[--c->n_host]);
    while (c->n_device > 0) device_free(c->device[--c->n_device]);
}

int cuda_run(void (*check)(cuda_case *c), uint64_t seed)
{
    int n_failed = 0;
    for (size_t order = 0; order < device_orders(); order++) {
        cuda_case c = {.what = ""};
        skv_rng_init(&c.rng, property_seed(seed + order));
        device_set_order(order);
        check(&c);
        n_failed += c.n_checks > 0 ? c.n_failed : 1;
    }
    return n_failed;
}

size_t cuda_below(cuda_case *c, size_t n)
{
    return (size_t)skv_rng_below(&c->rng, n);
}

bool cuda_one_in(cuda_case *c, size_t n)
{
    return cuda_below(c, n) == 0;
}

/* ---- memory ---- */

void *cuda_host(cuda_case *c, size_t n_bytes)
{
    void *at = calloc(n_bytes + (n_bytes == 0), 1);
    if (!at || c->n_host == CUDA_CASE_BLOCKS) abort();
    return c->host[c->n_host++] = at;
}

void *cuda_device(cuda_case *c, size_t n_bytes)
{
    if (c->n_device == CUDA_CASE_BLOCKS) abort();
    return c->device[c->n_device++] = device_new(n_bytes);
}

void *cuda_upload(cuda_case *c, const void *host, size_t n_bytes)
{
    void *at = cuda_device(c, n_bytes);
    device_put(at, host, n_bytes);
    return at;
}

void *cuda_download(cuda_case *c, const void *device, size_t n_bytes)
{
    void *at = cuda_host(c, n_bytes);
    device_get(at, device, n_bytes);
    return at;
}

float *cuda_normals(cuda_case *c, size_t n, double size)
{
    float *x = cuda_host(c, n * sizeof *x);
    for (size_t i = 0; i < n; i++) x[i] = (float)(size * skv_rng_normal(&c->rng));
    return x;
}

/* ---- rows ---- */

static size_t bytes_of(uint32_t type)
{
    return type == SKV_CUDA_F32 ? 4 : type == SKV_CUDA_BF16 ? 2 : 1;
}

static float number_at(const unsigned char *at, uint32_t type, size_t i)
{
    float f;
    uint16_t h;
    if (type == SKV_CUDA_E4M3) return skv_fp8_decode(at[i]);
    if (type == SKV_CUDA_F32) return memcpy(&f, at + 4 * i, 4), f;
    return memcpy(&h, at + 2 * i, 2), skv_float_of_bf16(h);
}

cuda_rows cuda_new_rows(cuda_case *c, uint32_t type, bool aligned, size_t n_rows, size_t n)
{
    cuda_rows out = {.n_rows = n_rows, .n = n};
    const size_t ld = aligned ? skv_round_up(n, 8) + 8 * cuda_below(c, 2) : n + cuda_below(c, 3);
    out.first = aligned ? 8 * cuda_below(c, 3) : cuda_below(c, 9);
    out.n_bytes = (out.first + n_rows * ld) * bytes_of(type);
    out.memory = cuda_device(c, out.n_bytes);
    out.at = (skv_cuda_rows){.at = out.memory + out.first * bytes_of(type),
                             .ld = (uint32_t)ld,
                             .type = type,
                             .aligned = aligned};
    return out;
}

cuda_rows cuda_random_rows(cuda_case *c, uint32_t type, bool aligned, size_t n_rows, size_t n,
                           double size)
{
    cuda_rows out = cuda_new_rows(c, type, aligned, n_rows, n);
    unsigned char *bytes = cuda_download(c, out.memory, out.n_bytes);
    out.host = cuda_normals(c, n_rows * n, size);
    for (size_t i = 0; i < n_rows * n; i++) {
        const size_t at = out.first + i / n * out.at.ld + i % n;
        const uint16_t h = skv_bf16_of_float(out.host[i]);
        if (type == SKV_CUDA_F32) {
            memcpy(bytes + 4 * at, &out.host[i], 4);
        } else {
            memcpy(bytes + 2 * at, &h, 2);
            out.host[i] = skv_float_of_bf16(h);
        }
    }
    device_put(out.memory, bytes, out.n_bytes);
    return out;
}

float *cuda_fetch_rows(cuda_case *c, const cuda_rows *rows)
{
    const size_t size = bytes_of(rows->at.type);
    unsigned char *bytes = cuda_download(c, rows->memory, rows->n_bytes);
    float *out = cuda_host(c, rows->n_rows * rows->n * sizeof *out);
    for (size_t i = 0; i < rows->n_rows * rows->n; i++) {
        const size_t at = rows->first + i / rows->n * rows->at.ld + i % rows->n;
        out[i] = number_at(bytes, rows->at.type, at);
        memset(bytes + at * size, 0xff, size);
    }
    size_t n_written = 0;
    for (size_t i = 0; i < rows->n_bytes; i++) n_written += bytes[i] != 0xff;
    cuda_none(c, "bytes beside the rows are written", n_written);
    return out;
}

/* ---- results ---- */

void cuda_near(cuda_case *c, const float *got, const double *want, size_t n, double most)
{
    double difference = 0, size = 0;
    for (size_t i = 0; i < n; i++) {
        difference += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
        size += want[i] * want[i];
    }
    const double error = sqrt(difference) / (size > 0 ? sqrt(size) : 1);
    c->n_checks++;
    if (error <= most) return; /* which NaN is not */
    c->n_failed++;
    printf("%s: off by %.3g of the result, at most %.3g\n", c->what, error, most);
}

void cuda_none(cuda_case *c, const char *what, size_t n_wrong)
{
    c->n_checks++;
    if (n_wrong == 0) return;
    c->n_failed++;
    printf("%s: %s: %zu\n", c->what, what, n_wrong);
}

/* ---- keys and values ---- */

/* Numbers 0..n-1 in any order. */
static void shuffle(cuda_case *c, uint32_t *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const size_t j = cuda_below(c, i + 1);
        x[i] = x[j];
        x[j] = (uint32_t)i;
    }
}

/* Heads lie in bundles of one or two, whose pages have room for others. */
cuda_cache cuda_new_cache(cuda_case *c, skv_kv_type type, size_t head_dim, size_t n_heads,
                          size_t n_seqs, size_t max_pages, size_t most_dropped)
{
    cuda_cache out = {.type = type,
                      .head_dim = head_dim,
                      .n_heads = n_heads,
                      .n_seqs = n_seqs,
                      .max_pages = max_pages};
    const size_t a_page = 1 + cuda_below(c, 2), n_bundles = skv_ceil_div(n_heads, a_page);
    const size_t gap = 16 * cuda_below(c, 3), head_bytes = skv_kv_page_bytes(type, head_dim);
    out.page_bytes = gap + a_page * head_bytes;
    out.table_words = n_bundles * max_pages + n_heads;
    out.n_pool = n_seqs * n_bundles * max_pages + 1;
    uint32_t *numbers = cuda_host(c, out.n_pool * sizeof *numbers);
    shuffle(c, numbers, out.n_pool);
    out.tables = cuda_host(c, n_seqs * out.table_words * sizeof *out.tables);
    out.tracks = cuda_host(c, n_heads * sizeof *out.tracks);
    for (size_t h = 0; h < n_heads; h++) {
        out.tracks[h] = (skv_cuda_track){.pages = (uint32_t)(n_heads + h / a_page * max_pages),
                                         .dropped = (uint32_t)h,
                                         .offset = (uint32_t)(gap + h % a_page * head_bytes)};
    }
    for (size_t s = 0; s < n_seqs; s++) {
        uint32_t *table = out.tables + s * out.table_words;
        for (size_t h = 0; h < n_heads && most_dropped > 0; h++) {
            table[h] = (uint32_t)cuda_below(c, most_dropped);
        }
        memcpy(table + n_heads, numbers + s * n_bundles * max_pages,
               n_bundles * max_pages * sizeof *table);
    }
    out.pool = cuda_host(c, out.n_pool * out.page_bytes);
    memset(out.pool, 0xff, out.n_pool * out.page_bytes);
    out.d_pool = cuda_device(c, out.n_pool * out.page_bytes);
    out.d_tables = cuda_upload(c, out.tables, n_seqs * out.table_words * sizeof *out.tables);
    out.kv = (skv_cuda_kv){.pool = out.d_pool,
                           .tracks = cuda_upload(c, out.tracks, n_heads * sizeof *out.tracks),
                           .page_bytes = (uint32_t)out.page_bytes,
                           .type = (uint32_t)type};
    return out;
}

void cuda_put_cache(cuda_cache *cache)
{
    device_put(cache->d_pool, cache->pool, cache->n_pool * cache->page_bytes);
}

const uint32_t *cuda_table(const cuda_cache *cache, size_t seq)
{
    return cache->d_tables + seq * cache->table_words;
}

size_t cuda_dropped(const cuda_cache *cache, size_t seq, size_t head)
{
    return cache->tables[seq * cache->table_words + head];
}

unsigned char *cuda_page(const cuda_cache *cache, unsigned char *pool, size_t seq, size_t head,
                         size_t row)
{
    const skv_cuda_track *track = &cache->tracks[head];
    const uint32_t *table = cache->tables + seq * cache->table_words;
    return pool + table[track->pages + row / SKV_PAGE_ROWS] * cache->page_bytes + track->offset;
}

void cuda_set_row(const cuda_cache *cache, unsigned char *page, size_t row, size_t which,
                  const float *x)
{
    const size_t n = cache->head_dim, size = skv_kv_size(cache->type);
    unsigned char *at = page + skv_page_rows_at(cache->type, n, which) + row * n * size;
    float most = 0;
    for (size_t i = 0; i < n; i++) most = fmaxf(most, fabsf(x[i]));
    const uint8_t s = skv_row_scale(cache->type, most);
    for (size_t i = 0; i < n; i++) {
        const uint16_t h = skv_bf16_of_float(x[i]);
        const float y = s ? x[i] / skv_scale_decode(s) : 0;
        if (cache->type == SKV_KV_TYPE_F32) memcpy(at + 4 * i, &x[i], 4);
        if (cache->type == SKV_KV_TYPE_BF16) memcpy(at + 2 * i, &h, 2);
        if (cache->type == SKV_KV_TYPE_FP8) at[i] = skv_fp8_encode(y);
        if (cache->type == SKV_KV_TYPE_INT8) at[i] = (uint8_t)(int8_t)lrintf(y);
    }
    if (skv_kv_has_scales(cache->type)) page[skv_page_scales_at(cache->type, n, which) + row] = s;
}

void cuda_get_row(const cuda_cache *cache, const unsigned char *page, size_t row, size_t which,
                  float *x)
{
    const size_t n = cache->head_dim, size = skv_kv_size(cache->type);
    const unsigned char *at = page + skv_page_rows_at(cache->type, n, which) + row * n * size;
    const float scale =
        skv_kv_has_scales(cache->type)
            ? skv_scale_decode(page[skv_page_scales_at(cache->type, n, which) + row])
            : 1;
    for (size_t i = 0; i < n; i++) {
        if (cache->type == SKV_KV_TYPE_F32) x[i] = number_at(at, SKV_CUDA_F32, i);
        if (cache->type == SKV_KV_TYPE_BF16) x[i] = number_at(at, SKV_CUDA_BF16, i);
        if (cache->type == SKV_KV_TYPE_FP8) x[i] = skv_fp8_decode(at[i]) * scale;
        if (cache->type == SKV_KV_TYPE_INT8) x[i] = (float)(int8_t)at[i] * scale;
    }
}
