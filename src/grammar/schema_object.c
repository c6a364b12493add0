/*
 * Objects and arrays of JSON schemas.
 *
 * Properties come in the order in which the schema declares them, optional ones may be left out,
 * and those that it does not declare, where allowed, come last: any order would take a state for
 * every set of properties that has been written. Names of undeclared properties are spelled
 * canonically, so that none can be a declared one in disguise.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "grammar/schema_impl.h"

/* A level of nesting that the depth limit counts. */
static skv_expr nesting_rule(skv_schema *s, const char *what, skv_expr expr)
{
    char name[SKV_RULE_NAME_MAX];
    (void)snprintf(name, sizeof name, "%s %.48s", what, s->path.size > 0 ? s->path.data : "/");
    uint32_t rule = skv_rule_declare(s->pool, name, strlen(name));
    skv_rule_define(s->pool, rule, expr);
    if (rule < s->pool->n_rules) s->pool->rules[rule].nests = true;
    return skv_expr_call(s->pool, rule);
}

/* ---- names that are not declared ---- */

static uint32_t code_at(const skv_text_ref *text, size_t at)
{
    uint32_t code;
    (void)skv_utf8_decode(text->text + at, text->n - at, &code);
    return code;
}

/*
 * The rest of a canonical string, and its quotation mark, that is none of the names; they agree
 * in their first `at` bytes, which have been written. Names are sorted.
 */
static skv_expr other_name(skv_schema *s, const skv_text_ref *names, size_t n, size_t at)
{
    skv_expr_list list = {.pool = s->pool};
    skv_code_set others = {0};
    bool is_name = n > 0 && names[0].n == at;
    if (!is_name) skv_expr_list_add(&list, skv_expr_text(s->pool, "\""));
    for (size_t i = is_name ? 1 : 0, end; i < n && s->pool->status == SKV_OK; i = end) {
        uint32_t code = code_at(&names[i], at);
        char bytes[4];
        skv_code_set one = {.at = &(skv_code_range){code, code}, .n = 1, .capacity = 1};
        for (end = i + 1; end < n && code_at(&names[end], at) == code; end++) continue;
        skv_code_set_add(&others, code, code);
        skv_expr rest = other_name(s, names + i, end - i, at + skv_utf8_encode(code, bytes));
        skv_expr_list_add(&list, skv_expr_seq2(s->pool, skv_json_char(s->pool, &one), rest));
    }
    skv_code_set_tidy(&others);
    skv_code_set_invert(&others);
    skv_expr other = skv_json_char(s->pool, &others);
    skv_expr_list_add(&list, skv_expr_seq2(s->pool, other, skv_json_string_rest(&s->rules)));
    skv_code_set_release(&others);
    return skv_expr_list_alt(&list);
}

/* ---- properties ---- */

typedef struct property {
    skv_expr member; /* "name": value */
    bool required;
} property;

typedef struct object {
    property *properties; /* owned */
    skv_text_ref *names;  /* owned; [n] */
    size_t n;
    skv_expr more; /* a member that is not declared; SKV_EXPR_NEVER: none allowed */
} object;

static bool is_required(const json_t *node, const char *name)
{
    const json_t *one;
    size_t i;
    json_array_foreach(json_object_get(node, "required"), i, one)
    {
        if (json_is_string(one) && strcmp(json_string_value(one), name) == 0) return true;
    }
    return false;
}

static skv_status add_property(skv_schema *s, object *o, const char *name, const json_t *schema,
                               bool required)
{
    skv_expr value = SKV_EXPR_NEVER;
    size_t before = s->path.size;
    (void)skv_buf_text(&s->path, "/properties");
    if (schema != NULL) {
        SKV_TRY(skv_schema_compile(s, schema, name, &value));
    } else {
        value = skv_json_value(&s->rules);
    }
    s->path.size = before;
    skv_expr key = skv_json_quoted(s->pool, name, strlen(name));
    o->names[o->n] = (skv_text_ref){name, strlen(name)};
    o->properties[o->n++] = (property){skv_json_member(&s->rules, key, value), required};
    return SKV_OK;
}

