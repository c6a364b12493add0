/*
 * The page store: see kv_store.h.
 *
 * Of the free pages the first is taken. So those that a prompt's chunk takes one after the other
 * for a head lie behind one another, as far as they can, and a token's attention reads them as fast
 * as memory gives them; in the opposite order, in which a stack gives them back, half as fast.
 */
#include "kv/kv_store.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"

struct skv_kv_store {
    skv_backend *be; /* borrowed */
    skv_kv_type type;
    size_t page_bytes, n_pages;
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

skv_status skv_kv_store_create(skv_backend *be, skv_kv_type type, size_t page_bytes, size_t n_pages,
                               skv_kv_store **out, skv_error *err)
{
    size_t n_bytes;
    SKV_REQUIRE(n_pages < UINT32_MAX && skv_size_mul(n_pages, page_bytes, &n_bytes), err, SKV_RANGE,
                "kv cache: %zu pages of %zu bytes do not fit", n_pages, page_bytes);
    skv_kv_store *store = skv_alloc_zero(1, sizeof *store);
    SKV_REQUIRE(store, err, SKV_MEMORY, "kv cache: no memory");
    *store = (skv_kv_store){.be = be, .type = type, .page_bytes = page_bytes, .n_pages = n_pages};
    store->memory = be->pages_create(be, n_bytes);
    store->references = skv_map_zero(n_pages * sizeof *store->references);
    store->weights = skv_map_zero(n_pages * sizeof *store->weights);
    store->free_bits = skv_map_zero(words_bytes(n_pages));
    if (!store->memory || !store->references || !store->weights || !store->free_bits) {
        skv_kv_store_free(store);
        return skv_fail(err, SKV_MEMORY, "kv cache: no memory for %zu pages of %zu bytes", n_pages,
                        page_bytes);
    }
    *out = store;
    return SKV_OK;
}

void skv_kv_store_free(skv_kv_store *store)
{
    if (!store) return;
    if (store->memory) {
        store->be->pages_free(store->be, store->memory, store->n_pages * store->page_bytes);
    }
    skv_unmap(store->references, store->n_pages * sizeof *store->references);
    skv_unmap(store->weights, store->n_pages * sizeof *store->weights);
    skv_unmap(store->free_bits, words_bytes(store->n_pages));
    skv_free(store);
}

static size_t page_number(const skv_kv_store *store, const void *page)
{
    size_t offset = (size_t)((const unsigned char *)page - store->memory);
    assert(offset % store->page_bytes == 0 && offset / store->page_bytes < store->n_pages);
    return offset / store->page_bytes;
}

static size_t take_used(skv_kv_store *store)
{
    while (store->free_bits[store->free_word] == 0) store->free_word++;
    uint64_t *word = &store->free_bits[store->free_word];
    size_t bit = (size_t)__builtin_ctzll(*word);
    *word &= *word - 1;
    store->n_free--;
    return store->free_word * WORD_BITS + bit;
}

void *skv_kv_page_take(skv_kv_store *store)
{
    size_t i;
    if (store->n_free > 0) {
        i = take_used(store);
    } else if (store->n_fresh < store->n_pages) {
        i = store->n_fresh++;
    } else {
        return NULL;
    }
    assert(store->references[i] == 0);
    store->references[i] = 1;
    return store->memory + i * store->page_bytes;
}

void skv_kv_page_share(skv_kv_store *store, void *page)
{
    size_t i = page_number(store, page);
    assert(store->references[i] > 0 && store->references[i] < UINT32_MAX);
    if (++store->references[i] == 2) store->idle_weight -= store->weights[i];
}

void skv_kv_page_drop(skv_kv_store *store, void *page)
{
    size_t i = page_number(store, page);
    assert(store->references[i] > 0);
    uint32_t n_left = --store->references[i];
    if (n_left == 1) store->idle_weight += store->weights[i];
    if (n_left > 0) return;
    assert(store->weights[i] == 0);
    store->free_bits[i / WORD_BITS] |= (uint64_t)1 << i % WORD_BITS;
    store->free_word = skv_min_size(store->free_word, i / WORD_BITS);
    store->n_free++;
}

void skv_kv_page_watch(skv_kv_store *store, const void *page, size_t weight)
{
    size_t i = page_number(store, page);
    assert(store->references[i] > 0 && weight <= UINT32_MAX);
    if (store->references[i] == 1) store->idle_weight += weight - store->weights[i];
    store->weights[i] = (uint32_t)weight;
}

size_t skv_kv_store_idle_weight(const skv_kv_store *store)
{
    return store->idle_weight;
}

size_t skv_kv_page_references(const skv_kv_store *store, const void *page)
{
    return store->references[page_number(store, page)];
}

void skv_kv_page_copy(skv_kv_store *store, void *to, const void *from)
{
    store->be->page_copy(store->be, to, from, store->page_bytes);
}

void skv_kv_page_gather(skv_kv_store *store, void *to, void *const *from, size_t head_dim,
                        const uint32_t *rows, size_t n)
{
    store->be->gather_kv(store->be, &(skv_gather_kv_args){.to = to,
                                                          .from = from,
                                                          .rows = rows,
                                                          .n = n,
                                                          .type = store->type,
                                                          .head_dim = head_dim});
}

void skv_kv_page_read(skv_kv_store *store, const void *page, void *host)
{
    store->be->page_read(store->be, host, page, store->page_bytes);
}

void skv_kv_page_read_head(skv_kv_store *store, const void *rows, size_t head_dim, void *host)
{
    store->be->page_read(store->be, host, rows, skv_kv_page_bytes(store->type, head_dim));
}

void skv_kv_page_write(skv_kv_store *store, void *page, const void *host)
{
    store->be->page_write(store->be, page, host, store->page_bytes);
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

size_t skv_kv_store_free_pages(const skv_kv_store *store)
{
    return store->n_free + (store->n_pages - store->n_fresh);
}
