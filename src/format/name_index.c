/* Names -> numbers: see name_index.h. */
#include "format/name_index.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

static int by_name(const void *a, const void *b)
{
    const skv_name_entry *x = a, *y = b;
    return strcmp(x->name, y->name);
}

skv_status skv_name_index_build(skv_name_index *index, skv_name_entry *entries, size_t n,
                                const char *file, const char *what, skv_error *err)
{
    index->entries = entries;
    index->n = n;
    if (n) qsort(entries, n, sizeof *entries, by_name);
    for (size_t i = 1; i < n; i++) {
        SKV_REQUIRE(strcmp(entries[i - 1].name, entries[i].name) != 0, err, SKV_FORMAT,
                    "%s: %s %s appears twice", file, what, entries[i].name);
    }
    return SKV_OK;
}

void skv_name_index_release(skv_name_index *index)
{
    skv_free(index->entries);
    *index = (skv_name_index){0};
}

size_t skv_name_index_find(const skv_name_index *index, const char *name)
{
    if (!index->n) return SIZE_MAX;
    skv_name_entry key = {.name = name};
    const skv_name_entry *found =
        bsearch(&key, index->entries, index->n, sizeof *index->entries, by_name);
    return found ? found->i : SIZE_MAX;
}
