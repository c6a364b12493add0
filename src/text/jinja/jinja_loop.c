/* The `loop` variable: what for loops know about themselves. */
#include <string.h>

#include "text/jinja/jinja_eval.h"
#include "text/jinja/jinja_op.h"

/* Whether the loop's own filter (`for x in y if cond`) lets an item through. */
static bool admits(skv_jrun *r, skv_jloop *loop, skv_jv item)
{
    skv_jscope *inner = r->scope, *scope = skv_j_open_scope(r, loop->outer, loop->node->other);
    if (!scope) return false;
    r->scope = scope;
    skv_j_assign(r, loop->node->a, item);
    skv_jv test = skv_j_ok(r) ? skv_j_eval(r, loop->node->c) : item;
    r->scope = inner;
    return skv_j_ok(r) && skv_j_truth(r, test);
}

bool skv_jloop_pull(skv_jrun *r, skv_jloop *loop, skv_jv *item)
{
    if (loop->has_ahead) {
        loop->has_ahead = false;
        *item = loop->ahead;
        return true;
    }
    while (loop->next < loop->items->n && skv_j_spend(r, 1)) {
        *item = loop->items->items[loop->next++];
        if (!loop->filtered || admits(r, loop, *item)) return skv_j_ok(r);
    }
    return false;
}

static bool peek(skv_jrun *r, skv_jloop *loop)
{
    if (!loop->has_ahead) loop->has_ahead = skv_jloop_pull(r, loop, &loop->ahead);
    return loop->has_ahead;
}

/* The length of a filtered loop takes all its items at once. */
static int64_t length_of(skv_jrun *r, skv_jloop *loop)
{
    if (loop->length >= 0) return loop->length;
    bool ahead = loop->has_ahead;
    skv_jv rest = skv_j_list(r, SKV_J_LIST, 0), item;
    loop->has_ahead = false;
    while (skv_j_ok(r) && skv_jloop_pull(r, loop, &item)) (void)skv_j_push(r, rest.as.list, item);
    if (!skv_j_ok(r)) return 0;
    loop->has_ahead = ahead;
    loop->items = rest.as.list;
    loop->next = 0;
    loop->filtered = false;
    loop->length = (int64_t)rest.as.list->n + loop->index0 + 1 + ahead;
    return loop->length;
}

static skv_jv loop_cycle(skv_jrun *r, const skv_jcall *call)
{
    if (!call->n || call->n_keywords)
        return skv_j_fail(r, SKV_ARGUMENT, "loop.cycle needs items to cycle through");
    return call->items[(size_t)call->self.as.loop->index0 % call->n];
}

static skv_jv loop_changed(skv_jrun *r, const skv_jcall *call)
{
    skv_jloop *loop = call->self.as.loop;
    skv_jv seen = skv_j_list(r, SKV_J_TUPLE, call->n);
    for (size_t i = 0; i < call->n && skv_j_ok(r); i++)
        (void)skv_j_push(r, seen.as.list, call->items[i]);
    if (!skv_j_ok(r)) return seen;
    bool same = loop->changed.kind != SKV_J_MISSING && skv_j_equal(r, loop->changed, seen);
    loop->changed = seen;
    return skv_j_bool(!same);
}

static skv_jv method(skv_jrun *r, skv_jloop *loop, const char *name, skv_jfn *fn)
{
    skv_jmethod *bound = skv_j_take(r, 1, sizeof *bound);
    if (!bound) return skv_j_undefined();
    *bound = (skv_jmethod){.self = {.kind = SKV_J_LOOP, .as.loop = loop}, .name = name, .fn = fn};
    return (skv_jv){.kind = SKV_J_METHOD, .as.method = bound};
}

static bool is(const skv_jstr *name, const char *text)
{
    return name->size == strlen(text) && memcmp(name->data, text, name->size) == 0;
}

skv_jv skv_jloop_attribute(skv_jrun *r, skv_jloop *loop, const skv_jstr *name)
{
    if (is(name, "index0")) return skv_j_int(loop->index0);
    if (is(name, "index")) return skv_j_int(loop->index0 + 1);
    if (is(name, "first")) return skv_j_bool(loop->index0 == 0);
    if (is(name, "last")) return skv_j_bool(!peek(r, loop));
    if (is(name, "length")) return skv_j_int(length_of(r, loop));
    if (is(name, "revindex")) return skv_j_int(length_of(r, loop) - loop->index0);
    if (is(name, "revindex0")) return skv_j_int(length_of(r, loop) - loop->index0 - 1);
    if (is(name, "depth")) return skv_j_int(1);
    if (is(name, "depth0")) return skv_j_int(0);
    if (is(name, "previtem"))
        return loop->index0 > 0 ? loop->previous
                                : skv_j_undefined_text(r, "there is no previous item");
    if (is(name, "nextitem"))
        return peek(r, loop) ? loop->ahead : skv_j_undefined_text(r, "there is no next item");
    if (is(name, "cycle")) return method(r, loop, "loop.cycle", loop_cycle);
    if (is(name, "changed")) return method(r, loop, "loop.changed", loop_changed);
    return skv_j_missing();
}
