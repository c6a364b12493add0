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
    bool taken;                         /* some of its rows came from another place, */
    bool approximate;                   /* or those of a block before it */
    skv_lru_node by_content;            /* where runs are found */
    struct checkpoint *state;           /* after its last token; NULL: none */
    const skv_kv_layout *layout;        /* borrowed */
    int32_t ids[SKV_PAGE_ROWS];
    uint32_t pages[]; /* [n_bundles], one reference each; SKV_KV_NO_PAGE: a windowed bundle's that
                       * is not there */
} block;

/* A place of the pool, in order of use where it is a block's. */
typedef struct checkpoint {
    skv_lru_node node;
    block *of;
} checkpoint;

/* The pages of a block that are used together: of the bundles [first, end). */
typedef struct part {
    size_t first, end;
} part;

struct skv_prefix_index {
    skv_kv_store *store; /* borrowed */
    uint64_t seed;
    size_t max_blocks;
    skv_lru blocks;
    skv_prefix_keeper keeper; /* name == NULL: none */
    skv_state_pool *pool;     /* borrowed; NULL: no layer keeps a state */
    checkpoint *places;       /* [pool->n], owned */
    skv_lru states;           /* of those that are in use */
    skv_lru contents;         /* of blocks that are not taken, by their tokens; without buckets: not
                               * wanted */
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

/* ---- by their tokens alone ---- */

/* A sum that a window of a block's length can be moved along a text with. */
static uint64_t weigh(const skv_prefix_index *index, int32_t id)
{
    return skv_mix64(index->seed ^ (uint32_t)id);
}

static const uint64_t BASE = UINT64_C(0x9e3779b97f4a7c15); /* odd */

static uint64_t sum_window(const skv_prefix_index *index, const int32_t *ids)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < SKV_PAGE_ROWS; i++) sum = sum * BASE + weigh(index, ids[i]);
    return sum;
}

static uint64_t hash_content(const skv_prefix_index *index, uint64_t domain, uint64_t sum)
{
    return skv_mix64(sum ^ skv_mix64(domain ^ index->seed));
}

static block *of_content(skv_lru_node *node)
{
    return node ? (block *)(void *)((unsigned char *)node - offsetof(block, by_content)) : NULL;
}

static bool has_content(const block *b, uint64_t domain, const int32_t *ids)
{
    return b->domain == domain && memcmp(b->ids, ids, sizeof b->ids) == 0;
}

static size_t depth_of(const block *b)
{
    size_t n = 0;
    for (; b->parent; b = b->parent) n++;
    return n;
}

/* The run that begins with a block: as far as its text goes on like ids[0..n). */
static skv_prefix_run follow_run(const skv_prefix_index *index, block *b, const int32_t *ids,
                                 size_t n)
{
    skv_prefix_run run = {.n = SKV_PAGE_ROWS};
    for (; run.n + SKV_PAGE_ROWS <= n; run.n += SKV_PAGE_ROWS) {
        const uint64_t hash = hash_block(index, b->node.hash, b->domain, ids + run.n);
        block *next = find_block(index, hash, b->domain, b, ids + run.n);
        if (!next || next->taken) break;
        b = next;
    }
    run.of = b;
    return run;
}

enum { CANDIDATES = 8 };

/* The longest run that begins with ids[0..64), whose sum is given, in some of the texts that have
 * them. */
static skv_prefix_run longest_run(const skv_prefix_index *index, uint64_t domain, uint64_t sum,
                                  const int32_t *ids, size_t n)
{
    skv_prefix_run longest = {.n = 0};
    block *b = of_content(skv_lru_first(&index->contents, hash_content(index, domain, sum)));
    for (size_t i = 0; b && i < CANDIDATES; b = of_content(skv_lru_next(&b->by_content)), i++) {
        if (!has_content(b, domain, ids)) continue;
        const skv_prefix_run run = follow_run(index, b, ids, n);
        if (run.n > longest.n) longest = run;
    }
    return longest;
}

