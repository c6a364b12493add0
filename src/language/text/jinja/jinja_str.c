/* Methods of str: splitting and searching. Case and alignment are in jinja_case.c. */
#include <string.h>

#include "base/utf8.h"
#include "text/jinja/jinja_builtin.h"
#include "text/jinja/jinja_run.h"

static bool need_string(skv_jrun *r, const skv_jcall *call, skv_jv v)
{
    if (v.kind == SKV_J_STRING) return true;
    skv_j_fail(r, SKV_ARGUMENT, "%s needs a string, got '%s'", skv_j_what(r, call),
               skv_j_type_name(v));
    return false;
}

static bool in_set(uint32_t code, const skv_jstr *set)
{
    if (!set) return skv_j_space(code);
    for (size_t i = 0; i < set->size;) {
        uint32_t other;
        i += skv_utf8_decode(set->data + i, set->size - i, &other);
        if (other == code) return true;
    }
    return false;
}

skv_jv skv_jstr_strip(skv_jrun *r, const skv_jcall *call)
{
    const bool left = call->how & SKV_JSTRIP_LEFT, right = call->how & SKV_JSTRIP_RIGHT;
    const skv_jv set = call->arg[0];
    bool whitespace = set.kind == SKV_J_MISSING || set.kind == SKV_J_NONE;
    if (!whitespace && !need_string(r, call, set)) return set;
    const skv_jstr *s = call->self.as.s, *chars = whitespace ? NULL : set.as.s;
    if (!skv_j_spend(r, s->size / 32 * (chars ? 1 + chars->size : 1))) return set;
    size_t from = 0, to = s->size;
    while (left && from < to) {
        uint32_t code;
        size_t step = skv_utf8_decode(s->data + from, to - from, &code);
        if (!in_set(code, chars)) break;
        from += step;
    }
    while (right && to > from) {
        uint32_t code;
        size_t start = to - 1;
        while (start > from && ((unsigned char)s->data[start] & 0xc0) == 0x80) start--;
        (void)skv_utf8_decode(s->data + start, to - start, &code);
        if (!in_set(code, chars)) break;
        to = start;
    }
    skv_jv stripped = skv_j_part(r, s, from, to);
    stripped.markup = call->self.markup;
    return stripped;
}

/* Splits at white space; `limit` pieces are cut off at most, from the left or the right. */
static skv_jv split_spaces(skv_jrun *r, const skv_jstr *s, int64_t limit)
{
    skv_jv list = skv_j_list(r, SKV_J_LIST, 0);
    size_t at = 0;
    while (skv_j_spend(r, 1)) {
        uint32_t code;
        size_t step;
        while (at < s->size) {
            step = skv_utf8_decode(s->data + at, s->size - at, &code);
            if (!skv_j_space(code)) break;
            at += step;
        }
        if (at >= s->size) break;
        size_t from = at;
        if (limit == 0) {
            /* Python keeps the trailing white space of the unsplit rest. */
            (void)skv_j_push(r, list.as.list, skv_j_part(r, s, from, s->size));
            break;
        }
        while (at < s->size) {
            step = skv_utf8_decode(s->data + at, s->size - at, &code);
            if (skv_j_space(code)) break;
            at += step;
        }
        (void)skv_j_push(r, list.as.list, skv_j_part(r, s, from, at));
        if (limit > 0) limit--;
    }
    return list;
}

static skv_jv split_at(skv_jrun *r, const skv_jstr *s, const skv_jstr *by, int64_t limit)
{
    skv_jv list = skv_j_list(r, SKV_J_LIST, 0);
    size_t from = 0;
    while (skv_j_spend(r, 1)) {
        size_t hit = limit == 0 ? SIZE_MAX : skv_j_find_bytes(r, s, by, from);
        if (!skv_j_push(r, list.as.list, skv_j_part(r, s, from, hit == SIZE_MAX ? s->size : hit)))
            break;
        if (hit == SIZE_MAX) break;
        from = hit + by->size;
        if (limit > 0) limit--;
    }
    return list;
}

static bool split_args(skv_jrun *r, const skv_jcall *call, skv_jv *by, int64_t *limit)
{
    if (!skv_j_arg_int(r, call, call->arg[1], -1, limit)) return false;
    *by = call->arg[0];
    if (by->kind == SKV_J_MISSING) *by = skv_j_none();
    if (by->kind == SKV_J_NONE) return true;
    if (!need_string(r, call, *by)) return false;
    if (!by->as.s->size) skv_j_fail(r, SKV_ARGUMENT, "%s: empty separator", skv_j_what(r, call));
    return skv_j_ok(r);
}

