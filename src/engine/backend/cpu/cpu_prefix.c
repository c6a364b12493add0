/* Prefixes that several sequences of a step share: see cpu_prefix.h. */
#include "backend/cpu/cpu_prefix.h"

#include "base/size.h"

enum { PAGES_MIN = 4 /* fewer shared pages than this are read by each token for itself */ };

size_t skv_cpu_end_row(const skv_cpu_item *item, size_t track)
{
    return item->n_past + 1 - item->table->dropped[track];
}

size_t skv_cpu_first_row(const skv_cpu_item *item, size_t window, size_t track)
{
    size_t end = skv_cpu_end_row(item, track);
    return window && end > window ? end - window : 0;
}

/* The prefix that p would be with the item in it: an empty one if they share too little. */
static skv_cpu_prefix joined(const skv_cpu_set *set, size_t window, size_t track,
                             const skv_cpu_prefix *p, const skv_cpu_item *item)
{
    void *const *x = skv_cpu_track(set->items[p->leader].table, track);
    void *const *y = skv_cpu_track(item->table, track);
    skv_cpu_prefix q = *p;
    q.row0 = skv_max_size(p->row0, skv_cpu_first_row(item, window, track));
    /* The item's own token is not shared: only pages before it count. */
    size_t last = skv_min_size(p->row1, skv_cpu_end_row(item, track) - 1) / SKV_PAGE_ROWS;
    size_t page = q.row0 / SKV_PAGE_ROWS;
    while (page < last && x[page] == y[page]) page++;
    q.row1 = page * SKV_PAGE_ROWS;
    q.n_items++;
    bool is_long = q.row1 >= q.row0 + PAGES_MIN * SKV_PAGE_ROWS;
    /* Items that share much may not lose it to one that shares less than half of it. */
    if (p->n_items > 1 && 2 * (q.row1 - skv_min_size(q.row0, q.row1)) < p->row1 - p->row0) {
        is_long = false;
    }
    if (!is_long) q.n_items = 0;
    return q;
}

/* The prefix that an item fits best, with the item; `best` is its index, n if there is none. */
static skv_cpu_prefix best_fit(const skv_cpu_set *set, size_t window, size_t track,
                               const skv_cpu_prefix *prefixes, size_t n, size_t i, size_t *best)
{
    skv_cpu_prefix found = {0};
    *best = n;
    for (size_t j = 0; j < n; j++) {
        skv_cpu_prefix q = joined(set, window, track, &prefixes[j], &set->items[i]);
        if (q.n_items == 0 || q.row1 - q.row0 <= found.row1 - found.row0) continue;
        found = q;
        *best = j;
    }
    return found;
}

size_t skv_cpu_find_prefixes(const skv_cpu_set *set, size_t window, size_t track,
                             skv_cpu_prefix prefixes[SKV_PREFIXES_MAX], uint8_t *of)
{
    size_t n = 0;
    for (size_t i = 0; i < set->n_items; i++) {
        of[i] = SKV_PREFIX_NONE;
        if (set->items[i].n_q != 1 || set->items[i].follows) continue;
        size_t best = 0;
        skv_cpu_prefix found = best_fit(set, window, track, prefixes, n, i, &best);
        if (best < n) {
            prefixes[best] = found;
            of[i] = (uint8_t)best;
        } else if (n < SKV_PREFIXES_MAX) {
            of[i] = (uint8_t)n;
            prefixes[n++] = (skv_cpu_prefix){
                .leader = i,
                .n_items = 1,
                .row0 = skv_cpu_first_row(&set->items[i], window, track),
                .row1 = skv_cpu_end_row(&set->items[i], track) - 1,
            };
        }
    }
    return n;
}
