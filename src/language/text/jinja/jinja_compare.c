/* Truth, equality, order, sorting and membership. */
#include <string.h>

#include "base/size.h"
#include "text/jinja/jinja_run.h"

bool skv_j_length(skv_jv v, int64_t *n)
{
    switch (v.kind) {
    case SKV_J_UNDEFINED: *n = 0; return true;
    case SKV_J_STRING: *n = (int64_t)v.as.s->n_chars; return true;
    case SKV_J_LIST:
    case SKV_J_TUPLE: *n = (int64_t)v.as.list->n; return true;
    case SKV_J_DICT: *n = (int64_t)v.as.dict->n; return true;
    case SKV_J_VIEW: *n = (int64_t)v.as.view->dict->n; return true;
    case SKV_J_RANGE: *n = v.as.range->n; return true;
    default: return false;
    }
}

bool skv_j_truth(skv_jv v)
{
    int64_t n;
    switch (v.kind) {
    case SKV_J_UNDEFINED:
    case SKV_J_MISSING:
    case SKV_J_NONE: return false;
    case SKV_J_BOOL: return v.as.b;
    case SKV_J_INT: return v.as.i != 0;
    case SKV_J_FLOAT: return v.as.f != 0;
    default: return !skv_j_length(v, &n) || n != 0;
    }
}

static bool equal_lists(skv_jrun *r, const skv_jlist *a, const skv_jlist *b)
{
    if (a->n != b->n) return false;
    for (size_t i = 0; i < a->n && skv_j_ok(r); i++)
        if (!skv_j_equal(r, a->items[i], b->items[i])) return false;
    return true;
}

static bool equal_dicts(skv_jrun *r, const skv_jdict *a, const skv_jdict *b)
{
    if (a->n != b->n) return false;
    for (size_t i = 0; i < a->n && skv_j_ok(r); i++) {
        const skv_jv *other = skv_jdict_find(r->budget, b, a->pairs[i].key, a->pairs[i].hash);
        if (!other || !skv_j_equal(r, a->pairs[i].value, *other)) return false;
    }
    return true;
}

bool skv_j_equal(skv_jrun *r, skv_jv a, skv_jv b)
{
    if (!skv_j_is_sequence(a) && a.kind != SKV_J_DICT) {
        if (!skv_j_spend_bytes(r, a.kind == SKV_J_STRING ? a.as.s->size : 0)) return false;
        return skv_jdict_same_key(r->budget, a, b);
    }
    if (a.kind != b.kind || !skv_j_enter(r)) return false;
    bool same = false;
    if (skv_j_spend(r, 1))
        same = a.kind == SKV_J_DICT ? equal_dicts(r, a.as.dict, b.as.dict)
                                    : equal_lists(r, a.as.list, b.as.list);
    skv_j_leave(r);
    return same && skv_j_ok(r);
}

static int order_strings(const skv_jstr *a, const skv_jstr *b)
{
    size_t n = a->size < b->size ? a->size : b->size;
    int order = n ? memcmp(a->data, b->data, n) : 0;
    return order ? order : a->size < b->size ? -1 : a->size > b->size;
}

/* int against float without rounding the int. */
static bool less_mixed(int64_t i, double f, bool int_first)
{
    if (f != f) return false;
    if (f >= 9223372036854775808.0) return int_first;
    if (f < -9223372036854775808.0) return !int_first;
    int64_t whole = (int64_t)f;
    double rest = f - (double)whole;
    if (int_first) return i < whole || (i == whole && rest > 0);
    return whole < i || (whole == i && rest < 0);
}

static bool less_lists(skv_jrun *r, const skv_jlist *a, const skv_jlist *b)
{
    for (size_t i = 0; i < a->n && i < b->n && skv_j_ok(r); i++)
        if (!skv_j_equal(r, a->items[i], b->items[i]))
            return skv_j_less(r, a->items[i], b->items[i]);
    return a->n < b->n;
}

static bool less_numbers(skv_jv a, skv_jv b)
{
    int64_t i = 0, k = 0;
    bool a_int = skv_j_as_int(a, &i), b_int = skv_j_as_int(b, &k);
    if (a_int && b_int) return i < k;
    if (!a_int && !b_int) return a.as.f < b.as.f;
    return a_int ? less_mixed(i, b.as.f, true) : less_mixed(k, a.as.f, false);
}

bool skv_j_less(skv_jrun *r, skv_jv a, skv_jv b)
{
    if (skv_j_is_number(a) && skv_j_is_number(b)) return less_numbers(a, b);
    if (a.kind == SKV_J_STRING && b.kind == SKV_J_STRING)
        return skv_j_spend_bytes(r, a.as.s->size) && order_strings(a.as.s, b.as.s) < 0;
    if (skv_j_is_sequence(a) && a.kind == b.kind && skv_j_enter(r)) {
        bool less = skv_j_spend(r, 1) && less_lists(r, a.as.list, b.as.list);
        skv_j_leave(r);
        return less;
    }
    if (a.kind == SKV_J_UNDEFINED || b.kind == SKV_J_UNDEFINED)
        skv_j_fail_undefined(r, a.kind == SKV_J_UNDEFINED ? a : b);
    skv_j_fail(r, SKV_ARGUMENT, "'%s' and '%s' have no order", skv_j_type_name(a),
               skv_j_type_name(b));
    return false;
}

/* NaN makes `a <= b` differ from `not b < a`. */
static bool less_or_equal(skv_jrun *r, skv_jv a, skv_jv b)
{
    if (skv_j_is_number(a) && skv_j_is_number(b)) return less_numbers(a, b) || skv_j_equal(r, a, b);
    return !skv_j_less(r, b, a);
}

