/*
 * Which files the spilled prefix cache has: their names and sizes, in order of use, under a limit
 * of bytes. Not safe for threads: spill.c guards it.
 */
#ifndef SKV_SERVE_SPILL_LIST_H
#define SKV_SERVE_SPILL_LIST_H

#include "base/lru.h"
#include "serve/spill_file.h"

typedef struct skv_spill_list {
    size_t bytes_max;
    size_t n_bytes;
    skv_lru entries;
} skv_spill_list;

SKV_MUST_CHECK skv_status skv_spill_list_init(skv_spill_list *list, size_t bytes_max,
                                              skv_error *err);
/** A zeroed list is fine. */
void skv_spill_list_release(skv_spill_list *list);

bool skv_spill_list_has(const skv_spill_list *list, const skv_spill_name *name);
/** As the newest; false: no memory, or it is there. */
SKV_MUST_CHECK bool skv_spill_list_add(skv_spill_list *list, const skv_spill_name *name,
                                       size_t n_bytes);
void skv_spill_list_touch(skv_spill_list *list, const skv_spill_name *name);
void skv_spill_list_remove(skv_spill_list *list, const skv_spill_name *name);
/** Takes the oldest out of the list when n_bytes more do not fit below the limit; false: they do,
 * or nothing is left. */
SKV_MUST_CHECK bool skv_spill_list_make_way(skv_spill_list *list, size_t n_bytes,
                                            skv_spill_name *removed);
/** Files it has. */
size_t skv_spill_list_count(const skv_spill_list *list);

#endif
