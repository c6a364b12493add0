/* Blocks in a memory: see blocks.h. A block is its name, a well mixed number. */
#include "blocks.h"

#include "base/mem.h"

enum { BUCKETS_MAX = 1 << 20 };

bool fleet_blocks_init(fleet_blocks *blocks, size_t most)
{
    *blocks = (fleet_blocks){.most = most};
    return skv_lru_init(&blocks->lru, most < BUCKETS_MAX ? most + 1 : BUCKETS_MAX, NULL) == SKV_OK;
}

size_t fleet_blocks_find(fleet_blocks *blocks, const uint64_t *names, size_t n)
{
    size_t i = 0;
    for (; i < n; i++) {
        skv_lru_node *node = skv_lru_first(&blocks->lru, names[i]);
        if (!node) break;
        skv_lru_touch(&blocks->lru, node);
    }
    return i;
}

void fleet_blocks_trim(fleet_blocks *blocks, size_t most)
{
    while (blocks->lru.n > most) {
        skv_lru_node *oldest = blocks->lru.oldest;
        skv_lru_remove(&blocks->lru, oldest);
        skv_free(oldest);
    }
}

bool fleet_blocks_add(fleet_blocks *blocks, const uint64_t *names, size_t n)
{
    for (size_t i = 0; i < n && blocks->most > 0; i++) {
        skv_lru_node *node = skv_lru_first(&blocks->lru, names[i]);
        if (node) {
            skv_lru_touch(&blocks->lru, node);
            continue;
        }
        fleet_blocks_trim(blocks, blocks->most - 1);
        node = skv_alloc_zero(1, sizeof *node);
        if (!node) return false;
        skv_lru_add(&blocks->lru, node, names[i]);
    }
    return true;
}

void fleet_blocks_release(fleet_blocks *blocks)
{
    fleet_blocks_trim(blocks, 0);
    skv_lru_release(&blocks->lru);
}
