/* Merge sort from the bottom up: see jinja_sort.h. */
#include "format/jinja_sort.h"

#include "format/jinja_op.h"

/* Whether the right item goes first; never for equal keys. */
static bool right_first(skv_jrun *r, skv_jv left, skv_jv right, bool reverse)
{
    return reverse ? skv_j_less(r, left, right) : skv_j_less(r, right, left);
}

static void merge(skv_jrun *r, const skv_jlist *keys, const size_t *from, size_t *to, size_t low,
                  size_t middle, size_t high, bool reverse)
{
    size_t a = low, b = middle;
    for (size_t i = low; i < high; i++) {
        bool right = a >= middle;
        if (!right && b < high && skv_j_spend(r, 1))
            right = right_first(r, keys->items[from[a]], keys->items[from[b]], reverse);
        to[i] = right ? from[b++] : from[a++];
    }
}

skv_jv skv_j_sorted(skv_jrun *r, const skv_jlist *items, const skv_jlist *keys, bool reverse)
{
    size_t n = items->n;
    size_t *from = skv_j_take(r, n, sizeof *from), *to = skv_j_take(r, n, sizeof *to);
    skv_jv out = skv_j_list(r, SKV_J_LIST, n);
    if (!from || !to || !skv_j_ok(r)) return out;
    for (size_t i = 0; i < n; i++) from[i] = i;
    for (size_t width = 1; width < n && skv_j_ok(r); width *= 2) {
        for (size_t low = 0; low < n && skv_j_ok(r); low += 2 * width) {
            size_t middle = low + width < n ? low + width : n;
            size_t high = low + 2 * width < n ? low + 2 * width : n;
            merge(r, keys, from, to, low, middle, high, reverse);
        }
        size_t *swap = from;
        from = to;
        to = swap;
    }
    for (size_t i = 0; i < n && skv_j_ok(r); i++)
        (void)skv_j_push(r, out.as.list, items->items[from[i]]);
    return out;
}
