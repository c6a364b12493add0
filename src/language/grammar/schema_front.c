/*
 * JSON schemas to rules. A schema becomes the expression of every value that it allows, spelled as
 * in json_rules.h; keywords that an expression cannot represent are refused by name.
 *
 * oneOf is taken as anyOf. Schemas that are joined (allOf, keywords beside $ref and anyOf) become
 * one new schema first (schema_join.c).
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/budget_mem.h"
#include "base/size.h"
#include "grammar/grammar_front.h"
#include "grammar/schema_impl.h"
#include "skv/grammar.h"

enum {
    NODE_WORK = 32, /* units for one schema */
    KEY_WORK = 16,  /* and for each of its keywords */
    PATH_MAX_BYTES = 1 << 14,
    PATHS_MAX = 1 << 30,
    REF_SHOWN = 256 /* bytes of a $ref in a path */
};

/* ---- rules that are filled later ---- */

/* Queues the definition of a rule, with the path of its schema. */
static skv_status add_task(skv_schema *s, skv_schema_task task, const char *path, size_t n)
{
    skv_budget *budget = s->exprs->budget;
    if (!skv_budget_grow(budget, &s->tasks, &s->tasks_capacity, s->n_tasks + 1, sizeof *s->tasks,
                         SKV_RULES_MAX + 1) ||
        !skv_budget_grow(budget, &s->paths, &s->paths_capacity, s->n_paths + n, 1, PATHS_MAX)) {
        SKV_TRY(skv_exprs_check(s->exprs, s->err));
        return skv_schema_no_memory(s);
    }
    if (n > 0) memcpy(s->paths + s->n_paths, path, n);
    task.path = s->n_paths;
    task.n_path = n;
    s->n_paths += n;
    s->tasks[s->n_tasks++] = task;
    return SKV_OK;
}

/* A level of nesting that the depth limit of matching counts too. */
static skv_status compile_nested(skv_schema *s, const json_t *node, skv_schema_part part,
                                 skv_expr *out)
{
    char name[SKV_RULE_NAME_MAX];
    int n = snprintf(name, sizeof name, "%s %.48s", part == SKV_SCHEMA_OBJECT ? "object" : "array",
                     s->path.size > 0 ? s->path.data : "/");
    uint32_t rule = skv_rule_declare(s->exprs, name, (size_t)n);
    SKV_TRY(skv_exprs_check(s->exprs, s->err));
    s->exprs->rules[rule].nests = true;
    *out = skv_expr_call(s->exprs, rule);
    const skv_schema_task task = {
        .node = node, .part = part, .rule = rule, .depth = s->exprs->budget->depth - s->depth};
    return add_task(s, task, s->path.data, s->path.size);
}

/* A schema that is the target of a reference has one rule, so it may refer to itself. `ref` is the
 * reference. Its depth starts from zero: there are only as many such rules as the text has
 * references. */
static skv_status compile_as_rule(skv_schema *s, const json_t *node, const char *ref, skv_expr *out)
{
    size_t n = s->refs.n, i;
    if (!skv_json_set_add(&s->refs, node, &i) ||
        !skv_budget_grow(s->exprs->budget, &s->ref_rules, &s->ref_rules_capacity, i + 1,
                         sizeof *s->ref_rules, SKV_RULES_MAX + 1)) {
        return skv_schema_no_memory(s);
    }
    if (i == n) {
        size_t n_ref = strlen(ref);
        s->ref_rules[i] = skv_rule_declare(s->exprs, ref, n_ref);
        SKV_TRY(skv_exprs_check(s->exprs, s->err));
        const skv_schema_task task = {
            .node = node, .part = SKV_SCHEMA_ALL, .rule = s->ref_rules[i]};
        SKV_TRY(add_task(s, task, ref + 1, skv_min_size(n_ref - 1, REF_SHOWN)));
    }
    *out = skv_expr_call(s->exprs, s->ref_rules[i]);
    return SKV_OK;
}

/* Whether a schema has keywords besides one and annotations. */
static bool says_more_than(const json_t *node, const char *keyword)
{
    const char *key;
    const json_t *value;
    json_object_foreach((json_t *)(uintptr_t)node, key, value)
    {
        if (strcmp(key, keyword) != 0 && skv_schema_keyword(key) == SKV_KEYWORD_USED) return true;
    }
    return false;
}

