/* Tests: the names that may follow `is`. */
#include "text/jinja/jinja_builtin.h"
#include "text/jinja/jinja_run.h"

/* Tests that look at the value's kind alone. */
static skv_jv answer(skv_jrun *r, const skv_jcall *call, bool yes)
{
    return skv_j_bind(r, call, "", NULL) ? skv_j_bool(yes) : skv_j_undefined();
}

static skv_jv is_defined(skv_jrun *r, const skv_jcall *call)
{
    return answer(r, call, call->self.kind != SKV_J_UNDEFINED);
}

/* how: skv_jkind. */
static skv_jv is_kind(skv_jrun *r, const skv_jcall *call)
{
    return answer(r, call, call->self.kind == call->how);
}

/* Only true and false themselves, not equal values; how: which of them. */
static skv_jv is_bool(skv_jrun *r, const skv_jcall *call)
{
    return answer(r, call, call->self.kind == SKV_J_BOOL && call->self.as.b == (call->how != 0));
}

static skv_jv is_number(skv_jrun *r, const skv_jcall *call)
{
    int64_t i = 0;
    return answer(r, call, call->self.kind == SKV_J_FLOAT || skv_j_as_int(call->self, &i));
}

/* Values with a length and a subscript; undefined counts, as in jinja2. */
static skv_jv is_sequence(skv_jrun *r, const skv_jcall *call)
{
    int64_t n;
    return answer(r, call, skv_j_length(call->self, &n) && call->self.kind != SKV_J_VIEW);
}

static skv_jv is_iterable(skv_jrun *r, const skv_jcall *call)
{
    int64_t n;
    return answer(r, call,
                  skv_j_length(call->self, &n) || call->self.kind == SKV_J_ITERATOR ||
                      call->self.kind == SKV_J_LOOP);
}

static skv_jv is_callable(skv_jrun *r, const skv_jcall *call)
{
    skv_jkind kind = (skv_jkind)call->self.kind;
    return answer(r, call,
                  kind == SKV_J_MACRO || kind == SKV_J_FUNCTION || kind == SKV_J_METHOD ||
                      kind == SKV_J_LOOP || kind == SKV_J_UNDEFINED);
}

static skv_jv is_escaped(skv_jrun *r, const skv_jcall *call)
{
    return answer(r, call, call->self.kind == SKV_J_STRING && call->self.markup);
}

/* str(value).isupper() and islower(). */
static skv_jv is_case(skv_jrun *r, const skv_jcall *call)
{
    skv_jcall inner = *call;
    inner.self = skv_j_str(r, call->self);
    return skv_j_ok(r) ? skv_jstr_is_case(r, &inner) : inner.self;
}

static skv_jv remainder_is(skv_jrun *r, skv_jv v, skv_jv by, int64_t wanted)
{
    skv_jv rest = skv_j_binary(r, '%', v, by);
    return skv_j_ok(r) ? skv_j_bool(skv_j_equal(r, rest, skv_j_int(wanted))) : rest;
}

/* even and odd; how: the remainder. */
static skv_jv is_parity(skv_jrun *r, const skv_jcall *call)
{
    return remainder_is(r, call->self, skv_j_int(2), call->how);
}

static skv_jv is_divisible(skv_jrun *r, const skv_jcall *call)
{
    return remainder_is(r, call->self, call->arg[0], 0);
}

/* how: the operator. */
static skv_jv compare(skv_jrun *r, const skv_jcall *call)
{
    return skv_j_bool(skv_j_compare(r, call->how, call->self, call->arg[0]));
}

/* Identity: the same object for containers, the same value for None, bool and small numbers. */
static skv_jv is_same(skv_jrun *r, const skv_jcall *call)
{
    const skv_jv other = call->arg[0];
    if (call->self.kind != other.kind) return skv_j_bool(false);
    if (skv_j_is_sequence(other) || other.kind == SKV_J_DICT)
        return skv_j_bool(call->self.as.list == other.as.list);
    return skv_j_bool(skv_jdict_same_key(r->budget, call->self, other));
}

/* Whether there is such a filter or test (how); jinja2 looks it up in a dict, so it must be
 * hashable. */
static skv_jv is_name(skv_jrun *r, const skv_jcall *call)
{
    const skv_jfunction *(*find)(const skv_jstr *name) =
        call->how == SKV_J_CALLS_TEST ? r->names->test : r->names->filter;
    uint64_t hash;
    if (!skv_jdict_hash(r->budget, call->self, &hash)) return skv_j_fail_unhashable(r, call->self);
    return answer(r, call, call->self.kind == SKV_J_STRING && find(call->self.as.s));
}

const skv_jfunction *skv_jtest_find(const skv_jstr *name)
{
    static const skv_jfunction table[] = {
        {"defined", is_defined, 0, NULL},
        {"undefined", is_kind, SKV_J_UNDEFINED, NULL},
        {"none", is_kind, SKV_J_NONE, NULL},
        {"boolean", is_kind, SKV_J_BOOL, NULL},
        {"true", is_bool, true, NULL},
        {"false", is_bool, false, NULL},
        {"integer", is_kind, SKV_J_INT, NULL},
        {"float", is_kind, SKV_J_FLOAT, NULL},
        {"number", is_number, 0, NULL},
        {"string", is_kind, SKV_J_STRING, NULL},
        {"mapping", is_kind, SKV_J_DICT, NULL},
        {"sequence", is_sequence, 0, NULL},
        {"iterable", is_iterable, 0, NULL},
        {"callable", is_callable, 0, NULL},
        {"escaped", is_escaped, 0, NULL},
        {"upper", is_case, SKV_JCASE_UPPER, ""},
        {"lower", is_case, SKV_JCASE_LOWER, ""},
        {"even", is_parity, 0, ""},
        {"odd", is_parity, 1, ""},
        {"divisibleby", is_divisible, 0, "!num"},
        {"eq", compare, SKV_JOP('=', '='), "!-"},
        {"equalto", compare, SKV_JOP('=', '='), "!-"},
        {"==", compare, SKV_JOP('=', '='), "!-"},
        {"ne", compare, SKV_JOP('!', '='), "!-"},
        {"!=", compare, SKV_JOP('!', '='), "!-"},
        {"lt", compare, '<', "!-"},
        {"lessthan", compare, '<', "!-"},
        {"<", compare, '<', "!-"},
        {"le", compare, SKV_JOP('<', '='), "!-"},
        {"<=", compare, SKV_JOP('<', '='), "!-"},
        {"gt", compare, '>', "!-"},
        {"greaterthan", compare, '>', "!-"},
        {">", compare, '>', "!-"},
        {"ge", compare, SKV_JOP('>', '='), "!-"},
        {">=", compare, SKV_JOP('>', '='), "!-"},
        {"in", compare, 'i', "!-"},
        {"sameas", is_same, 0, "!-"},
        {"filter", is_name, SKV_J_CALLS_FILTER, NULL},
        {"test", is_name, SKV_J_CALLS_TEST, NULL},
    };
    return skv_j_lookup(table, sizeof table / sizeof *table, name);
}
