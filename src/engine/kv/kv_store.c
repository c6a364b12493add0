/*
 * The page store: see kv_store.h.
 *
 * Of the free pages the first is taken. So the pages that a prompt's chunk takes one after the
 * other for a head are adjacent, as far as possible, and a token's attention reads them as fast
 * as memory gives them; in the opposite order, in which a stack gives them back, half as fast.
 * Where pages are divided among memory nodes, each part is a store of its own, and others help out.
 */
#include "kv/kv_store.h"

#include <assert.h>

#include "backend/nodes.h"
#include "base/mem.h"
#include "base/size.h"

/* Pages [first, end): of a memory node, or a skv_page_range of a back end of two. */
typedef struct part {
    size_t first, end;
    size_t word0;     /* of free_bits: the first of theirs */
    size_t free_word; /* no bit is set in their words before it */
    size_t n_free;    /* bits that are set */
    size_t n_fresh;   /* pages from here on were never used */
} part;

struct skv_kv_store {
    skv_backend *be; /* borrowed */
    skv_kv_type type;
    size_t page_bytes, n_pages;
    skv_page_pool *pool;  /* owned: the back end's */
    uint32_t *references; /* owned, [n_pages] */
    uint32_t *weights;    /* owned, [n_pages]: of a watched page, else 0 */
    uint64_t *free_bits;  /* owned, [n_words], a bit a page: it was used and is free */
    size_t n_words;
    part *parts; /* owned, [n_parts] */
    size_t n_parts;
    bool apart;         /* none stands in for another one: the parts are ranges */
    size_t idle_weight; /* of watched pages that have one reference */
};

enum { WORD_BITS = 64 };

static size_t words_bytes(size_t n_words)
{
    return n_words * sizeof(uint64_t);
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

/* Part i has the pages [first, end). */
static void add_part(skv_kv_store *store, size_t i, size_t first, size_t end)
{
    const size_t word0 = store->n_words;
    store->parts[i] =
        (part){.first = first, .end = end, .word0 = word0, .free_word = word0, .n_fresh = first};
    store->n_words += skv_ceil_div(end - first, WORD_BITS);
}

static void lay_out_parts(skv_kv_store *store, const size_t n_pages[SKV_PAGE_RANGES])
{
    size_t first = 0;
    for (size_t i = 0; store->apart && i < SKV_PAGE_RANGES; i++) {
        add_part(store, i, first, first + n_pages[i]);
        first += n_pages[i];
    }
    for (size_t i = 0; !store->apart && i < store->n_parts; i++) {
        const size_t end = skv_node_pages(store->n_pages, i + 1, store->n_parts);
        add_part(store, i, first, end);
        first = end;
    }
}

static skv_status create_pool(skv_kv_store *store, const size_t n_pages[SKV_PAGE_RANGES],
                              skv_error *err)
{
    skv_backend *be = store->be;
    if (store->apart) return be->pool_create_in(be, store->page_bytes, n_pages, &store->pool, err);
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
    *store = (skv_kv_store){.be = be, .type = type, .page_bytes = page_bytes, .n_pages = n};
    store->apart = be->pool_create_in;
    store->n_parts = store->apart ? (size_t)SKV_PAGE_RANGES : skv_max_size(1, be->n_nodes);
    skv_status status = create_pool(store, n_pages, err);
    store->parts = skv_alloc_zero(store->n_parts, sizeof *store->parts);
    if (store->parts) lay_out_parts(store, n_pages);
    store->references = skv_map_zero(n * sizeof *store->references);
    store->weights = skv_map_zero(n * sizeof *store->weights);
    store->free_bits = skv_map_zero(words_bytes(store->n_words));
    if (status == SKV_OK &&
        (!store->parts || !store->references || !store->weights || !store->free_bits)) {
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
    skv_free(store->parts);
    skv_free(store);
}

size_t skv_kv_page_references(const skv_kv_store *store, uint32_t page)
{
    assert(page < store->n_pages);
    return store->references[page];
}

static size_t take_used(skv_kv_store *store, part *p)
{
    while (store->free_bits[p->free_word] == 0) p->free_word++;
    uint64_t *word = &store->free_bits[p->free_word];
    size_t bit = (size_t)__builtin_ctzll(*word);
    *word &= *word - 1;
    p->n_free--;
    return p->first + (p->free_word - p->word0) * WORD_BITS + bit;
}

uint32_t skv_kv_page_take(skv_kv_store *store, size_t node)
{
    size_t i = SKV_KV_NO_PAGE;
    const size_t n = store->apart ? 1 : store->n_parts; /* parts that may help */
    assert(node < store->n_parts);
    for (size_t k = 0; k < n && i == SKV_KV_NO_PAGE; k++) {
        part *p = &store->parts[(node + k) % store->n_parts];
        if (p->n_free > 0) {
            i = take_used(store, p);
        } else if (p->n_fresh < p->end) {
            i = p->n_fresh++;
        }
    }
    if (i == SKV_KV_NO_PAGE) return SKV_KV_NO_PAGE;
    assert(store->references[i] == 0);
    store->references[i] = 1;
    return (uint32_t)i;
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
    part *p = store->parts;
    while (page >= p->end) p++;
    const size_t i = page - p->first, word = p->word0 + i / WORD_BITS;
    store->free_bits[word] |= (uint64_t)1 << i % WORD_BITS;
    p->free_word = skv_min_size(p->free_word, word);
    p->n_free++;
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

static size_t free_of(const part *p)
{
    return p->n_free + (p->end - p->n_fresh);
}

size_t skv_kv_store_free_in(const skv_kv_store *store, skv_page_range range)
{
    return store->apart ? free_of(&store->parts[range]) : skv_kv_store_free_pages(store);
}

bool skv_kv_store_has(const skv_kv_store *store, const size_t n_pages[SKV_PAGE_RANGES])
{
    bool has = true;
    if (!store->apart) return sum_of(n_pages) <= skv_kv_store_free_pages(store);
    for (size_t i = 0; i < store->n_parts; i++) {
        has = has && n_pages[i] <= free_of(&store->parts[i]);
    }
    return has;
}

size_t skv_kv_store_free_pages(const skv_kv_store *store)
{
    size_t n = 0, least = store->n_pages;
    for (size_t i = 0; i < store->n_parts; i++) {
        const size_t n_free = free_of(&store->parts[i]);
        const size_t n_all = store->parts[i].end - store->parts[i].first;
        n += n_free;
        if (n_all == 0) continue;
        least = skv_min_size(least, (size_t)((uint64_t)n_free * store->n_pages / n_all));
    }
    return store->apart ? least : n;
}

bool skv_kv_store_is_apart(const skv_kv_store *store)
{
    return store->apart;
}

size_t skv_kv_store_nodes(const skv_kv_store *store)
{
    return store->n_parts;
}
