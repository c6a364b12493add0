/* Statements. */
#include <string.h>

#include "base/fail.h"
#include "text/jinja/jinja_loop.h"
#include "text/jinja/jinja_run.h"

SKV_OWN_FRAME static bool store(skv_jrun *r, skv_jscope *scope, uint32_t sym, skv_jv value)
{
    if (!skv_j_spend(r, scope->n / 16)) return false;
    for (size_t i = 0; i < scope->n; i++) {
        if (scope->vars[i].sym != sym) continue;
        scope->vars[i].value = value;
        return true;
    }
    if (scope->n == scope->capacity) {
        size_t capacity = scope->capacity ? 2 * scope->capacity : 4;
        skv_jvar *vars = skv_j_take(r, capacity, sizeof *vars);
        if (!vars) return false;
        if (scope->n) memcpy(vars, scope->vars, scope->n * sizeof *vars);
        scope->vars = vars;
        scope->capacity = capacity;
    }
    scope->vars[scope->n++] = (skv_jvar){.sym = sym, .value = value};
    return true;
}

/* Starts a scope over, for the next round of a loop. */
SKV_OWN_FRAME static void reset_scope(skv_jrun *r, skv_jscope *scope, const skv_jscope_info *info)
{
    scope->n = 0;
    for (size_t i = 0; info && i < info->n_unset; i++)
        if (!store(r, scope, info->unset[i], skv_j_missing())) return;
}

skv_jscope *skv_j_open_scope(skv_jrun *r, skv_jscope *parent, const skv_jscope_info *info)
{
    skv_jscope *scope = skv_j_take(r, 1, sizeof *scope);
    if (!scope) return NULL;
    scope->parent = parent;
    reset_scope(r, scope, info);
    return skv_j_ok(r) ? scope : NULL;
}

SKV_OWN_FRAME static void assign_attribute(skv_jrun *r, const skv_jnode *target, skv_jv value)
{
    skv_jnode name = *target;
    name.kind = SKV_JN_NAME;
    skv_jv object = skv_j_eval(r, &name);
    if (!skv_j_ok(r)) return;
    const skv_jstr *key = target->value.as.s;
    if (object.kind != SKV_J_NAMESPACE)
        skv_j_fail(r, SKV_ARGUMENT, "cannot assign attribute on non-namespace object");
    else if (key->size && key->data[0] == '_')
        skv_j_fail(r, SKV_ARGUMENT, "a namespace's attributes must not start with '_'");
    else
        (void)skv_j_put(r, object.as.dict, target->value, value);
}

/* Assigns to a name, a namespace's attribute, or a tuple of targets. */
SKV_OWN_FRAME static void assign(skv_jrun *r, const skv_jnode *target, skv_jv value)
{
    if (!skv_j_ok(r)) return;
    if (target->kind == SKV_JN_NAME) {
        (void)store(r, r->scope, target->sym, value);
        return;
    }
    if (target->kind == SKV_JN_NSREF) {
        assign_attribute(r, target, value);
        return;
    }
    skv_jv items = skv_j_items(r, value);
    if (!skv_j_ok(r) || !skv_j_enter(r)) return;
    if (items.as.list->n != target->n_items)
        skv_j_fail(r, SKV_ARGUMENT, "%zu values for %zu names", items.as.list->n, target->n_items);
    for (size_t i = 0; i < target->n_items && skv_j_ok(r); i++)
        assign(r, target->items[i], items.as.list->items[i]);
    skv_j_leave(r);
}

/* Whether the loop's own filter (`for x in y if cond`) lets an item through. */
static bool admits(skv_jrun *r, skv_jloop *loop, skv_jv item)
{
    skv_jscope *inner = r->scope, *scope = skv_j_open_scope(r, loop->outer, loop->node->other);
    if (!scope) return false;
    r->scope = scope;
    assign(r, loop->node->a, item);
    skv_jv test = skv_j_ok(r) ? skv_j_eval(r, loop->node->c) : item;
    r->scope = inner;
    return skv_j_ok(r) && skv_j_truth(test);
}

/* Renders a body to a value. Always restores scope and output buffer. */
SKV_OWN_FRAME static skv_jv capture(skv_jrun *r, const skv_jnode *node, skv_jscope *scope)
{
    skv_jout text, *out = r->out;
    skv_jscope *outer = r->scope;
    skv_j_out_init(r, &text);
    r->out = &text;
    r->scope = scope;
    skv_j_exec(r, node->items, node->n_items);
    r->out = out;
    r->scope = outer;
    return skv_j_from_out(r, &text);
}

