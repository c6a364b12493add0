/* Entries by hash and in order of use: see lru.h. */
#include "base/lru.h"

#include <assert.h>

#include "base/mem.h"

skv_status skv_lru_init(skv_lru *lru, size_t n_entries, skv_error *err)
{
    *lru = (skv_lru){.n_buckets = 64};
    while (lru->n_buckets < n_entries && lru->n_buckets <= SIZE_MAX / 4) lru->n_buckets *= 2;
    lru->buckets = skv_alloc_zero(lru->n_buckets, sizeof(skv_lru_node *));
    SKV_REQUIRE(lru->buckets, err, SKV_MEMORY, "no memory for a table of %zu entries", n_entries);
    return SKV_OK;
}

void skv_lru_release(skv_lru *lru)
{
    skv_free(lru->buckets);
    *lru = (skv_lru){.n_buckets = 0};
}

static skv_lru_node **bucket_of(const skv_lru *lru, uint64_t hash)
{
    return &lru->buckets[hash & (lru->n_buckets - 1)];
}

/* Returns this node or the first one after it with the hash. */
static skv_lru_node *same_hash(skv_lru_node *node, uint64_t hash)
{
    while (node && node->hash != hash) node = node->next_in_bucket;
    return node;
}

skv_lru_node *skv_lru_first(const skv_lru *lru, uint64_t hash)
{
    return same_hash(*bucket_of(lru, hash), hash);
}

skv_lru_node *skv_lru_next(const skv_lru_node *node)
{
    return same_hash(node->next_in_bucket, node->hash);
}

static void unlink_use(skv_lru *lru, skv_lru_node *node)
{
    *(node->newer ? &node->newer->older : &lru->newest) = node->older;
    *(node->older ? &node->older->newer : &lru->oldest) = node->newer;
}

static void link_newest(skv_lru *lru, skv_lru_node *node)
{
    node->newer = NULL;
    node->older = lru->newest;
    *(lru->newest ? &lru->newest->newer : &lru->oldest) = node;
    lru->newest = node;
}

void skv_lru_add(skv_lru *lru, skv_lru_node *node, uint64_t hash)
{
    skv_lru_node **bucket = bucket_of(lru, hash);
    *node = (skv_lru_node){.next_in_bucket = *bucket, .hash = hash};
    *bucket = node;
    link_newest(lru, node);
    lru->n++;
}

void skv_lru_touch(skv_lru *lru, skv_lru_node *node)
{
    assert(lru->n > 0);
    unlink_use(lru, node);
    link_newest(lru, node);
}

void skv_lru_remove(skv_lru *lru, skv_lru_node *node)
{
    assert(lru->n > 0);
    skv_lru_node **at = bucket_of(lru, node->hash);
    while (*at != node) at = &(*at)->next_in_bucket;
    *at = node->next_in_bucket;
    unlink_use(lru, node);
    lru->n--;
}
