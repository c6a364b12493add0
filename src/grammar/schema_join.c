/*
 * Two schemas into one that asks for both: allOf, and keywords beside $ref and anyOf.
 *
 * Schemas inside (of a property that both have) become an allOf of the two, which is joined when
 * it is read. What cannot be joined, two patterns for one, is refused by its name.
 */
#include <string.h>

#include "grammar/schema_impl.h"

/* Keeps a schema that was made until all has been read. */
static skv_status keep(skv_schema *s, json_t *made, const json_t **out)
{
    if (made == NULL || json_array_append_new(s->made, made) != 0) {
        return skv_schema_fail(s, SKV_MEMORY, "no memory");
    }
    *out = made;
    if (json_array_size(s->made) <= SKV_SCHEMA_MERGES_MAX) return SKV_OK;
    return skv_schema_fail(s, SKV_RANGE, "more than %d schemas to join",
                           (int)SKV_SCHEMA_MERGES_MAX);
}

static bool put(json_t *to, const char *key, const json_t *value)
{
    return json_object_set(to, key, (json_t *)(uintptr_t)value) == 0;
}

skv_status skv_schema_without(skv_schema *s, const json_t *node, const char *key,
                              const json_t **out)
{
    json_t *made = json_copy((json_t *)(uintptr_t)node);
    if (made != NULL) (void)json_object_del(made, key);
    return keep(s, made, out);
}

/* {"allOf": [a, b]}, NULL when out of memory. */
static json_t *both(const json_t *a, const json_t *b)
{
    return json_pack("{s:[O,O]}", "allOf", a, b);
}

/* NOTHING: no value can agree with both. */
typedef enum outcome { JOINED, NOTHING, NO_MEMORY, CANNOT } outcome;

/* ---- single keywords: the value of `to` is changed to agree with `value` too ---- */

static bool has_element(const json_t *list, const json_t *value)
{
    const json_t *one;
    size_t i;
    json_array_foreach(list, i, one)
    {
        if (json_equal(one, value)) return true;
    }
    return false;
}

/* Adds the elements of a that b has too; an integer is a number. */
static void add_shared(json_t *out, const json_t *a, const json_t *b, bool types)
{
    const json_t *x, *y;
    size_t i, k;
    json_array_foreach(a, i, x)
    {
        json_array_foreach(b, k, y)
        {
            bool integer = types && json_is_string(x) && json_is_string(y) &&
                           strcmp(json_string_value(x), "integer") == 0 &&
                           strcmp(json_string_value(y), "number") == 0;
            if ((!integer && !json_equal(x, y)) || has_element(out, x)) continue;
            (void)json_array_append(out, (json_t *)(uintptr_t)x);
        }
    }
}

static json_t *as_list(const json_t *value)
{
    if (json_is_array(value)) return json_incref((json_t *)(uintptr_t)value);
    return json_pack("[O]", value);
}

static outcome put_list(json_t *to, const char *key, const json_t *list)
{
    if (json_array_size(list) == 0) return NOTHING;
    return put(to, key, list) ? JOINED : NO_MEMORY;
}

static outcome join_types(json_t *to, const json_t *value)
{
    json_t *a = as_list(json_object_get(to, "type")), *b = as_list(value);
    json_t *types = json_array();
    add_shared(types, a, b, true);
    add_shared(types, b, a, true);
    outcome done = put_list(to, "type", types);
    json_decref(a);
    json_decref(b);
    json_decref(types);
    return done;
}

static outcome join_enums(json_t *to, const json_t *value)
{
    json_t *list = json_array();
    add_shared(list, json_object_get(to, "enum"), value, false);
    outcome done = put_list(to, "enum", list);
    json_decref(list);
    return done;
}

static bool join_required(json_t *to, const json_t *value)
{
    json_t *all = json_copy(json_object_get(to, "required"));
    bool done = json_array_extend(all, (json_t *)(uintptr_t)value) == 0 && put(to, "required", all);
    json_decref(all);
    return done;
}

static bool join_bound(json_t *to, const char *key, const json_t *value, bool larger)
{
    double a = json_number_value(json_object_get(to, key)), b = json_number_value(value);
    bool take = larger ? b > a : b < a;
    return take ? put(to, key, value) : true;
}

static bool join_inner(json_t *to, const char *key, const json_t *value)
{
    return json_object_set_new(to, key, both(json_object_get(to, key), value)) == 0;
}

/* ---- properties ---- */

/* What a schema says of a property that it does not name, NULL where it says nothing. */
static const json_t *rest_of(const json_t *node)
{
    return json_object_get(node, "additionalProperties");
}

