/*
 * The only place that calls the C allocator, so that a test can make the k-th allocation fail
 * and count the allocations of a decoded token (none).
 */
#ifndef SKV_BASE_MEM_H
#define SKV_BASE_MEM_H

#include <stddef.h>

/** malloc/calloc/realloc/free with checked `count * size`; NULL on failure. */
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

#endif
