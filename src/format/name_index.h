/*
 * Names -> numbers, for the keys and tensors of a file. Sorted, so that no choice of names makes
 * it slow, and two equal names stand side by side.
 */
#ifndef SKV_FORMAT_NAME_INDEX_H
#define SKV_FORMAT_NAME_INDEX_H

#include <stddef.h>

#include "base/fail.h"

typedef struct skv_name_entry {
    const char *name; /* borrowed */
    size_t i;
} skv_name_entry;

typedef struct skv_name_index {
    skv_name_entry *entries; /* [n], owned, sorted by name */
    size_t n;
} skv_name_index;

/*
 * Takes over entries[0..n) (from skv_alloc) and sorts them, also when it fails. Two equal names
 * are an error: "FILE: WHAT NAME appears twice".
 */
SKV_MUST_CHECK skv_status skv_name_index_build(skv_name_index *index, skv_name_entry *entries,
                                               size_t n, const char *file, const char *what,
                                               skv_error *err);
void skv_name_index_release(skv_name_index *index);

/** The number of a name, SIZE_MAX when there is none. */
size_t skv_name_index_find(const skv_name_index *index, const char *name);

#endif