/* The properties of one schema, each joined with what the other one says of it. */
static bool join_side(json_t *properties, const json_t *from, const json_t *other)
{
    const json_t *others = json_object_get(other, "properties"), *value;
    const char *key;
    json_object_foreach(json_object_get(from, "properties"), key, value)
    {
        const json_t *too = json_object_get(others, key);
        if (too == NULL) too = rest_of(other);
        if (json_object_get(properties, key) != NULL) continue;
        bool done = too == NULL ? put(properties, key, value)
                                : json_object_set_new(properties, key, both(value, too)) == 0;
        if (!done) return false;
    }
    return true;
}

static bool join_properties(json_t *to, const json_t *a, const json_t *b)
{
    if (json_object_get(a, "properties") == NULL && json_object_get(b, "properties") == NULL) {
        return true;
    }
    json_t *properties = json_object();
    bool done = properties != NULL && join_side(properties, a, b) && join_side(properties, b, a) &&
                put(to, "properties", properties);
    json_decref(properties);
    return done;
}

/* ---- all keywords ---- */

static outcome join_keyword(json_t *to, const char *key, const json_t *value)
{
    static const char *const larger[] = {"minimum", "exclusiveMinimum", "minLength", "minItems"};
    static const char *const smaller[] = {"maximum", "exclusiveMaximum", "maxLength", "maxItems"};
    const json_t *have = json_object_get(to, key);
    if (have == NULL) return put(to, key, value) ? JOINED : NO_MEMORY;
    if (skv_schema_keyword(key) != SKV_KEYWORD_USED || json_equal(have, value)) return JOINED;
    if (strcmp(key, "type") == 0) return join_types(to, value);
    if (strcmp(key, "required") == 0) return join_required(to, value) ? JOINED : NO_MEMORY;
    if (strcmp(key, "enum") == 0) return join_enums(to, value);
    if (strcmp(key, "const") == 0) return NOTHING;
    if (strcmp(key, "items") == 0 || strcmp(key, "additionalProperties") == 0 ||
        strcmp(key, "additionalItems") == 0) {
        if (json_is_array(have) || json_is_array(value)) return CANNOT;
        return join_inner(to, key, value) ? JOINED : NO_MEMORY;
    }
    if (strcmp(key, "allOf") == 0) {
        json_t *all = json_copy((json_t *)(uintptr_t)have);
        bool done = json_array_extend(all, (json_t *)(uintptr_t)value) == 0 && put(to, key, all);
        json_decref(all);
        return done ? JOINED : NO_MEMORY;
    }
    if (strcmp(key, "nullable") == 0) {
        return json_object_del(to, key) == 0 ? JOINED : NO_MEMORY;
    }
    for (size_t i = 0; i < sizeof larger / sizeof larger[0]; i++) {
        bool low = strcmp(key, larger[i]) == 0, high = strcmp(key, smaller[i]) == 0;
        if (low || high) return join_bound(to, key, value, low) ? JOINED : NO_MEMORY;
    }
    return CANNOT;
}

/* An object schema without $ref at its top. */
static skv_status without_ref(skv_schema *s, const json_t *node, const json_t **out)
{
    const json_t *target, *rest = NULL;
    *out = node;
    if (json_object_get(node, "$ref") == NULL) return SKV_OK;
    SKV_TRY(skv_schema_resolve(s, node, &target));
    SKV_TRY(skv_schema_without(s, node, "$ref", &rest));
    return skv_schema_join(s, target, rest, out);
}

skv_status skv_schema_join(skv_schema *s, const json_t *a, const json_t *b, const json_t **out)
{
    const char *key;
    const json_t *value, *made = NULL;
    if (json_is_true(a) || json_is_false(b)) {
        *out = b;
        return SKV_OK;
    }
    if (json_is_true(b) || json_is_false(a)) {
        *out = a;
        return SKV_OK;
    }
    if (!json_is_object(a) || !json_is_object(b))
        return skv_schema_fail(s, SKV_FORMAT, "no schema");
    SKV_TRY(without_ref(s, a, &a));
    SKV_TRY(without_ref(s, b, &b));
    if (!json_is_object(a) || !json_is_object(b)) return skv_schema_join(s, a, b, out);
    json_t *to = json_copy((json_t *)(uintptr_t)a);
    SKV_TRY(keep(s, to, &made));
    json_object_foreach((json_t *)(uintptr_t)b, key, value)
    {
        if (strcmp(key, "properties") == 0) continue;
        outcome done = join_keyword(to, key, value);
        if (done == NOTHING) {
            *out = json_false();
            return SKV_OK;
        }
        if (done == CANNOT) {
            return skv_schema_fail(s, SKV_UNSUPPORTED,
                                   "the keyword \"%.100s\" of two schemas cannot be joined", key);
        }
        if (done == NO_MEMORY) return skv_schema_fail(s, SKV_MEMORY, "no memory");
    }
    if (!join_properties(to, a, b)) return skv_schema_fail(s, SKV_MEMORY, "no memory");
    *out = made;
    return SKV_OK;
}
