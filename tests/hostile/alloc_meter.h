/*
 * Counts the bytes that a program's own code holds. The linker sends malloc, calloc, realloc,
 * aligned_alloc, free, mmap and munmap of the library and of the test through this meter (--wrap),
 * on every thread; other libraries keep the real ones. jansson is counted after
 * json_set_alloc_funcs(alloc_meter_malloc, alloc_meter_free).
 */
#ifndef SKV_TESTS_ALLOC_METER_H
#define SKV_TESTS_ALLOC_METER_H

#include <stddef.h>

/** The peak begins anew, at what is held now. */
void alloc_meter_reset(void);
/** Bytes held now, and the most since the last reset. */
size_t alloc_meter_used(void);
size_t alloc_meter_peak(void);
/** Calls `full` in the thread that takes more than max bytes; 0: never. */
void alloc_meter_limit(size_t max, void (*full)(void));

void *alloc_meter_malloc(size_t n_bytes);
void alloc_meter_free(void *block);

#endif
