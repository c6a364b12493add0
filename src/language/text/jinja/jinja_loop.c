/* The `loop` variable: see jinja_loop.h. */
#include "text/jinja/jinja_loop.h"

SKV_OWN_FRAME bool skv_jloop_next(skv_jrun *r, skv_jloop *loop, skv_jv *item)
{
    if (loop->has_ahead) {
        loop->has_ahead = false;
        *item = loop->ahead;
        return true;
    }
    while (loop->next < loop->items->n && skv_j_spend(r, 1)) {
        *item = loop->items->items[loop->next++];
        if (!loop->admits || loop->admits(r, loop, *item)) return skv_j_ok(r);
    }
    return false;
}

static bool peek(skv_jrun *r, skv_jloop *loop)
{
    if (!loop->has_ahead) loop->has_ahead = skv_jloop_next(r, loop, &loop->ahead);
    return loop->has_ahead;
}

/* The length of a filtered loop takes all its items at once. */
static int64_t length_of(skv_jrun *r, skv_jloop *loop)
{
    if (loop->length >= 0) return loop->length;
    bool ahead = loop->has_ahead;
    skv_jv rest = skv_j_list(r, SKV_J_LIST, 0), item;
    loop->has_ahead = false;
    while (skv_j_ok(r) && skv_jloop_next(r, loop, &item)) (void)skv_j_push(r, rest.as.list, item);
    if (!skv_j_ok(r)) return 0;
    loop->has_ahead = ahead;
    loop->items = rest.as.list;
    loop->next = 0;
    loop->admits = NULL;
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

skv_jv skv_jloop_attribute(skv_jrun *r, skv_jloop *loop, const skv_jstr *name)
{
    static const skv_jfunction cycle = {"loop.cycle", loop_cycle, 0, NULL};
    static const skv_jfunction changed = {"loop.changed", loop_changed, 0, NULL};
    skv_jv self = {.kind = SKV_J_LOOP, .as.loop = loop};
    if (skv_jstr_is(name, "index0")) return skv_j_int(loop->index0);
    if (skv_jstr_is(name, "index")) return skv_j_int(loop->index0 + 1);
    if (skv_jstr_is(name, "first")) return skv_j_bool(loop->index0 == 0);
    if (skv_jstr_is(name, "last")) return skv_j_bool(!peek(r, loop));
    if (skv_jstr_is(name, "length")) return skv_j_int(length_of(r, loop));
    if (skv_jstr_is(name, "revindex")) return skv_j_int(length_of(r, loop) - loop->index0);
    if (skv_jstr_is(name, "revindex0")) return skv_j_int(length_of(r, loop) - loop->index0 - 1);
    if (skv_jstr_is(name, "depth")) return skv_j_int(1);
    if (skv_jstr_is(name, "depth0")) return skv_j_int(0);
    if (skv_jstr_is(name, "previtem"))
        return loop->index0 > 0 ? loop->previous
                                : skv_j_undefined_text(r, "there is no previous item");
    if (skv_jstr_is(name, "nextitem"))
        return peek(r, loop) ? loop->ahead : skv_j_undefined_text(r, "there is no next item");
    if (skv_jstr_is(name, "cycle")) return skv_j_method(r, self, &cycle);
    if (skv_jstr_is(name, "changed")) return skv_j_method(r, self, &changed);
    return skv_j_missing();
}
