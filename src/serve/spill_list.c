/* The files of the spilled prefix cache: see spill_list.h. */
#include "serve/spill_list.h"

#include <string.h>

#include "base/mem.h"

enum { N_BUCKETS = 1 << 14 };

typedef struct entry {
    skv_lru_node node;
    skv_spill_name name;
    size_t n_bytes;
} entry;

skv_status skv_spill_list_init(skv_spill_list *list, size_t bytes_max, skv_error *err)
{
    *list = (skv_spill_list){.bytes_max = bytes_max};
    skv_status status = skv_lru_init(&list->entries, N_BUCKETS, err);
    return status == SKV_OK ? SKV_OK : skv_fail_within(err, status, "cache-dir");
}

/* Names are hashes already. */
static uint64_t hash_of(const skv_spill_name *name)
{
    uint64_t hash;
    memcpy(&hash, name->bytes, sizeof hash);
    return hash;
}

static entry *find(const skv_spill_list *list, const skv_spill_name *name)
{
    entry *e = (entry *)skv_lru_first(&list->entries, hash_of(name));
    while (e && memcmp(&e->name, name, sizeof *name) != 0) e = (entry *)skv_lru_next(&e->node);
    return e;
}

static void drop(skv_spill_list *list, entry *e)
{
    skv_lru_remove(&list->entries, &e->node);
    list->n_bytes -= e->n_bytes;
    skv_free(e);
}

bool skv_spill_list_has(const skv_spill_list *list, const skv_spill_name *name)
{
    return find(list, name) != NULL;
}

bool skv_spill_list_add(skv_spill_list *list, const skv_spill_name *name, size_t n_bytes)
{
    entry *e = find(list, name) ? NULL : skv_alloc(1, sizeof *e);
    if (!e) return false;
    *e = (entry){.name = *name, .n_bytes = n_bytes};
    skv_lru_add(&list->entries, &e->node, hash_of(name));
    list->n_bytes += n_bytes;
    return true;
}

void skv_spill_list_touch(skv_spill_list *list, const skv_spill_name *name)
{
    entry *e = find(list, name);
    if (e) skv_lru_touch(&list->entries, &e->node);
}

void skv_spill_list_remove(skv_spill_list *list, const skv_spill_name *name)
{
    entry *e = find(list, name);
    if (e) drop(list, e);
}

bool skv_spill_list_make_way(skv_spill_list *list, size_t n_bytes, skv_spill_name *removed)
{
    bool fits = n_bytes <= list->bytes_max && list->n_bytes <= list->bytes_max - n_bytes;
    entry *oldest = (entry *)list->entries.oldest;
    if (fits || !oldest) return false;
    *removed = oldest->name;
    drop(list, oldest);
    return true;
}

size_t skv_spill_list_count(const skv_spill_list *list)
{
    return list->entries.n;
}

void skv_spill_list_release(skv_spill_list *list)
{
    while (list->entries.oldest) drop(list, (entry *)list->entries.oldest);
    skv_lru_release(&list->entries);
    *list = (skv_spill_list){0};
}
