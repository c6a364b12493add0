/* Filters on sequences and mappings. Filters that are lazy in jinja2 are evaluated at once here. */
#include <string.h>

#include "base/fail.h"
#include "text/jinja/jinja_builtin.h"
#include "text/jinja/jinja_run.h"

/* Lower case for strings, anything else as it is: the default order of sort and its kin. */
static skv_jv lower_case(skv_jrun *r, skv_jv v)
{
    skv_jcall call = {.self = v, .how = SKV_JCASE_LOWER};
    return v.kind == SKV_J_STRING ? skv_jstr_change_case(r, &call) : v;
}

/* A path such as "function.name" or "0.x": each part is a key, digits are an index. */
static skv_jv attribute_part(skv_jrun *r, skv_jv item, const char *data, size_t n)
{
    bool digits = n > 0 && n < 18;
    int64_t i = 0;
    for (size_t k = 0; k < n && digits; k++) {
        digits = data[k] >= '0' && data[k] <= '9';
        i = 10 * i + (data[k] - '0');
    }
    skv_jv key = digits ? skv_j_int(i) : skv_j_string(r, data, n);
    return skv_j_ok(r) ? skv_j_getitem(r, item, key) : item;
}

static skv_jv get_path(skv_jrun *r, skv_jv item, skv_jv path, skv_jv otherwise)
{
    if (path.kind == SKV_J_NONE || path.kind == SKV_J_MISSING) return item;
    if (path.kind != SKV_J_STRING) {
        item = skv_j_getitem(r, item, path);
        return item.kind == SKV_J_UNDEFINED && otherwise.kind > SKV_J_NONE ? otherwise : item;
    }
    const char *p = path.as.s->data, *end = p + path.as.s->size;
    while (skv_j_spend(r, 1)) {
        const char *dot = p < end ? memchr(p, '.', (size_t)(end - p)) : NULL;
        item = attribute_part(r, item, p, (size_t)((dot ? dot : end) - p));
        if (item.kind == SKV_J_UNDEFINED && otherwise.kind > SKV_J_NONE) item = otherwise;
        if (!dot) break;
        p = dot + 1;
    }
    return item;
}

static skv_jv filter_join(skv_jrun *r, const skv_jcall *call)
{
    const skv_jv *arg = call->arg;
    skv_jout text;
    skv_jv items = skv_j_items(r, call->self);
    skv_j_out_init(r, &text);
    for (size_t i = 0; skv_j_ok(r) && i < items.as.list->n; i++) {
        if (i && arg[0].kind != SKV_J_MISSING) skv_j_write_str(r, &text, arg[0]);
        skv_jv item = get_path(r, items.as.list->items[i], arg[1], skv_j_missing());
        if (skv_j_ok(r)) skv_j_write_str(r, &text, item);
    }
    return skv_j_from_out(r, &text);
}

static skv_jv filter_list(skv_jrun *r, const skv_jcall *call)
{
    skv_jv list = skv_j_items(r, call->self);
    list.kind = SKV_J_LIST;
    list.markup = 0;
    return list;
}

static skv_jv filter_first(skv_jrun *r, const skv_jcall *call)
{
    if (call->self.kind == SKV_J_ITERATOR && !call->self.as.iter->failure) {
        skv_jiter *iter = call->self.as.iter;
        if (iter->at < iter->list->n) return iter->list->items[iter->at++];
        return skv_j_undefined_text(r, "No first item, sequence was empty.");
    }
    skv_jv items = skv_j_items(r, call->self);
    if (!skv_j_ok(r)) return items;
    return items.as.list->n ? items.as.list->items[0]
                            : skv_j_undefined_text(r, "No first item, sequence was empty.");
}

static bool reversible(skv_jv v)
{
    return v.kind == SKV_J_UNDEFINED || v.kind == SKV_J_STRING || skv_j_is_sequence(v) ||
           v.kind == SKV_J_DICT || v.kind == SKV_J_VIEW || v.kind == SKV_J_RANGE;
}

