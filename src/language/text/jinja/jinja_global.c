/* Global functions: those that transformers provides to templates, and jinja2's own. */
#include <string.h>
#include <time.h>

#include "base/utf8.h"
#include "text/jinja/jinja_builtin.h"
#include "text/jinja/jinja_run.h"

enum { RANGE_MAX = 100000, TIME_TEXT_MAX = 4096 }; /* RANGE_MAX is jinja2's sandbox limit */

static int64_t range_length(int64_t start, int64_t stop, int64_t step)
{
    uint64_t span, stride;
    if (step > 0 ? start >= stop : start <= stop) return 0;
    span = step > 0 ? (uint64_t)stop - (uint64_t)start : (uint64_t)start - (uint64_t)stop;
    stride = step > 0 ? (uint64_t)step : 0 - (uint64_t)step;
    uint64_t n = (span - 1) / stride + 1;
    return n > RANGE_MAX ? RANGE_MAX + 1 : (int64_t)n;
}

static skv_jv global_range(skv_jrun *r, const skv_jcall *call)
{
    const skv_jv *arg = call->arg;
    skv_jrange range = {.step = 1};
    if (!skv_j_arg_int(r, call, arg[0], 0, &range.start) ||
        !skv_j_arg_int(r, call, arg[1], 0, &range.stop) ||
        !skv_j_arg_int(r, call, arg[2], 1, &range.step))
        return skv_j_undefined();
    if (arg[1].kind == SKV_J_MISSING) {
        range.stop = range.start;
        range.start = 0;
    }
    if (!range.step) return skv_j_fail(r, SKV_ARGUMENT, "range() step must not be zero");
    range.n = range_length(range.start, range.stop, range.step);
    if (range.n > RANGE_MAX)
        return skv_j_fail(r, SKV_RANGE, "range too big, at most %d items", RANGE_MAX);
    skv_jrange *kept = skv_j_take(r, 1, sizeof *kept);
    if (!kept) return skv_j_undefined();
    *kept = range;
    return (skv_jv){.kind = SKV_J_RANGE, .as.range = kept};
}

/* One (key, value) pair of dict([...]). */
static void put_pair(skv_jrun *r, skv_jdict *dict, skv_jv pair)
{
    skv_jv items = skv_j_items(r, pair);
    if (!skv_j_ok(r)) return;
    if (items.as.list->n != 2)
        skv_j_fail(r, SKV_ARGUMENT, "dict() needs pairs, got %zu items", items.as.list->n);
    else
        (void)skv_j_put(r, dict, items.as.list->items[0], items.as.list->items[1]);
}

static skv_jv global_dict(skv_jrun *r, const skv_jcall *call)
{
    skv_jv dict = skv_j_dict(r);
    if (call->n > 1)
        return skv_j_fail(r, SKV_ARGUMENT, "%s takes one argument", skv_j_what(r, call));
    if (call->n && call->items[0].kind == SKV_J_DICT) {
        const skv_jdict *from = call->items[0].as.dict;
        for (size_t i = 0; i < from->n && skv_j_spend(r, 1); i++)
            (void)skv_j_put(r, dict.as.dict, from->pairs[i].key, from->pairs[i].value);
    } else if (call->n && call->items[0].kind == SKV_J_UNDEFINED) {
        return skv_j_fail_undefined(r, call->items[0]);
    } else if (call->n) {
        skv_jv pairs = skv_j_items(r, call->items[0]);
        for (size_t i = 0; skv_j_ok(r) && i < pairs.as.list->n && skv_j_spend(r, 1); i++)
            put_pair(r, dict.as.dict, pairs.as.list->items[i]);
    }
    for (size_t i = 0; i < call->n_keywords && skv_j_ok(r); i++)
        (void)skv_j_put(r, dict.as.dict, call->keywords[i].key, call->keywords[i].value);
    return dict;
}

