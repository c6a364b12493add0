/* Which blocks of prompts a memory has: the least recently used leave when there are too many. */
#ifndef SKV_FLEET_BLOCKS_H
#define SKV_FLEET_BLOCKS_H

#include <stdbool.h>

#include "base/lru.h"

typedef struct fleet_blocks {
    skv_lru lru;
    size_t most;
} fleet_blocks;

bool fleet_blocks_init(fleet_blocks *blocks, size_t most);
/** How many of names [n] are there, counted from the first; they become the newest. */
size_t fleet_blocks_find(fleet_blocks *blocks, const uint64_t *names, size_t n);
/** Adds those that are missing; false: no memory. */
bool fleet_blocks_add(fleet_blocks *blocks, const uint64_t *names, size_t n);
/** Only so many stay. */
void fleet_blocks_trim(fleet_blocks *blocks, size_t most);
void fleet_blocks_release(fleet_blocks *blocks);

#endif
