/* The prefix index: see prefix_index.h. */
#include "kv/prefix_index.h"

#include <assert.h>
#include <string.h>

#include "base/lru.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/size.h"

typedef struct block {
    skv_lru_node node;
    struct block *parent; /* NULL: the first block of a text */
    size_t n_children;
    uint64_t domain;
    uint8_t name[SKV_BLOCK_NAME_BYTES]; /* with a keeper */
    bool kept;                          /* the keeper's mark */
    size_t n_pages;
    int32_t ids[SKV_PAGE_ROWS];
    void *pages[]; /* [n_pages], one reference each */
} block;

struct skv_prefix_index {
    skv_kv_store *store; /* borrowed */
    uint64_t seed;
    size_t max_blocks;
    skv_lru blocks;
    skv_prefix_keeper keeper; /* name == NULL: none */
};

skv_status skv_prefix_index_create(skv_kv_store *store, size_t max_blocks, uint64_t seed,
                                   skv_prefix_index **out, skv_error *err)
{
    skv_prefix_index *index = skv_alloc_zero(1, sizeof *index);
    SKV_REQUIRE(index, err, SKV_MEMORY, "prefix index: no memory");
    skv_status status = skv_lru_init(&index->blocks, max_blocks, err);
    if (status != SKV_OK) {
        skv_free(index);
        return skv_fail_within(err, status, "prefix index");
    }
    index->store = store;
    index->seed = seed;
    index->max_blocks = max_blocks;
    *out = index;
    return SKV_OK;
}

static block *oldest(const skv_prefix_index *index)
{
    return (block *)index->blocks.oldest;
}

static block *newer(const block *b)
{
    return (block *)b->node.newer;
}

/* A block and all before it have been used. Parents become newer than their children, so that the
 * oldest blocks are leaves. */
static void touch(skv_prefix_index *index, block *leaf)
{
    for (block *b = leaf; b; b = b->parent) skv_lru_touch(&index->blocks, &b->node);
}

/* ---- finding ---- */

static uint64_t hash_block(const skv_prefix_index *index, uint64_t before, uint64_t domain,
                           const int32_t *ids)
{
    uint64_t hash = skv_mix64(before ^ skv_mix64(domain ^ index->seed));
    for (size_t i = 0; i < SKV_PAGE_ROWS; i++) hash = skv_mix64(hash ^ (uint32_t)ids[i]);
    return hash;
}

static block *find_block(const skv_prefix_index *index, uint64_t hash, uint64_t domain,
                         const block *parent, const int32_t *ids)
{
    block *b = (block *)skv_lru_first(&index->blocks, hash);
    while (b && (b->domain != domain || b->parent != parent ||
                 memcmp(b->ids, ids, sizeof b->ids) != 0)) {
        b = (block *)skv_lru_next(&b->node);
    }
    return b;
}

/* The last of the known blocks that ids begin with, NULL for none. */
static block *find_longest(const skv_prefix_index *index, uint64_t domain, const int32_t *ids,
                           size_t n, size_t *n_blocks)
{
    block *last = NULL;
    uint64_t hash = 0;
    size_t i = 0;
    for (; (i + 1) * SKV_PAGE_ROWS <= n; i++) {
        hash = hash_block(index, hash, domain, ids + i * SKV_PAGE_ROWS);
        block *b = find_block(index, hash, domain, last, ids + i * SKV_PAGE_ROWS);
        if (!b) break;
        last = b;
    }
    *n_blocks = i;
    return last;
}

/* The pages of a block are used together: one of them tells for all, and the store counts which of
 * these nobody else uses. */
static void watch(const skv_prefix_index *index, const block *b)
{
    skv_kv_page_watch(index->store, b->pages[0], b->n_pages);
}

static bool is_idle(const skv_prefix_index *index, const block *b)
{
    return skv_kv_page_references(index->store, b->pages[0]) == 1;
}

size_t skv_prefix_index_in_use(const skv_prefix_index *index, uint64_t domain, const int32_t *ids,
                               size_t n)
{
    size_t n_blocks, n_pages = 0;
    const block *b = find_longest(index, domain, ids, n, &n_blocks);
    for (; b; b = b->parent) n_pages += is_idle(index, b) ? 0 : b->n_pages;
    return n_pages;
}

size_t skv_prefix_index_match(skv_prefix_index *index, uint64_t domain, const int32_t *ids,
                              size_t n, skv_kv_cache *cache)
{
    size_t n_blocks;
    block *last = find_longest(index, domain, ids, n, &n_blocks);
    if (!last) return 0;
    assert(last->n_pages == cache->layout->n_bundles);
    touch(index, last);
    size_t i = n_blocks;
    for (block *b = last; b; b = b->parent) skv_kv_cache_put_page(cache, --i, b->pages);
    skv_kv_cache_adopt(cache, n_blocks * SKV_PAGE_ROWS);
    return n_blocks * SKV_PAGE_ROWS;
}

/* ---- remembering ---- */

/* A new block behind `parent`; its pages are filled in by the caller. */
static block *add_block(skv_prefix_index *index, block *parent, const block *key, size_t n_pages)
{
    block *b = skv_alloc(1, sizeof *b + n_pages * sizeof *b->pages);
    if (!b) return NULL;
    *b = *key;
    b->parent = parent;
    b->n_pages = n_pages;
    if (index->keeper.name) {
        index->keeper.name(index->keeper.user, b->domain, parent ? parent->name : NULL, b->ids,
                           b->name);
    }
    skv_lru_add(&index->blocks, &b->node, key->node.hash);
    if (parent) parent->n_children++;
    return b;
}

