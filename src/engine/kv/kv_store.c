/*
 * The page store: see kv_store.h.
 *
 * Of the free pages the first is taken. So the pages that a prompt's chunk takes one after the
 * other for a head are adjacent, as far as possible, and a token's attention reads them as fast
 * as memory gives them; in the opposite order, in which a stack gives them back, half as fast.
 */
#include "kv/kv_store.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"

/* Pages [first, end) that stand in for each other. Single ones are free or not. */
typedef struct page_range {
    size_t first, end;
    size_t word0;     /* of free_bits: theirs */
    size_t free_word; /* no bit is set in their words before it */
    size_t n_free;    /* bits that are set */
    size_t n_fresh;   /* pages from here on were never used */
} page_range;

struct skv_kv_store {
    skv_backend *be; /* borrowed */
    skv_kv_type type;
    size_t page_bytes, n_pages;
    skv_page_pool *pool;  /* owned: the back end's */
    uint32_t *references; /* owned, [n_pages] */
    uint32_t *weights;    /* owned, [n_pages]: of a watched page, else 0 */
    uint64_t *free_bits;  /* owned, [n_words], a bit a page: it was used and is free */
    size_t n_words;
    size_t idle_weight; /* of watched pages that have one reference */
    page_range ranges[SKV_PAGE_RANGES];
};

enum { WORD_BITS = 64 };

static size_t words_bytes(size_t n_words)
{
    return n_words * sizeof(uint64_t);
}

static void lay_out_ranges(skv_kv_store *store, const size_t n_pages[SKV_PAGE_RANGES])
{
    for (size_t r = 0; r < SKV_PAGE_RANGES; r++) {
        const size_t first = store->n_pages;
        store->n_pages += n_pages[r];
        store->ranges[r] = (page_range){.first = first,
                                        .end = store->n_pages,
                                        .word0 = store->n_words,
                                        .free_word = store->n_words,
                                        .n_fresh = first};
        store->n_words += skv_ceil_div(n_pages[r], WORD_BITS);
    }
}

static size_t sum_of(const size_t n_pages[SKV_PAGE_RANGES])
{
    return n_pages[SKV_PAGES_FIRST] + n_pages[SKV_PAGES_BOTH] + n_pages[SKV_PAGES_SECOND];
}

skv_bytes skv_kv_store_bytes(const skv_backend *be, size_t page_bytes,
                             const size_t n_pages[SKV_PAGE_RANGES])
{
    return be->pool_bytes_in ? be->pool_bytes_in(be, page_bytes, n_pages)
                             : be->pool_bytes(be, page_bytes, sum_of(n_pages));
}

static skv_status create_pool(skv_kv_store *store, const size_t n_pages[SKV_PAGE_RANGES],
                              skv_error *err)
{
    skv_backend *be = store->be;
    if (be->pool_create_in) {
        return be->pool_create_in(be, store->page_bytes, n_pages, &store->pool, err);
    }
    return be->pool_create(be, store->page_bytes, store->n_pages, &store->pool, err);
}

skv_status skv_kv_store_create(skv_backend *be, skv_kv_type type, size_t page_bytes, size_t n_pages,
                               skv_kv_store **out, skv_error *err)
{
    const size_t all[SKV_PAGE_RANGES] = {[SKV_PAGES_BOTH] = n_pages};
    return skv_kv_store_create_in(be, type, page_bytes, all, out, err);
}

skv_status skv_kv_store_create_in(skv_backend *be, skv_kv_type type, size_t page_bytes,
                                  const size_t n_pages[SKV_PAGE_RANGES], skv_kv_store **out,
                                  skv_error *err)
{
    const size_t n = sum_of(n_pages);
    size_t n_bytes;
    SKV_REQUIRE(n < SKV_KV_NO_PAGE && skv_size_mul(n, page_bytes, &n_bytes), err, SKV_RANGE,
                "kv cache: %zu pages of %zu bytes do not fit", n, page_bytes);
    skv_kv_store *store = skv_alloc_zero(1, sizeof *store);
    SKV_REQUIRE(store, err, SKV_MEMORY, "kv cache: no memory");
    *store = (skv_kv_store){.be = be, .type = type, .page_bytes = page_bytes};
    lay_out_ranges(store, n_pages);
    skv_status status = create_pool(store, n_pages, err);
    store->references = skv_map_zero(n * sizeof *store->references);
    store->weights = skv_map_zero(n * sizeof *store->weights);
    store->free_bits = skv_map_zero(words_bytes(store->n_words));
    if (status == SKV_OK && (!store->references || !store->weights || !store->free_bits)) {
        status = skv_fail(err, SKV_MEMORY, "no memory for %zu references", n);
    }
    if (status != SKV_OK) {
        skv_kv_store_free(store);
        return skv_fail_within(err, status, "kv cache");
    }
    *out = store;
    return SKV_OK;
}

void skv_kv_store_free(skv_kv_store *store)
{
    if (!store) return;
    store->be->pool_free(store->be, store->pool);
    skv_unmap(store->references, store->n_pages * sizeof *store->references);
    skv_unmap(store->weights, store->n_pages * sizeof *store->weights);
    skv_unmap(store->free_bits, words_bytes(store->n_words));
    skv_free(store);
}

