/*
 * object.name as jinja2's immutable sandbox resolves it: an attribute of the Python type comes
 * before a dict's key, what would change a list or dict is undefined, and so is everything that
 * belongs to Python's insides.
 */
#include <string.h>

#include "text/jinja/jinja_eval.h"
#include "text/jinja/jinja_method.h"
#include "text/jinja/jinja_op.h"

static bool is(const skv_jstr *name, const char *text)
{
    return name->size == strlen(text) && memcmp(name->data, text, name->size) == 0;
}

static bool is_any(const skv_jstr *name, const char *const *texts)
{
    for (; *texts; texts++)
        if (is(name, *texts)) return true;
    return false;
}

static skv_jv view_of(skv_jrun *r, const skv_jcall *call, skv_jview_of of)
{
    skv_jview *view = skv_j_take(r, 1, sizeof *view);
    if (!view || !skv_j_bind(r, call, NULL, 0, 0, NULL)) return skv_j_undefined();
    *view = (skv_jview){.dict = call->self.as.dict, .of = of};
    return (skv_jv){.kind = SKV_J_VIEW, .as.view = view};
}

static skv_jv dict_keys(skv_jrun *r, const skv_jcall *call)
{
    return view_of(r, call, SKV_J_KEYS);
}

static skv_jv dict_values(skv_jrun *r, const skv_jcall *call)
{
    return view_of(r, call, SKV_J_VALUES);
}

static skv_jv dict_items(skv_jrun *r, const skv_jcall *call)
{
    return view_of(r, call, SKV_J_ITEMS);
}

static skv_jv dict_get(skv_jrun *r, const skv_jcall *call)
{
    static const char *const names[] = {NULL, NULL};
    skv_jv arg[2];
    uint64_t hash;
    if (!skv_j_bind(r, call, names, 2, 1, arg)) return skv_j_undefined();
    if (!skv_jdict_hash(arg[0], &hash))
        return skv_j_fail(r, SKV_ARGUMENT, "unhashable type: '%s'", skv_j_type_name(arg[0]));
    const skv_jv *found = skv_jdict_find(call->self.as.dict, arg[0], hash);
    if (found) return *found;
    return arg[1].kind == SKV_J_MISSING ? skv_j_none() : arg[1];
}

/* Lists and dicts never change, so a copy is the value itself. */
static skv_jv copy(skv_jrun *r, const skv_jcall *call)
{
    return skv_j_bind(r, call, NULL, 0, 0, NULL) ? call->self : skv_j_undefined();
}

static skv_jv list_count(skv_jrun *r, const skv_jcall *call)
{
    static const char *const names[] = {NULL};
    skv_jv arg;
    int64_t n = 0;
    if (!skv_j_bind(r, call, names, 1, 1, &arg)) return skv_j_undefined();
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
    static const char *const names[] = {NULL, NULL, NULL};
    skv_jv arg[3];
    int64_t start, stop;
    const skv_jlist *list = call->self.as.list;
    if (!skv_j_bind(r, call, names, 3, 1, arg) || !skv_j_arg_int(r, call, arg[1], 0, &start) ||
        !skv_j_arg_int(r, call, arg[2], INT64_MAX, &stop))
        return skv_j_undefined();
    start = clamp_index(start, (int64_t)list->n);
    stop = clamp_index(stop, (int64_t)list->n);
    for (int64_t i = start; i < stop && i < (int64_t)list->n && skv_j_spend(r, 1); i++)
        if (skv_j_equal(r, list->items[i], arg[0])) return skv_j_int(i);
    return skv_j_fail(r, SKV_ARGUMENT, "value is not in list");
}

/* What Python has and the sandbox hides, because it would change the object. */
static const char *const dict_hidden[] = {"clear", "pop", "popitem", "setdefault", "update", NULL};
static const char *const list_hidden[] = {"append", "clear",   "extend", "insert", "pop",
                                          "remove", "reverse", "sort",   NULL};

static const skv_jfunction dict_methods[] = {{"get", dict_get},   {"items", dict_items},
                                             {"keys", dict_keys}, {"values", dict_values},
                                             {"copy", copy},      {"fromkeys", NULL}};
static const skv_jfunction list_methods[] = {
    {"count", list_count}, {"index", list_index}, {"copy", copy}};

static const skv_jfunction *lookup(const skv_jfunction *table, size_t n, const skv_jstr *name)
{
    for (size_t i = 0; i < n; i++)
        if (is(name, table[i].name)) return &table[i];
    return NULL;
}

static const skv_jfunction *method_of(skv_jv object, const skv_jstr *name)
{
    switch (object.kind) {
    case SKV_J_STRING: return skv_jstr_method(name);
    case SKV_J_DICT: return lookup(dict_methods, sizeof dict_methods / sizeof *dict_methods, name);
    case SKV_J_LIST: return lookup(list_methods, 3, name);
    case SKV_J_TUPLE: return lookup(list_methods, 2, name);
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

static skv_jv bind_method(skv_jrun *r, skv_jv object, const skv_jfunction *function)
{
    skv_jmethod *bound = skv_j_take(r, 1, sizeof *bound);
    if (!bound) return skv_j_undefined();
    *bound = (skv_jmethod){.self = object, .name = function->name, .fn = function->fn};
    return (skv_jv){.kind = SKV_J_METHOD, .as.method = bound};
}

skv_jv skv_j_getattr(skv_jrun *r, skv_jv object, const skv_jstr *name)
{
    const skv_jv *found = NULL;
    if (object.kind == SKV_J_UNDEFINED && !is_hidden(object, name))
        return skv_j_fail_undefined(r, object);
    const skv_jfunction *function = method_of(object, name);
    if (function) return bind_method(r, object, function);
    if (object.kind == SKV_J_LOOP) {
        skv_jv v = skv_jloop_attribute(r, object.as.loop, name);
        if (v.kind != SKV_J_MISSING) return v;
    }
    if (object.kind == SKV_J_TUPLE && object.markup && is(name, "grouper"))
        return object.as.list->items[0];
    if (object.kind == SKV_J_TUPLE && object.markup && is(name, "list"))
        return object.as.list->items[1];
    if (is_hidden(object, name))
        return skv_j_undefined_text(r, "access to an attribute that the sandbox hides is unsafe");
    if (is_known_elsewhere(object, name))
        return skv_j_fail(r, SKV_UNSUPPORTED, "attributes of '%s' are not supported",
                          skv_j_type_name(object));
    if (object.kind == SKV_J_DICT || object.kind == SKV_J_NAMESPACE)
        found = skv_jdict_get(object.as.dict, name);
    return found ? *found : skv_j_no_attribute(r, name, skv_j_type_name(object));
}
