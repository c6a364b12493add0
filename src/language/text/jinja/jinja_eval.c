/* Expressions. */
#include "base/fail.h"
#include "text/jinja/jinja_run.h"

SKV_OWN_FRAME static skv_jv eval_name(skv_jrun *r, const skv_jnode *node)
{
    for (const skv_jscope *s = r->scope; s && skv_j_spend(r, s->n / 16); s = s->parent)
        for (size_t i = 0; i < s->n; i++) {
            if (s->vars[i].sym != node->sym) continue;
            if (s->vars[i].value.kind != SKV_J_MISSING) return s->vars[i].value;
            return skv_j_no_attribute(r, node->name, NULL);
        }
    const skv_jv *var = skv_jdict_get(r->budget, r->vars, node->name);
    if (var) return *var;
    const skv_jfunction *function = r->names->global(node->name);
    if (function) return (skv_jv){.kind = SKV_J_FUNCTION, .as.function = function};
    return skv_j_no_attribute(r, node->name, NULL);
}

SKV_OWN_FRAME static skv_jv eval_list(skv_jrun *r, const skv_jnode *node, skv_jkind kind)
{
    skv_jv list = skv_j_list(r, kind, node->n_items);
    for (size_t i = 0; i < node->n_items && skv_j_ok(r); i++)
        (void)skv_j_push(r, list.as.list, skv_j_eval(r, node->items[i]));
    return list;
}

SKV_OWN_FRAME static skv_jv eval_dict(skv_jrun *r, const skv_jnode *node)
{
    skv_jv dict = skv_j_dict(r);
    for (size_t i = 0; i + 1 < node->n_items && skv_j_ok(r); i += 2) {
        skv_jv key = skv_j_eval(r, node->items[i]);
        skv_jv value = skv_j_eval(r, node->items[i + 1]);
        (void)skv_j_put(r, dict.as.dict, key, value);
    }
    return dict;
}

SKV_OWN_FRAME static skv_jv eval_slice(skv_jrun *r, const skv_jnode *node)
{
    skv_jv object = skv_j_eval(r, node->a), part[3];
    for (size_t i = 0; i < 3; i++)
        part[i] = node->items[i] && skv_j_ok(r) ? skv_j_eval(r, node->items[i]) : skv_j_missing();
    return skv_j_ok(r) ? skv_j_slice(r, object, part) : object;
}

SKV_OWN_FRAME static skv_jv join_texts(skv_jrun *r, const skv_jlist *items)
{
    skv_jout text;
    skv_j_out_init(r, &text);
    for (size_t i = 0; skv_j_ok(r) && i < items->n; i++) skv_j_write_str(r, &text, items->items[i]);
    return skv_j_from_out(r, &text);
}

static skv_jv eval_concat(skv_jrun *r, const skv_jnode *node)
{
    skv_jv items = eval_list(r, node, SKV_J_LIST);
    return skv_j_ok(r) ? join_texts(r, items.as.list) : items;
}

/* a < b < c stops at the first comparison that does not hold. */
SKV_OWN_FRAME static skv_jv eval_compare(skv_jrun *r, const skv_jnode *node)
{
    skv_jv left = skv_j_eval(r, node->a);
    bool holds = true;
    for (size_t i = 0; i < node->n_items && holds && skv_j_ok(r); i++) {
        skv_jv right = skv_j_eval(r, node->items[i]->a);
        if (!skv_j_ok(r)) break;
        holds = skv_j_compare(r, node->items[i]->op, left, right);
        left = right;
    }
    return skv_j_bool(holds);
}

SKV_OWN_FRAME static skv_jv eval_binary(skv_jrun *r, const skv_jnode *node)
{
    skv_jv a = skv_j_eval(r, node->a);
    skv_jv b = skv_j_ok(r) ? skv_j_eval(r, node->b) : a;
    r->line = node->line;
    return skv_j_ok(r) ? skv_j_binary(r, node->op, a, b) : a;
}

