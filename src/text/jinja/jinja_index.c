/* Subscripts and slices. */
#include <string.h>

#include "text/jinja/jinja_op.h"
#include "text/jinja/jinja_text.h"

/* A part of a string without copying its bytes. */
static skv_jv char_range(skv_jrun *r, skv_jv v, size_t from, size_t to)
{
    const skv_jstr *s = v.as.s;
    size_t start = skv_j_offset(s, from), end = skv_j_offset(s, to);
    skv_jstr *part = skv_j_take(r, 1, sizeof *part);
    if (!part || !skv_j_spend_bytes(r, s->n_chars == s->size ? 0 : end)) return skv_j_undefined();
    *part = (skv_jstr){.data = s->data + start, .size = end - start, .n_chars = to - from};
    return (skv_jv){.kind = SKV_J_STRING, .markup = v.markup, .as.s = part};
}

bool skv_j_index(skv_jrun *r, skv_jv v, int64_t i, skv_jv *item)
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
        if (skv_jdict_hash(key, &hash)) found = skv_jdict_find(object.as.dict, key, hash);
        if (found) return *found;
    }
    if (indexed && skv_j_as_int(key, &i) && skv_j_index(r, object, i, &item)) return item;
    if (key.kind == SKV_J_STRING) return skv_j_getattr(r, object, key.as.s);
    skv_jv name = skv_j_missing();
    if (key.kind == SKV_J_INT) {
        skv_buf buf;
        skv_j_buf_init(r, &buf);
        skv_j_write_repr(r, &buf, key);
        name = skv_j_from_buf(r, &buf);
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
    skv_buf buf;
    skv_j_buf_init(r, &buf);
    for (int64_t i = 0; i < n && skv_j_spend(r, 1); i++) {
        const skv_jstr *c = chars.as.list->items[start + i * step].as.s;
        skv_buf_append(&buf, c->data, c->size);
    }
    skv_jv part = skv_j_from_buf(r, &buf);
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