bool skv_prefix_index_run(const skv_prefix_index *index, uint64_t domain, const int32_t *ids,
                          size_t first, size_t n, size_t n_min, skv_prefix_run *out)
{
    uint64_t sum = 0, top = 1; /* top: of the number that leaves the window */
    if (!index->contents.buckets || n < SKV_PAGE_ROWS || first > n - SKV_PAGE_ROWS) return false;
    for (size_t i = 1; i < SKV_PAGE_ROWS; i++) top *= BASE;
    for (size_t at = first; at + skv_max_size(n_min, SKV_PAGE_ROWS) <= n; at++) {
        sum = at == first ? sum_window(index, ids + at)
                          : (sum - weigh(index, ids[at - 1]) * top) * BASE +
                                weigh(index, ids[at + SKV_PAGE_ROWS - 1]);
        skv_prefix_run run = longest_run(index, domain, sum, ids + at, n - at);
        if (run.n == 0 || run.n < n_min) continue;
        run.at = at;
        run.from = depth_of(run.of) * SKV_PAGE_ROWS + SKV_PAGE_ROWS - run.n;
        *out = run;
        return true;
    }
    return false;
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

/* ---- the pages of a block ---- */

static part full_part(const block *b)
{
    return (part){0, b->layout->n_full};
}

static part windowed_part(const block *b)
{
    return (part){b->layout->n_full, b->layout->n_bundles};
}

/* Pages of a part that are there: all or none. */
static size_t pages_of(const block *b, part p)
{
    return p.first < p.end && b->pages[p.first] != SKV_KV_NO_PAGE ? p.end - p.first : 0;
}

static bool is_whole(const block *b)
{
    return pages_of(b, full_part(b)) + pages_of(b, windowed_part(b)) == b->layout->n_bundles;
}

/* One page of a part tells for all, and the store counts which of these no sequence uses. */
static void watch(const skv_prefix_index *index, const block *b, part p)
{
    const size_t n_pages = pages_of(b, p);
    if (n_pages > 0) skv_kv_page_watch(index->store, b->pages[p.first], n_pages);
}

static size_t used_pages(const skv_prefix_index *index, const block *b, part p)
{
    const size_t n_pages = pages_of(b, p);
    if (n_pages == 0 || skv_kv_page_references(index->store, b->pages[p.first]) == 1) return 0;
    return n_pages;
}

static bool is_idle(const skv_prefix_index *index, const block *b)
{
    return used_pages(index, b, full_part(b)) + used_pages(index, b, windowed_part(b)) == 0;
}

static size_t drop_part(skv_prefix_index *index, block *b, part p)
{
    const size_t n_pages = pages_of(b, p);
    if (n_pages > 0) skv_kv_page_watch(index->store, b->pages[p.first], 0);
    for (size_t i = p.first; i < p.first + n_pages; i++) {
        skv_kv_page_drop(index->store, b->pages[i]);
        b->pages[i] = SKV_KV_NO_PAGE;
    }
    return n_pages;
}

/* ---- places to continue from ---- */

/* The first block that the token after n_blocks of them sees through the windows. */
static size_t first_seen(const block *last, size_t n_blocks)
{
    return skv_kv_layout_first_seen(last->layout, n_blocks * SKV_PAGE_ROWS) / SKV_PAGE_ROWS;
}

/* Of b, the *n_blocks-th of its text, and those before it the last with a checkpoint. */
static block *find_state(const skv_prefix_index *index, block *b, size_t *n_blocks)
{
    for (; index->pool && b && !b->state; b = b->parent) --*n_blocks;
    return b;
}

/* The last block of the longest known beginning that can be continued, NULL for none. */
static block *find_usable(const skv_prefix_index *index, uint64_t domain, const int32_t *ids,
                          size_t n, size_t *n_blocks)
{
    block *last = find_state(index, find_longest(index, domain, ids, n, n_blocks), n_blocks);
    block *b = last;
    size_t i = *n_blocks; /* of the block that is looked at, counted from 1 */
    while (b && i > first_seen(last, *n_blocks)) {
        const bool seen = pages_of(b, windowed_part(b)) == b->layout->n_bundles - b->layout->n_full;
        b = b->parent;
        i--;
        if (seen) continue;
        b = last = find_state(index, b, &i);
        *n_blocks = i;
    }
    return last;
}

size_t skv_prefix_index_in_use(const skv_prefix_index *index, uint64_t domain, const int32_t *ids,
                               size_t n)
{
    size_t n_blocks, n_pages = 0;
    const block *last = find_usable(index, domain, ids, n, &n_blocks);
    size_t i = n_blocks;
    for (const block *b = last; b; b = b->parent) {
        n_pages += used_pages(index, b, full_part(b));
        if (--i >= first_seen(last, n_blocks)) n_pages += used_pages(index, b, windowed_part(b));
    }
    return n_pages;
}

size_t skv_prefix_index_rows(const skv_prefix_index *index, uint64_t domain, const int32_t *ids,
                             size_t n, uint8_t *name)
{
    size_t n_blocks;
    const block *last = find_longest(index, domain, ids, n, &n_blocks);
    if (last && name) memcpy(name, last->name, sizeof last->name);
    return n_blocks * SKV_PAGE_ROWS;
}

size_t skv_prefix_index_match(skv_prefix_index *index, uint64_t domain, const int32_t *ids,
                              size_t n, skv_kv_cache *cache, size_t *state)
{
    size_t n_blocks;
    block *last = find_usable(index, domain, ids, n, &n_blocks);
    *state = SKV_NO_STATE;
    if (!last) return 0;
    assert(last->layout == cache->layout);
    touch(index, last);
    if (last->state) {
        *state = (size_t)(last->state - index->places);
        skv_lru_touch(&index->states, &last->state->node);
    }
    size_t i = n_blocks;
    skv_kv_cache_adopt(cache, n_blocks * SKV_PAGE_ROWS);
    for (block *b = last; b; b = b->parent) skv_kv_cache_put_block(cache, --i, b->pages);
    return n_blocks * SKV_PAGE_ROWS;
}

/* ---- remembering ---- */

/* A new block after `parent`, without pages. */
static block *add_block(skv_prefix_index *index, block *parent, const block *key)
{
    block *b = skv_alloc_zero(1, sizeof *b + key->layout->n_bundles * sizeof *b->pages);
    if (!b) return NULL;
    *b = *key;
    b->parent = parent;
    for (size_t i = 0; i < key->layout->n_bundles; i++) b->pages[i] = SKV_KV_NO_PAGE;
    if (index->keeper.name) {
        index->keeper.name(index->keeper.user, b->domain, parent ? parent->name : NULL, b->ids,
                           b->name);
    }
    skv_lru_add(&index->blocks, &b->node, key->node.hash);
    if (parent) parent->n_children++;
    b->approximate = b->approximate || (parent && parent->approximate);
    if (index->contents.buckets && !b->taken) {
        const uint64_t sum = sum_window(index, b->ids);
        skv_lru_add(&index->contents, &b->by_content, hash_content(index, b->domain, sum));
    }
    return b;
}

/* Block i of a cache gives a block the pages of a part that it lacks. */
static void share_pages(skv_prefix_index *index, block *b, part p, const skv_kv_cache *cache,
                        size_t i)
{
    if (p.first == p.end || b->pages[p.first] != SKV_KV_NO_PAGE) return;
    if (skv_kv_cache_block(cache, p.first, i) == SKV_KV_NO_PAGE) return;
    for (size_t j = p.first; j < p.end; j++) {
        b->pages[j] = skv_kv_cache_block(cache, j, i);
        skv_kv_page_share(index->store, b->pages[j]);
    }
    watch(index, b, p);
}

void skv_prefix_index_insert(skv_prefix_index *index, uint64_t domain, const int32_t *ids, size_t n,
                             const skv_kv_cache *cache)
{
    skv_prefix_index_insert_parts(index, domain, ids, n, cache, NULL, 0);
}

/* Whether rows of block i are in one of the parts. */
static bool is_taken(const skv_prefix_part *parts, size_t n_parts, size_t i)
{
    for (size_t k = 0; k < n_parts; k++) {
        const size_t end = parts[k].at + parts[k].n;
        if (parts[k].at < (i + 1) * SKV_PAGE_ROWS && end > i * SKV_PAGE_ROWS) return true;
    }
    return false;
}

void skv_prefix_index_insert_parts(skv_prefix_index *index, uint64_t domain, const int32_t *ids,
                                   size_t n, const skv_kv_cache *cache,
                                   const skv_prefix_part *parts, size_t n_parts)
{
    assert(n <= cache->n_rows);
    block *last = NULL;
    block key = {.domain = domain, .layout = cache->layout};
    for (size_t i = 0; (i + 1) * SKV_PAGE_ROWS <= n; i++) {
        const int32_t *at = ids + i * SKV_PAGE_ROWS;
        key.taken = is_taken(parts, n_parts, i);
        key.approximate = n_parts > 0 && (i + 1) * SKV_PAGE_ROWS > parts[0].at;
        /* Another sequence may have computed the block in front of it. */
        key.taken = key.taken || (key.approximate && !(last && last->approximate));
        key.node.hash = hash_block(index, key.node.hash, domain, at);
        block *b = find_block(index, key.node.hash, domain, last, at);
        if (!b && index->blocks.n < index->max_blocks) {
            memcpy(key.ids, at, sizeof key.ids);
            b = add_block(index, last, &key);
        }
        if (!b) break;
        share_pages(index, b, full_part(b), cache, i);
        share_pages(index, b, windowed_part(b), cache, i);
        last = b;
    }
    touch(index, last);
}

/* ---- rows from another place ---- */

skv_status skv_prefix_index_find_runs(skv_prefix_index *index, skv_error *err)
{
    assert(index->blocks.n == 0 && !index->contents.buckets);
    return skv_lru_init(&index->contents, index->max_blocks, err);
}

void skv_prefix_index_hold_run(skv_prefix_index *index, const skv_prefix_run *run, uint32_t *pages)
{
    block *last = run->of;
    const size_t n_pages = run->n / SKV_PAGE_ROWS;
    touch(index, last);
    for (size_t p = n_pages; p-- > 0; last = last->parent) {
        for (size_t i = 0; i < last->layout->n_bundles; i++) {
            pages[i * n_pages + p] = last->pages[i];
            skv_kv_page_share(index->store, last->pages[i]);
        }
    }
}

size_t skv_prefix_index_taken(const skv_prefix_index *index, uint64_t domain, const int32_t *ids,
                              size_t n)
{
    size_t n_blocks, n_taken = 0;
    for (const block *b = find_longest(index, domain, ids, n, &n_blocks); b; b = b->parent) {
        n_taken += b->taken ? SKV_PAGE_ROWS : 0;
    }
    return n_taken;
}

static skv_prefix_block show_block(const skv_prefix_index *index, block *b)
{
    return (skv_prefix_block){.name = b->name,
                              .parent = b->parent ? b->parent->name : NULL,
                              .ids = b->ids,
                              .pages = b->pages,
                              .n_pages = b->layout->n_bundles,
                              .state = b->state ? (size_t)(b->state - index->places) : SKV_NO_STATE,
                              .kept = &b->kept};
}

/* ---- checkpoints ---- */

skv_status skv_prefix_index_set_states(skv_prefix_index *index, skv_state_pool *pool,
                                       skv_error *err)
{
    assert(index->blocks.n == 0 && !index->pool);
    index->places = skv_alloc_zero(skv_max_size(1, pool->n), sizeof *index->places);
    SKV_REQUIRE(index->places, err, SKV_MEMORY, "prefix index: no memory for %zu states", pool->n);
    SKV_TRY(skv_lru_init(&index->states, pool->n, err));
    index->pool = pool;
    return SKV_OK;
}

static void drop_state(skv_prefix_index *index, block *b)
{
    if (!b->state) return;
    skv_lru_remove(&index->states, &b->state->node);
    skv_state_pool_give(index->pool, (size_t)(b->state - index->places));
    b->state = NULL;
}

static void give_up_state(skv_prefix_index *index, block *b)
{
    const skv_prefix_block shown = show_block(index, b);
    if (index->keeper.give_up_state) index->keeper.give_up_state(index->keeper.user, &shown);
    drop_state(index, b);
}

/* A free place for the checkpoint of a block, or that of the least recently used one. */
static bool take_place(skv_prefix_index *index, block *b)
{
    size_t i;
    if (index->pool->n == 0) return false;
    if (index->pool->n_free == 0) give_up_state(index, ((checkpoint *)index->states.oldest)->of);
    if (skv_state_pool_take(index->pool, &i, NULL) != SKV_OK) return false;
    b->state = &index->places[i];
    b->state->of = b;
    b->kept = false;
    skv_lru_add(&index->states, &b->state->node, skv_mix64(i));
    return true;
}

/* The block that ends ids[0..n); NULL: none does. */
static block *find_end(const skv_prefix_index *index, uint64_t domain, const int32_t *ids, size_t n)
{
    size_t n_blocks;
    block *b = find_longest(index, domain, ids, n, &n_blocks);
    return b && n_blocks * SKV_PAGE_ROWS == n ? b : NULL;
}

bool skv_prefix_index_keep_state(skv_prefix_index *index, uint64_t domain, const int32_t *ids,
                                 size_t n, const skv_states *from, size_t i)
{
    block *b = index->pool ? find_end(index, domain, ids, n) : NULL;
    if (!b) return false;
    if (b->state) { /* the same rows have the same state */
        skv_lru_touch(&index->states, &b->state->node);
        return true;
    }
    if (!take_place(index, b)) return false;
    skv_state_pool_copy(index->pool, (size_t)(b->state - index->places), from, i);
    return true;
}

bool skv_prefix_index_restore_state(skv_prefix_index *index, uint64_t domain, const int32_t *ids,
                                    size_t n, const unsigned char *bytes)
{
    block *b = index->pool ? find_end(index, domain, ids, n) : NULL;
    if (!b || b->state || !take_place(index, b)) return b && b->state;
    const skv_state_pool *pool = index->pool;
    const size_t i = (size_t)(b->state - index->places);
    if (pool->be->state_write(pool->be, pool->states, i, bytes, n)) return true;
    drop_state(index, b);
    return false;
}

bool skv_prefix_index_has_state(const skv_prefix_index *index, uint64_t domain, const int32_t *ids,
                                size_t n)
{
    const block *b = find_end(index, domain, ids, n);
    return b && b->state;
}

void skv_prefix_index_drop_state(skv_prefix_index *index, uint64_t domain, const int32_t *ids,
                                 size_t n)
{
    block *b = find_end(index, domain, ids, n);
    if (b) drop_state(index, b);
}

/* ---- restoring ---- */

/* A block gets the pages of its windowed bundles again; it has the others. */
static bool restore_windowed(skv_prefix_index *index, block *b, const uint32_t *pages)
{
    const part p = windowed_part(b);
    if (p.first == p.end || b->pages[p.first] != SKV_KV_NO_PAGE) return false;
    for (size_t i = 0; i < p.first; i++) skv_kv_page_drop(index->store, pages[i]);
    memcpy(b->pages + p.first, pages + p.first, (p.end - p.first) * sizeof *pages);
    watch(index, b, p);
    touch(index, b);
    return true;
}

bool skv_prefix_index_restore(skv_prefix_index *index, uint64_t domain, const int32_t *ids,
                              size_t n, const uint32_t *pages, const skv_kv_layout *layout)
{
    assert(n >= SKV_PAGE_ROWS && n % SKV_PAGE_ROWS == 0);
    size_t n_before = n / SKV_PAGE_ROWS - 1, n_known;
    block *parent = find_longest(index, domain, ids, n, &n_known);
    if (n_known > n_before) return restore_windowed(index, parent, pages);
    if (n_known != n_before || index->blocks.n >= index->max_blocks) return false;
    block key = {.domain = domain, .layout = layout};
    const int32_t *at = ids + n_before * SKV_PAGE_ROWS;
    key.node.hash = hash_block(index, parent ? parent->node.hash : 0, domain, at);
    memcpy(key.ids, at, sizeof key.ids);
    block *b = add_block(index, parent, &key);
    if (!b) return false;
    memcpy(b->pages, pages, layout->n_bundles * sizeof *pages);
    watch(index, b, full_part(b));
    watch(index, b, windowed_part(b));
    touch(index, b);
    return true;
}

/* ---- numbers for callers ---- */

void skv_prefix_index_set_keeper(skv_prefix_index *index, const skv_prefix_keeper *keeper)
{
    assert(index->blocks.n == 0);
    index->keeper = *keeper;
}

size_t skv_prefix_index_known(const skv_prefix_index *index, uint64_t domain, const int32_t *ids,
                              size_t n, uint8_t name[SKV_BLOCK_NAME_BYTES])
{
    size_t n_blocks;
    const block *last = find_usable(index, domain, ids, n, &n_blocks);
    if (last) memcpy(name, last->name, sizeof last->name);
    return n_blocks;
}

void skv_prefix_index_show_idle(skv_prefix_index *index, size_t n_max,
                                bool (*show)(void *user, const skv_prefix_block *block), void *user)
{
    size_t n_shown = 0;
    for (block *b = oldest(index); b && n_shown < n_max; b = newer(b)) {
        if (b->approximate || !is_idle(index, b) || !is_whole(b)) continue;
        skv_prefix_block shown = show_block(index, b);
        if (!show(user, &shown)) return;
        n_shown++;
    }
}

void skv_prefix_index_show_text(const skv_prefix_index *index, uint64_t domain, const int32_t *ids,
                                size_t n, bool (*show)(void *user, const skv_prefix_block *block),
                                void *user)
{
    block *before = NULL;
    uint64_t hash = 0;
    for (; n >= SKV_PAGE_ROWS; ids += SKV_PAGE_ROWS, n -= SKV_PAGE_ROWS) {
        hash = hash_block(index, hash, domain, ids);
        block *b = find_block(index, hash, domain, before, ids);
        if (!b || b->approximate) return;
        skv_prefix_block shown = show_block(index, b);
        if (is_whole(b) && !show(user, &shown)) return;
        before = b;
    }
}

void skv_prefix_index_touch(skv_prefix_index *index, uint64_t domain, const int32_t *ids, size_t n)
{
    size_t n_blocks;
    touch(index, find_longest(index, domain, ids, n, &n_blocks));
}

/* ---- giving up ---- */

static size_t remove_block(skv_prefix_index *index, block *b)
{
    assert(b->n_children == 0);
    drop_state(index, b);
    skv_lru_remove(&index->blocks, &b->node);
    if (index->contents.buckets && !b->taken) skv_lru_remove(&index->contents, &b->by_content);
    if (b->parent) b->parent->n_children--;
    const size_t n_pages =
        drop_part(index, b, full_part(b)) + drop_part(index, b, windowed_part(b));
    skv_free(b);
    return n_pages;
}

size_t skv_prefix_index_evictable(const skv_prefix_index *index)
{
    return skv_kv_store_idle_weight(index->store);
}

/* A spill sees an exact block for the last time while it is whole. */
static void tell_keeper(const skv_prefix_index *index, block *b)
{
    if (!index->keeper.give_up || !is_whole(b) || b->approximate) return;
    skv_prefix_block shown = show_block(index, b);
    index->keeper.give_up(index->keeper.user, &shown);
}

/* The pages of a block that no sequence uses; returns how many. */
static size_t give_up(skv_prefix_index *index, block *b)
{
    const bool goes = b->n_children == 0 && is_idle(index, b);
    if (!goes && (pages_of(b, windowed_part(b)) == 0 || used_pages(index, b, windowed_part(b)))) {
        return 0;
    }
    tell_keeper(index, b);
    return goes ? remove_block(index, b) : drop_part(index, b, windowed_part(b));
}

size_t skv_prefix_index_evict(skv_prefix_index *index, size_t n_pages)
{
    size_t n_freed = 0;
    block *b = oldest(index);
    while (b && n_freed < n_pages) {
        /* Its parent may be a leaf afterwards, and stands among the newer ones. */
        block *next = newer(b);
        n_freed += give_up(index, b);
        b = next;
    }
    return n_freed;
}

void skv_prefix_index_free(skv_prefix_index *index)
{
    if (!index) return;
    while (index->blocks.oldest) {
        block *b = oldest(index);
        while (b->n_children > 0) b = newer(b);
        (void)remove_block(index, b);
    }
    skv_lru_release(&index->blocks);
    skv_lru_release(&index->states);
    skv_lru_release(&index->contents);
    skv_free(index->places);
    skv_free(index);
}
