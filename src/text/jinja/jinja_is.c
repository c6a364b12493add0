/* Tests: see jinja_is.h. */
#include "text/jinja/jinja_is.h"

#include <string.h>

#include "text/jinja/jinja_filter.h"
#include "text/jinja/jinja_method.h"
#include "text/jinja/jinja_op.h"
#include "text/jinja/jinja_text.h"

static const char *const unnamed[] = {NULL};

/* Tests that look at the value's kind alone. */
static skv_jv answer(skv_jrun *r, const skv_jcall *call, bool yes)
{
    return skv_j_bind(r, call, NULL, 0, 0, NULL) ? skv_j_bool(yes) : skv_j_undefined();
}

static skv_jv is_defined(skv_jrun *r, const skv_jcall *call)
{
    return answer(r, call, call->self.kind != SKV_J_UNDEFINED);
}

static skv_jv is_undefined(skv_jrun *r, const skv_jcall *call)
{
    return answer(r, call, call->self.kind == SKV_J_UNDEFINED);
}

static skv_jv is_none(skv_jrun *r, const skv_jcall *call)
{
    return answer(r, call, call->self.kind == SKV_J_NONE);
}

static skv_jv is_boolean(skv_jrun *r, const skv_jcall *call)
{
    return answer(r, call, call->self.kind == SKV_J_BOOL);
}

static skv_jv is_true(skv_jrun *r, const skv_jcall *call)
{
    return answer(r, call, call->self.kind == SKV_J_BOOL && call->self.as.b);
}

static skv_jv is_false(skv_jrun *r, const skv_jcall *call)
{
    return answer(r, call, call->self.kind == SKV_J_BOOL && !call->self.as.b);
}

static skv_jv is_integer(skv_jrun *r, const skv_jcall *call)
{
    return answer(r, call, call->self.kind == SKV_J_INT);
}

static skv_jv is_float(skv_jrun *r, const skv_jcall *call)
{
    return answer(r, call, call->self.kind == SKV_J_FLOAT);
}

static skv_jv is_number(skv_jrun *r, const skv_jcall *call)
{
    int64_t i = 0;
    return answer(r, call, call->self.kind == SKV_J_FLOAT || skv_j_as_int(call->self, &i));
}

static skv_jv is_string(skv_jrun *r, const skv_jcall *call)
{
    return answer(r, call, call->self.kind == SKV_J_STRING);
}

static skv_jv is_mapping(skv_jrun *r, const skv_jcall *call)
{
    return answer(r, call, call->self.kind == SKV_J_DICT);
}

/* What has a length and a subscript: undefined has both, as jinja2 sees it. */
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

/* str(value).isupper() and the like. */
static skv_jv is_case(skv_jrun *r, const skv_jcall *call, skv_jfn *fn)
{
    skv_jcall inner = *call;
    inner.self = skv_j_str(r, call->self);
    return skv_j_ok(r) ? fn(r, &inner) : inner.self;
}

static skv_jv is_upper(skv_jrun *r, const skv_jcall *call)
{
    return is_case(r, call, skv_jstr_is_upper);
}

static skv_jv is_lower(skv_jrun *r, const skv_jcall *call)
{
    return is_case(r, call, skv_jstr_is_lower);
}

static skv_jv remainder_is(skv_jrun *r, skv_jv v, skv_jv by, int64_t wanted)
{
    skv_jv rest = skv_j_binary(r, '%', v, by);
    return skv_j_ok(r) ? skv_j_bool(skv_j_equal(r, rest, skv_j_int(wanted))) : rest;
}

static skv_jv is_even(skv_jrun *r, const skv_jcall *call)
{
    return skv_j_bind(r, call, NULL, 0, 0, NULL) ? remainder_is(r, call->self, skv_j_int(2), 0)
                                                 : skv_j_undefined();
}

static skv_jv is_odd(skv_jrun *r, const skv_jcall *call)
{
    return skv_j_bind(r, call, NULL, 0, 0, NULL) ? remainder_is(r, call->self, skv_j_int(2), 1)
                                                 : skv_j_undefined();
}

static skv_jv is_divisible(skv_jrun *r, const skv_jcall *call)
{
    static const char *const names[] = {"num"};
    skv_jv by;
    return skv_j_bind(r, call, names, 1, 1, &by) ? remainder_is(r, call->self, by, 0)
                                                 : skv_j_undefined();
}