static skv_jv str_split(skv_jrun *r, const skv_jcall *call)
{
    skv_jv by;
    int64_t limit;
    if (!split_args(r, call, &by, &limit)) return skv_j_undefined();
    return by.kind == SKV_J_NONE ? split_spaces(r, call->self.as.s, limit)
                                 : split_at(r, call->self.as.s, by.as.s, limit);
}

/* The last place of `by` in s[0..end), SIZE_MAX when there is none. */
static size_t find_last(skv_jrun *r, const skv_jstr *s, const skv_jstr *by, size_t end)
{
    for (size_t at = end; at >= by->size && skv_j_spend_bytes(r, by->size); at--)
        if (!by->size || memcmp(s->data + at - by->size, by->data, by->size) == 0)
            return at - by->size;
        else if (at == by->size)
            break;
    return SIZE_MAX;
}

static skv_jv reverse_list(skv_jrun *r, skv_jv list)
{
    skv_jv out = skv_j_list(r, SKV_J_LIST, 0);
    for (size_t i = skv_j_ok(r) ? list.as.list->n : 0; i > 0; i--)
        if (!skv_j_push(r, out.as.list, list.as.list->items[i - 1])) break;
    return out;
}

static skv_jv str_rsplit(skv_jrun *r, const skv_jcall *call)
{
    skv_jv by, list;
    int64_t limit;
    if (!split_args(r, call, &by, &limit)) return skv_j_undefined();
    const skv_jstr *s = call->self.as.s;
    if (limit < 0) return str_split(r, call);
    if (by.kind == SKV_J_NONE)
        return skv_j_fail(r, SKV_UNSUPPORTED, "%s by white space with a limit is not supported",
                          skv_j_what(r, call));
    list = skv_j_list(r, SKV_J_LIST, 0);
    size_t end = s->size;
    while (skv_j_spend_bytes(r, s->size)) {
        size_t hit = limit == 0 ? SIZE_MAX : find_last(r, s, by.as.s, end);
        size_t from = hit == SIZE_MAX ? 0 : hit + by.as.s->size;
        if (!skv_j_push(r, list.as.list, skv_j_part(r, s, from, end)) || hit == SIZE_MAX) break;
        end = hit;
        limit--;
    }
    return reverse_list(r, list);
}

static bool line_break(uint32_t code)
{
    return (code >= 10 && code <= 13) || (code >= 0x1c && code <= 0x1e) || code == 0x85 ||
           code == 0x2028 || code == 0x2029;
}

skv_jv skv_jstr_splitlines(skv_jrun *r, const skv_jcall *call)
{
    const bool keep = skv_j_truth(call->arg[0]);
    const skv_jstr *s = call->self.as.s;
    skv_jv list = skv_j_list(r, SKV_J_LIST, 0);
    size_t from = 0, at = 0;
    while (at < s->size && skv_j_ok(r)) {
        uint32_t code;
        size_t step = skv_utf8_decode(s->data + at, s->size - at, &code);
        if (code == '\r' && at + 1 < s->size && s->data[at + 1] == '\n') step = 2;
        if (line_break(code)) {
            (void)skv_j_push(r, list.as.list, skv_j_part(r, s, from, keep ? at + step : at));
            from = at + step;
        }
        at += step;
    }
    if (from < s->size) (void)skv_j_push(r, list.as.list, skv_j_part(r, s, from, s->size));
    return list;
}

/* startswith and endswith take one string or a tuple of them, and a range of characters. */
static bool has_affix(skv_jrun *r, const skv_jcall *call, const skv_jstr *s, skv_jv affix,
                      bool at_end)
{
    if (affix.kind == SKV_J_TUPLE) {
        for (size_t i = 0; i < affix.as.list->n && skv_j_spend(r, 1); i++) {
            if (!need_string(r, call, affix.as.list->items[i])) return false;
            if (has_affix(r, call, s, affix.as.list->items[i], at_end)) return true;
        }
        return false;
    }
    if (!need_string(r, call, affix)) return false;
    size_t n = affix.as.s->size;
    if (n > s->size || !skv_j_spend_bytes(r, n)) return false;
    return !n || memcmp(s->data + (at_end ? s->size - n : 0), affix.as.s->data, n) == 0;
}

