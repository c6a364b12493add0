/*
 * JSON schemas to rules. A schema becomes the expression of every value that it allows, spelled
 * as json_rules.h says; what an expression cannot say is refused by the keyword's name.
 *
 * oneOf is taken as anyOf. Schemas that are joined (allOf, keywords beside $ref and anyOf) become
 * one new schema first (schema_join.c).
 */
#include <string.h>

#include "base/mem.h"
#include "format/json_doc.h"
#include "grammar/grammar_impl.h"
#include "grammar/regex_front.h"
#include "grammar/schema_impl.h"

static const char *const types[] = {"object",  "array",   "string", "number",
                                    "integer", "boolean", "null"};
enum { N_TYPES = sizeof types / sizeof types[0] };

/* ---- references ---- */

/* One step of a JSON pointer: "~1" is '/', "~0" is '~', "%XX" a byte. */
static size_t unescape(const char *text, size_t n, char *out, size_t max)
{
    size_t n_out = 0;
    for (size_t i = 0; i < n && n_out < max; i++) {
        uint32_t code;
        size_t at = i + 1;
        char c = text[i];
        if (c == '~' && at < n && (text[at] == '0' || text[at] == '1')) {
            c = text[at] == '0' ? '~' : '/';
            i++;
        } else if (c == '%' && skv_read_hex(text, n, &at, 2, &code)) {
            c = (char)code;
            i += 2;
        }
        out[n_out++] = c;
    }
    return n_out;
}

static const json_t *step_into(const json_t *node, const char *key, size_t n)
{
    if (json_is_object(node)) return json_object_getn(node, key, n);
    size_t i = 0;
    if (!json_is_array(node) || n == 0 || n > 6) return NULL;
    for (size_t k = 0; k < n; k++) {
        if (key[k] < '0' || key[k] > '9') return NULL;
        i = i * 10 + (size_t)(key[k] - '0');
    }
    return json_array_get(node, i);
}

skv_status skv_schema_resolve(skv_schema *s, const json_t *referrer, const json_t **out)
{
    const json_t *node = s->root, *text = json_object_get(referrer, "$ref");
    const char *ref = json_string_value(text);
    if (ref == NULL) return skv_schema_fail(s, SKV_FORMAT, "\"$ref\" is no text");
    if (ref[0] != '#' || (ref[1] != '\0' && ref[1] != '/')) {
        return skv_schema_fail(s, SKV_UNSUPPORTED,
                               "\"$ref\" to \"%.100s\": only \"#/...\" is supported", ref);
    }
    for (const char *at = ref + 1; *at == '/' && node != NULL;) {
        char key[256];
        size_t n = strcspn(++at, "/");
        node = n <= sizeof key ? step_into(node, key, unescape(at, n, key, sizeof key)) : NULL;
        at += n;
    }
    if (node == NULL) {
        return skv_schema_fail(s, SKV_FORMAT, "\"$ref\" to \"%.100s\", which is not there", ref);
    }
    *out = node;
    return SKV_OK;
}

static bool find_rule(const skv_schema *s, const json_t *node, skv_expr *out)
{
    for (size_t i = 0; i < s->n_refs; i++) {
        if (s->refs[i].node != node) continue;
        *out = skv_expr_call(s->pool, s->refs[i].rule);
        return true;
    }
    return false;
}

/* A schema that is referred to has a rule, remembered under `node` before it is filled; so it may
 * refer to itself. */
static skv_status compile_as_rule(skv_schema *s, const json_t *node, const json_t *schema,
                                  const char *name, skv_expr *out)
{
    if (s->n_refs == s->refs_capacity) {
        size_t grown = s->refs_capacity == 0 ? 16 : 2 * s->refs_capacity;
        skv_schema_ref *refs =
            grown > 2 * (size_t)SKV_RULES_MAX ? NULL : skv_realloc(s->refs, grown, sizeof *refs);
        if (refs == NULL) return skv_schema_fail(s, SKV_MEMORY, "no memory");
        s->refs = refs;
        s->refs_capacity = grown;
    }
    uint32_t rule = skv_rule_declare(s->pool, name, strlen(name));
    s->refs[s->n_refs++] = (skv_schema_ref){node, rule};
    skv_expr expr = SKV_EXPR_NEVER;
    SKV_TRY(skv_schema_compile(s, schema, NULL, &expr));
    skv_rule_define(s->pool, rule, expr);
    *out = skv_expr_call(s->pool, rule);
    return SKV_OK;
}