static skv_jv compare(skv_jrun *r, const skv_jcall *call, unsigned op)
{
    skv_jv other;
    if (!skv_j_bind(r, call, unnamed, 1, 1, &other)) return skv_j_undefined();
    return skv_j_bool(skv_j_compare(r, op, call->self, other));
}

static skv_jv is_eq(skv_jrun *r, const skv_jcall *call)
{
    return compare(r, call, SKV_JOP('=', '='));
}

static skv_jv is_ne(skv_jrun *r, const skv_jcall *call)
{
    return compare(r, call, SKV_JOP('!', '='));
}

static skv_jv is_lt(skv_jrun *r, const skv_jcall *call)
{
    return compare(r, call, '<');
}

static skv_jv is_le(skv_jrun *r, const skv_jcall *call)
{
    return compare(r, call, SKV_JOP('<', '='));
}

static skv_jv is_gt(skv_jrun *r, const skv_jcall *call)
{
    return compare(r, call, '>');
}

static skv_jv is_ge(skv_jrun *r, const skv_jcall *call)
{
    return compare(r, call, SKV_JOP('>', '='));
}

static skv_jv is_in(skv_jrun *r, const skv_jcall *call)
{
    return compare(r, call, 'i');
}

/* Identity: the same object for containers, the same value for None, bool and small numbers. */
static skv_jv is_same(skv_jrun *r, const skv_jcall *call)
{
    skv_jv other;
    if (!skv_j_bind(r, call, unnamed, 1, 1, &other)) return other;
    if (call->self.kind != other.kind) return skv_j_bool(false);
    if (skv_j_is_sequence(other) || other.kind == SKV_J_DICT)
        return skv_j_bool(call->self.as.list == other.as.list);
    return skv_j_bool(skv_jdict_same_key(call->self, other));
}

/* jinja2 looks the name up in a dict, so it must be hashable. */
static skv_jv is_name(skv_jrun *r, const skv_jcall *call,
                      const skv_jfunction *find(const skv_jstr *name))
{
    uint64_t hash;
    if (!skv_jdict_hash(call->self, &hash))
        return skv_j_fail(r, SKV_ARGUMENT, "unhashable type: '%s'", skv_j_type_name(call->self));
    return answer(r, call, call->self.kind == SKV_J_STRING && find(call->self.as.s));
}

static skv_jv is_filter(skv_jrun *r, const skv_jcall *call)
{
    return is_name(r, call, skv_jfilter_find);
}

static skv_jv is_test(skv_jrun *r, const skv_jcall *call)
{
    return is_name(r, call, skv_jtest_find);
}

const skv_jfunction *skv_jtest_find(const skv_jstr *name)
{
    static const skv_jfunction table[] = {{"defined", is_defined},
                                          {"undefined", is_undefined},
                                          {"none", is_none},
                                          {"boolean", is_boolean},
                                          {"true", is_true},
                                          {"false", is_false},
                                          {"integer", is_integer},
                                          {"float", is_float},
                                          {"number", is_number},
                                          {"string", is_string},
                                          {"mapping", is_mapping},
                                          {"sequence", is_sequence},
                                          {"iterable", is_iterable},
                                          {"callable", is_callable},
                                          {"escaped", is_escaped},
                                          {"upper", is_upper},
                                          {"lower", is_lower},
                                          {"even", is_even},
                                          {"odd", is_odd},
                                          {"divisibleby", is_divisible},
                                          {"eq", is_eq},
                                          {"equalto", is_eq},
                                          {"==", is_eq},
                                          {"ne", is_ne},
                                          {"!=", is_ne},
                                          {"lt", is_lt},
                                          {"lessthan", is_lt},
                                          {"<", is_lt},
                                          {"le", is_le},
                                          {"<=", is_le},
                                          {"gt", is_gt},
                                          {"greaterthan", is_gt},
                                          {">", is_gt},
                                          {"ge", is_ge},
                                          {">=", is_ge},
                                          {"in", is_in},
                                          {"sameas", is_same},
                                          {"filter", is_filter},
                                          {"test", is_test}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (name->size == strlen(table[i].name) &&
            memcmp(name->data, table[i].name, name->size) == 0)
            return &table[i];
    return NULL;
}
