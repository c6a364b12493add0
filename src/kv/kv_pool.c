/*
 * The page pool: see kv_pool.h.
 *
 * Of the free pages the first is taken. So those that a prompt's chunk takes one after the other
 * for a head lie behind one another, as far as they can, and a token's attention reads them as fast
 * as memory gives them; in the opposite order, in which a stack gives them back, half as fast.
 */
#include "kv/kv_pool.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"

struct skv_kv_pool {
    skv_backend *be; /* borrowed */
    skv_kv_type type;
    size_t head_dim, page_bytes, n_pages;
    unsigned char *memory; /* owned by the back end, [n_pages][page_bytes] */
    uint32_t *references;  /* owned, [n_pages] */
    uint32_t *weights;     /* owned, [n_pages]: of a watched page, else 0 */
    uint64_t *free_bits;   /* owned, [n_words], a bit a page: it was used and is free */
    size_t free_word;      /* no bit is set in the words before it */
    size_t n_free;         /* bits that are set */
    size_t n_fresh;        /* pages from here on were never used */
    size_t idle_weight;    /* of watched pages that have one reference */
};

enum { WORD_BITS = 64 };

static size_t words_bytes(size_t n_pages)
{
    return skv_ceil_div(n_pages, WORD_BITS) * sizeof(uint64_t);
}

skv_status skv_kv_pool_create(skv_backend *be, skv_kv_type type, size_t head_dim, size_t n_pages,
                              skv_kv_pool **out, skv_error *err)
{
    size_t page_bytes = skv_kv_page_bytes(type, head_dim), n_bytes;
    SKV_REQUIRE(n_pages < UINT32_MAX && skv_size_mul(n_pages, page_bytes, &n_bytes), err, SKV_RANGE,
                "kv cache: %zu pages of %zu bytes do not fit", n_pages, page_bytes);
    skv_kv_pool *pool = skv_alloc_zero(1, sizeof *pool);
    SKV_REQUIRE(pool, err, SKV_MEMORY, "kv cache: no memory");
    *pool = (skv_kv_pool){
        .be = be, .type = type, .head_dim = head_dim, .page_bytes = page_bytes, .n_pages = n_pages};
    pool->memory = be->alloc(be, n_bytes);
    pool->references = skv_map_zero(n_pages * sizeof *pool->references);
    pool->weights = skv_map_zero(n_pages * sizeof *pool->weights);
    pool->free_bits = skv_map_zero(words_bytes(n_pages));
    if (!pool->memory || !pool->references || !pool->weights || !pool->free_bits) {
        skv_kv_pool_free(pool);
        return skv_fail(err, SKV_MEMORY, "kv cache: no memory for %zu pages of %zu bytes", n_pages,
                        page_bytes);
    }
    *out = pool;
    return SKV_OK;
}

void skv_kv_pool_free(skv_kv_pool *pool)
{
    if (!pool) return;
    if (pool->memory) pool->be->release(pool->be, pool->memory, pool->n_pages * pool->page_bytes);
    skv_unmap(pool->references, pool->n_pages * sizeof *pool->references);
    skv_unmap(pool->weights, pool->n_pages * sizeof *pool->weights);
    skv_unmap(pool->free_bits, words_bytes(pool->n_pages));
    skv_free(pool);
}

static size_t page_number(const skv_kv_pool *pool, const void *page)
{
    size_t offset = (size_t)((const unsigned char *)page - pool->memory);
    assert(offset % pool->page_bytes == 0 && offset / pool->page_bytes < pool->n_pages);
    return offset / pool->page_bytes;
}

static size_t take_used(skv_kv_pool *pool)
{
    while (pool->free_bits[pool->free_word] == 0) pool->free_word++;
    uint64_t *word = &pool->free_bits[pool->free_word];
    size_t bit = (size_t)__builtin_ctzll(*word);
    *word &= *word - 1;
    pool->n_free--;
    return pool->free_word * WORD_BITS + bit;
}

void *skv_kv_page_take(skv_kv_pool *pool)
{
    size_t i;
    if (pool->n_free > 0) {
        i = take_used(pool);
    } else if (pool->n_fresh < pool->n_pages) {
        i = pool->n_fresh++;
    } else {
        return NULL;
    }
    assert(pool->references[i] == 0);
    pool->references[i] = 1;
    return pool->memory + i * pool->page_bytes;
}

void skv_kv_page_share(skv_kv_pool *pool, void *page)
{
    size_t i = page_number(pool, page);
    assert(pool->references[i] > 0 && pool->references[i] < UINT32_MAX);
    if (++pool->references[i] == 2) pool->idle_weight -= pool->weights[i];
}

void skv_kv_page_drop(skv_kv_pool *pool, void *page)
{
    size_t i = page_number(pool, page);
    assert(pool->references[i] > 0);
    uint32_t n_left = --pool->references[i];
    if (n_left == 1) pool->idle_weight += pool->weights[i];
    if (n_left > 0) return;
    assert(pool->weights[i] == 0);
    pool->free_bits[i / WORD_BITS] |= (uint64_t)1 << i % WORD_BITS;
    pool->free_word = skv_min_size(pool->free_word, i / WORD_BITS);
    pool->n_free++;
}

void skv_kv_page_watch(skv_kv_pool *pool, const void *page, size_t weight)
{
    size_t i = page_number(pool, page);
    assert(pool->references[i] > 0 && weight <= UINT32_MAX);
    if (pool->references[i] == 1) pool->idle_weight += weight - pool->weights[i];
    pool->weights[i] = (uint32_t)weight;
}

size_t skv_kv_pool_idle_weight(const skv_kv_pool *pool)
{
    return pool->idle_weight;
}

size_t skv_kv_page_references(const skv_kv_pool *pool, const void *page)
{
    return pool->references[page_number(pool, page)];
}

void skv_kv_page_copy(skv_kv_pool *pool, void *to, const void *from)
{
    pool->be->put(pool->be, to, from, pool->page_bytes);
}

void skv_kv_page_gather(skv_kv_pool *pool, void *to, void *const *from, const uint32_t *rows,
                        size_t n)
{
    pool->be->gather_kv(pool->be, &(skv_gather_kv_args){.to = to,
                                                        .from = from,
                                                        .rows = rows,
                                                        .n = n,
                                                        .type = pool->type,
                                                        .head_dim = pool->head_dim});
}

void *skv_kv_scratch_take(skv_kv_pool *pool, size_t n_pages)
{
    return pool->be->alloc(pool->be, n_pages * pool->page_bytes);
}

void skv_kv_scratch_drop(skv_kv_pool *pool, void *scratch, size_t n_pages)
{
    if (scratch) pool->be->release(pool->be, scratch, n_pages * pool->page_bytes);
}

void skv_kv_page_read(skv_kv_pool *pool, const void *page, void *host)
{
    pool->be->get(pool->be, host, page, pool->page_bytes);
}

void skv_kv_page_write(skv_kv_pool *pool, void *page, const void *host)
{
    pool->be->put(pool->be, page, host, pool->page_bytes);
}

skv_kv_type skv_kv_pool_type(const skv_kv_pool *pool)
{
    return pool->type;
}

size_t skv_kv_pool_page_bytes(const skv_kv_pool *pool)
{
    return pool->page_bytes;
}

size_t skv_kv_pool_pages(const skv_kv_pool *pool)
{
    return pool->n_pages;
}

size_t skv_kv_pool_free_pages(const skv_kv_pool *pool)
{
    return pool->n_free + (pool->n_pages - pool->n_fresh);
}