/* Whether a schema says anything besides one keyword and notes. */
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

static skv_status compile_ref(skv_schema *s, const json_t *node, skv_expr *out)
{
    const json_t *target = NULL, *rest = NULL, *joined = NULL;
    bool plain = !says_more_than(node, "$ref");
    SKV_TRY(skv_schema_resolve(s, node, &target));
    if (find_rule(s, plain ? target : node, out)) return SKV_OK;
    const char *name = json_string_value(json_object_get(node, "$ref"));
    if (plain) return compile_as_rule(s, target, target, name, out);
    SKV_TRY(skv_schema_without(s, node, "$ref", &rest));
    SKV_TRY(skv_schema_join(s, target, rest, &joined));
    return compile_as_rule(s, node, joined, name, out);
}

/* ---- choices and conjunctions ---- */

static skv_status compile_choice(skv_schema *s, const json_t *node, const char *key, skv_expr *out)
{
    const json_t *branches = json_object_get(node, key), *branch, *rest = NULL;
    size_t i;
    if (json_array_size(branches) == 0) {
        return skv_schema_fail(s, SKV_FORMAT, "\"%s\" is no list of schemas", key);
    }
    if (says_more_than(node, key)) SKV_TRY(skv_schema_without(s, node, key, &rest));
    skv_expr_list list = {.pool = s->pool};
    skv_status status = SKV_OK;
    json_array_foreach(branches, i, branch)
    {
        skv_expr one = SKV_EXPR_NEVER;
        const json_t *joined = branch;
        if (rest != NULL) status = skv_schema_join(s, rest, branch, &joined);
        if (status == SKV_OK) status = skv_schema_compile(s, joined, key, &one);
        if (status != SKV_OK) break;
        skv_expr_list_add(&list, one);
    }
    *out = skv_expr_list_alt(&list);
    return status;
}

static skv_status compile_all_of(skv_schema *s, const json_t *node, skv_expr *out)
{
    const json_t *parts = json_object_get(node, "allOf"), *part, *joined;
    size_t i;
    if (json_array_size(parts) == 0) {
        return skv_schema_fail(s, SKV_FORMAT, "\"allOf\" is no list of schemas");
    }
    SKV_TRY(skv_schema_without(s, node, "allOf", &joined));
    json_array_foreach(parts, i, part)
    {
        SKV_TRY(skv_schema_join(s, joined, part, &joined));
    }
    return skv_schema_compile(s, joined, NULL, out);
}

/* ---- values ---- */

static const char *type_of_value(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT: return "object";
    case JSON_ARRAY: return "array";
    case JSON_STRING: return "string";
    case JSON_INTEGER: return "integer";
    case JSON_REAL:
        return json_real_value(value) == (double)(long long)json_real_value(value) ? "integer"
                                                                                   : "number";
    case JSON_TRUE:
    case JSON_FALSE: return "boolean";
    case JSON_NULL: return "null";
    }
    return "";
}

static bool type_allows(const json_t *node, const json_t *value)
{
    const char *type = type_of_value(value);
    if (json_object_get(node, "type") == NULL || skv_schema_has_type(node, type)) return true;
    if (strcmp(type, "null") == 0 && json_is_true(json_object_get(node, "nullable"))) return true;
    return strcmp(type, "integer") == 0 && skv_schema_has_type(node, "number");
}