static skv_jv filter_last(skv_jrun *r, const skv_jcall *call)
{
    if (!reversible(call->self))
        return skv_j_fail(r, SKV_ARGUMENT, "'%s' object is not reversible",
                          skv_j_type_name(call->self));
    skv_jv items = skv_j_items(r, call->self);
    if (!skv_j_ok(r)) return items;
    return items.as.list->n ? items.as.list->items[items.as.list->n - 1]
                            : skv_j_undefined_text(r, "No last item, sequence was empty.");
}

static skv_jv filter_reverse(skv_jrun *r, const skv_jcall *call)
{
    const skv_jv back[3] = {skv_j_missing(), skv_j_missing(), skv_j_int(-1)};
    if (call->self.kind == SKV_J_STRING) return skv_j_slice(r, call->self, back);
    skv_jv items = skv_j_items(r, call->self);
    if (!skv_j_ok(r)) return items;
    items.kind = SKV_J_LIST;
    skv_jv reversed = skv_j_slice(r, items, back);
    if (!reversible(call->self)) return reversed;
    return skv_j_iterator(r, "list_reverseiterator", reversed);
}

static skv_jv filter_items(skv_jrun *r, const skv_jcall *call)
{
    skv_jview view = {.of = SKV_J_ITEMS};
    skv_jv pairs = skv_j_list(r, SKV_J_LIST, 0);
    if (call->self.kind == SKV_J_DICT) {
        view.dict = call->self.as.dict;
        pairs = skv_j_items(r, (skv_jv){.kind = SKV_J_VIEW, .as.view = &view});
    } else if (call->self.kind != SKV_J_UNDEFINED) {
        skv_jv broken = skv_j_iterator(r, "generator", pairs);
        if (skv_j_ok(r)) broken.as.iter->failure = "can only get item pairs from a mapping";
        return broken;
    }
    return skv_j_iterator(r, "generator", pairs);
}

/* The arguments of map, select and similar filters after the name of the inner filter or test. */
static skv_jcall rest_of(const skv_jcall *call, size_t skip, skv_jv self)
{
    skv_jcall rest = {.self = self, .keywords = call->keywords, .n_keywords = call->n_keywords};
    if (call->n > skip) {
        rest.items = call->items + skip;
        rest.n = call->n - skip;
    }
    return rest;
}

static bool name_argument(skv_jrun *r, const skv_jcall *call, size_t i)
{
    if (i < call->n && call->items[i].kind == SKV_J_STRING) return true;
    skv_j_fail(r, SKV_ARGUMENT, "%s needs a name", skv_j_what(r, call));
    return false;
}

SKV_OWN_FRAME static void map_attribute(skv_jrun *r, const skv_jcall *call, skv_jlist *out)
{
    skv_jv arg[2];
    if (!skv_j_bind(r, call, "attribute default", arg)) return;
    skv_jv items = skv_j_items(r, call->self);
    for (size_t i = 0; skv_j_ok(r) && i < items.as.list->n && skv_j_spend(r, 1); i++)
        (void)skv_j_push(r, out, get_path(r, items.as.list->items[i], arg[0], arg[1]));
}

/* A level of its own, since the arguments may name `map` again. */
SKV_OWN_FRAME static void map_filter(skv_jrun *r, const skv_jcall *call, skv_jlist *out)
{
    if (!name_argument(r, call, 0) || !skv_j_enter(r)) return;
    skv_jv items = skv_j_items(r, call->self);
    for (size_t i = 0; skv_j_ok(r) && i < items.as.list->n && skv_j_spend(r, 1); i++) {
        skv_jcall inner = rest_of(call, 1, items.as.list->items[i]);
        (void)skv_j_push(r, out, skv_j_call_filter(r, call->items[0].as.s, &inner));
    }
    skv_j_leave(r);
}

static skv_jv filter_map(skv_jrun *r, const skv_jcall *call)
{
    skv_jv out = skv_j_list(r, SKV_J_LIST, 0);
    if (!skv_j_truth(call->self)) return skv_j_iterator(r, "generator", out);
    bool by_attribute = !call->n && call->n_keywords;
    if (skv_j_ok(r)) (by_attribute ? map_attribute : map_filter)(r, call, out.as.list);
    return skv_j_iterator(r, "generator", out);
}

