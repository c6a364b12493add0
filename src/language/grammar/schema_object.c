/*
 * Objects and arrays of JSON schemas.
 *
 * Properties come in the order of their declarations, and optional ones may be left out. Undeclared
 * ones, if allowed, come last: arbitrary order would need a state for every set of properties
 * written so far. Optional properties may also come among these, since a model that begins such a
 * name there must be able to end it. Names of undeclared properties are spelled canonically, so
 * that none can be a declared one in disguise.
 */
#include <string.h>

#include "base/budget_mem.h"
#include "grammar/schema_impl.h"

enum {
    PROPERTY_WORK = 16,
    DISTINCT_MAX = 64 /* values of which an array has each once */
};

/* ---- properties ---- */

typedef struct property {
    skv_expr member; /* "name": value */
    bool required;
} property;

typedef struct object {
    property *properties;   /* owned */
    skv_schema_name *names; /* owned; [n] */
    size_t n;
    bool open;     /* members that are not declared may be allowed */
    skv_expr more; /* an undeclared member; SKV_EXPR_NEVER: none allowed */
} object;

/* Wraps an expression in a rule, so that it is built once for several uses. */
static skv_expr as_rule(skv_schema *s, const char *name, skv_expr expr)
{
    if (expr == SKV_EXPR_NEVER) return expr;
    uint32_t rule = skv_rule_declare(s->exprs, name, strlen(name));
    skv_rule_define(s->exprs, rule, expr);
    return skv_expr_call(s->exprs, rule);
}

static skv_status add_property(skv_schema *s, object *o, const char *name, const json_t *schema,
                               bool required)
{
    skv_expr value = SKV_EXPR_NEVER;
    size_t before = s->path.size;
    (void)skv_buf_text(&s->path, "/properties");
    if (schema) {
        SKV_TRY(skv_schema_compile(s, schema, name, &value));
    } else {
        value = skv_json_value(&s->rules);
    }
    s->path.size = before;
    skv_expr key = skv_json_quoted(s->exprs, name, strlen(name));
    skv_expr after = skv_json_after_name(&s->rules, value), late = SKV_EXPR_NEVER;
    if (o->open && !required) after = late = as_rule(s, "value", after);
    o->names[o->n] = (skv_schema_name){name, strlen(name), late};
    o->properties[o->n++] = (property){skv_expr_seq2(s->exprs, key, after), required};
    return skv_schema_count(s, PROPERTY_WORK + strlen(name) / 4, 0);
}

static skv_status read_required(skv_schema *s, const json_t *list, skv_json_set *out)
{
    const json_t *name;
    size_t i, at;
    if (list && !json_is_array(list)) {
        return skv_schema_fail(s, SKV_FORMAT, "\"required\" is no list of names");
    }
    json_array_foreach(list, i, name)
    {
        if (!json_is_string(name)) {
            return skv_schema_fail(s, SKV_FORMAT, "\"required\" is no list of names");
        }
        if (!skv_json_set_add(out, name, &at)) return skv_schema_no_memory(s);
    }
    return SKV_OK;
}

/* Declared properties, then those that are required without being declared. */
static skv_status add_properties(skv_schema *s, const json_t *node, const skv_json_set *required,
                                 object *o)
{
    const json_t *declared = json_object_get(node, "properties"), *schema;
    const char *name;
    if (declared && !json_is_object(declared)) {
        return skv_schema_fail(s, SKV_FORMAT, "\"properties\" is no object");
    }
    json_object_foreach((json_t *)(uintptr_t)declared, name, schema)
    {
        bool is_required =
            skv_json_set_find_text(required, name, strlen(name)) != SKV_JSON_SET_NONE;
        SKV_TRY(add_property(s, o, name, schema, is_required));
    }
    schema = json_object_get(node, "additionalProperties");
    for (size_t i = 0; i < required->n; i++) {
        name = json_string_value(required->at[i].value);
        if (!json_object_get(declared, name)) {
            SKV_TRY(add_property(s, o, name, schema, true));
        }
    }
    return SKV_OK;
}

