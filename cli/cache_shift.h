/** Simulates `serve --cache-shift`: text of earlier prompts that stands at another place. */
#ifndef SKV_CLI_CACHE_SHIFT_H
#define SKV_CLI_CACHE_SHIFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A block of tokens after another block. */
typedef struct cache_shift_block {
    uint64_t hash; /* of its tokens; 64 bits are enough for statistics */
    size_t parent; /* SIZE_MAX: it begins a prompt */
    size_t older;  /* another block with the same tokens; SIZE_MAX: none */
    bool taken;    /* some of its rows came from another place, so it is in no run */
} cache_shift_block;

typedef struct cache_shift {
    cache_shift_block *at; /* owned, [n] */
    size_t n, room;
    size_t *newest; /* owned, [n_places]: blocks by their tokens, plus 1; 0: free */
    size_t n_places;
} cache_shift;

/** Adds a prompt, and returns how many of its tokens a server takes from earlier ones: whole
 * blocks at its beginning, and runs at other places. */
size_t cache_shift_add(cache_shift *shift, const int32_t *ids, size_t n);
void cache_shift_release(cache_shift *shift);

#endif
