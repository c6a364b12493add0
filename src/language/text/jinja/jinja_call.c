/* Calls of values, and of filters and tests by name. */
#include <string.h>

#include "base/fail.h"
#include "text/jinja/jinja_run.h"

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

SKV_OWN_FRAME static skv_jv call_bound(skv_jrun *r, const skv_jfunction *f, skv_jcall *call)
{
    skv_jv arg[SKV_J_ARGS_MAX];
    call->arg = arg;
    const skv_jv result = skv_j_bind(r, call, f->args, arg) ? f->fn(r, call) : skv_j_undefined();
    call->arg = NULL;
    return result;
}

/* Calls the function of a table, with its arguments bound. */
static skv_jv apply(skv_jrun *r, const skv_jfunction *f, skv_jcall *call)
{
    return f->args ? call_bound(r, f, call) : f->fn(r, call);
}

/* Calls a method of a safe string, as markupsafe's class does: escapes the arguments and returns
 * marked strings. */
SKV_OWN_FRAME static skv_jv call_markup(skv_jrun *r, const skv_jmethod *method,
                                        const skv_jcall *call)
{
    skv_jv copy[3];
    skv_jcall inner = *call;
    int insert = inserted_argument(method->function->name);
    bool join = strcmp(method->function->name, "join") == 0;
    if (call->n <= 3 && (join || insert >= 0)) {
        for (size_t i = 0; i < call->n; i++) copy[i] = call->items[i];
        if (join && call->n) copy[0] = escaped_items(r, copy[0]);
        if (insert >= 0 && call->n > (size_t)insert) copy[insert] = skv_j_escape(r, copy[insert]);
        inner.items = copy;
    }
    skv_jv result = skv_j_ok(r) ? apply(r, method->function, &inner) : skv_j_undefined();
    return skv_j_ok(r) ? mark(result) : result;
}

static void name_call(skv_jcall *call, skv_jcallee callee, const skv_jfunction *function)
{
    call->callee = callee;
    call->name = function->name;
    call->how = function->how;
}

skv_jv skv_j_call(skv_jrun *r, skv_jv function, skv_jcall *call)
{
    if (function.kind == SKV_J_MACRO) return function.as.macro->call(r, function.as.macro, call);
    if (function.kind == SKV_J_UNDEFINED) return skv_j_fail_undefined(r, function);
    bool method = function.kind == SKV_J_METHOD;
    if (!method && function.kind != SKV_J_FUNCTION)
        return skv_j_fail(r, SKV_ARGUMENT, "'%s' object is not callable",
                          skv_j_type_name(function));
    const skv_jfunction *f = method ? function.as.method->function : function.as.function;
    name_call(call, SKV_J_CALLS_FUNCTION, f);
    if (method) call->self = function.as.method->self;
    if (!f->fn) return skv_j_fail(r, SKV_UNSUPPORTED, "%s is not supported", skv_j_what(r, call));
    if (method && call->self.kind == SKV_J_STRING && call->self.markup)
        return call_markup(r, function.as.method, call);
    return apply(r, f, call);
}

skv_jv skv_j_call_filter(skv_jrun *r, const skv_jstr *name, skv_jcall *call)
{
    int n = (int)(name->size < 60 ? name->size : 60);
    const skv_jfunction *filter = r->names->filter(name);
    if (!filter) return skv_j_fail(r, SKV_UNSUPPORTED, "unknown filter '%.*s'", n, name->data);
    name_call(call, SKV_J_CALLS_FILTER, filter);
    if (!filter->fn)
        return skv_j_fail(r, SKV_UNSUPPORTED, "%s is not supported", skv_j_what(r, call));
    if (!skv_j_spend(r, 1) || !skv_j_enter(r)) return skv_j_undefined();
    skv_jv result = apply(r, filter, call);
    skv_j_leave(r);
    return result;
}

bool skv_j_call_test(skv_jrun *r, const skv_jstr *name, skv_jcall *call)
{
    int n = (int)(name->size < 60 ? name->size : 60);
    const skv_jfunction *test = r->names->test(name);
    if (!test) {
        skv_j_fail(r, SKV_UNSUPPORTED, "unknown test '%.*s'", n, name->data);
        return false;
    }
    name_call(call, SKV_J_CALLS_TEST, test);
    if (!skv_j_spend(r, 1)) return false;
    skv_jv result = apply(r, test, call);
    return skv_j_ok(r) && skv_j_truth(result);
}