/* A $ref alone is its target's rule. With keywords beside it, it has a rule of its own. */
static skv_status compile_ref(skv_schema *s, const json_t *node, skv_expr *out)
{
    const json_t *target = NULL;
    const char *ref = json_string_value(json_object_get(node, "$ref"));
    SKV_TRY(skv_schema_resolve(s, node, &target));
    return compile_as_rule(s, says_more_than(node, "$ref") ? node : target, ref, out);
}

/* ---- choices and conjunctions ---- */

static skv_status compile_choice(skv_schema *s, const json_t *node, const char *key, skv_expr *out)
{
    const json_t *branches = json_object_get(node, key), *branch;
    size_t i;
    if (json_array_size(branches) == 0) {
        return skv_schema_fail(s, SKV_FORMAT, "\"%s\" is no list of schemas", key);
    }
    bool more = says_more_than(node, key);
    skv_expr_list list = {.exprs = s->exprs};
    skv_status status = SKV_OK;
    json_array_foreach(branches, i, branch)
    {
        skv_expr one = SKV_EXPR_NEVER;
        const json_t *joined = branch;
        if (more) status = skv_schema_join(s, node, key, branch, &joined);
        if (status == SKV_OK) status = skv_schema_compile(s, joined, key, &one);
        if (status != SKV_OK) break;
        skv_expr_list_add(&list, one);
    }
    *out = skv_expr_list_alt(&list);
    return status;
}

static skv_status compile_joined(skv_schema *s, const json_t *node, skv_expr *out)
{
    const json_t *joined = NULL;
    SKV_TRY(skv_schema_join(s, node, NULL, NULL, &joined));
    return skv_schema_compile(s, joined, NULL, out);
}

/* ---- values ---- */

unsigned skv_schema_types_of(const json_t *value)
{
    const unsigned number = 1u << SKV_TYPE_NUMBER, integer = 1u << SKV_TYPE_INTEGER | number;
    switch (json_typeof(value)) {
    case JSON_OBJECT: return 1u << SKV_TYPE_OBJECT;
    case JSON_ARRAY: return 1u << SKV_TYPE_ARRAY;
    case JSON_STRING: return 1u << SKV_TYPE_STRING;
    case JSON_INTEGER: return integer;
    case JSON_REAL:
        return trunc(json_real_value(value)) == json_real_value(value) ? integer : number;
    case JSON_TRUE:
    case JSON_FALSE: return 1u << SKV_TYPE_BOOLEAN;
    case JSON_NULL: return 1u << SKV_TYPE_NULL;
    }
    return 0;
}

skv_status skv_schema_allowed_types(skv_schema *s, const json_t *node, unsigned *out)
{
    const json_t *given = json_object_get(node, "type");
    *out = (1u << SKV_N_TYPES) - 1;
    if (given) SKV_TRY(skv_schema_types(s, given, out));
    if (json_is_true(json_object_get(node, "nullable"))) *out |= 1u << SKV_TYPE_NULL;
    return SKV_OK;
}

/* enum and const: all other keywords must concern types, or none of the values. */
static skv_status compile_values(skv_schema *s, const json_t *node, skv_expr *out)
{
    const json_t *only = json_object_get(node, "const"), *list = json_object_get(node, "enum");
    const json_t *value;
    const char *key;
    size_t i;
    unsigned types;
    SKV_TRY(skv_schema_allowed_types(s, node, &types));
    json_object_foreach((json_t *)(uintptr_t)node, key, value)
    {
        if (skv_schema_keyword_type(key) && !s->loose) return skv_schema_refuse(s, key);
    }
    skv_expr_list choices = {.exprs = s->exprs};
    if (list && json_array_size(list) == 0) {
        return skv_schema_fail(s, SKV_FORMAT, "\"enum\" is no list of values");
    }
    if (!list && (types & skv_schema_types_of(only))) {
        skv_expr_list_add(&choices, skv_schema_literal(s, only));
    }
    json_array_foreach(list, i, value)
    {
        if (!skv_expr_work(s->exprs, 1)) break;
        if (!(types & skv_schema_types_of(value))) continue;
        if (only && !skv_json_same(s->exprs->budget, only, value)) continue;
        skv_expr_list_add(&choices, skv_schema_literal(s, value));
    }
    *out = skv_expr_list_alt(&choices);
    return skv_exprs_check(s->exprs, s->err);
}

