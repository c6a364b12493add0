/* The state of a rendering, and how values are made: see jinja_run.h. */
#define _GNU_SOURCE /* memmem */
#include "text/jinja/jinja_run.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "base/size.h"

enum { STEP_UNITS = 4, BYTES_A_STEP = 32 };

skv_jv skv_j_fail(skv_jrun *r, skv_status status, const char *format, ...)
{
    if (r->status != SKV_OK) return skv_j_undefined();
    char text[SKV_ERROR_TEXT_MAX];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    r->status = status;
    (void)skv_fail(r->err, status, "%s: line %u: %s", r->t->name, r->line, text);
    return skv_j_undefined();
}

const char *skv_j_what(skv_jrun *r, const skv_jcall *call)
{
    if (call->callee == SKV_J_CALLS_FUNCTION)
        (void)snprintf(r->what, sizeof r->what, "%s()", call->name);
    else
        (void)snprintf(r->what, sizeof r->what, "%s '%s'",
                       call->callee == SKV_J_CALLS_FILTER ? "filter" : "test", call->name);
    return r->what;
}

skv_jv skv_j_fail_limit(skv_jrun *r)
{
    if (r->status == SKV_OK) r->status = skv_budget_check(r->budget, r->t->name, r->err);
    return skv_j_fail(r, SKV_MEMORY, "no memory");
}

bool skv_j_spend(skv_jrun *r, size_t n)
{
    if (r->status == SKV_OK && !skv_budget_work(r->budget, (uint64_t)n * STEP_UNITS))
        skv_j_fail_limit(r);
    return r->status == SKV_OK;
}

bool skv_j_spend_bytes(skv_jrun *r, size_t n)
{
    return skv_j_spend(r, 1 + n / BYTES_A_STEP);
}

skv_jv skv_j_fail_unhashable(skv_jrun *r, skv_jv key)
{
    if (r->budget->exceeded != SKV_EXCEEDED_NONE) return skv_j_fail_limit(r);
    return skv_j_fail(r, SKV_ARGUMENT, "unhashable type: '%s'", skv_j_type_name(key));
}

bool skv_j_fits(skv_jrun *r, uint64_t n, size_t size)
{
    size_t n_bytes = SIZE_MAX;
    if (n > SIZE_MAX || !skv_size_mul((size_t)n, size, &n_bytes)) n_bytes = SIZE_MAX;
    if (!skv_budget_take(r->budget, n_bytes)) {
        skv_j_fail_limit(r);
        return false;
    }
    skv_budget_give(r->budget, n_bytes);
    return skv_j_spend(r, (size_t)n / 8) && skv_j_spend_bytes(r, n_bytes);
}

bool skv_j_enter(skv_jrun *r)
{
    bool new_level = r->depth % SKV_J_CALLS_A_LEVEL == 0;
    if (new_level && r->depth / SKV_J_CALLS_A_LEVEL == SKV_J_LEVELS_MAX) {
        (void)skv_fail(r->err, SKV_RANGE, "%s: nested more than %d levels deep", r->t->name,
                       SKV_J_LEVELS_MAX);
        if (r->status == SKV_OK) r->status = SKV_RANGE;
        return false;
    }
    if (new_level && !skv_budget_enter(r->budget)) {
        skv_j_fail_limit(r);
        return false;
    }
    r->depth++;
    return true;
}

void skv_j_leave(skv_jrun *r)
{
    r->depth--;
    if (r->depth % SKV_J_CALLS_A_LEVEL == 0) skv_budget_leave(r->budget);
}

void *skv_j_take(skv_jrun *r, size_t count, size_t size)
{
    void *piece = skv_jarena_take(&r->memory, count, size);
    if (!piece) skv_j_fail_limit(r);
    return piece;
}

/* Borrows from the arena. */
static skv_jv view_of(skv_jrun *r, const char *data, size_t size, const skv_jmarks *marks)
{
    skv_jstr *s = skv_j_take(r, 1, sizeof *s);
    if (!s || !skv_j_spend_bytes(r, size)) return skv_j_undefined();
    *s = (skv_jstr){
        .data = data, .size = size, .n_chars = skv_j_count_chars(data, size), .marks = marks};
    return (skv_jv){.kind = SKV_J_STRING, .as.s = s};
}