/* Declared properties, then those that are required without being declared. */
static skv_status add_properties(skv_schema *s, const json_t *node, object *o)
{
    const json_t *declared = json_object_get(node, "properties"), *schema, *one;
    const json_t *required = json_object_get(node, "required");
    const char *name;
    size_t i;
    if (declared != NULL && !json_is_object(declared)) {
        return skv_schema_fail(s, SKV_FORMAT, "\"properties\" is no object");
    }
    if (required != NULL && !json_is_array(required)) {
        return skv_schema_fail(s, SKV_FORMAT, "\"required\" is no list of names");
    }
    json_object_foreach((json_t *)(uintptr_t)declared, name, schema)
    {
        SKV_TRY(add_property(s, o, name, schema, is_required(node, name)));
    }
    json_array_foreach(required, i, one)
    {
        name = json_string_value(one);
        if (name == NULL) return skv_schema_fail(s, SKV_FORMAT, "\"required\" is no list of names");
        bool known = json_object_get(declared, name) != NULL;
        for (size_t k = 0; k < o->n && !known; k++) known = strcmp(o->names[k].text, name) == 0;
        schema = json_object_get(node, "additionalProperties");
        if (!known) SKV_TRY(add_property(s, o, name, schema, true));
    }
    return SKV_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const skv_text_ref *)a)->text, ((const skv_text_ref *)b)->text);
}

/* Without a word on others, an object with declared properties has no others. */
static skv_status add_more(skv_schema *s, const json_t *node, object *o)
{
    const json_t *schema = json_object_get(node, "additionalProperties");
    skv_expr value = SKV_EXPR_NEVER;
    o->more = SKV_EXPR_NEVER;
    if (schema == NULL && json_object_get(node, "properties") != NULL) return SKV_OK;
    if (schema == NULL || json_is_true(schema)) {
        value = skv_json_value(&s->rules);
    } else {
        SKV_TRY(skv_schema_compile(s, schema, "additionalProperties", &value));
    }
    if (value == SKV_EXPR_NEVER) return SKV_OK;
    if (o->n == 0) {
        o->more = skv_json_member(&s->rules, skv_json_string(&s->rules), value);
        return SKV_OK;
    }
    qsort(o->names, o->n, sizeof *o->names, by_name);
    skv_expr key =
        skv_expr_seq2(s->pool, skv_expr_text(s->pool, "\""), other_name(s, o->names, o->n, 0));
    o->more = skv_json_member(&s->rules, key, value);
    return SKV_OK;
}

/* ---- members in order ---- */

/* What may follow when members stand already: each with its comma. */
static skv_expr later_member(skv_schema *s, const property *p)
{
    skv_expr one = skv_json_after_comma(&s->rules, p->member);
    return p->required ? one : skv_expr_optional(s->pool, one);
}

static skv_expr later_more(skv_schema *s, const object *o)
{
    return skv_expr_repeat(s->pool, skv_json_after_comma(&s->rules, o->more), 0, SKV_REPEAT_MANY);
}

/* All members where the first one must be there. */
static skv_expr plain_members(skv_schema *s, const object *o)
{
    skv_expr_list list = {.pool = s->pool};
    skv_expr_list_add(&list, o->properties[0].member);
    for (size_t i = 1; i < o->n; i++) {
        skv_expr_list_add(&list, later_member(s, &o->properties[i]));
    }
    skv_expr_list_add(&list, later_more(s, o));
    return skv_expr_list_seq(&list);
}

/*
 * All members where any of the first ones may be missing: which one comes first decides what may
 * still follow, and what follows the i-th is a rule of its own, so that it is not written again
 * for every choice of a first one.
 */