/* select, reject and their kin; how: bits of these. */
enum { BY_ATTRIBUTE = 1, REJECTS = 2 };

static skv_jv filter_choose(skv_jrun *r, const skv_jcall *call)
{
    bool by_attribute = call->how & BY_ATTRIBUTE, wanted = !(call->how & REJECTS);
    size_t skip = by_attribute;
    skv_jv out = skv_j_list(r, SKV_J_LIST, 0);
    if (!skv_j_truth(call->self)) return skv_j_iterator(r, "generator", out);
    if (by_attribute && !call->n)
        return skv_j_fail(r, SKV_ARGUMENT, "%s needs an attribute", skv_j_what(r, call));
    if (call->n > skip && !name_argument(r, call, skip)) return out;
    skv_jv items = skv_j_items(r, call->self);
    for (size_t i = 0; skv_j_ok(r) && i < items.as.list->n && skv_j_spend(r, 1); i++) {
        skv_jv item = items.as.list->items[i], seen = item;
        if (by_attribute) seen = get_path(r, item, call->items[0], skv_j_missing());
        if (!skv_j_ok(r)) break;
        skv_jcall inner = rest_of(call, skip + 1, seen);
        bool holds =
            call->n > skip ? skv_j_call_test(r, call->items[skip].as.s, &inner) : skv_j_truth(seen);
        if (holds == wanted && !skv_j_push(r, out.as.list, item)) break;
    }
    return skv_j_iterator(r, "generator", out);
}

/* The key an item is ordered by: "a,b" makes a list of two. */
static skv_jv sort_key(skv_jrun *r, skv_jv item, skv_jv path, bool fold, bool many)
{
    skv_jv keys = skv_j_list(r, SKV_J_LIST, 0);
    if (!many || path.kind != SKV_J_STRING) {
        skv_jv key = get_path(r, item, path, skv_j_missing());
        return fold && skv_j_ok(r) ? lower_case(r, key) : key;
    }
    const char *p = path.as.s->data, *end = p + path.as.s->size;
    while (skv_j_ok(r)) {
        const char *comma = p < end ? memchr(p, ',', (size_t)(end - p)) : NULL;
        skv_jv one = skv_j_string(r, p, (size_t)((comma ? comma : end) - p));
        if (!skv_j_ok(r)) break;
        skv_jv key = get_path(r, item, one, skv_j_missing());
        if (fold && skv_j_ok(r)) key = lower_case(r, key);
        if (!skv_j_push(r, keys.as.list, key) || !comma) break;
        p = comma + 1;
    }
    return keys;
}

static skv_jv keys_of(skv_jrun *r, skv_jv items, skv_jv path, bool fold, bool many)
{
    skv_jv keys = skv_j_list(r, SKV_J_LIST, skv_j_ok(r) ? items.as.list->n : 0);
    for (size_t i = 0; skv_j_ok(r) && i < items.as.list->n && skv_j_spend(r, 1); i++)
        (void)skv_j_push(r, keys.as.list, sort_key(r, items.as.list->items[i], path, fold, many));
    return keys;
}

static skv_jv filter_sort(skv_jrun *r, const skv_jcall *call)
{
    const skv_jv *arg = call->arg;
    skv_jv items = skv_j_items(r, call->self);
    skv_jv keys = keys_of(r, items, arg[2], !skv_j_truth(arg[1]), true);
    return skv_j_ok(r) ? skv_j_sorted(r, items.as.list, keys.as.list, skv_j_truth(arg[0])) : items;
}

static skv_jv filter_dictsort(skv_jrun *r, const skv_jcall *call)
{
    const skv_jv *arg = call->arg;
    if (call->self.kind != SKV_J_DICT)
        return skv_j_fail(r, SKV_ARGUMENT, "%s needs a mapping", skv_j_what(r, call));
    bool by_value = arg[1].kind == SKV_J_STRING && arg[1].as.s->size == 5;
    skv_jview view = {.dict = call->self.as.dict, .of = SKV_J_ITEMS};
    skv_jv items = skv_j_items(r, (skv_jv){.kind = SKV_J_VIEW, .as.view = &view});
    skv_jv keys = keys_of(r, items, skv_j_int(by_value), !skv_j_truth(arg[0]), false);
    return skv_j_ok(r) ? skv_j_sorted(r, items.as.list, keys.as.list, skv_j_truth(arg[2])) : items;
}