/* enum and const: what else the schema says must be about types, or about none of the values. */
static skv_status compile_values(skv_schema *s, const json_t *node, skv_expr *out)
{
    const json_t *only = json_object_get(node, "const"), *list = json_object_get(node, "enum");
    const json_t *value;
    const char *key;
    size_t i;
    json_object_foreach((json_t *)(uintptr_t)node, key, value)
    {
        if (skv_schema_keyword_type(key) != NULL) return skv_schema_refuse(s, key);
    }
    skv_expr_list choices = {.pool = s->pool};
    if (list != NULL && json_array_size(list) == 0) {
        return skv_schema_fail(s, SKV_FORMAT, "\"enum\" is no list of values");
    }
    if (list == NULL) skv_expr_list_add(&choices, skv_schema_literal(s, only));
    json_array_foreach(list, i, value)
    {
        if (!type_allows(node, value) || (only != NULL && !json_equal(only, value))) continue;
        skv_expr_list_add(&choices, skv_schema_literal(s, value));
    }
    *out = skv_expr_list_alt(&choices);
    return SKV_OK;
}

static skv_status compile_type(skv_schema *s, const json_t *node, const char *type, skv_expr *out)
{
    if (strcmp(type, "object") == 0) return skv_schema_object(s, node, out);
    if (strcmp(type, "array") == 0) return skv_schema_array(s, node, out);
    if (strcmp(type, "string") == 0) return skv_schema_string(s, node, out);
    if (strcmp(type, "number") == 0) return skv_schema_number(s, node, false, out);
    if (strcmp(type, "integer") == 0) return skv_schema_number(s, node, true, out);
    if (strcmp(type, "null") == 0) {
        *out = skv_expr_text(s->pool, "null");
        return SKV_OK;
    }
    *out = skv_expr_alt2(s->pool, skv_expr_text(s->pool, "true"), skv_expr_text(s->pool, "false"));
    return SKV_OK;
}

static skv_status check_types(skv_schema *s, const json_t *node)
{
    const json_t *given = json_object_get(node, "type"), *one;
    size_t i, n = json_is_string(given) ? 1 : json_array_size(given), n_known = 0;
    for (size_t t = 0; t < N_TYPES; t++) n_known += skv_schema_has_type(node, types[t]);
    if (given == NULL || (n > 0 && n == n_known)) return SKV_OK;
    json_array_foreach(given, i, one)
    {
        if (!json_is_string(one)) break;
    }
    return skv_schema_fail(s, SKV_FORMAT,
                           "\"type\" is none of object, array, string, number, "
                           "integer, boolean, null, nor a list of some");
}

/* A schema without a type that speaks of one type only is taken to mean that type. */
static const char *implied_type(const json_t *node)
{
    const char *key, *type = NULL;
    const json_t *value;
    json_object_foreach((json_t *)(uintptr_t)node, key, value)
    {
        const char *of = skv_schema_keyword_type(key);
        if (of == NULL) continue;
        if (type != NULL && strcmp(type, of) != 0) return NULL;
        type = of;
    }
    return type;
}

static skv_status compile_types(skv_schema *s, const json_t *node, skv_expr *out)
{
    const json_t *given = json_object_get(node, "type");
    const char *implied = given == NULL ? implied_type(node) : NULL;
    skv_expr choices[N_TYPES + 1];
    size_t n = 0;
    SKV_TRY(check_types(s, node));
    bool any = given == NULL && implied == NULL;
    if (any && !says_more_than(node, "nullable")) {
        *out = skv_json_value(&s->rules);
        return SKV_OK;
    }
    for (size_t t = 0; t < N_TYPES; t++) {
        bool wanted = implied != NULL ? strcmp(implied, types[t]) == 0
                                      : any || skv_schema_has_type(node, types[t]);
        /* An integer is a number: it needs no choice of its own beside it. */
        bool within =
            strcmp(types[t], "integer") == 0 && (any || skv_schema_has_type(node, "number"));
        if (wanted && !within) SKV_TRY(compile_type(s, node, types[t], &choices[n++]));
    }
    if (json_is_true(json_object_get(node, "nullable")) && !skv_schema_has_type(node, "null")) {
        choices[n++] = skv_expr_text(s->pool, "null");
    }
    *out = skv_expr_alt(s->pool, choices, n);
    return SKV_OK;
}

/* ---- schemas ---- */