static skv_expr skipping_members(skv_schema *s, const object *o, bool *may_be_empty)
{
    skv_expr_list list = {.pool = s->pool};
    size_t n_first = 0;
    while (n_first < o->n && !o->properties[n_first].required) n_first++;
    *may_be_empty = n_first == o->n;
    if (n_first < o->n) n_first++;
    skv_expr tail = later_more(s, o);
    for (size_t i = o->n; i-- > 0;) {
        if (i < n_first) {
            uint32_t rule = skv_rule_declare(s->pool, "members", 7);
            skv_rule_define(s->pool, rule, tail);
            tail = skv_expr_call(s->pool, rule);
            skv_expr_list_add(&list, skv_expr_seq2(s->pool, o->properties[i].member, tail));
        }
        tail = skv_expr_seq2(s->pool, later_member(s, &o->properties[i]), tail);
    }
    if (*may_be_empty && o->more != SKV_EXPR_NEVER) {
        skv_expr_list_add(&list, skv_expr_seq2(s->pool, o->more, later_more(s, o)));
    }
    return skv_expr_list_alt(&list);
}

static skv_expr join_members(skv_schema *s, const object *o)
{
    bool may_be_empty = false;
    skv_expr members = o->n > 0 && o->properties[0].required
                           ? plain_members(s, o)
                           : skipping_members(s, o, &may_be_empty);
    return skv_json_bracket(&s->rules, "{", members, may_be_empty, "}");
}

skv_status skv_schema_object(skv_schema *s, const json_t *node, skv_expr *out)
{
    size_t most = json_object_size(json_object_get(node, "properties")) +
                  json_array_size(json_object_get(node, "required"));
    object o = {.properties = skv_alloc(most, sizeof *o.properties),
                .names = skv_alloc(most, sizeof *o.names)};
    skv_status status = o.properties != NULL && o.names != NULL
                            ? add_properties(s, node, &o)
                            : skv_schema_fail(s, SKV_MEMORY, "no memory");
    if (status == SKV_OK) status = add_more(s, node, &o);
    if (status == SKV_OK) *out = nesting_rule(s, "object", join_members(s, &o));
    skv_free(o.properties);
    skv_free(o.names);
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
        if (a->first != NULL) return skv_schema_fail(s, SKV_FORMAT, "\"items\" is no schema");
        a->first = items;
        a->rest = json_object_get(node, "additionalItems");
    }
    if (a->first != NULL && !json_is_array(a->first)) {
        return skv_schema_fail(s, SKV_FORMAT, "\"prefixItems\" is no list of schemas");
    }
    SKV_TRY(skv_schema_count(s, node, "minItems", 0, &a->min));
    return skv_schema_count(s, node, "maxItems", SKV_REPEAT_MANY, &a->max);
}

/* The elements from position n_first on, at least one. */
static skv_expr rest_items(skv_schema *s, const array *a, skv_expr item, uint32_t n_first)
{
    uint32_t min = a->min > n_first ? a->min - n_first : 0;
    uint32_t max = a->max == SKV_REPEAT_MANY ? a->max : a->max - n_first;
    if (n_first == 0) return skv_json_list(&s->rules, item, min, max);
    return skv_expr_repeat(s->pool, skv_json_after_comma(&s->rules, item), min, max);
}

/* From the last position to the first: what may follow each. */
static skv_status compile_items(skv_schema *s, const array *a, skv_expr *out)
{
    uint32_t n_first = (uint32_t)json_array_size(a->first);
    if (n_first > a->max) n_first = a->max;
    skv_expr item = SKV_EXPR_NEVER, tail = SKV_EXPR_EMPTY;
    if (a->rest != NULL) {
        SKV_TRY(skv_schema_compile(s, a->rest, "items", &item));
    } else if (a->first == NULL) {
        item = skv_json_value(&s->rules);
    }
    if (n_first < a->max) tail = rest_items(s, a, item, n_first);
    for (uint32_t i = n_first; i-- > 0;) {
        SKV_TRY(skv_schema_compile(s, json_array_get(a->first, i), "prefixItems", &item));
        if (i > 0) item = skv_json_after_comma(&s->rules, item);
        tail = skv_expr_seq2(s->pool, item, tail);
        if (i > 0 && i >= a->min) tail = skv_expr_optional(s->pool, tail);
    }
    *out = tail;
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
    if (a.max > 0) SKV_TRY(compile_items(s, &a, &items));
    *out = nesting_rule(s, "array", skv_json_bracket(&s->rules, "[", items, a.min == 0, "]"));
    return SKV_OK;
}
