/* Markup: see jinja_markup.h. */
#include "text/jinja/jinja_markup.h"

#include <string.h>

#include "text/jinja/jinja_op.h"

/* The argument that a method writes into its result, and so escapes first; -1 for none. */
static int inserted_argument(const char *name)
{
    static const char *const names[] = {"replace", "ljust", "rjust", "center"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0) return 1;
    return -1;
}

static skv_jv escaped_items(skv_jrun *r, skv_jv v)
{
    skv_jv items = skv_j_items(r, v), out = skv_j_list(r, SKV_J_LIST, 0);
    for (size_t i = 0; skv_j_ok(r) && i < items.as.list->n; i++)
        (void)skv_j_push(r, out.as.list, skv_j_escape(r, items.as.list->items[i]));
    return out;
}

/* Strings, and those of a fresh list or tuple, become markup. */
static skv_jv mark(skv_jv v)
{
    if (v.kind == SKV_J_STRING) v.markup = 1;
    if (!skv_j_is_sequence(v)) return v;
    for (size_t i = 0; i < v.as.list->n; i++)
        if (v.as.list->items[i].kind == SKV_J_STRING) v.as.list->items[i].markup = 1;
    return v;
}

skv_jv skv_jmarkup_call(skv_jrun *r, const skv_jmethod *method, const skv_jcall *call)
{
    skv_jv copy[3];
    skv_jcall inner = *call;
    int insert = inserted_argument(method->name);
    bool join = strcmp(method->name, "join") == 0;
    if (call->n <= 3 && (join || insert >= 0)) {
        for (size_t i = 0; i < call->n; i++) copy[i] = call->items[i];
        if (join && call->n) copy[0] = escaped_items(r, copy[0]);
        if (insert >= 0 && call->n > (size_t)insert) copy[insert] = skv_j_escape(r, copy[insert]);
        inner.items = copy;
    }
    skv_jv result = skv_j_ok(r) ? method->fn(r, &inner) : skv_j_undefined();
    return skv_j_ok(r) ? mark(result) : result;
}
