/*
 * object.name as jinja2's immutable sandbox resolves it: attributes of the Python type take
 * precedence over a dict's keys; methods that would change a list or dict, and all Python
 * internals, are undefined. Also object[key] and slices.
 */
#include "text/jinja/jinja_loop.h"
#include "text/jinja/jinja_run.h"

static bool is_any(const skv_jstr *name, const char *const *texts)
{
    for (; *texts; texts++)
        if (skv_jstr_is(name, *texts)) return true;
    return false;
}

/* how: skv_jview_of. */
static skv_jv dict_view(skv_jrun *r, const skv_jcall *call)
{
    skv_jview *view = skv_j_take(r, 1, sizeof *view);
    if (!view) return skv_j_undefined();
    *view = (skv_jview){.dict = call->self.as.dict, .of = (skv_jview_of)call->how};
    return (skv_jv){.kind = SKV_J_VIEW, .as.view = view};
}

static skv_jv dict_get(skv_jrun *r, const skv_jcall *call)
{
    const skv_jv *arg = call->arg;
    uint64_t hash;
    if (!skv_jdict_hash(r->budget, arg[0], &hash)) return skv_j_fail_unhashable(r, arg[0]);
    const skv_jv *found = skv_jdict_find(r->budget, call->self.as.dict, arg[0], hash);
    if (found) return *found;
    return arg[1].kind == SKV_J_MISSING ? skv_j_none() : arg[1];
}

/* Lists and dicts never change, so a copy is the value itself. */
static skv_jv copy(skv_jrun *r, const skv_jcall *call)
{
    return skv_j_bind(r, call, "", NULL) ? call->self : skv_j_undefined();
}

static skv_jv list_count(skv_jrun *r, const skv_jcall *call)
{
    const skv_jv arg = call->arg[0];
    int64_t n = 0;
    const skv_jlist *list = call->self.as.list;
    for (size_t i = 0; i < list->n && skv_j_spend(r, 1); i++)
        n += skv_j_equal(r, list->items[i], arg);
    return skv_j_int(n);
}

static int64_t clamp_index(int64_t i, int64_t n)
{
    if (i < 0) i += n;
    return i < 0 ? 0 : i;
}

static skv_jv list_index(skv_jrun *r, const skv_jcall *call)
{
    const skv_jv *arg = call->arg;
    int64_t start, stop;
    const skv_jlist *list = call->self.as.list;
    if (!skv_j_arg_int(r, call, arg[1], 0, &start) ||
        !skv_j_arg_int(r, call, arg[2], INT64_MAX, &stop))
        return skv_j_undefined();
    start = clamp_index(start, (int64_t)list->n);
    stop = clamp_index(stop, (int64_t)list->n);
    for (int64_t i = start; i < stop && i < (int64_t)list->n && skv_j_spend(r, 1); i++)
        if (skv_j_equal(r, list->items[i], arg[0])) return skv_j_int(i);
    return skv_j_fail(r, SKV_ARGUMENT, "value is not in list");
}

/* Python methods that the sandbox hides because they would change the object. */
static const char *const dict_hidden[] = {"clear", "pop", "popitem", "setdefault", "update", NULL};
static const char *const list_hidden[] = {"append", "clear",   "extend", "insert", "pop",
                                          "remove", "reverse", "sort",   NULL};

static const skv_jfunction dict_methods[] = {
    {"get", dict_get, 0, "!- -"},
    {"items", dict_view, SKV_J_ITEMS, ""},
    {"keys", dict_view, SKV_J_KEYS, ""},
    {"values", dict_view, SKV_J_VALUES, ""},
    {"copy", copy, 0, NULL},
    {"fromkeys", NULL, 0, NULL},
};
static const skv_jfunction list_methods[] = {
    {"count", list_count, 0, "!-"}, {"index", list_index, 0, "!- - -"}, {"copy", copy, 0, NULL}};

static const skv_jfunction *method_of(const skv_jrun *r, skv_jv object, const skv_jstr *name)
{
    switch (object.kind) {
    case SKV_J_STRING: return r->names->string_method(name);
    case SKV_J_DICT:
        return skv_j_lookup(dict_methods, sizeof dict_methods / sizeof *dict_methods, name);
    case SKV_J_LIST: return skv_j_lookup(list_methods, 3, name);
    case SKV_J_TUPLE: return skv_j_lookup(list_methods, 2, name);
    default: return NULL;
    }
}