SKV_OWN_FRAME static void bind_parameters(skv_jrun *r, const skv_jargs *parameters,
                                          const skv_jcall *call, bool *taken)
{
    size_t n = parameters ? parameters->n_keywords : 0;
    for (size_t i = 0; i < n && skv_j_ok(r); i++) {
        skv_jv value = i < call->n ? call->items[i] : skv_j_missing();
        if (!skv_j_spend(r, call->n_keywords / 4)) return;
        for (size_t k = 0; k < call->n_keywords && i >= call->n; k++) {
            skv_jv name = {.kind = SKV_J_STRING, .as.s = parameters->keywords[i].name};
            if (!skv_jdict_same_key(r->budget, call->keywords[k].key, name)) continue;
            value = call->keywords[k].value;
            taken[k] = true;
        }
        (void)store(r, r->scope, parameters->keywords[i].sym, value);
    }
}

/* A default may use the parameters before it. */
SKV_OWN_FRAME static void fill_defaults(skv_jrun *r, const skv_jargs *parameters)
{
    for (size_t i = 0; parameters && i < parameters->n_keywords && skv_j_ok(r); i++) {
        const skv_jkeyword *parameter = &parameters->keywords[i];
        if (r->scope->vars[i].value.kind != SKV_J_MISSING) continue;
        skv_jv value = parameter->value ? skv_j_eval(r, parameter->value)
                                        : skv_j_no_attribute(r, parameter->name, NULL);
        (void)store(r, r->scope, parameter->sym, value);
    }
}

/* Binds `caller` and the remaining arguments: as `kwargs` and `varargs`, or fails if the macro does
 * not use them. */
SKV_OWN_FRAME static void bind_special(skv_jrun *r, const skv_jnode *node, const skv_jcall *call,
                                       bool *taken)
{
    size_t n_named = node->args ? node->args->n_keywords : 0;
    skv_jv caller = skv_j_undefined_text(r, "No caller defined"), kwargs = skv_j_dict(r);
    skv_jv varargs = skv_j_list(r, SKV_J_TUPLE, 0);
    for (size_t k = 0; k < call->n_keywords && skv_j_ok(r); k++) {
        const skv_jpair *pair = &call->keywords[k];
        int n = (int)(pair->key.as.s->size < 60 ? pair->key.as.s->size : 60);
        if (taken[k]) continue;
        if (node->scope->uses_caller && skv_jstr_is(pair->key.as.s, "caller"))
            caller = pair->value;
        else if (node->scope->uses_kwargs)
            (void)skv_j_put(r, kwargs.as.dict, pair->key, pair->value);
        else
            skv_j_fail(r, SKV_ARGUMENT, "macro takes no keyword argument '%.*s'", n,
                       pair->key.as.s->data);
    }
    for (size_t i = n_named; i < call->n && skv_j_ok(r); i++) {
        if (node->scope->uses_varargs)
            (void)skv_j_push(r, varargs.as.list, call->items[i]);
        else
            skv_j_fail(r, SKV_ARGUMENT, "macro takes not more than %zu argument(s)", n_named);
    }
    if (node->scope->uses_caller) (void)store(r, r->scope, SKV_JSYM_CALLER, caller);
    if (node->scope->uses_kwargs) (void)store(r, r->scope, SKV_JSYM_KWARGS, kwargs);
    if (node->scope->uses_varargs) (void)store(r, r->scope, SKV_JSYM_VARARGS, varargs);
}

static skv_jv call_macro(skv_jrun *r, const skv_jmacro *macro, const skv_jcall *call)
{
    const skv_jnode *node = macro->node;
    bool *taken = skv_j_take(r, call->n_keywords, sizeof *taken);
    skv_jscope *outer = r->scope, *scope = skv_j_open_scope(r, macro->scope, NULL);
    if (!taken || !scope || !skv_j_enter(r)) return skv_j_undefined();
    r->scope = scope;
    /* Parameters come first, in their order, so that fill_defaults finds them by number. */
    bind_parameters(r, node->args, call, taken);
    if (skv_j_ok(r)) bind_special(r, node, call, taken);
    for (size_t i = 0; i < node->scope->n_unset && skv_j_ok(r); i++)
        (void)store(r, scope, node->scope->unset[i], skv_j_missing());
    fill_defaults(r, node->args);
    r->scope = outer;
    skv_jv text = skv_j_ok(r) ? capture(r, node, scope) : skv_j_undefined();
    skv_j_leave(r);
    return text;
}

