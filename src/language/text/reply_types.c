/* Which types of JSON a schema allows: see skv/reply.h. */
#include <jansson.h>
#include <string.h>

#include "skv/reply.h"
#include "text/reply_form.h"

/* Of one parameter: what lies deeper, or behind more schemas, is of any type. */
enum { DEPTH_MAX = 16, SCHEMAS_MAX = 1024 };
/* Units of work: to read a schema, and to look up a $ref. */
enum { SCHEMA_WORK = 64, REF_WORK = 16 }; /* a schema is asked for eight keywords */

typedef struct walk {
    const json_t *root;
    skv_budget *budget;
    size_t depth, n_seen;
} walk;

static unsigned types_of(walk *w, const json_t *schema);

static unsigned type_named(const json_t *name)
{
    static const struct {
        const char *name;
        unsigned types;
    } rows[] = {{"string", SKV_TYPE_STRING},   {"integer", SKV_TYPE_INTEGER},
                {"boolean", SKV_TYPE_BOOLEAN}, {"number", SKV_TYPE_NUMBER | SKV_TYPE_INTEGER},
                {"null", SKV_TYPE_NULL},       {"array", SKV_TYPE_ARRAY},
                {"object", SKV_TYPE_OBJECT}};
    const char *text = json_string_value(name);
    for (size_t i = 0; text && i < sizeof rows / sizeof rows[0]; i++) {
        if (strcmp(text, rows[i].name) == 0) return rows[i].types;
    }
    return SKV_TYPE_ANY;
}

static unsigned type_of_value(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_STRING: return SKV_TYPE_STRING;
    case JSON_INTEGER: return SKV_TYPE_INTEGER;
    case JSON_REAL: return SKV_TYPE_NUMBER | SKV_TYPE_INTEGER;
    case JSON_TRUE:
    case JSON_FALSE: return SKV_TYPE_BOOLEAN;
    case JSON_NULL: return SKV_TYPE_NULL;
    case JSON_ARRAY: return SKV_TYPE_ARRAY;
    case JSON_OBJECT: return SKV_TYPE_OBJECT;
    }
    return SKV_TYPE_ANY;
}

/* A name, or a list of them. */
static unsigned types_named(walk *w, const json_t *type)
{
    const json_t *one;
    size_t i;
    unsigned types = 0;
    if (!json_is_array(type)) return type_named(type);
    if (!skv_budget_work(w->budget, json_array_size(type))) return SKV_TYPE_ANY;
    json_array_foreach(type, i, one) types |= type_named(one);
    return types;
}

static unsigned types_listed(walk *w, const json_t *values)
{
    const json_t *one;
    size_t i;
    unsigned types = 0;
    if (!skv_budget_work(w->budget, json_array_size(values))) return SKV_TYPE_ANY;
    json_array_foreach(values, i, one) types |= type_of_value(one);
    return types;
}

const json_t *skv_schema_target(const json_t *root, const json_t *schema, skv_budget *budget)
{
    const json_t *ref = json_object_get(schema, "$ref");
    const char *at = json_string_value(ref);
    if (!at || at[0] != '#') return NULL;
    if (!skv_budget_work(budget, REF_WORK + json_string_length(ref) / 4)) return NULL;
    for (at++; root && at[0] == '/';) {
        const char *name = ++at;
        while (*at != 0 && *at != '/') at++;
        root = json_object_getn(root, name, (size_t)(at - name));
    }
    return at[0] == 0 ? root : NULL;
}

static unsigned types_of_any(walk *w, const json_t *schemas)
{
    const json_t *one;
    size_t i;
    unsigned types = 0;
    if (!skv_budget_work(w->budget, json_array_size(schemas))) return SKV_TYPE_ANY;
    json_array_foreach(schemas, i, one) types |= types_of(w, one);
    return types;
}

static unsigned types_of_all(walk *w, const json_t *schemas)
{
    const json_t *one;
    size_t i;
    unsigned types = SKV_TYPE_ANY;
    if (!skv_budget_work(w->budget, json_array_size(schemas))) return SKV_TYPE_ANY;
    json_array_foreach(schemas, i, one) types &= types_of(w, one);
    return types;
}

static unsigned types_of(walk *w, const json_t *schema)
{
    static const char *const unions[] = {"anyOf", "oneOf"};
    const bool reads = json_is_object(schema) && w->depth < DEPTH_MAX && w->n_seen < SCHEMAS_MAX;
    if (!reads || !skv_budget_work(w->budget, SCHEMA_WORK)) return SKV_TYPE_ANY;
    w->n_seen++;
    unsigned types = SKV_TYPE_ANY;
    const json_t *type = json_object_get(schema, "type"), *values = json_object_get(schema, "enum"),
                 *only = json_object_get(schema, "const"),
                 *target = skv_schema_target(w->root, schema, w->budget);
    w->depth++;
    if (type) types &= types_named(w, type);
    if (json_is_array(values)) types &= types_listed(w, values);
    if (only) types &= type_of_value(only);
    if (target) types &= types_of(w, target);
    for (size_t i = 0; i < 2; i++) {
        const json_t *all = json_object_get(schema, unions[i]);
        if (json_is_array(all)) types &= types_of_any(w, all);
    }
    types &= types_of_all(w, json_object_get(schema, "allOf"));
    if (json_is_true(json_object_get(schema, "nullable"))) types |= SKV_TYPE_NULL;
    w->depth--;
    return types;
}

unsigned skv_reply_schema_types(const json_t *root, const json_t *schema, skv_budget *budget)
{
    skv_budget own;
    if (!budget) skv_budget_init(&own, NULL);
    walk w = {.root = root, .budget = budget ? budget : &own};
    const unsigned types = types_of(&w, schema);
    return types == 0 ? SKV_TYPE_ANY : types;
}