static char *copy_text(skv_jrun *r, const char *data, size_t size)
{
    char *copy = skv_j_take(r, size, 1);
    if (copy && size) memcpy(copy, data, size);
    return copy;
}

skv_jv skv_j_string(skv_jrun *r, const char *data, size_t size)
{
    const char *copy = copy_text(r, data, size);
    return copy ? view_of(r, copy, size, NULL) : skv_j_undefined();
}

skv_jv skv_j_string_data(skv_jrun *r, const char *data, size_t size)
{
    const char *copy = copy_text(r, data, size);
    return copy ? view_of(r, copy, size, &skv_j_data) : skv_j_undefined();
}

skv_jv skv_j_part(skv_jrun *r, const skv_jstr *s, size_t from, size_t to)
{
    return view_of(r, s->data + from, to - from, s->marks);
}

skv_jv skv_j_text_value(skv_jrun *r, const char *text)
{
    return skv_j_string(r, text, strlen(text));
}

void skv_j_out_init(const skv_jrun *r, skv_jout *out)
{
    skv_jout_init(out, r->budget);
}

const skv_jmarks *skv_j_take_marks(skv_jrun *r, skv_jmarker *marker, const char *data, size_t size)
{
    const size_t n = skv_jmarker_count(marker, size);
    const void *at = marker->at.data;
    const skv_jmarks *marks = NULL;
    if (marker->at.failed) {
        skv_j_fail_limit(r);
    } else if (n == 1 && *(const size_t *)at == 0) {
        marks = &skv_j_data;
    } else if (n > 0) {
        skv_jmarks *some = skv_j_take(r, 1, sizeof *some);
        size_t *kept = skv_j_take(r, n, sizeof *kept);
        if (kept) memcpy(kept, at, n * sizeof *kept);
        if (some && kept) *some = (skv_jmarks){.base = data, .at = kept, .n = n};
        marks = some;
    }
    skv_jmarker_release(marker);
    return marks;
}

skv_jv skv_j_from_out(skv_jrun *r, skv_jout *out)
{
    skv_jv v = skv_j_undefined();
    if (out->text.failed) skv_j_fail_limit(r);
    const size_t size = out->text.size;
    const char *copy = skv_j_ok(r) ? copy_text(r, out->text.data, size) : NULL;
    if (copy) v = view_of(r, copy, size, skv_j_take_marks(r, &out->marks, copy, size));
    skv_jout_release(out);
    return v;
}

skv_jv skv_j_list(skv_jrun *r, skv_jkind kind, size_t capacity)
{
    skv_jlist *list = skv_j_take(r, 1, sizeof *list);
    if (!list) return skv_j_undefined();
    if (capacity) list->items = skv_j_take(r, capacity, sizeof *list->items);
    if (list->items) list->capacity = capacity;
    return (skv_jv){.kind = (uint8_t)kind, .as.list = list};
}

bool skv_j_push(skv_jrun *r, skv_jlist *list, skv_jv item)
{
    if (!skv_j_ok(r)) return false;
    if (list->n == list->capacity) {
        size_t capacity = list->capacity ? 2 * list->capacity : 4;
        skv_jv *items = skv_j_take(r, capacity, sizeof *items);
        if (!items) return false;
        if (list->n) memcpy(items, list->items, list->n * sizeof *items);
        list->items = items;
        list->capacity = capacity;
    }
    list->items[list->n++] = item;
    return true;
}

skv_jv skv_j_pair(skv_jrun *r, skv_jv a, skv_jv b)
{
    skv_jv pair = skv_j_list(r, SKV_J_TUPLE, 2);
    if (!skv_j_ok(r)) return pair;
    (void)skv_j_push(r, pair.as.list, a);
    (void)skv_j_push(r, pair.as.list, b);
    return pair;
}

skv_jv skv_j_dict(skv_jrun *r)
{
    skv_jdict *dict = skv_j_take(r, 1, sizeof *dict);
    return dict ? (skv_jv){.kind = SKV_J_DICT, .as.dict = dict} : skv_j_undefined();
}