/* Without a word on others, an object with declared properties has no others. */
static bool may_have_more(const json_t *node)
{
    const json_t *schema = json_object_get(node, "additionalProperties");
    return schema ? !json_is_false(schema) : !json_object_get(node, "properties");
}

static skv_status add_more(skv_schema *s, const json_t *node, object *o)
{
    const json_t *schema = json_object_get(node, "additionalProperties");
    skv_expr value = SKV_EXPR_NEVER;
    o->more = SKV_EXPR_NEVER;
    if (!o->open) return SKV_OK;
    if (!schema || json_is_true(schema)) {
        value = skv_json_value(&s->rules);
    } else {
        SKV_TRY(skv_schema_compile(s, schema, "additionalProperties", &value));
    }
    if (value == SKV_EXPR_NEVER) return SKV_OK;
    if (o->n == 0) {
        o->more = skv_json_member(&s->rules, skv_json_string(&s->rules), value);
        return SKV_OK;
    }
    skv_expr after = as_rule(s, "other value", skv_json_after_name(&s->rules, value));
    o->more = skv_expr_seq2(s->exprs, skv_expr_text(s->exprs, "\""),
                            skv_schema_other_member(s, o->names, o->n, after));
    return SKV_OK;
}

/* ---- members in order ---- */

/* A member after others, with its comma. */
static skv_expr later_member(skv_schema *s, const property *p)
{
    skv_expr one = skv_json_after_comma(&s->rules, p->member);
    return p->required ? one : skv_expr_optional(s->exprs, one);
}

static skv_expr later_more(skv_schema *s, const object *o)
{
    return skv_expr_repeat(s->exprs, skv_json_after_comma(&s->rules, o->more), 0, SKV_REPEAT_MANY);
}

/* All members from the i-th on, after another one. */
static skv_expr later_members(skv_schema *s, const object *o, size_t i)
{
    skv_expr_list list = {.exprs = s->exprs};
    for (; i < o->n; i++) skv_expr_list_add(&list, later_member(s, &o->properties[i]));
    skv_expr_list_add(&list, later_more(s, o));
    return skv_expr_list_seq(&list);
}

/*
 * All members if any of the first ones may be missing. The first present member determines the
 * members that may follow it; the continuation after the i-th is a rule of its own, shared by all
 * choices of a first member.
 */
static skv_expr skipping_members(skv_schema *s, const object *o, bool *may_be_empty)
{
    skv_expr_list list = {.exprs = s->exprs};
    size_t n_first = 0;
    while (n_first < o->n && !o->properties[n_first].required) n_first++;
    *may_be_empty = n_first == o->n;
    if (n_first < o->n) n_first++;
    skv_expr tail = later_members(s, o, n_first);
    for (size_t i = n_first; i-- > 0;) {
        uint32_t rule = skv_rule_declare(s->exprs, "members", 7);
        skv_rule_define(s->exprs, rule, tail);
        tail = skv_expr_call(s->exprs, rule);
        skv_expr_list_add(&list, skv_expr_seq2(s->exprs, o->properties[i].member, tail));
        tail = skv_expr_seq2(s->exprs, later_member(s, &o->properties[i]), tail);
    }
    if (*may_be_empty && o->more != SKV_EXPR_NEVER) {
        skv_expr_list_add(&list, skv_expr_seq2(s->exprs, o->more, later_more(s, o)));
    }
    return skv_expr_list_alt(&list);
}

static skv_expr join_members(skv_schema *s, const object *o)
{
    bool may_be_empty = false;
    skv_expr members =
        o->n > 0 && o->properties[0].required
            ? skv_expr_seq2(s->exprs, o->properties[0].member, later_members(s, o, 1))
            : skipping_members(s, o, &may_be_empty);
    return skv_json_bracket(&s->rules, "{", members, may_be_empty, "}");
}