static skv_status check_keywords(skv_schema *s, const json_t *node)
{
    const char *key;
    const json_t *value;
    json_object_foreach((json_t *)(uintptr_t)node, key, value)
    {
        /* False says that something is not asked for. */
        bool harmless = strcmp(key, "uniqueItems") == 0 && json_is_false(value);
        if (skv_schema_keyword(key) == SKV_KEYWORD_UNKNOWN && !harmless) {
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
    SKV_TRY(check_keywords(s, node));
    SKV_TRY(skv_expr_pool_check(s->pool, s->err));
    if (json_object_get(node, "$ref") != NULL) return compile_ref(s, node, out);
    if (json_object_get(node, "allOf") != NULL) return compile_all_of(s, node, out);
    if (json_object_get(node, "anyOf") != NULL) return compile_choice(s, node, "anyOf", out);
    if (json_object_get(node, "oneOf") != NULL) return compile_choice(s, node, "oneOf", out);
    if (json_object_get(node, "enum") != NULL || json_object_get(node, "const") != NULL) {
        return compile_values(s, node, out);
    }
    return compile_types(s, node, out);
}

skv_status skv_schema_compile(skv_schema *s, const json_t *node, const char *key, skv_expr *out)
{
    size_t before = s->path.size;
    if (s->depth == SKV_SCHEMA_DEPTH_MAX) {
        return skv_schema_fail(s, SKV_RANGE, "schemas nested deeper than %d",
                               (int)SKV_SCHEMA_DEPTH_MAX);
    }
    if (key != NULL) (void)skv_buf_printf(&s->path, "/%.60s", key);
    s->depth++;
    SKV_TRY(compile_node(s, node, out));
    s->depth--;
    s->path.size = before;
    if (s->path.data != NULL) s->path.data[before] = '\0';
    return SKV_OK;
}

static skv_status read_root(skv_schema *s)
{
    uint32_t root = skv_rule_declare(s->pool, "#", 1);
    skv_expr expr = SKV_EXPR_NEVER;
    s->made = json_array();
    if (s->made == NULL) return skv_schema_fail(s, SKV_MEMORY, "no memory");
    SKV_TRY(compile_as_rule(s, s->root, s->root, "#", &expr));
    skv_rule_define(s->pool, root, expr);
    return SKV_OK;
}

skv_status skv_schema_read(skv_expr_pool *pool, const char *text, size_t n, skv_error *err)
{
    json_t *json = NULL;
    SKV_TRY(skv_json_load(text, n, SKV_GRAMMAR_TEXT_MAX, "json schema", &json, err));
    skv_schema s = {.pool = pool, .rules = {.pool = pool}, .root = json, .err = err};
    skv_buf_init(&s.path, 1 << 14);
    skv_status status = read_root(&s);
    json_decref(s.made);
    json_decref(json);
    skv_free(s.refs);
    skv_buf_release(&s.path);
    return status;
}

/* ---- choices of texts ---- */

skv_status skv_choice_read(skv_expr_pool *pool, const char *text, size_t n, skv_error *err)
{
    json_t *json = NULL;
    const json_t *one;
    size_t i;
    SKV_TRY(skv_json_load(text, n, SKV_GRAMMAR_TEXT_MAX, "choice", &json, err));
    size_t n_texts = json_array_size(json);
    skv_text_ref *texts = n_texts > 0 ? skv_alloc(n_texts, sizeof *texts) : NULL;
    skv_status status = SKV_OK;
    if (texts == NULL) status = skv_fail(err, SKV_FORMAT, "choice: no array of texts");
    json_array_foreach(json, i, one)
    {
        if (status != SKV_OK) break;
        if (!json_is_string(one)) {
            status = skv_fail(err, SKV_FORMAT, "choice: element %zu is no text", i);
        } else {
            texts[i] = (skv_text_ref){json_string_value(one), json_string_length(one)};
        }
    }
    if (status == SKV_OK) {
        uint32_t root = skv_rule_declare(pool, "choice", 6);
        skv_rule_define(pool, root, skv_expr_texts(pool, texts, n_texts));
    }
    skv_free(texts);
    json_decref(json);
    return status;
}