static bool is_hidden(skv_jv object, const skv_jstr *name)
{
    static const char *const inside[] = {"__class__",  "__init__",         "__dict__", "__doc__",
                                         "__module__", "__getattribute__", "__len__",  NULL};
    if (object.kind == SKV_J_DICT && is_any(name, dict_hidden)) return true;
    if (object.kind == SKV_J_LIST && is_any(name, list_hidden)) return true;
    return is_any(name, inside);
}

/* Attributes of Python's numbers and ranges that no template needs. */
static bool is_known_elsewhere(skv_jv object, const skv_jstr *name)
{
    static const char *const of_number[] = {
        "real",       "imag",      "numerator", "denominator", "conjugate",
        "bit_length", "bit_count", "to_bytes",  "from_bytes",  "as_integer_ratio",
        "is_integer", "hex",       "fromhex",   NULL};
    static const char *const of_range[] = {"start", "stop", "step", "count", "index", NULL};
    if (object.kind == SKV_J_RANGE) return is_any(name, of_range);
    return (object.kind == SKV_J_INT || object.kind == SKV_J_FLOAT || object.kind == SKV_J_BOOL) &&
           is_any(name, of_number);
}

skv_jv skv_j_getattr(skv_jrun *r, skv_jv object, const skv_jstr *name)
{
    const skv_jv *found = NULL;
    if (object.kind == SKV_J_UNDEFINED && !is_hidden(object, name))
        return skv_j_fail_undefined(r, object);
    const skv_jfunction *function = method_of(r, object, name);
    if (function) return skv_j_method(r, object, function);
    if (object.kind == SKV_J_LOOP) {
        skv_jv v = skv_jloop_attribute(r, object.as.loop, name);
        if (v.kind != SKV_J_MISSING) return v;
    }
    if (object.kind == SKV_J_TUPLE && object.markup && skv_jstr_is(name, "grouper"))
        return object.as.list->items[0];
    if (object.kind == SKV_J_TUPLE && object.markup && skv_jstr_is(name, "list"))
        return object.as.list->items[1];
    if (is_hidden(object, name))
        return skv_j_undefined_text(r, "access to an attribute that the sandbox hides is unsafe");
    if (is_known_elsewhere(object, name))
        return skv_j_fail(r, SKV_UNSUPPORTED, "attributes of '%s' are not supported",
                          skv_j_type_name(object));
    if (object.kind == SKV_J_DICT || object.kind == SKV_J_NAMESPACE)
        found = skv_jdict_get(r->budget, object.as.dict, name);
    return found ? *found : skv_j_no_attribute(r, name, skv_j_type_name(object));
}

/* A part of a string without copying its bytes. */
static skv_jv char_range(skv_jrun *r, skv_jv v, size_t from, size_t to)
{
    const skv_jstr *s = v.as.s;
    size_t start = skv_j_offset(s, from), end = skv_j_offset(s, to);
    skv_jstr *part = skv_j_take(r, 1, sizeof *part);
    if (!part || !skv_j_spend_bytes(r, s->n_chars == s->size ? 0 : end)) return skv_j_undefined();
    *part = (skv_jstr){
        .data = s->data + start, .size = end - start, .n_chars = to - from, .marks = s->marks};
    return (skv_jv){.kind = SKV_J_STRING, .markup = v.markup, .as.s = part};
}

/* The item of a str, list, tuple or range; false when the index is outside. */
static bool item_at(skv_jrun *r, skv_jv v, int64_t i, skv_jv *item)
{
    int64_t n;
    if (!skv_j_length(v, &n)) return false;
    if (i < 0) i += n;
    if (i < 0 || i >= n) return false;
    if (v.kind == SKV_J_STRING)
        *item = char_range(r, v, (size_t)i, (size_t)i + 1);
    else if (v.kind == SKV_J_RANGE)
        *item = skv_j_int(v.as.range->start + i * v.as.range->step);
    else
        *item = v.as.list->items[i];
    return true;
}

