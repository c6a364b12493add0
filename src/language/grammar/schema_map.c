/*
 * Objects that are maps: no name is declared, and names, values and their number follow schemas.
 *
 * Names are not remembered, so one may be repeated: two members need not be two properties.
 */
#include "grammar/schema_impl.h"

/* The keywords of a schema that restrict a map. */
typedef struct map {
    const json_t *names;    /* propertyNames; NULL: nothing */
    const json_t *patterns; /* patternProperties; NULL: nothing */
    const json_t *values;   /* additionalProperties, or the schema of the one pattern; NULL: any */
    const char *pattern;    /* that names have to match; NULL: none */
    uint32_t min, max;
} map;

/* Ignores the keyword in loose mode, and refuses it otherwise. */
static skv_status give_up(skv_schema *s, const char *keyword)
{
    return s->loose ? SKV_OK : skv_schema_refuse(s, keyword);
}

static skv_status read_map(skv_schema *s, const json_t *node, map *m)
{
    *m = (map){.names = json_object_get(node, "propertyNames"),
               .patterns = json_object_get(node, "patternProperties"),
               .values = json_object_get(node, "additionalProperties")};
    if (m->patterns && !json_is_object(m->patterns)) {
        return skv_schema_fail(s, SKV_FORMAT, "\"patternProperties\" is no object");
    }
    if (json_object_size(m->patterns) == 0) m->patterns = NULL;
    SKV_TRY(skv_schema_integer(s, node, "minProperties", 0, &m->min));
    return skv_schema_integer(s, node, "maxProperties", SKV_REPEAT_MANY, &m->max);
}

/* A pattern must be the only one: several, or names that match none, would need the product of
 * automata. */
static skv_status take_pattern(skv_schema *s, map *m)
{
    if (!m->patterns) return SKV_OK;
    const bool alone =
        json_object_size(m->patterns) == 1 && !m->names && (!m->values || json_is_false(m->values));
    if (!alone) return give_up(s, "patternProperties");
    void *only = json_object_iter((json_t *)(uintptr_t)m->patterns);
    m->pattern = json_object_iter_key(only);
    m->values = json_object_iter_value(only);
    return SKV_OK;
}

/* The names that are a list. */
static skv_expr listed_names(skv_schema *s, const json_t *list)
{
    skv_expr_list names = {.exprs = s->exprs};
    const json_t *name;
    size_t i;
    json_array_foreach(list, i, name)
    {
        if (json_is_string(name)) skv_expr_list_add(&names, skv_schema_literal(s, name));
    }
    return skv_expr_list_alt(&names);
}

/* Compiles the names that a schema allows; they are strings regardless of its type. */
static skv_status compile_names(skv_schema *s, const json_t *schema, skv_expr *out)
{
    const json_t *joined = NULL;
    unsigned types;
    SKV_TRY(skv_schema_compile(s, schema, "propertyNames", out)); /* its keywords are checked */
    if (json_is_boolean(schema)) {
        *out = json_is_true(schema) ? skv_json_string(&s->rules) : SKV_EXPR_NEVER;
        return SKV_OK;
    }
    SKV_TRY(skv_schema_join(s, schema, NULL, NULL, &joined));
    *out = json_is_true(joined) ? skv_json_string(&s->rules) : SKV_EXPR_NEVER;
    if (!json_is_object(joined)) return SKV_OK;
    SKV_TRY(skv_schema_allowed_types(s, joined, &types));
    if (!(types >> SKV_TYPE_STRING & 1)) return SKV_OK;
    const json_t *list = json_object_get(joined, "enum");
    const bool choice = json_object_get(joined, "anyOf") || json_object_get(joined, "oneOf") ||
                        json_object_get(joined, "const");
    if (choice) {
        *out = skv_json_string(&s->rules);
        return give_up(s, "propertyNames");
    }
    if (!list) return skv_schema_string(s, joined, out);
    *out = listed_names(s, list);
    return SKV_OK;
}

static skv_status compile_key(skv_schema *s, const map *m, skv_expr *out)
{
    json_t *schema = NULL;
    *out = skv_json_string(&s->rules);
    if (m->names) return compile_names(s, m->names, out);
    if (!m->pattern) return SKV_OK;
    SKV_TRY(skv_schema_new_pattern(s, m->pattern, &schema));
    return skv_schema_string(s, schema, out);
}

skv_status skv_schema_map(skv_schema *s, const json_t *node, bool declares, bool *followed,
                          skv_expr *out)
{
    map m;
    skv_expr key = SKV_EXPR_NEVER, value = SKV_EXPR_NEVER;
    SKV_TRY(read_map(s, node, &m));
    const char *most = m.min > 1 ? "minProperties" : "maxProperties";
    const bool counted = m.min > 0 || m.max != SKV_REPEAT_MANY;
    *followed = !declares && (m.names || m.patterns || counted);
    if (declares && m.names) return give_up(s, "propertyNames");
    if (declares && m.patterns) return give_up(s, "patternProperties");
    if (declares && counted) return give_up(s, most);
    if (!*followed) return SKV_OK;
    if (m.min > 1) SKV_TRY(give_up(s, most));
    SKV_TRY(take_pattern(s, &m));
    SKV_TRY(compile_key(s, &m, &key));
    if (!m.values || json_is_true(m.values)) {
        value = skv_json_value(&s->rules);
    } else {
        SKV_TRY(skv_schema_compile(s, m.values, "additionalProperties", &value));
    }
    const bool may_be_empty = m.min == 0;
    skv_expr members = SKV_EXPR_NEVER, member = skv_json_member(&s->rules, key, value);
    if (m.max > 0) members = skv_json_list(&s->rules, member, 1, m.max);
    *out = m.min > m.max ? SKV_EXPR_NEVER
                         : skv_json_bracket(&s->rules, "{", members, may_be_empty, "}");
    return SKV_OK;
}