size_t skv_kv_page_references(const skv_kv_store *store, uint32_t page)
{
    assert(page < store->n_pages);
    return store->references[page];
}

static size_t take_used(skv_kv_store *store, page_range *r)
{
    while (store->free_bits[r->free_word] == 0) r->free_word++;
    uint64_t *word = &store->free_bits[r->free_word];
    size_t bit = (size_t)__builtin_ctzll(*word);
    *word &= *word - 1;
    r->n_free--;
    return r->first + (r->free_word - r->word0) * WORD_BITS + bit;
}

uint32_t skv_kv_page_take_in(skv_kv_store *store, skv_page_range range)
{
    page_range *r = &store->ranges[range];
    size_t i;
    if (r->n_free > 0) {
        i = take_used(store, r);
    } else if (r->n_fresh < r->end) {
        i = r->n_fresh++;
    } else {
        return SKV_KV_NO_PAGE;
    }
    assert(store->references[i] == 0);
    store->references[i] = 1;
    return (uint32_t)i;
}

uint32_t skv_kv_page_take(skv_kv_store *store)
{
    return skv_kv_page_take_in(store, SKV_PAGES_BOTH);
}

void skv_kv_page_share(skv_kv_store *store, uint32_t page)
{
    assert(skv_kv_page_references(store, page) > 0 && store->references[page] < UINT32_MAX);
    if (++store->references[page] == 2) store->idle_weight -= store->weights[page];
}

void skv_kv_page_drop(skv_kv_store *store, uint32_t page)
{
    assert(skv_kv_page_references(store, page) > 0);
    uint32_t n_left = --store->references[page];
    if (n_left == 1) store->idle_weight += store->weights[page];
    if (n_left > 0) return;
    assert(store->weights[page] == 0);
    page_range *r = store->ranges;
    while (page >= r->end) r++;
    const size_t i = page - r->first, word = r->word0 + i / WORD_BITS;
    store->free_bits[word] |= (uint64_t)1 << i % WORD_BITS;
    r->free_word = skv_min_size(r->free_word, word);
    r->n_free++;
}

void skv_kv_page_watch(skv_kv_store *store, uint32_t page, size_t weight)
{
    assert(skv_kv_page_references(store, page) > 0 && weight <= UINT32_MAX);
    if (store->references[page] == 1) store->idle_weight += weight - store->weights[page];
    store->weights[page] = (uint32_t)weight;
}

size_t skv_kv_store_idle_weight(const skv_kv_store *store)
{
    return store->idle_weight;
}

void skv_kv_pages_copy(skv_kv_store *store, const uint32_t *to, const uint32_t *from, size_t n)
{
    store->be->pages_copy(store->be, store->pool, to, from, n);
}

void skv_kv_pages_compact(skv_kv_store *store, const skv_compact_job *jobs, size_t n)
{
    store->be->pages_compact(store->be, store->pool, store->type, jobs, n);
}

void skv_kv_pages_turn(skv_kv_store *store, const skv_turn_job *jobs, size_t n)
{
    store->be->pages_turn(store->be, store->pool, store->type, jobs, n);
}

skv_ticket skv_kv_pages_read(skv_kv_store *store, const uint32_t *pages, size_t n, void *host)
{
    return store->be->pages_read(store->be, store->pool, pages, n, host);
}

void skv_kv_pages_write(skv_kv_store *store, const uint32_t *pages, size_t n, const void *host)
{
    store->be->pages_write(store->be, store->pool, pages, n, host);
}

const void *skv_kv_page_map(skv_kv_store *store, uint32_t page)
{
    return store->be->page_map(store->be, store->pool, page);
}

void skv_kv_page_unmap(skv_kv_store *store, const void *host)
{
    store->be->page_unmap(store->be, host);
}

skv_backend *skv_kv_store_backend(const skv_kv_store *store)
{
    return store->be;
}

skv_page_pool *skv_kv_store_pool(const skv_kv_store *store)
{
    return store->pool;
}

skv_kv_type skv_kv_store_type(const skv_kv_store *store)
{
    return store->type;
}

size_t skv_kv_store_page_bytes(const skv_kv_store *store)
{
    return store->page_bytes;
}

size_t skv_kv_store_pages(const skv_kv_store *store)
{
    return store->n_pages;
}

size_t skv_kv_store_free_in(const skv_kv_store *store, skv_page_range range)
{
    const page_range *r = &store->ranges[range];
    return r->n_free + (r->end - r->n_fresh);
}

bool skv_kv_store_has(const skv_kv_store *store, const size_t n_pages[SKV_PAGE_RANGES])
{
    bool has = true;
    for (size_t r = 0; r < SKV_PAGE_RANGES; r++) {
        has = has && n_pages[r] <= skv_kv_store_free_in(store, (skv_page_range)r);
    }
    return has;
}

size_t skv_kv_store_free_pages(const skv_kv_store *store)
{
    size_t least = store->n_pages;
    for (size_t i = 0; i < SKV_PAGE_RANGES; i++) {
        const size_t n = store->ranges[i].end - store->ranges[i].first;
        const size_t n_free = skv_kv_store_free_in(store, (skv_page_range)i);
        if (n == 0) continue;
        if (n == store->n_pages) return n_free;
        least = skv_min_size(least, (size_t)((uint64_t)n_free * store->n_pages / n));
    }
    return least;
}