static skv_jv filter_unique(skv_jrun *r, const skv_jcall *call)
{
    const skv_jv *arg = call->arg;
    skv_jv out = skv_j_list(r, SKV_J_LIST, 0), seen = skv_j_dict(r);
    skv_jv items = skv_j_items(r, call->self);
    skv_jv keys = keys_of(r, items, arg[1], !skv_j_truth(arg[0]), false);
    for (size_t i = 0; skv_j_ok(r) && i < keys.as.list->n; i++) {
        size_t before = seen.as.dict->n;
        if (skv_j_put(r, seen.as.dict, keys.as.list->items[i], skv_j_none()) &&
            seen.as.dict->n > before)
            (void)skv_j_push(r, out.as.list, items.as.list->items[i]);
    }
    return skv_j_iterator(r, "generator", out);
}

/* how: whether the largest is requested. */
static skv_jv filter_extreme(skv_jrun *r, const skv_jcall *call)
{
    const skv_jv *arg = call->arg;
    skv_jv items = skv_j_items(r, call->self);
    skv_jv keys = keys_of(r, items, arg[1], !skv_j_truth(arg[0]), false);
    if (!skv_j_ok(r)) return items;
    if (!keys.as.list->n) return skv_j_undefined_text(r, "No aggregated item, sequence was empty.");
    size_t best = 0;
    for (size_t i = 1; i < keys.as.list->n && skv_j_ok(r); i++) {
        skv_jv a = keys.as.list->items[i], b = keys.as.list->items[best];
        if (call->how ? skv_j_less(r, b, a) : skv_j_less(r, a, b)) best = i;
    }
    return items.as.list->items[best];
}

static skv_jv filter_sum(skv_jrun *r, const skv_jcall *call)
{
    const skv_jv *arg = call->arg;
    skv_jv items = skv_j_items(r, call->self);
    skv_jv sum = arg[1].kind == SKV_J_MISSING ? skv_j_int(0) : arg[1];
    if (sum.kind == SKV_J_STRING)
        return skv_j_fail(r, SKV_ARGUMENT, "%s cannot add strings", skv_j_what(r, call));
    for (size_t i = 0; skv_j_ok(r) && i < items.as.list->n; i++) {
        skv_jv item = get_path(r, items.as.list->items[i], arg[0], skv_j_missing());
        if (skv_j_ok(r)) sum = skv_j_binary(r, '+', sum, item);
    }
    return sum;
}

static skv_jv filter_groupby(skv_jrun *r, const skv_jcall *call)
{
    const skv_jv *arg = call->arg;
    skv_jv out = skv_j_list(r, SKV_J_LIST, 0), group = skv_j_missing();
    bool fold = !skv_j_truth(arg[2]);
    skv_jv items = skv_j_items(r, call->self), keys = skv_j_list(r, SKV_J_LIST, 0), last = keys;
    for (size_t i = 0; skv_j_ok(r) && i < items.as.list->n && skv_j_spend(r, 1); i++) {
        skv_jv key = get_path(r, items.as.list->items[i], arg[0], arg[1]);
        if (fold && skv_j_ok(r)) key = lower_case(r, key);
        (void)skv_j_push(r, keys.as.list, key);
    }
    if (skv_j_ok(r)) items = skv_j_sorted(r, items.as.list, keys.as.list, false);
    for (size_t i = 0; skv_j_ok(r) && i < items.as.list->n; i++) {
        skv_jv item = items.as.list->items[i], key = get_path(r, item, arg[0], arg[1]);
        skv_jv compared = fold && skv_j_ok(r) ? lower_case(r, key) : key;
        if (!i || !skv_j_equal(r, compared, last)) {
            group = skv_j_list(r, SKV_J_LIST, 0);
            skv_jv pair = skv_j_pair(r, key, group);
            pair.markup = 1; /* gives the tuple the names grouper and list */
            (void)skv_j_push(r, out.as.list, pair);
        }
        last = compared;
        if (skv_j_ok(r)) (void)skv_j_push(r, group.as.list, item);
    }
    return out;
}