static skv_jv make_macro(skv_jrun *r, const skv_jnode *node)
{
    skv_jmacro *macro = skv_j_take(r, 1, sizeof *macro);
    if (!macro) return skv_j_undefined();
    *macro = (skv_jmacro){.call = call_macro, .node = node, .scope = r->scope};
    return (skv_jv){.kind = SKV_J_MACRO, .as.macro = macro};
}

SKV_OWN_FRAME static void exec_print(skv_jrun *r, const skv_jnode *node)
{
    for (size_t i = 0; i < node->n_items && skv_j_ok(r); i++) {
        skv_jv v = skv_j_eval(r, node->items[i]);
        r->line = node->line;
        if (skv_j_ok(r)) skv_j_write_str(r, r->out, v);
    }
}

SKV_OWN_FRAME static void exec_text(skv_jrun *r, const skv_jnode *node)
{
    skv_jout_put(r->out, node->value.as.s);
    if (r->out->text.failed) skv_j_fail_limit(r);
    (void)skv_j_spend_bytes(r, node->value.as.s->size);
}

/* A chain of elif is one level. */
SKV_OWN_FRAME static void exec_if(skv_jrun *r, const skv_jnode *node)
{
    for (;;) {
        skv_jv test = skv_j_eval(r, node->a);
        if (!skv_j_ok(r)) return;
        if (skv_j_truth(test)) {
            skv_j_exec(r, node->items, node->n_items);
            return;
        }
        if (node->n_more != 1 || node->more[0]->kind != SKV_JN_IF) break;
        node = node->more[0];
        r->line = node->line;
    }
    skv_j_exec(r, node->more, node->n_more);
}

/* One round; true when the body ran to its end, which keeps the else body from running. */
SKV_OWN_FRAME static bool exec_round(skv_jrun *r, const skv_jnode *node, skv_jscope *scope,
                                     skv_jv loop)
{
    skv_jscope *outer = r->scope;
    reset_scope(r, scope, node->scope);
    (void)store(r, scope, SKV_JSYM_LOOP, loop);
    r->scope = scope;
    assign(r, node->a, loop.as.loop->current);
    if (skv_j_ok(r)) skv_j_exec(r, node->items, node->n_items);
    r->scope = outer;
    return r->jump == SKV_JUMP_NONE;
}

SKV_OWN_FRAME static void exec_for(skv_jrun *r, const skv_jnode *node)
{
    skv_jv source = skv_j_eval(r, node->b);
    if (skv_j_ok(r)) source = skv_j_items(r, source);
    skv_jloop *loop = skv_j_take(r, 1, sizeof *loop);
    skv_jscope *scope = skv_j_open_scope(r, r->scope, NULL);
    if (!loop || !scope) return;
    *loop = (skv_jloop){.node = node,
                        .items = source.as.list,
                        .outer = r->scope,
                        .admits = node->c ? admits : NULL,
                        .index0 = -1,
                        .length = -1,
                        .previous = skv_j_missing(),
                        .current = skv_j_missing(),
                        .ahead = skv_j_missing(),
                        .changed = skv_j_missing()};
    if (!node->c) loop->length = (int64_t)source.as.list->n;
    skv_jv value = {.kind = SKV_J_LOOP, .as.loop = loop}, item;
    bool otherwise = true;
    while (skv_j_ok(r) && skv_jloop_next(r, loop, &item)) {
        loop->previous = loop->current;
        loop->current = item;
        loop->index0++;
        if (exec_round(r, node, scope, value)) otherwise = false;
        bool stop = r->jump == SKV_JUMP_BREAK;
        r->jump = SKV_JUMP_NONE;
        if (stop) break;
    }
    scope->n = 0;
    if (!otherwise || !node->n_more || !skv_j_ok(r)) return;
    skv_jscope *outer = r->scope, *last = skv_j_open_scope(r, outer, node->last);
    if (!last) return;
    r->scope = last;
    skv_j_exec(r, node->more, node->n_more);
    r->scope = outer;
}