/* The part of `self` between the character positions in args[1] and args[2]. */
static bool bounded(skv_jrun *r, const skv_jcall *call, const skv_jv *arg, skv_jstr *out,
                    size_t *offset)
{
    int64_t n = (int64_t)call->self.as.s->n_chars, start = 0, stop = n;
    if (arg[0].kind != SKV_J_NONE && !skv_j_arg_int(r, call, arg[0], 0, &start)) return false;
    if (arg[1].kind != SKV_J_NONE && !skv_j_arg_int(r, call, arg[1], n, &stop)) return false;
    if (start < 0) start = start + n < 0 ? 0 : start + n;
    if (stop < 0) stop = stop + n < 0 ? 0 : stop + n;
    if (stop > n) stop = n;
    *offset = (size_t)start;
    if (start > stop) return false;
    size_t from = skv_j_offset(call->self.as.s, (size_t)start);
    size_t to = skv_j_offset(call->self.as.s, (size_t)stop);
    *out = (skv_jstr){
        .data = call->self.as.s->data + from, .size = to - from, .n_chars = (size_t)(stop - start)};
    return true;
}

/* how: whether at the end. */
static skv_jv str_has_affix(skv_jrun *r, const skv_jcall *call)
{
    const skv_jv *arg = call->arg;
    skv_jstr s;
    size_t offset;
    if (!bounded(r, call, arg + 1, &s, &offset)) return skv_j_bool(false);
    return skv_j_bool(has_affix(r, call, &s, arg[0], call->how));
}

/* The character position of args[0], or -1. how: whether of the last one. */
static int64_t position(skv_jrun *r, const skv_jcall *call)
{
    const skv_jv *arg = call->arg;
    skv_jstr s;
    size_t offset;
    if (!need_string(r, call, arg[0])) return -1;
    if (!bounded(r, call, arg + 1, &s, &offset)) return -1;
    size_t hit =
        call->how ? find_last(r, &s, arg[0].as.s, s.size) : skv_j_find_bytes(r, &s, arg[0].as.s, 0);
    if (hit == SIZE_MAX) return -1;
    return (int64_t)(offset + skv_j_count_chars(s.data, hit));
}

static skv_jv str_find(skv_jrun *r, const skv_jcall *call)
{
    return skv_j_int(position(r, call));
}

static skv_jv str_index(skv_jrun *r, const skv_jcall *call)
{
    int64_t at = position(r, call);
    return at < 0 ? skv_j_fail(r, SKV_ARGUMENT, "substring not found") : skv_j_int(at);
}

static skv_jv str_count(skv_jrun *r, const skv_jcall *call)
{
    const skv_jv *arg = call->arg;
    skv_jstr s;
    size_t offset;
    if (!need_string(r, call, arg[0])) return skv_j_undefined();
    if (!bounded(r, call, arg + 1, &s, &offset)) return skv_j_int(0);
    if (!arg[0].as.s->size) return skv_j_int((int64_t)s.n_chars + 1);
    int64_t n = 0;
    for (size_t at = 0; (at = skv_j_find_bytes(r, &s, arg[0].as.s, at)) != SIZE_MAX; n++)
        at += arg[0].as.s->size;
    return skv_j_int(n);
}

/* An empty `old` matches before every character and at the end. */
static void replace_between(skv_jout *out, const skv_jstr *text, const skv_jstr *with,
                            int64_t count)
{
    size_t at = 0;
    for (; count != 0 && !out->text.failed; count--) {
        skv_jout_put(out, with);
        if (at >= text->size) return;
        size_t next = skv_j_next_char(text, at);
        skv_jout_part(out, text, at, next);
        at = next;
    }
    skv_jout_part(out, text, at, text->size);
}

skv_jv skv_jstr_replace_in(skv_jrun *r, const skv_jstr *text, const skv_jstr *old,
                           const skv_jstr *with, int64_t count)
{
    skv_jout out;
    skv_j_out_init(r, &out);
    if (!old->size) {
        replace_between(&out, text, with, count);
        return skv_j_from_out(r, &out);
    }
    size_t at = 0, hit;
    while (count != 0 && (hit = skv_j_find_bytes(r, text, old, at)) != SIZE_MAX &&
           !out.text.failed) {
        skv_jout_part(&out, text, at, hit);
        skv_jout_put(&out, with);
        at = hit + old->size;
        if (count > 0) count--;
    }
    skv_jout_part(&out, text, at, text->size);
    return skv_j_from_out(r, &out);
}