static bool dict_contains(skv_jrun *r, const skv_jdict *dict, skv_jv key)
{
    uint64_t hash;
    if (!skv_jdict_hash(r->budget, key, &hash)) {
        skv_j_fail_unhashable(r, key);
        return false;
    }
    return skv_jdict_find(r->budget, dict, key, hash);
}

/* item in container */
static bool contains(skv_jrun *r, skv_jv container, skv_jv item)
{
    if (container.kind == SKV_J_STRING) {
        if (item.kind == SKV_J_STRING)
            return skv_j_find_bytes(r, container.as.s, item.as.s, 0) != SIZE_MAX;
        skv_j_fail(r, SKV_ARGUMENT, "'in <string>' needs a string, got '%s'",
                   skv_j_type_name(item));
        return false;
    }
    if (container.kind == SKV_J_DICT) return dict_contains(r, container.as.dict, item);
    if (container.kind == SKV_J_VIEW && container.as.view->of == SKV_J_KEYS)
        return dict_contains(r, container.as.view->dict, item);
    skv_jv items = skv_j_items(r, container);
    if (!skv_j_ok(r)) return false;
    for (size_t i = 0; i < items.as.list->n && skv_j_spend(r, 1); i++)
        if (skv_j_equal(r, items.as.list->items[i], item)) return true;
    return false;
}

bool skv_j_compare(skv_jrun *r, unsigned op, skv_jv a, skv_jv b)
{
    switch (op) {
    case SKV_JOP('=', '='): return skv_j_equal(r, a, b);
    case SKV_JOP('!', '='): return !skv_j_equal(r, a, b);
    case '<': return skv_j_less(r, a, b);
    case '>': return skv_j_less(r, b, a);
    case SKV_JOP('<', '='): return less_or_equal(r, a, b);
    case SKV_JOP('>', '='): return less_or_equal(r, b, a);
    case 'i': return contains(r, b, a);
    default: return !contains(r, b, a);
    }
}

size_t skv_j_find_bytes(skv_jrun *r, const skv_jstr *text, const skv_jstr *part, size_t from)
{
    if (!part->size) return from <= text->size ? from : SIZE_MAX;
    while (from < text->size && text->size - from >= part->size) {
        size_t span = text->size - from - part->size + 1;
        const char *hit = memchr(text->data + from, part->data[0], span);
        size_t at = hit ? (size_t)(hit - text->data) : from + span;
        if (!skv_j_spend_bytes(r, at - from + part->size)) return SIZE_MAX;
        if (!hit) return SIZE_MAX;
        if (memcmp(hit, part->data, part->size) == 0) return at;
        from = at + 1;
    }
    return SIZE_MAX;
}

static skv_jv chars_of(skv_jrun *r, const skv_jstr *s)
{
    skv_jv list = skv_j_list(r, SKV_J_LIST, s->n_chars);
    for (size_t at = 0; at < s->size && skv_j_spend(r, 1);) {
        size_t next = skv_j_next_char(s, at);
        if (!skv_j_push(r, list.as.list, skv_j_part(r, s, at, next))) break;
        at = next;
    }
    return list;
}

static skv_jv pairs_of(skv_jrun *r, const skv_jdict *dict, skv_jview_of of)
{
    skv_jv list = skv_j_list(r, SKV_J_LIST, dict->n);
    for (size_t i = 0; i < dict->n && skv_j_spend(r, 1); i++) {
        const skv_jpair *pair = &dict->pairs[i];
        skv_jv item = of == SKV_J_KEYS     ? pair->key
                      : of == SKV_J_VALUES ? pair->value
                                           : skv_j_pair(r, pair->key, pair->value);
        if (!skv_j_push(r, list.as.list, item)) break;
    }
    return list;
}

static skv_jv numbers_of(skv_jrun *r, const skv_jrange *range)
{
    skv_jv list = skv_j_list(r, SKV_J_LIST, (size_t)range->n);
    for (int64_t i = 0; i < range->n && skv_j_spend(r, 1); i++)
        if (!skv_j_push(r, list.as.list, skv_j_int(range->start + i * range->step))) break;
    return list;
}

static skv_jv rest_of(skv_jrun *r, skv_jiter *iter)
{
    if (iter->failure) return skv_j_fail(r, SKV_ARGUMENT, "%s", iter->failure);
    skv_jv list = skv_j_list(r, SKV_J_LIST, 0);
    if (!skv_j_ok(r)) return list;
    if (iter->at < iter->list->n) list.as.list->items = iter->list->items + iter->at;
    list.as.list->n = list.as.list->capacity = iter->list->n - iter->at;
    iter->at = iter->list->n;
    return list;
}

skv_jv skv_j_items(skv_jrun *r, skv_jv v)
{
    switch (v.kind) {
    case SKV_J_UNDEFINED: return skv_j_list(r, SKV_J_LIST, 0);
    case SKV_J_STRING: return chars_of(r, v.as.s);
    case SKV_J_LIST:
    case SKV_J_TUPLE: return v;
    case SKV_J_DICT: return pairs_of(r, v.as.dict, SKV_J_KEYS);
    case SKV_J_VIEW: return pairs_of(r, v.as.view->dict, v.as.view->of);
    case SKV_J_RANGE: return numbers_of(r, v.as.range);
    case SKV_J_ITERATOR: return rest_of(r, v.as.iter);
    case SKV_J_LOOP: return skv_j_fail(r, SKV_UNSUPPORTED, "walking `loop` is not supported");
    default: return skv_j_fail(r, SKV_ARGUMENT, "'%s' object is not iterable", skv_j_type_name(v));
    }
}

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