static skv_jv global_namespace(skv_jrun *r, const skv_jcall *call)
{
    skv_jv space = global_dict(r, call);
    for (size_t i = 0; skv_j_ok(r) && i < space.as.dict->n; i++) {
        skv_jv key = space.as.dict->pairs[i].key;
        if (key.kind == SKV_J_STRING && key.as.s->size && key.as.s->data[0] == '_')
            skv_j_fail(r, SKV_ARGUMENT, "a namespace's attributes must not start with '_'");
    }
    space.kind = SKV_J_NAMESPACE;
    return space;
}

/* The template's own error: the text alone, without the place. */
static skv_jv global_raise(skv_jrun *r, const skv_jcall *call)
{
    const skv_jv message = call->arg[0];
    skv_jout text;
    skv_j_out_init(r, &text);
    skv_j_write_str(r, &text, message);
    if (skv_j_ok(r)) {
        r->status = SKV_ARGUMENT;
        (void)skv_fail(r->err, SKV_ARGUMENT, "%s", text.text.data ? text.text.data : "");
    }
    skv_jout_release(&text);
    return skv_j_undefined();
}

/* strftime's own forms, with Python's %f, and its empty %z and %Z for a time without a zone. */
static bool time_format(skv_jrun *r, const skv_jstr *in, char *out, size_t n_out)
{
    size_t n = 0;
    for (size_t i = 0; i < in->size; i++) {
        char c = in->data[i], next = i + 1 < in->size ? in->data[i + 1] : 0;
        if (n + 8 > n_out || !c) {
            skv_j_fail(r, SKV_RANGE, "strftime_now: the format is too long or has a zero byte");
            return false;
        }
        if (c == '%' && next == 'f') {
            memcpy(out + n, "000000", 6);
            n += 6;
        } else if (c == '%' && next && !strchr("zZ", next)) {
            out[n++] = c;
            out[n++] = next;
        } else if (c != '%') {
            out[n++] = c;
            continue;
        }
        i += next != 0;
    }
    out[n] = 0;
    return true;
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
static size_t write_time(char *out, size_t n, const char *format, const struct tm *when)
{
    return strftime(out, n, format, when);
}
#pragma GCC diagnostic pop

static skv_jv global_strftime(skv_jrun *r, const skv_jcall *call)
{
    const skv_jv arg = call->arg[0];
    struct tm when;
    char format[512], text[TIME_TEXT_MAX];
    if (arg.kind != SKV_J_STRING)
        return skv_j_fail(r, SKV_ARGUMENT, "%s needs a string", skv_j_what(r, call));
    time_t now = r->now ? (time_t)r->now : time(NULL);
    if (!localtime_r(&now, &when)) return skv_j_fail(r, SKV_RANGE, "time out of range");
    if (!time_format(r, arg.as.s, format, sizeof format)) return arg;
    size_t n = *format ? write_time(text, sizeof text, format, &when) : 0;
    size_t bad;
    if (!skv_utf8_valid(text, n, &bad)) n = 0;
    return (arg.as.s->marks ? skv_j_string_data : skv_j_string)(r, text, n);
}

static const skv_jfunction *find_global(const skv_jstr *name)
{
    static const skv_jfunction table[] = {
        {"range", global_range, 0, "!- - -"},
        {"dict", global_dict, 0, NULL},
        {"namespace", global_namespace, 0, NULL},
        {"raise_exception", global_raise, 0, "!message"},
        {"strftime_now", global_strftime, 0, "!format"},
        {"lipsum", NULL, 0, NULL},
        {"cycler", NULL, 0, NULL},
        {"joiner", NULL, 0, NULL},
    };
    return skv_j_lookup(table, sizeof table / sizeof *table, name);
}

const skv_jnames skv_jbuiltin_names = {.global = find_global,
                                       .filter = skv_jfilter_find,
                                       .test = skv_jtest_find,
                                       .string_method = skv_jstr_method};