bool skv_j_put(skv_jrun *r, skv_jdict *dict, skv_jv key, skv_jv value)
{
    uint64_t hash;
    if (!skv_j_ok(r)) return false;
    if (!skv_jdict_hash(r->budget, key, &hash))
        skv_j_fail_unhashable(r, key);
    else if (!skv_jdict_put(&r->memory, dict, hash, key, value))
        skv_j_fail_limit(r);
    return skv_j_ok(r);
}

skv_jv skv_j_iterator(skv_jrun *r, const char *what, skv_jv list)
{
    skv_jiter *iter = skv_j_take(r, 1, sizeof *iter);
    if (!iter || !skv_j_ok(r)) return skv_j_undefined();
    *iter = (skv_jiter){.what = what, .list = list.as.list};
    return (skv_jv){.kind = SKV_J_ITERATOR, .as.iter = iter};
}

const skv_jfunction *skv_j_lookup(const skv_jfunction *table, size_t n, const skv_jstr *name)
{
    for (size_t i = 0; i < n; i++)
        if (skv_jstr_is(name, table[i].name)) return &table[i];
    return NULL;
}

skv_jv skv_j_method(skv_jrun *r, skv_jv self, const skv_jfunction *function)
{
    skv_jmethod *bound = skv_j_take(r, 1, sizeof *bound);
    if (!bound) return skv_j_undefined();
    *bound = (skv_jmethod){.self = self, .function = function};
    return (skv_jv){.kind = SKV_J_METHOD, .as.method = bound};
}

static skv_jv undefined_because(skv_jrun *r, skv_jreason why)
{
    skv_jreason *reason = skv_j_take(r, 1, sizeof *reason);
    if (!reason) return skv_j_undefined();
    *reason = why;
    return (skv_jv){.kind = SKV_J_UNDEFINED, .as.reason = reason};
}

skv_jv skv_j_no_attribute(skv_jrun *r, const skv_jstr *name, const char *object)
{
    return undefined_because(r, (skv_jreason){.of = name, .object = object});
}

skv_jv skv_j_undefined_text(skv_jrun *r, const char *text)
{
    return undefined_because(r, (skv_jreason){.text = text});
}

skv_jv skv_j_fail_undefined(skv_jrun *r, skv_jv undefined)
{
    const skv_jreason *why = undefined.as.reason;
    if (!why) return skv_j_fail(r, SKV_ARGUMENT, "undefined value");
    if (why->text) return skv_j_fail(r, SKV_ARGUMENT, "%s", why->text);
    int n = (int)(why->of->size < 100 ? why->of->size : 100);
    if (!why->object) return skv_j_fail(r, SKV_ARGUMENT, "'%.*s' is undefined", n, why->of->data);
    return skv_j_fail(r, SKV_ARGUMENT, "'%s' has no attribute '%.*s'", why->object, n,
                      why->of->data);
}

typedef struct parameter {
    const char *name; /* "-": none */
    size_t n;
    bool required;
} parameter;

static size_t read_parameters(const char *args, parameter out[SKV_J_ARGS_MAX])
{
    size_t n = 0;
    for (; *args && n < SKV_J_ARGS_MAX; args += strspn(args, " ")) {
        const bool required = *args == '!';
        args += required;
        out[n] = (parameter){args, strcspn(args, " "), required};
        args += out[n++].n;
    }
    return n;
}

static bool bind_keyword(skv_jrun *r, const skv_jcall *call, const skv_jpair *keyword,
                         const parameter *p, size_t n_args, skv_jv *out)
{
    const skv_jstr *key = keyword->key.as.s;
    int n = (int)(key->size < 100 ? key->size : 100);
    for (size_t i = 0; i < n_args; i++) {
        if (*p[i].name == '-' || p[i].n != key->size || memcmp(key->data, p[i].name, p[i].n) != 0)
            continue;
        if (out[i].kind != SKV_J_MISSING)
            skv_j_fail(r, SKV_ARGUMENT, "%s got two values for '%.*s'", skv_j_what(r, call), n,
                       key->data);
        out[i] = keyword->value;
        return skv_j_ok(r);
    }
    skv_j_fail(r, SKV_ARGUMENT, "%s takes no keyword argument '%.*s'", skv_j_what(r, call), n,
               key->data);
    return false;
}