static skv_jv str_replace(skv_jrun *r, const skv_jcall *call)
{
    const skv_jv *arg = call->arg;
    int64_t count;
    if (!need_string(r, call, arg[0]) || !need_string(r, call, arg[1]) ||
        !skv_j_arg_int(r, call, arg[2], -1, &count))
        return skv_j_undefined();
    return skv_jstr_replace_in(r, call->self.as.s, arg[0].as.s, arg[1].as.s, count);
}

static skv_jv str_join(skv_jrun *r, const skv_jcall *call)
{
    skv_jout out;
    skv_jv items = skv_j_items(r, call->arg[0]);
    skv_j_out_init(r, &out);
    for (size_t i = 0; skv_j_ok(r) && i < items.as.list->n; i++) {
        if (!need_string(r, call, items.as.list->items[i])) break;
        if (i) skv_j_write_str(r, &out, call->self);
        skv_j_write_str(r, &out, items.as.list->items[i]);
    }
    return skv_j_from_out(r, &out);
}

/* how: whether at the last place. */
static skv_jv str_partition(skv_jrun *r, const skv_jcall *call)
{
    const bool last = call->how;
    const skv_jv by = call->arg[0];
    skv_jv three = skv_j_list(r, SKV_J_TUPLE, 3);
    if (!need_string(r, call, by)) return three;
    const skv_jstr *s = call->self.as.s;
    if (!by.as.s->size)
        return skv_j_fail(r, SKV_ARGUMENT, "%s: empty separator", skv_j_what(r, call));
    size_t hit = last ? find_last(r, s, by.as.s, s->size) : skv_j_find_bytes(r, s, by.as.s, 0);
    size_t cut[4] = {0, s->size, s->size, s->size};
    if (hit != SIZE_MAX) {
        cut[1] = hit;
        cut[2] = hit + by.as.s->size;
    } else if (last) {
        cut[1] = cut[2] = 0;
    }
    for (size_t i = 0; i < 3; i++) {
        skv_jv piece = skv_j_part(r, s, cut[i], cut[i + 1]);
        if (!skv_j_push(r, three.as.list, piece)) break;
    }
    return three;
}

/* how: whether at the end. */
static skv_jv str_remove_affix(skv_jrun *r, const skv_jcall *call)
{
    const bool at_end = call->how;
    const skv_jv affix = call->arg[0];
    if (!need_string(r, call, affix)) return skv_j_undefined();
    const skv_jstr *s = call->self.as.s;
    if (!has_affix(r, call, s, affix, at_end)) return call->self;
    size_t n = affix.as.s->size;
    return at_end ? skv_j_part(r, s, 0, s->size - n) : skv_j_part(r, s, n, s->size);
}

const skv_jfunction *skv_jstr_method(const skv_jstr *name)
{
    static const skv_jfunction table[] = {
        {"strip", skv_jstr_strip, SKV_JSTRIP_LEFT | SKV_JSTRIP_RIGHT, "-"},
        {"lstrip", skv_jstr_strip, SKV_JSTRIP_LEFT, "-"},
        {"rstrip", skv_jstr_strip, SKV_JSTRIP_RIGHT, "-"},
        {"split", str_split, 0, "sep maxsplit"},
        {"rsplit", str_rsplit, 0, "sep maxsplit"},
        {"splitlines", skv_jstr_splitlines, 0, "keepends"},
        {"startswith", str_has_affix, false, "!- - -"},
        {"endswith", str_has_affix, true, "!- - -"},
        {"find", str_find, false, "!- - -"},
        {"rfind", str_find, true, "!- - -"},
        {"index", str_index, false, "!- - -"},
        {"rindex", str_index, true, "!- - -"},
        {"count", str_count, 0, "!- - -"},
        {"replace", str_replace, 0, "!- !- -"},
        {"join", str_join, 0, "!-"},
        {"partition", str_partition, false, "!-"},
        {"rpartition", str_partition, true, "!-"},
        {"removeprefix", str_remove_affix, false, "!-"},
        {"removesuffix", str_remove_affix, true, "!-"},
        {"format", skv_jstr_format, 0, NULL},
        {"format_map", NULL, 0, NULL},
        {"casefold", NULL, 0, NULL},
        {"encode", NULL, 0, NULL},
        {"expandtabs", NULL, 0, NULL},
        {"isidentifier", NULL, 0, NULL},
        {"isnumeric", NULL, 0, NULL},
        {"isprintable", NULL, 0, NULL},
        {"maketrans", NULL, 0, NULL},
        {"translate", NULL, 0, NULL},
    };
    const skv_jfunction *found = skv_j_lookup(table, sizeof table / sizeof *table, name);
    return found ? found : skv_jcase_method(name);
}