SKV_OWN_FRAME static skv_jv eval_logic(skv_jrun *r, const skv_jnode *node)
{
    skv_jv a = skv_j_eval(r, node->a);
    if (!skv_j_ok(r) || skv_j_truth(a) == (node->kind == SKV_JN_OR)) return a;
    return skv_j_eval(r, node->b);
}

SKV_OWN_FRAME static skv_jv eval_condition(skv_jrun *r, const skv_jnode *node)
{
    skv_jv test = skv_j_eval(r, node->a);
    if (!skv_j_ok(r)) return test;
    if (skv_j_truth(test)) return skv_j_eval(r, node->b);
    if (node->c) return skv_j_eval(r, node->c);
    return skv_j_undefined_text(
        r, "the inline if-expression evaluated to false and has no else section");
}

static bool push_argument(skv_jrun *r, skv_jlist *items, const skv_jnode *node)
{
    skv_jv value = skv_j_eval(r, node);
    return skv_j_push(r, items, value);
}

SKV_OWN_FRAME static bool spread_keywords(skv_jrun *r, const skv_jnode *node, skv_jdict *keywords)
{
    skv_jv value = skv_j_eval(r, node);
    if (!skv_j_ok(r)) return false;
    if (value.kind != SKV_J_DICT) {
        skv_j_fail(r, SKV_ARGUMENT, "argument after ** must be a mapping");
        return false;
    }
    for (size_t i = 0; i < value.as.dict->n && skv_j_ok(r); i++) {
        skv_jpair pair = value.as.dict->pairs[i];
        if (pair.key.kind != SKV_J_STRING ||
            skv_jdict_find(r->budget, keywords, pair.key, pair.hash))
            skv_j_fail(r, SKV_ARGUMENT, "keyword is no string, or repeated");
        else
            (void)skv_j_put(r, keywords, pair.key, pair.value);
    }
    return skv_j_ok(r);
}

SKV_OWN_FRAME static bool eval_keywords(skv_jrun *r, const skv_jargs *args, const skv_jv *caller,
                                        skv_jcall *call)
{
    static const skv_jstr caller_name = {"caller", 6, 6, NULL};
    if ((!args || (!args->n_keywords && !args->double_star)) && !caller) return true;
    skv_jv dict = skv_j_dict(r);
    for (size_t i = 0; args && i < args->n_keywords && skv_j_ok(r); i++) {
        skv_jv key = {.kind = SKV_J_STRING, .as.s = args->keywords[i].name};
        skv_jv value = skv_j_eval(r, args->keywords[i].value);
        (void)skv_j_put(r, dict.as.dict, key, value);
    }
    if (caller && skv_j_ok(r))
        (void)skv_j_put(r, dict.as.dict, (skv_jv){.kind = SKV_J_STRING, .as.s = &caller_name},
                        *caller);
    if (args && args->double_star && skv_j_ok(r))
        (void)spread_keywords(r, args->double_star, dict.as.dict);
    if (!skv_j_ok(r)) return false;
    call->keywords = dict.as.dict->pairs;
    call->n_keywords = dict.as.dict->n;
    return true;
}

bool skv_j_eval_args(skv_jrun *r, const skv_jargs *args, const skv_jv *caller, skv_jcall *call)
{
    if (args && (args->n_items || args->star)) {
        skv_jv items = skv_j_list(r, SKV_J_LIST, args->n_items);
        for (size_t i = 0; i < args->n_items && skv_j_ok(r); i++)
            (void)push_argument(r, items.as.list, args->items[i]);
        skv_jv rest = args->star && skv_j_ok(r) ? skv_j_eval(r, args->star) : skv_j_missing();
        if (args->star && skv_j_ok(r)) rest = skv_j_items(r, rest);
        for (size_t i = 0; args->star && skv_j_ok(r) && i < rest.as.list->n; i++)
            (void)skv_j_push(r, items.as.list, rest.as.list->items[i]);
        if (!skv_j_ok(r)) return false;
        call->items = items.as.list->items;
        call->n = items.as.list->n;
    }
    return eval_keywords(r, args, caller, call);
}