bool skv_j_bind(skv_jrun *r, const skv_jcall *call, const char *args, skv_jv *out)
{
    parameter p[SKV_J_ARGS_MAX];
    const size_t n_args = read_parameters(args, p);
    if (call->n > n_args) {
        skv_j_fail(r, SKV_ARGUMENT, "%s takes at most %zu argument(s), got %zu",
                   skv_j_what(r, call), n_args, call->n);
        return false;
    }
    for (size_t i = 0; i < n_args; i++) out[i] = i < call->n ? call->items[i] : skv_j_missing();
    for (size_t i = 0; i < call->n_keywords; i++)
        if (!bind_keyword(r, call, &call->keywords[i], p, n_args, out)) return false;
    for (size_t i = 0; i < n_args; i++) {
        if (!p[i].required || out[i].kind != SKV_J_MISSING) continue;
        skv_j_fail(r, SKV_ARGUMENT, "%s needs argument %zu", skv_j_what(r, call), i + 1);
        return false;
    }
    return true;
}

bool skv_j_arg_int(skv_jrun *r, const skv_jcall *call, skv_jv v, int64_t otherwise, int64_t *out)
{
    *out = otherwise;
    if (v.kind == SKV_J_MISSING || skv_j_as_int(v, out)) return true;
    skv_j_fail(r, SKV_ARGUMENT, "%s needs an integer, got '%s'", skv_j_what(r, call),
               skv_j_type_name(v));
    return false;
}

/* Makes a value of a variable's text, which is data except between two of `own_mark`. */
static skv_jv from_text(skv_jrun *r, const char *text, size_t n)
{
    const skv_text_piece mark = r->own_mark;
    const char *end = text + n, *hit = mark.n > 0 ? memmem(text, n, mark.text, mark.n) : NULL;
    if (!hit) return skv_j_string_data(r, text, n);
    skv_jout out;
    skv_j_out_init(r, &out);
    skv_jout_set(&out, true);
    while (hit) {
        skv_buf_append(&out.text, text, (size_t)(hit - text));
        skv_jout_set(&out, !out.marks.data);
        text = hit + mark.n;
        hit = memmem(text, (size_t)(end - text), mark.text, mark.n);
    }
    skv_buf_append(&out.text, text, (size_t)(end - text));
    return skv_j_from_out(r, &out);
}

static skv_jv from_array(skv_jrun *r, const json_t *json)
{
    size_t n = json_array_size(json);
    skv_jv list = skv_j_list(r, SKV_J_LIST, n);
    for (size_t i = 0; i < n && skv_j_ok(r); i++)
        (void)skv_j_push(r, list.as.list, skv_j_from_json(r, json_array_get(json, i)));
    return list;
}

/* Older releases of jansson take non-const pointers even for reading. */
static skv_jv from_object(skv_jrun *r, const json_t *json)
{
    union {
        const json_t *in;
        json_t *out;
    } object = {.in = json};
    const char *key;
    json_t *value;
    skv_jv dict = skv_j_dict(r);
    json_object_foreach(object.out, key, value)
    {
        if (!skv_j_ok(r)) break;
        skv_jv name = skv_j_string_data(r, key, strlen(key));
        (void)skv_j_put(r, dict.as.dict, name, skv_j_from_json(r, value));
    }
    return dict;
}

skv_jv skv_j_from_json(skv_jrun *r, const json_t *json)
{
    skv_jv v = skv_j_none();
    if (!skv_j_enter(r)) return v;
    switch (json_typeof(json)) {
    case JSON_OBJECT: v = from_object(r, json); break;
    case JSON_ARRAY: v = from_array(r, json); break;
    case JSON_STRING: v = from_text(r, json_string_value(json), json_string_length(json)); break;
    case JSON_INTEGER: v = skv_j_int(json_integer_value(json)); break;
    case JSON_REAL: v = skv_j_float(json_real_value(json)); break;
    case JSON_TRUE:
    case JSON_FALSE: v = skv_j_bool(json_is_true(json)); break;
    case JSON_NULL: break;
    }
    skv_j_leave(r);
    return v;
}