skv_jv skv_j_getitem(skv_jrun *r, skv_jv object, skv_jv key)
{
    int64_t i = 0;
    skv_jv item;
    bool indexed =
        object.kind == SKV_J_STRING || skv_j_is_sequence(object) || object.kind == SKV_J_RANGE;
    if (object.kind == SKV_J_UNDEFINED) return skv_j_fail_undefined(r, object);
    if (object.kind == SKV_J_DICT) {
        uint64_t hash;
        const skv_jv *found = NULL;
        if (skv_jdict_hash(r->budget, key, &hash))
            found = skv_jdict_find(r->budget, object.as.dict, key, hash);
        if (found) return *found;
    }
    if (indexed && skv_j_as_int(key, &i) && item_at(r, object, i, &item)) return item;
    if (key.kind == SKV_J_STRING) return skv_j_getattr(r, object, key.as.s);
    skv_jv name = skv_j_missing();
    if (key.kind == SKV_J_INT) {
        skv_jout text;
        skv_j_out_init(r, &text);
        skv_j_write_repr(r, &text, key);
        name = skv_j_from_out(r, &text);
    }
    if (!skv_j_ok(r)) return name;
    if (name.kind != SKV_J_STRING) return skv_j_undefined();
    return skv_j_no_attribute(r, name.as.s, skv_j_type_name(object));
}

/* A slice's bounds as Python's slice.indices(n) gives them. */
static int64_t clamp(int64_t i, int64_t n, int64_t low, int64_t high)
{
    if (i < 0) i += n;
    return i < low ? low : i > high ? high : i;
}

static bool slice_part(skv_jrun *r, skv_jv v, bool *given, int64_t *out)
{
    *given = v.kind != SKV_J_NONE && v.kind != SKV_J_MISSING;
    if (!*given || skv_j_as_int(v, out)) return true;
    skv_j_fail(r, SKV_ARGUMENT, "slice indices must be integers, got '%s'", skv_j_type_name(v));
    return false;
}

static skv_jv slice_string(skv_jrun *r, skv_jv v, int64_t start, int64_t n, int64_t step)
{
    if (step == 1) return char_range(r, v, (size_t)start, (size_t)(start + n));
    skv_jv chars = skv_j_items(r, v);
    skv_jout text;
    skv_j_out_init(r, &text);
    for (int64_t i = 0; i < n && skv_j_spend(r, 1); i++) {
        const skv_jstr *c = chars.as.list->items[start + i * step].as.s;
        skv_jout_put(&text, c);
    }
    skv_jv part = skv_j_from_out(r, &text);
    part.markup = v.markup;
    return part;
}

static skv_jv slice_list(skv_jrun *r, skv_jv v, int64_t start, int64_t n, int64_t step)
{
    skv_jv list = skv_j_list(r, v.kind, step == 1 ? 0 : (size_t)n);
    if (!skv_j_ok(r)) return list;
    if (step == 1) {
        if (n) list.as.list->items = v.as.list->items + start;
        list.as.list->n = list.as.list->capacity = (size_t)n;
        return list;
    }
    for (int64_t i = 0; i < n && skv_j_spend(r, 1); i++)
        if (!skv_j_push(r, list.as.list, v.as.list->items[start + i * step])) break;
    return list;
}

skv_jv skv_j_slice(skv_jrun *r, skv_jv object, const skv_jv part[3])
{
    int64_t n, start = 0, stop = 0, step = 1;
    bool has_start, has_stop, has_step;
    if (object.kind == SKV_J_UNDEFINED) return skv_j_fail_undefined(r, object);
    if (object.kind != SKV_J_STRING && !skv_j_is_sequence(object))
        return skv_j_fail(r, SKV_ARGUMENT, "'%s' object cannot be sliced", skv_j_type_name(object));
    if (!skv_j_length(object, &n) || !slice_part(r, part[0], &has_start, &start) ||
        !slice_part(r, part[1], &has_stop, &stop) || !slice_part(r, part[2], &has_step, &step))
        return skv_j_undefined();
    if (!step) return skv_j_fail(r, SKV_ARGUMENT, "slice step cannot be zero");
    int64_t low = step < 0 ? -1 : 0, high = step < 0 ? n - 1 : n;
    start = has_start ? clamp(start, n, low, high) : step < 0 ? high : low;
    stop = has_stop ? clamp(stop, n, low, high) : step < 0 ? low : high;
    int64_t count = 0;
    if (step > 0 && start < stop) count = (stop - start - 1) / step + 1;
    if (step < 0 && stop < start)
        count = (start - stop - 1) / (step == INT64_MIN ? INT64_MAX : -step) + 1;
    if (count <= 1 && step != 1) step = 1;
    if (!count) start = 0;
    return object.kind == SKV_J_STRING ? slice_string(r, object, start, count, step)
                                       : slice_list(r, object, start, count, step);
}