skv_status skv_schema_object(skv_schema *s, const json_t *node, skv_expr *out)
{
    skv_budget *budget = s->exprs->budget;
    skv_json_set required = {.budget = budget};
    skv_status status = read_required(s, json_object_get(node, "required"), &required);
    const bool declares = json_object_size(json_object_get(node, "properties")) + required.n > 0;
    bool is_map = false;
    if (status == SKV_OK) status = skv_schema_map(s, node, declares, &is_map, out);
    if (status != SKV_OK || is_map) {
        skv_json_set_release(&required);
        return status;
    }
    const size_t most = 1 + json_object_size(json_object_get(node, "properties")) + required.n;
    object o = {.properties = skv_budget_alloc_zero(budget, most, sizeof *o.properties),
                .names = skv_budget_alloc_zero(budget, most, sizeof *o.names),
                .open = may_have_more(node)};
    bool room = o.properties && o.names;
    if (status == SKV_OK && !room) status = skv_schema_no_memory(s);
    if (status == SKV_OK && room) status = add_properties(s, node, &required, &o);
    if (status == SKV_OK && room) status = add_more(s, node, &o);
    if (status == SKV_OK && room) *out = join_members(s, &o);
    skv_budget_free(budget, o.properties, most, sizeof *o.properties);
    skv_budget_free(budget, o.names, most, sizeof *o.names);
    skv_json_set_release(&required);
    return status;
}

/* ---- arrays ---- */

typedef struct array {
    const json_t *first, *rest; /* schemas by position, then of all others; NULL: not given */
    uint32_t min, max;
} array;

/* Drafts before 2020-12 spell prefixItems as a list in items. */
static skv_status read_array(skv_schema *s, const json_t *node, array *a)
{
    const json_t *items = json_object_get(node, "items");
    a->first = json_object_get(node, "prefixItems");
    a->rest = items;
    if (json_is_array(items)) {
        if (a->first) return skv_schema_fail(s, SKV_FORMAT, "\"items\" is no schema");
        a->first = items;
        a->rest = json_object_get(node, "additionalItems");
    }
    if (a->first && !json_is_array(a->first)) {
        return skv_schema_fail(s, SKV_FORMAT, "\"prefixItems\" is no list of schemas");
    }
    SKV_TRY(skv_schema_integer(s, node, "minItems", 0, &a->min));
    return skv_schema_integer(s, node, "maxItems", SKV_REPEAT_MANY, &a->max);
}

/* The elements from position n_first on, at least one. */
static skv_expr rest_items(skv_schema *s, const array *a, skv_expr item, uint32_t n_first)
{
    uint32_t min = a->min > n_first ? a->min - n_first : 0;
    uint32_t max = a->max == SKV_REPEAT_MANY ? a->max : a->max - n_first;
    if (n_first == 0) return skv_json_list(&s->rules, item, min, max);
    return skv_expr_repeat(s->exprs, skv_json_after_comma(&s->rules, item), min, max);
}

/* Builds the continuation of each position, from the last to the first. */
static skv_status compile_items(skv_schema *s, const array *a, skv_expr *out)
{
    uint32_t n_first = (uint32_t)json_array_size(a->first);
    if (n_first > a->max) n_first = a->max;
    skv_expr item = SKV_EXPR_NEVER, tail = SKV_EXPR_EMPTY;
    if (a->rest) {
        SKV_TRY(skv_schema_compile(s, a->rest, "items", &item));
    } else if (!a->first) {
        item = skv_json_value(&s->rules);
    }
    if (n_first < a->max) tail = rest_items(s, a, item, n_first);
    for (uint32_t i = n_first; i-- > 0;) {
        SKV_TRY(skv_schema_compile(s, json_array_get(a->first, i), "prefixItems", &item));
        if (i > 0) item = skv_json_after_comma(&s->rules, item);
        tail = skv_expr_seq2(s->exprs, item, tail);
        if (i > 0 && i >= a->min) tail = skv_expr_optional(s->exprs, tail);
    }
    *out = tail;
    return SKV_OK;
}