/* The i-th page row of a cache becomes a block's pages. */
static void share_pages(skv_prefix_index *index, block *b, const skv_kv_cache *cache, size_t i)
{
    for (size_t p = 0; p < b->n_pages; p++) {
        b->pages[p] = skv_kv_cache_page(cache, p, i);
        skv_kv_page_share(index->store, b->pages[p]);
    }
    watch(index, b);
}

void skv_prefix_index_insert(skv_prefix_index *index, uint64_t domain, const int32_t *ids, size_t n,
                             const skv_kv_cache *cache)
{
    assert(n <= cache->n_rows);
    block *last = NULL;
    block key = {.domain = domain};
    for (size_t i = 0; (i + 1) * SKV_PAGE_ROWS <= n; i++) {
        const int32_t *at = ids + i * SKV_PAGE_ROWS;
        key.node.hash = hash_block(index, key.node.hash, domain, at);
        block *b = find_block(index, key.node.hash, domain, last, at);
        if (!b && index->blocks.n < index->max_blocks) {
            memcpy(key.ids, at, sizeof key.ids);
            b = add_block(index, last, &key, cache->layout->n_bundles);
            if (b) share_pages(index, b, cache, i);
        }
        if (!b) break;
        last = b;
    }
    touch(index, last);
}

bool skv_prefix_index_restore(skv_prefix_index *index, uint64_t domain, const int32_t *ids,
                              size_t n, void *const *pages, size_t n_pages)
{
    assert(n >= SKV_PAGE_ROWS && n % SKV_PAGE_ROWS == 0);
    size_t n_before = n / SKV_PAGE_ROWS - 1, n_known;
    block *parent = find_longest(index, domain, ids, n, &n_known);
    if (n_known != n_before || index->blocks.n >= index->max_blocks) return false;
    block key = {.domain = domain};
    const int32_t *at = ids + n_before * SKV_PAGE_ROWS;
    key.node.hash = hash_block(index, parent ? parent->node.hash : 0, domain, at);
    memcpy(key.ids, at, sizeof key.ids);
    block *b = add_block(index, parent, &key, n_pages);
    if (!b) return false;
    memcpy(b->pages, pages, n_pages * sizeof *pages);
    watch(index, b);
    touch(index, b);
    return true;
}

/* ---- what others see ---- */

void skv_prefix_index_set_keeper(skv_prefix_index *index, const skv_prefix_keeper *keeper)
{
    assert(index->blocks.n == 0);
    index->keeper = *keeper;
}

static skv_prefix_block show_block(block *b)
{
    return (skv_prefix_block){.name = b->name,
                              .parent = b->parent ? b->parent->name : NULL,
                              .ids = b->ids,
                              .pages = b->pages,
                              .n_pages = b->n_pages,
                              .kept = &b->kept};
}

size_t skv_prefix_index_known(const skv_prefix_index *index, uint64_t domain, const int32_t *ids,
                              size_t n, uint8_t name[SKV_BLOCK_NAME_BYTES])
{
    size_t n_blocks;
    const block *last = find_longest(index, domain, ids, n, &n_blocks);
    if (last) memcpy(name, last->name, sizeof last->name);
    return n_blocks;
}

void skv_prefix_index_show_idle(skv_prefix_index *index, size_t n_max,
                                bool (*show)(void *user, const skv_prefix_block *block), void *user)
{
    size_t n_shown = 0;
    for (block *b = oldest(index); b && n_shown < n_max; b = newer(b)) {
        if (!is_idle(index, b)) continue;
        skv_prefix_block shown = show_block(b);
        if (!show(user, &shown)) return;
        n_shown++;
    }
}

/* ---- giving up ---- */

static void remove_block(skv_prefix_index *index, block *b)
{
    assert(b->n_children == 0);
    skv_lru_remove(&index->blocks, &b->node);
    if (b->parent) b->parent->n_children--;
    skv_kv_page_watch(index->store, b->pages[0], 0);
    for (size_t p = 0; p < b->n_pages; p++) skv_kv_page_drop(index->store, b->pages[p]);
    skv_free(b);
}

size_t skv_prefix_index_evictable(const skv_prefix_index *index)
{
    return skv_kv_store_idle_weight(index->store);
}

size_t skv_prefix_index_evict(skv_prefix_index *index, size_t n_pages)
{
    size_t n_freed = 0;
    block *b = oldest(index);
    while (b && n_freed < n_pages) {
        block *next = newer(b);
        if (b->n_children == 0 && is_idle(index, b)) {
            /* Its parent may be a leaf now, and stands among the newer ones. */
            if (index->keeper.give_up) {
                skv_prefix_block shown = show_block(b);
                index->keeper.give_up(index->keeper.user, &shown);
            }
            n_freed += b->n_pages;
            remove_block(index, b);
        }
        b = next;
    }
    return n_freed;
}

size_t skv_prefix_index_blocks(const skv_prefix_index *index)
{
    return index->blocks.n;
}

void skv_prefix_index_free(skv_prefix_index *index)
{
    if (!index) return;
    while (index->blocks.oldest) {
        block *b = oldest(index);
        while (b->n_children > 0) b = newer(b);
        remove_block(index, b);
    }
    skv_lru_release(&index->blocks);
    skv_free(index);
}