static skv_jv filter_batch(skv_jrun *r, const skv_jcall *call)
{
    const skv_jv *arg = call->arg;
    skv_jv out = skv_j_list(r, SKV_J_LIST, 0), row = skv_j_missing();
    int64_t width;
    if (!skv_j_arg_int(r, call, arg[0], 1, &width)) return out;
    skv_jv items = skv_j_items(r, call->self);
    for (size_t i = 0; skv_j_ok(r) && i < items.as.list->n && skv_j_spend(r, 1); i++) {
        if (!i || (int64_t)row.as.list->n == width) {
            row = skv_j_list(r, SKV_J_LIST, 0);
            (void)skv_j_push(r, out.as.list, row);
        }
        (void)skv_j_push(r, row.as.list, items.as.list->items[i]);
    }
    bool fill = arg[1].kind != SKV_J_MISSING && arg[1].kind != SKV_J_NONE;
    while (fill && row.kind == SKV_J_LIST && skv_j_spend(r, 1) && (int64_t)row.as.list->n < width)
        (void)skv_j_push(r, row.as.list, arg[1]);
    return skv_j_iterator(r, "generator", out);
}

static skv_jv filter_slice(skv_jrun *r, const skv_jcall *call)
{
    const skv_jv *arg = call->arg;
    skv_jv out = skv_j_list(r, SKV_J_LIST, 0);
    int64_t n_slices, at = 0;
    if (!skv_j_arg_int(r, call, arg[0], 1, &n_slices)) return out;
    skv_jv items = skv_j_items(r, call->self);
    if (skv_j_ok(r) && !n_slices) return skv_j_fail(r, SKV_ARGUMENT, "division by zero");
    bool fill = arg[1].kind != SKV_J_MISSING && arg[1].kind != SKV_J_NONE;
    for (int64_t i = 0; i < n_slices && skv_j_spend(r, 1); i++) {
        int64_t n = (int64_t)items.as.list->n, extra = n % n_slices;
        skv_jv row = skv_j_list(r, SKV_J_LIST, 0);
        for (int64_t k = 0; k < n / n_slices + (i < extra) && skv_j_spend(r, 1); k++)
            (void)skv_j_push(r, row.as.list, items.as.list->items[at++]);
        if (fill && i >= extra && skv_j_ok(r)) (void)skv_j_push(r, row.as.list, arg[1]);
        (void)skv_j_push(r, out.as.list, row);
    }
    return skv_j_iterator(r, "generator", out);
}

const skv_jfunction *skv_jfilter_find_seq(const skv_jstr *name)
{
    static const skv_jfunction table[] = {
        {"join", filter_join, 0, "d attribute"},
        {"list", filter_list, 0, ""},
        {"first", filter_first, 0, ""},
        {"last", filter_last, 0, ""},
        {"reverse", filter_reverse, 0, ""},
        {"items", filter_items, 0, ""},
        {"map", filter_map, 0, NULL},
        {"select", filter_choose, 0, NULL},
        {"reject", filter_choose, REJECTS, NULL},
        {"selectattr", filter_choose, BY_ATTRIBUTE, NULL},
        {"rejectattr", filter_choose, BY_ATTRIBUTE | REJECTS, NULL},
        {"sort", filter_sort, 0, "reverse case_sensitive attribute"},
        {"dictsort", filter_dictsort, 0, "case_sensitive by reverse"},
        {"unique", filter_unique, 0, "case_sensitive attribute"},
        {"min", filter_extreme, false, "case_sensitive attribute"},
        {"max", filter_extreme, true, "case_sensitive attribute"},
        {"sum", filter_sum, 0, "attribute start"},
        {"groupby", filter_groupby, 0, "!attribute default case_sensitive"},
        {"batch", filter_batch, 0, "!linecount fill_with"},
        {"slice", filter_slice, 0, "!slices fill_with"},
    };
    return skv_j_lookup(table, sizeof table / sizeof *table, name);
}