SKV_OWN_FRAME static void exec_set(skv_jrun *r, const skv_jnode *node)
{
    skv_jv value = skv_j_eval(r, node->b);
    r->line = node->line;
    assign(r, node->a, value);
}

SKV_OWN_FRAME static skv_jv filtered(skv_jrun *r, const skv_jnode *node, skv_jscope *scope,
                                     skv_jv text)
{
    skv_jscope *outer = r->scope;
    if (!node->b || !skv_j_ok(r)) return text;
    r->scope = scope;
    text = skv_j_eval_filter(r, node->b, &text);
    r->scope = outer;
    return text;
}

/* A `break` in the body leaves the enclosing loop and discards the block's output. */
SKV_OWN_FRAME static void exec_block(skv_jrun *r, const skv_jnode *node)
{
    skv_jscope *scope = skv_j_open_scope(r, r->scope, node->scope);
    if (!scope) return;
    skv_jv text = capture(r, node, scope);
    if (r->jump != SKV_JUMP_NONE || !skv_j_ok(r)) return;
    text = filtered(r, node, scope, text);
    if (!skv_j_ok(r)) return;
    if (node->kind == SKV_JN_SET_BLOCK)
        assign(r, node->a, text);
    else if (text.kind == SKV_J_STRING)
        skv_j_write_str(r, r->out, text);
    else
        skv_j_fail(r, SKV_ARGUMENT, "a filter block gave '%s'", skv_j_type_name(text));
}

SKV_OWN_FRAME static void exec_call_block(skv_jrun *r, const skv_jnode *node)
{
    skv_jcall call = {0};
    skv_jv text, caller = make_macro(r, node);
    if (!skv_j_ok(r)) return;
    if (node->a) {
        skv_jv function = skv_j_eval(r, node->a->a);
        if (!skv_j_ok(r) || !skv_j_eval_args(r, node->a->args, &caller, &call)) return;
        text = skv_j_call(r, function, &call);
    } else {
        text = call_macro(r, caller.as.macro, &call);
    }
    if (skv_j_ok(r)) skv_j_write_str(r, r->out, text);
}

/* The values see the outer scope only, not the names before them. */
SKV_OWN_FRAME static void exec_with(skv_jrun *r, const skv_jnode *node)
{
    skv_jscope *outer = r->scope, *scope = skv_j_open_scope(r, outer, node->scope);
    for (size_t i = 0; i < node->n_more && skv_j_ok(r); i++) {
        skv_jv value = skv_j_eval(r, node->more[i]->b);
        if (!scope) return;
        r->scope = scope;
        assign(r, node->more[i]->a, value);
        r->scope = outer;
    }
    if (!scope || !skv_j_ok(r)) return;
    r->scope = scope;
    skv_j_exec(r, node->items, node->n_items);
    r->scope = outer;
}

static void exec_node(skv_jrun *r, const skv_jnode *node)
{
    switch (node->kind) {
    case SKV_JN_TEXT: exec_text(r, node); break;
    case SKV_JN_PRINT: exec_print(r, node); break;
    case SKV_JN_IF: exec_if(r, node); break;
    case SKV_JN_FOR: exec_for(r, node); break;
    case SKV_JN_SET: exec_set(r, node); break;
    case SKV_JN_SET_BLOCK:
    case SKV_JN_FILTER_BLOCK: exec_block(r, node); break;
    case SKV_JN_MACRO: (void)store(r, r->scope, node->sym, make_macro(r, node)); break;
    case SKV_JN_CALL_BLOCK: exec_call_block(r, node); break;
    case SKV_JN_WITH: exec_with(r, node); break;
    case SKV_JN_BREAK: r->jump = SKV_JUMP_BREAK; break;
    case SKV_JN_CONTINUE: r->jump = SKV_JUMP_CONTINUE; break;
    default: break;
    }
}

void skv_j_exec(skv_jrun *r, const skv_jnode *const *body, size_t n)
{
    if (!skv_j_enter(r)) return;
    for (size_t i = 0; i < n && r->jump == SKV_JUMP_NONE && skv_j_spend(r, 1); i++) {
        r->line = body[i]->line;
        exec_node(r, body[i]);
        if (!skv_j_ok(r)) break;
    }
    skv_j_leave(r);
}
