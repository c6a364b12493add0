/* Merge sort from the bottom up: see jinja_sort.h. */
#include "text/jinja/jinja_sort.h"

#include "base/size.h"
#include "text/jinja/jinja_op.h"

typedef struct sort_state {
    const skv_jlist *keys;
    const size_t *from; /* the order so far */
    size_t *to;         /* the order after this pass */
    bool reverse;
} sort_state;

/* Whether the right item goes first; never for equal keys. */
static bool right_first(skv_jrun *r, const sort_state *s, size_t left, size_t right)
{
    skv_jv a = s->keys->items[s->from[left]], b = s->keys->items[s->from[right]];
    return s->reverse ? skv_j_less(r, a, b) : skv_j_less(r, b, a);
}

/* Merges the sorted runs [low, middle) and [middle, high). */
static void merge(skv_jrun *r, const sort_state *s, size_t low, size_t middle, size_t high)
{
    size_t a = low, b = middle;
    for (size_t i = low; i < high; i++) {
        bool right = a >= middle;
        if (!right && b < high && skv_j_spend(r, 1)) right = right_first(r, s, a, b);
        s->to[i] = s->from[right ? b++ : a++];
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
        const sort_state state = {.keys = keys, .from = from, .to = to, .reverse = reverse};
        for (size_t low = 0; low < n && skv_j_ok(r); low += 2 * width)
            merge(r, &state, low, skv_min_size(low + width, n), skv_min_size(low + 2 * width, n));
        size_t *swap = from;
        from = to;
        to = swap;
    }
    for (size_t i = 0; i < n && skv_j_ok(r); i++)
        (void)skv_j_push(r, out.as.list, items->items[from[i]]);
    return out;
}