static skv_status compile_type(skv_schema *s, const json_t *node, skv_schema_type type,
                               skv_expr *out)
{
    switch (type) {
    case SKV_TYPE_OBJECT: return compile_nested(s, node, SKV_SCHEMA_OBJECT, out);
    case SKV_TYPE_ARRAY: return compile_nested(s, node, SKV_SCHEMA_ARRAY, out);
    case SKV_TYPE_STRING: return skv_schema_string(s, node, out);
    case SKV_TYPE_NUMBER: return skv_schema_number(s, node, false, out);
    case SKV_TYPE_INTEGER: return skv_schema_number(s, node, true, out);
    case SKV_TYPE_BOOLEAN:
        *out = skv_expr_alt2(s->exprs, skv_expr_text(s->exprs, "true"),
                             skv_expr_text(s->exprs, "false"));
        return SKV_OK;
    case SKV_TYPE_NULL:
    default: *out = skv_expr_text(s->exprs, "null"); return SKV_OK;
    }
}

/* A schema without a type that speaks of one type only is taken to mean that type. */
static const char *implied_type(const json_t *node)
{
    const char *key, *type = NULL;
    const json_t *value;
    json_object_foreach((json_t *)(uintptr_t)node, key, value)
    {
        const char *of = skv_schema_keyword_type(key);
        if (!of) continue;
        if (type && strcmp(type, of) != 0) return NULL;
        type = of;
    }
    return type;
}

static skv_status compile_types(skv_schema *s, const json_t *node, skv_expr *out)
{
    const bool given = json_object_get(node, "type");
    const char *implied = given ? NULL : implied_type(node);
    skv_expr choices[SKV_N_TYPES];
    size_t n = 0;
    unsigned types;
    SKV_TRY(skv_schema_allowed_types(s, node, &types));
    if (!given && !implied && !says_more_than(node, "nullable")) {
        *out = skv_json_value(&s->rules);
        return SKV_OK;
    }
    for (int i = 0; i < SKV_N_TYPES; i++) {
        const skv_schema_type type = (skv_schema_type)i;
        bool wanted = types >> type & 1;
        if (implied) {
            wanted = strcmp(implied, skv_schema_type_name(type)) == 0 ||
                     (type == SKV_TYPE_NULL && json_is_true(json_object_get(node, "nullable")));
        }
        /* An integer is a number: it needs no choice of its own beside it. */
        bool within = type == SKV_TYPE_INTEGER && !implied && (types >> SKV_TYPE_NUMBER & 1);
        if (wanted && !within) SKV_TRY(compile_type(s, node, type, &choices[n++]));
    }
    *out = skv_expr_alt(s->exprs, choices, n);
    return SKV_OK;
}

/* ---- schemas ---- */

static skv_status check_keywords(skv_schema *s, const json_t *node)
{
    const char *key;
    const json_t *value;
    if (s->loose) return SKV_OK;
    json_object_foreach((json_t *)(uintptr_t)node, key, value)
    {
        if (skv_schema_keyword(key) == SKV_KEYWORD_UNKNOWN) {
            return skv_schema_fail(s, SKV_UNSUPPORTED, "the keyword \"%.100s\" is not supported",
                                   key);
        }
    }
    return SKV_OK;
}

static skv_status compile_node(skv_schema *s, const json_t *node, skv_expr *out)
{
    if (json_is_boolean(node)) {
        *out = json_is_true(node) ? skv_json_value(&s->rules) : SKV_EXPR_NEVER;
        return SKV_OK;
    }
    if (!json_is_object(node)) return skv_schema_fail(s, SKV_FORMAT, "no schema");
    SKV_TRY(skv_schema_count(s, NODE_WORK + KEY_WORK * (uint64_t)json_object_size(node), 0));
    SKV_TRY(check_keywords(s, node));
    SKV_TRY(skv_exprs_check(s->exprs, s->err));
    if (json_object_get(node, "$ref")) return compile_ref(s, node, out);
    if (json_object_get(node, "allOf")) return compile_joined(s, node, out);
    if (json_object_get(node, "anyOf")) return compile_choice(s, node, "anyOf", out);
    if (json_object_get(node, "oneOf")) return compile_choice(s, node, "oneOf", out);
    if (json_object_get(node, "enum") || json_object_get(node, "const")) {
        return compile_values(s, node, out);
    }
    return compile_types(s, node, out);
}

