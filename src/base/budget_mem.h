/*
 * Memory that a budget counts: an allocation here is taken from the budget first and given back
 * when it is freed. A budget of NULL counts nothing.
 */
#ifndef SKV_BASE_BUDGET_MEM_H
#define SKV_BASE_BUDGET_MEM_H

#include <stdbool.h>
#include <stddef.h>

#include "skv/budget.h"

/** Allocates `count` zeroed items of `size` bytes; NULL when the budget or memory is exhausted. */
void *skv_budget_alloc_zero(skv_budget *budget, size_t count, size_t size);
/** Frees a block of `count` items; NULL is allowed. */
void skv_budget_free(skv_budget *budget, void *block, size_t count, size_t size);
/**
 * Makes room for `need` items in an array that grows by doubling, to at most `max`: array is the
 * address of its pointer, *capacity its items. Returns false and changes nothing if there is no
 * room. While it grows, both the old and the new array count.
 */
SKV_CHECKED bool skv_budget_grow(skv_budget *budget, void *array, size_t *capacity, size_t need,
                                 size_t size, size_t max);
/**
 * Resizes an array to `n` items and counts only the difference: for large arrays, whose pages the
 * system can move. Returns false and changes nothing if the memory is not available.
 */
SKV_CHECKED bool skv_budget_resize(skv_budget *budget, void *array, size_t *capacity, size_t n,
                                   size_t size);
/** Cuts an array down to n items. It stays as it is where that does not work. */
void skv_budget_shrink(skv_budget *budget, void *array, size_t *capacity, size_t n, size_t size);

/** Whether the work may go on: asks at once, for loops that counted their work before. */
SKV_CHECKED bool skv_budget_look(skv_budget *budget);

#endif