/* ---- arrays of distinct values ---- */

/* The values of a schema that is a list of them, each once; NULL: it is none. */
static skv_status list_values(skv_schema *s, const json_t *items, const json_t **out)
{
    const json_t *joined = items;
    *out = NULL;
    if (!json_is_object(items)) return SKV_OK;
    SKV_TRY(skv_schema_join(s, items, NULL, NULL, &joined));
    const json_t *list = json_object_get(joined, "enum"), *value;
    const size_t n = json_array_size(list);
    size_t i;
    unsigned types;
    if (n == 0 || n > DISTINCT_MAX || json_object_get(joined, "anyOf") ||
        json_object_get(joined, "oneOf") || json_object_get(joined, "const")) {
        return SKV_OK;
    }
    SKV_TRY(skv_schema_allowed_types(s, joined, &types));
    json_array_foreach(list, i, value)
    {
        if (!(types & skv_schema_types_of(value))) return SKV_OK;
        for (size_t k = 0; k < i; k++) {
            if (skv_json_same(s->exprs->budget, value, json_array_get(list, k))) return SKV_OK;
        }
    }
    *out = list;
    return SKV_OK;
}

/* A subset of the values, at least one, in the order of the list. The continuation is a rule for
 * each place in the list and each number of values so far. */
static skv_expr distinct_items(skv_schema *s, const array *a, const json_t *list)
{
    const uint32_t n = (uint32_t)json_array_size(list), most = a->max < n ? a->max : n;
    skv_expr next[DISTINCT_MAX + 1], now[DISTINCT_MAX + 1] = {SKV_EXPR_NEVER};
    for (uint32_t k = 1; k <= most; k++) now[k] = k >= a->min ? SKV_EXPR_EMPTY : SKV_EXPR_NEVER;
    for (uint32_t i = n; i-- > 0;) {
        const skv_expr first = skv_schema_literal(s, json_array_get(list, i));
        const skv_expr later = skv_json_after_comma(&s->rules, first);
        memcpy(next, now, sizeof next);
        for (uint32_t k = 0; k < most; k++) {
            const skv_expr taken = skv_expr_seq2(s->exprs, k > 0 ? later : first, next[k + 1]);
            now[k] = as_rule(s, "distinct", skv_expr_alt2(s->exprs, taken, next[k]));
        }
    }
    return now[0];
}

/* The elements of an array that have to be distinct; *followed false: that is left out. */
static skv_status compile_distinct(skv_schema *s, const array *a, bool *followed, skv_expr *out)
{
    const json_t *list = NULL;
    if (!a->first && a->rest) SKV_TRY(list_values(s, a->rest, &list));
    *followed = list;
    if (!list && !s->loose) {
        return skv_schema_fail(s, SKV_UNSUPPORTED,
                               "\"uniqueItems\" is supported for items of an \"enum\" of up to %d "
                               "values alone",
                               DISTINCT_MAX);
    }
    if (!list) return SKV_OK;
    *out = distinct_items(s, a, list);
    return SKV_OK;
}

skv_status skv_schema_array(skv_schema *s, const json_t *node, skv_expr *out)
{
    array a = {0};
    skv_expr items = SKV_EXPR_NEVER;
    SKV_TRY(read_array(s, node, &a));
    if (a.min > a.max) {
        *out = SKV_EXPR_NEVER;
        return SKV_OK;
    }
    bool distinct = a.max > 1 && json_is_true(json_object_get(node, "uniqueItems"));
    if (distinct) SKV_TRY(compile_distinct(s, &a, &distinct, &items));
    if (!distinct && a.max > 0) SKV_TRY(compile_items(s, &a, &items));
    *out = skv_json_bracket(&s->rules, "[", items, a.min == 0, "]");
    return SKV_OK;
}