SKV_OWN_FRAME static skv_jv eval_call(skv_jrun *r, const skv_jnode *node)
{
    skv_jcall call = {0};
    skv_jv function = skv_j_eval(r, node->a);
    if (!skv_j_ok(r) || !skv_j_eval_args(r, node->args, NULL, &call)) return function;
    r->line = node->line;
    return skv_j_call(r, function, &call);
}

skv_jv skv_j_eval_filter(skv_jrun *r, const skv_jnode *node, const skv_jv *input)
{
    skv_jcall call = {0};
    if (!skv_j_enter(r)) return skv_j_undefined();
    if (!node->a && input)
        call.self = *input;
    else if (!node->a)
        call.self = skv_j_undefined();
    else if (node->a->kind == SKV_JN_FILTER)
        call.self = skv_j_eval_filter(r, node->a, input);
    else
        call.self = skv_j_eval(r, node->a);
    skv_j_leave(r);
    if (!skv_j_ok(r) || !skv_j_eval_args(r, node->args, NULL, &call)) return call.self;
    r->line = node->line;
    return skv_j_call_filter(r, node->name, &call);
}

SKV_OWN_FRAME static skv_jv eval_test(skv_jrun *r, const skv_jnode *node)
{
    skv_jcall call = {.self = skv_j_eval(r, node->a)};
    if (!skv_j_ok(r) || !skv_j_eval_args(r, node->args, NULL, &call)) return call.self;
    r->line = node->line;
    return skv_j_bool(skv_j_call_test(r, node->name, &call));
}

SKV_OWN_FRAME static skv_jv eval_getitem(skv_jrun *r, const skv_jnode *node)
{
    skv_jv object = skv_j_eval(r, node->a);
    skv_jv key = skv_j_ok(r) ? skv_j_eval(r, node->b) : object;
    r->line = node->line;
    return skv_j_ok(r) ? skv_j_getitem(r, object, key) : object;
}

SKV_OWN_FRAME static skv_jv eval_unary(skv_jrun *r, const skv_jnode *node)
{
    skv_jv v = skv_j_eval(r, node->a);
    r->line = node->line;
    if (!skv_j_ok(r)) return v;
    if (node->kind == SKV_JN_NOT) return skv_j_bool(!skv_j_truth(v));
    if (node->kind == SKV_JN_GETATTR) return skv_j_getattr(r, v, node->value.as.s);
    return skv_j_negate(r, v, node->kind == SKV_JN_NEGATIVE);
}

static skv_jv eval_kind(skv_jrun *r, const skv_jnode *node)
{
    switch (node->kind) {
    case SKV_JN_CONST: return node->value;
    case SKV_JN_NAME: return eval_name(r, node);
    case SKV_JN_LIST: return eval_list(r, node, SKV_J_LIST);
    case SKV_JN_TUPLE: return eval_list(r, node, SKV_J_TUPLE);
    case SKV_JN_DICT: return eval_dict(r, node);
    case SKV_JN_GETITEM: return eval_getitem(r, node);
    case SKV_JN_SLICE: return eval_slice(r, node);
    case SKV_JN_CALL: return eval_call(r, node);
    case SKV_JN_FILTER: return skv_j_eval_filter(r, node, NULL);
    case SKV_JN_TEST: return eval_test(r, node);
    case SKV_JN_GETATTR:
    case SKV_JN_NOT:
    case SKV_JN_NEGATIVE:
    case SKV_JN_POSITIVE: return eval_unary(r, node);
    case SKV_JN_BINARY: return eval_binary(r, node);
    case SKV_JN_CONCAT: return eval_concat(r, node);
    case SKV_JN_COMPARE: return eval_compare(r, node);
    case SKV_JN_AND:
    case SKV_JN_OR: return eval_logic(r, node);
    default: return eval_condition(r, node);
    }
}

skv_jv skv_j_eval(skv_jrun *r, const skv_jnode *node)
{
    r->line = node->line;
    if (!skv_j_spend(r, 1) || !skv_j_enter(r)) return skv_j_undefined();
    skv_jv v = eval_kind(r, node);
    skv_j_leave(r);
    return v;
}
