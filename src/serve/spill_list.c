/* The files of the spilled prefix cache: see spill_list.h. */
#include "serve/spill_list.h"

#include <string.h>

#include "base/mem.h"

enum { N_BUCKETS = 1 << 14 };

struct skv_spill_entry {
    skv_spill_entry *next_in_bucket, *newer, *older;
    skv_spill_name name;
    size_t n_bytes;
};

skv_status skv_spill_list_init(skv_spill_list *list, size_t bytes_max, skv_error *err)
{
    *list = (skv_spill_list){.bytes_max = bytes_max, .n_buckets = N_BUCKETS};
    list->buckets = skv_alloc_zero(N_BUCKETS, sizeof(skv_spill_entry *));
    SKV_REQUIRE(list->buckets, err, SKV_MEMORY, "cache-dir: no memory");
    return SKV_OK;
}

/* Names are hashes already. */
static skv_spill_entry **find(const skv_spill_list *list, const skv_spill_name *name)
{
    uint64_t hash;
    memcpy(&hash, name->bytes, sizeof hash);
    skv_spill_entry **at = &list->buckets[hash & (list->n_buckets - 1)];
    while (*at && memcmp(&(*at)->name, name, sizeof *name) != 0) at = &(*at)->next_in_bucket;
    return at;
}

static void unlink_use(skv_spill_list *list, skv_spill_entry *e)
{
    *(e->newer ? &e->newer->older : &list->newest) = e->older;
    *(e->older ? &e->older->newer : &list->oldest) = e->newer;
    e->newer = e->older = NULL;
}

static void link_newest(skv_spill_list *list, skv_spill_entry *e)
{
    e->newer = NULL;
    e->older = list->newest;
    *(list->newest ? &list->newest->newer : &list->oldest) = e;
    list->newest = e;
}

bool skv_spill_list_has(const skv_spill_list *list, const skv_spill_name *name)
{
    return *find(list, name) != NULL;
}

bool skv_spill_list_add(skv_spill_list *list, const skv_spill_name *name, size_t n_bytes)
{
    skv_spill_entry **at = find(list, name);
    skv_spill_entry *e = *at ? NULL : skv_alloc(1, sizeof *e);
    if (!e) return false;
    *e = (skv_spill_entry){.name = *name, .n_bytes = n_bytes};
    *at = e;
    link_newest(list, e);
    list->n_bytes += n_bytes;
    list->n_entries++;
    return true;
}

void skv_spill_list_touch(skv_spill_list *list, const skv_spill_name *name)
{
    skv_spill_entry *e = *find(list, name);
    if (!e) return;
    unlink_use(list, e);
    link_newest(list, e);
}

void skv_spill_list_remove(skv_spill_list *list, const skv_spill_name *name)
{
    skv_spill_entry **at = find(list, name), *e = *at;
    if (!e) return;
    *at = e->next_in_bucket;
    unlink_use(list, e);
    list->n_bytes -= e->n_bytes;
    list->n_entries--;
    skv_free(e);
}

bool skv_spill_list_make_way(skv_spill_list *list, size_t n_bytes, skv_spill_name *removed)
{
    bool fits = n_bytes <= list->bytes_max && list->n_bytes <= list->bytes_max - n_bytes;
    if (fits || !list->oldest) return false;
    *removed = list->oldest->name;
    skv_spill_list_remove(list, removed);
    return true;
}

void skv_spill_list_release(skv_spill_list *list)
{
    while (list->oldest) {
        skv_spill_name name = list->oldest->name;
        skv_spill_list_remove(list, &name);
    }
    skv_free(list->buckets);
    *list = (skv_spill_list){0};
}
