/*
 * Fails the k-th allocation, to show that nothing leaks, crashes or half-happens when memory runs
 * out. The linker sends malloc, calloc, realloc, aligned_alloc and mmap of the library and of the
 * test through this harness (--wrap), on every thread; other libraries keep the real ones.
 * A test that wants jansson's allocations to fail as well calls
 * json_set_alloc_funcs(alloc_fail_malloc, alloc_fail_free).
 */
#ifndef SKV_TESTS_ALLOC_FAIL_H
#define SKV_TESTS_ALLOC_FAIL_H

#include <stdbool.h>
#include <stddef.h>

/** Starts counting at 0; the k-th allocation from here on fails (k = 0: none does). */
void alloc_fail_at(size_t k);
/** Allocations asked for since then, the failed one included. */
size_t alloc_fail_count(void);

/**
 * Runs attempt(arg) again and again, with the first, the second, ... allocation failing, until
 * none is left to fail. attempt returns whether it succeeded, having released whatever it got:
 * it must not succeed when an allocation failed unless `tolerant`. Returns the number of
 * allocations of the run in which none failed; SIZE_MAX when an attempt gave the wrong answer.
 */
size_t alloc_fail_each(bool (*attempt)(void *arg), void *arg, bool tolerant);

void *alloc_fail_malloc(size_t n_bytes);
void alloc_fail_free(void *block);

#endif