skv_status skv_schema_compile(skv_schema *s, const json_t *node, const char *key, skv_expr *out)
{
    skv_budget *budget = s->exprs->budget;
    size_t before = s->path.size;
    if (!skv_budget_enter(budget)) return skv_budget_check(budget, "json schema", s->err);
    if (key) (void)skv_buf_printf(&s->path, "/%.60s", key);
    skv_status status = compile_node(s, node, out);
    s->path.size = before;
    if (s->path.data) s->path.data[before] = '\0';
    skv_budget_leave(budget);
    return status;
}

/* ---- the whole ---- */

static skv_status fill_rule(skv_schema *s, const skv_schema_task *task)
{
    const json_t *node = task->node;
    skv_expr expr = SKV_EXPR_NEVER;
    switch (task->part) {
    case SKV_SCHEMA_ALL:
        if (json_object_get(node, "$ref") && says_more_than(node, "$ref")) {
            SKV_TRY(compile_joined(s, node, &expr));
        } else {
            SKV_TRY(skv_schema_compile(s, node, NULL, &expr));
        }
        break;
    case SKV_SCHEMA_OBJECT: SKV_TRY(skv_schema_object(s, node, &expr)); break;
    case SKV_SCHEMA_ARRAY: SKV_TRY(skv_schema_array(s, node, &expr)); break;
    }
    skv_rule_define(s->exprs, task->rule, expr);
    return SKV_OK;
}

static skv_status fill_rules(skv_schema *s)
{
    for (size_t i = 0; i < s->n_tasks; i++) {
        const skv_schema_task task = s->tasks[i];
        skv_buf_clear(&s->path);
        if (task.n_path > 0) (void)skv_buf_append(&s->path, s->paths + task.path, task.n_path);
        s->exprs->budget->depth = s->depth + task.depth;
        skv_status status = fill_rule(s, &task);
        s->exprs->budget->depth = s->depth;
        SKV_TRY(status);
    }
    return SKV_OK;
}

static skv_status read_root(skv_schema *s)
{
    uint32_t root = skv_rule_declare(s->exprs, "#", 1);
    skv_expr expr = SKV_EXPR_NEVER;
    SKV_TRY(compile_as_rule(s, s->root, "#", &expr));
    skv_rule_define(s->exprs, root, expr);
    return fill_rules(s);
}

/* A joined schema may hold parts of those that were made before it, so the last one goes first:
 * then no release goes down through many. */
static void release(skv_schema *s)
{
    skv_budget *budget = s->exprs->budget;
    while (s->n_made > 0) json_decref(s->made[--s->n_made]);
    skv_budget_free(budget, s->made, s->made_capacity, sizeof *s->made);
    skv_budget_free(budget, s->tasks, s->tasks_capacity, sizeof *s->tasks);
    skv_budget_free(budget, s->paths, s->paths_capacity, 1);
    skv_budget_free(budget, s->ref_rules, s->ref_rules_capacity, sizeof *s->ref_rules);
    skv_budget_free(budget, s->strings, s->strings_capacity, sizeof *s->strings);
    skv_json_set_release(&s->refs);
    skv_buf_release(&s->path);
    skv_buf_release(&s->key);
    skv_budget_give(budget, s->json_bytes);
}

skv_status skv_schema_read_json(skv_exprs *exprs, const json_t *json, bool loose, skv_error *err)
{
    skv_schema s = {.exprs = exprs,
                    .rules = {.exprs = exprs},
                    .loose = loose,
                    .root = json,
                    .refs = {.budget = exprs->budget, .same = true},
                    .depth = exprs->budget->depth,
                    .err = err};
    skv_buf_init(&s.path, PATH_MAX_BYTES);
    skv_buf_init_within(&s.key, SKV_GRAMMAR_TEXT_MAX, exprs->budget);
    skv_status status = read_root(&s);
    release(&s);
    return status;
}

skv_status skv_schema_read(skv_exprs *exprs, const char *text, size_t n, skv_error *err)
{
    skv_grammar_json json;
    SKV_TRY(skv_grammar_json_load(exprs->budget, text, n, "json schema", &json, err));
    skv_status status = skv_schema_read_json(exprs, json.json, false, err);
    skv_grammar_json_release(exprs->budget, &json);
    return status;
}
