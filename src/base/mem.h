/*
 * The only place that calls the C allocator, so that a test can make the k-th allocation fail
 * and count the allocations of a decoded token (none).
 *
 * `arena` hands out 64-byte aligned pieces of one block that was sized beforehand; under
 * AddressSanitizer the gaps between the pieces are poisoned.
 */
#ifndef SKV_BASE_MEM_H
#define SKV_BASE_MEM_H

#include <stddef.h>

/** malloc/calloc/realloc/free with checked `count * size`; NULL when it cannot be had. */
void *skv_alloc(size_t count, size_t size);
void *skv_alloc_zero(size_t count, size_t size);
void *skv_realloc(void *block, size_t count, size_t size);
void skv_free(void *block);

/** 64-byte aligned and uninitialised; release with skv_free. */
void *skv_alloc_aligned(size_t count, size_t size);

/** A heap copy of the n bytes at text with a terminating zero; NULL when out of memory. */
char *skv_strndup(const char *text, size_t n);

/** Large, zeroed, page-granular memory that costs nothing until it is touched. */
void *skv_map_zero(size_t n_bytes);
void skv_unmap(void *block, size_t n_bytes);
/** Tells the system that the pages of this range may go back; they read as zero afterwards. */
void skv_map_discard(void *block, size_t n_bytes);

/** Bytes of memory this process may still take (the machine's and its control groups' limits). */
size_t skv_memory_available(void);
/** What the limits of a control group and of those around it leave: `membership` is a file like
 * /proc/self/cgroup, `root` where the groups are mounted. SIZE_MAX: no limit. */
size_t skv_memory_of_groups(const char *membership, const char *root);
/** The largest resident size so far, in bytes. */
size_t skv_memory_peak(void);

typedef struct skv_arena {
    unsigned char *base; /* owned */
    size_t size;         /* bytes */
    size_t used;         /* bytes */
} skv_arena;

/** Takes `size` bytes at once; base is NULL when they cannot be had (size 0 is fine). */
int skv_arena_init(skv_arena *arena, size_t size);
void skv_arena_release(skv_arena *arena);
/** count * size bytes, 64-byte aligned, or NULL when the arena is too small. */
void *skv_arena_take(skv_arena *arena, size_t count, size_t size);
/** The bytes that one skv_arena_take of this many bytes uses up. */
size_t skv_arena_cost(size_t n_bytes);
/** Everything taken is given back at once. */
void skv_arena_reset(skv_arena *arena);

#endif
