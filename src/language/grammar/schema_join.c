/*
 * Joins schemas that apply together into one: allOf, $ref, and keywords beside $ref and anyOf.
 *
 * A schema that adds nothing is left out, and a single schema is used unchanged. The join of two
 * schemas holds the values of both, and copies only the values that they share, such as the list of
 * properties. A value with one jansson reference was made here and may be changed; values of the
 * original text have another reference from there.
 *
 * Nested schemas (of a property that both have) become an allOf of the two, which is joined when it
 * is read. Keywords that cannot be joined, such as two patterns, are refused by name.
 */
#include <string.h>

#include "base/budget_mem.h"
#include "grammar/schema_impl.h"

/* The memory that jansson takes, as in base/budget_json.c. */
enum {
    OBJECT_BYTES = 240,
    ARRAY_BYTES = 144,
    MEMBER_BYTES = 128, /* beside its name */
    ELEMENT_BYTES = 16,
    TEXT_BYTES = 96, /* of a short text */
    KEY_WORK = 8,    /* units to look up a short name */
    LIST_MAX = 1 << 22
};

typedef struct join {
    skv_schema *s;
    const json_t **waiting; /* owned, [n_waiting] schemas to add, from i_waiting on */
    size_t n_waiting, i_waiting, waiting_capacity;
    const json_t *part;    /* the schema that is read without one of its keywords; NULL: none */
    const json_t *only;    /* the one schema that asks for something; NULL: none, or several */
    json_t *own;           /* the join of several schemas; in s->made */
    skv_json_set seen;     /* by identity: schemas that were added */
    skv_json_set required; /* names of several lists, which become one at the end */
    bool never;            /* no value can agree with all */
} join;

static json_t *unconst(const json_t *value)
{
    return (json_t *)(uintptr_t)value;
}

/* ---- memory ---- */

/* Keeps a schema that was made until all has been read. */
static skv_status keep(skv_schema *s, json_t *made)
{
    if (made && skv_budget_grow(s->exprs->budget, &s->made, &s->made_capacity, s->n_made + 1,
                                sizeof(json_t *), LIST_MAX)) {
        s->made[s->n_made++] = made;
        return SKV_OK;
    }
    json_decref(made);
    return skv_schema_no_memory(s);
}

skv_status skv_schema_new_pattern(skv_schema *s, const char *text, json_t **out)
{
    SKV_TRY(skv_schema_count(s, KEY_WORK, OBJECT_BYTES + MEMBER_BYTES + TEXT_BYTES + strlen(text)));
    *out = json_pack("{s:s}", "pattern", text);
    return keep(s, *out);
}

/* Puts a value that is new, or NULL where there was no memory for it. */
static skv_status put_new(join *j, json_t *to, const char *key, json_t *value)
{
    size_t n = strlen(key);
    skv_status status = skv_schema_count(j->s, KEY_WORK + n / 4, MEMBER_BYTES + n);
    if (status == SKV_OK && value && json_object_set_nocheck(to, key, value) != 0) {
        status = skv_schema_fail(j->s, SKV_MEMORY, "no memory");
    }
    if (status == SKV_OK && !value) status = skv_schema_fail(j->s, SKV_MEMORY, "no memory");
    json_decref(value);
    return status;
}

static skv_status put(join *j, json_t *to, const char *key, const json_t *value)
{
    return put_new(j, to, key, json_incref(unconst(value)));
}

static skv_status add_to(join *j, json_t *list, const json_t *value)
{
    SKV_TRY(skv_schema_count(j->s, 1, ELEMENT_BYTES));
    if (json_array_append(list, unconst(value)) == 0) return SKV_OK;
    return skv_schema_fail(j->s, SKV_MEMORY, "no memory");
}

/* Whether a value in j->own has no other owner. */
static bool is_ours(const json_t *value)
{
    return value->refcount == 1;
}

/* ---- schemas inside ---- */

static bool is_note(const char *key)
{
    return skv_schema_keyword(key) == SKV_KEYWORD_NOTE;
}

/* Whether a schema asks for anything at all. */
static bool asks(const join *j, const json_t *schema)
{
    const char *key;
    const json_t *value;
    if (!schema || json_is_true(schema)) return false;
    if (!json_is_object(schema)) return true;
    json_object_foreach(unconst(schema), key, value)
    {
        if (!skv_budget_work(j->s->exprs->budget, KEY_WORK) || !is_note(key)) return true;
    }
    return false;
}

/* The parts of a schema that is an allOf and nothing else; NULL: it is another one. */
static const json_t *parts_of(const json_t *schema)
{
    const json_t *parts = json_object_get(schema, "allOf");
    return json_object_size(schema) == 1 && json_is_array(parts) ? parts : NULL;
}

/* {"allOf": [a, b]}, or {"allOf": [parts of a, b]}, so that they do not nest. */
static skv_status new_both(join *j, const json_t *a, const json_t *b, json_t **out)
{
    const json_t *parts = parts_of(a);
    const size_t n = parts ? json_array_size(parts) : 1;
    SKV_TRY(skv_schema_count(j->s, KEY_WORK + n,
                             OBJECT_BYTES + MEMBER_BYTES + ARRAY_BYTES + (n + 1) * ELEMENT_BYTES));
    json_t *list = json_array();
    bool done = parts ? json_array_extend(list, unconst(parts)) == 0
                      : json_array_append(list, unconst(a)) == 0;
    done = done && json_array_append(list, unconst(b)) == 0;
    *out = done ? json_pack("{s:O}", "allOf", list) : NULL;
    json_decref(list);
    return *out ? SKV_OK : skv_schema_fail(j->s, SKV_MEMORY, "no memory");
}

/* Intersects two values: a new reference. in_own: a is in j->own. */
static skv_status both(join *j, const json_t *a, bool in_own, const json_t *b, json_t **out)
{
    *out = NULL;
    if (a == b || !asks(j, b)) {
        *out = json_incref(unconst(a));
    } else if (!asks(j, a)) {
        *out = json_incref(unconst(b));
    } else if (in_own && is_ours(a)) { /* an allOf that was made here */
        SKV_TRY(add_to(j, json_object_get(a, "allOf"), b));
        *out = json_incref(unconst(a));
    } else {
        return new_both(j, a, b, out);
    }
    return SKV_OK;
}

static skv_status join_inner(join *j, const char *key, const json_t *have, const json_t *value)
{
    json_t *made = NULL;
    SKV_TRY(both(j, have, true, value, &made));
    return put_new(j, j->own, key, made);
}

/* ---- properties ---- */

/* The properties as an object that may be changed. */
static skv_status own_properties(join *j, json_t **out)
{
    const json_t *have = json_object_get(j->own, "properties"), *value;
    const char *key;
    *out = unconst(have);
    if (have && is_ours(have)) return SKV_OK;
    SKV_TRY(skv_schema_count(j->s, KEY_WORK, OBJECT_BYTES));
    *out = json_object();
    SKV_TRY(put_new(j, j->own, "properties", *out));
    json_object_foreach(unconst(have), key, value)
    {
        SKV_TRY(put(j, *out, key, value));
    }
    return SKV_OK;
}

/* All properties of `to` that the other schema does not name must agree with its rest. */
static skv_status join_rest(join *j, json_t *to, const json_t *named, const json_t *rest)
{
    for (void *at = json_object_iter(to); at; at = json_object_iter_next(to, at)) {
        const char *key = json_object_iter_key(at);
        json_t *made = NULL;
        SKV_TRY(skv_schema_count(j->s, KEY_WORK + strlen(key) / 4, 0));
        if (json_object_get(named, key)) continue;
        SKV_TRY(both(j, json_object_iter_value(at), true, rest, &made));
        (void)json_object_iter_set_new(to, at, made);
    }
    return SKV_OK;
}

/* Joins each property of one schema with the other schema's declaration of it. */
static skv_status join_properties(join *j, const json_t *node)
{
    const json_t *mine = json_object_get(j->own, "properties"), *value;
    const json_t *theirs = json_object_get(node, "properties");
    const json_t *my_rest = json_object_get(j->own, "additionalProperties");
    const json_t *their_rest = json_object_get(node, "additionalProperties");
    const char *key;
    json_t *to = NULL;
    if (theirs && !json_is_object(theirs)) {
        return skv_schema_fail(j->s, SKV_FORMAT, "\"properties\" is no object");
    }
    bool rest = asks(j, their_rest);
    if (mine == theirs || (!mine && !theirs)) return SKV_OK;
    if (!mine && !asks(j, my_rest)) return put(j, j->own, "properties", theirs);
    if (!theirs && !rest) return SKV_OK;
    SKV_TRY(own_properties(j, &to));
    if (rest) SKV_TRY(join_rest(j, to, theirs, their_rest));
    json_object_foreach(unconst(theirs), key, value)
    {
        const json_t *have = json_object_get(to, key);
        json_t *made = NULL;
        SKV_TRY(have ? both(j, have, true, value, &made) : both(j, value, false, my_rest, &made));
        SKV_TRY(put_new(j, to, key, made));
    }
    return SKV_OK;
}

/* ---- lists ---- */

static skv_status join_types(join *j, const json_t *have, const json_t *value)
{
    const unsigned number = 1u << SKV_TYPE_NUMBER, integer = 1u << SKV_TYPE_INTEGER;
    unsigned a = 0, b = 0;
    SKV_TRY(skv_schema_types(j->s, have, &a));
    SKV_TRY(skv_schema_types(j->s, value, &b));
    unsigned types = a & b; /* an integer is a number */
    if (a & number) types |= b & integer;
    if (b & number) types |= a & integer;
    j->never = types == 0;
    SKV_TRY(skv_schema_count(j->s, KEY_WORK, ARRAY_BYTES + SKV_N_TYPES * TEXT_BYTES));
    json_t *list = json_array();
    for (int type = 0; type < SKV_N_TYPES; type++) {
        const char *name = skv_schema_type_name((skv_schema_type)type);
        if (!(types >> type & 1) || json_array_append_new(list, json_string(name)) == 0) continue;
        json_decref(list);
        list = NULL;
        break;
    }
    return put_new(j, j->own, "type", list);
}

/* The values of one list that the other one has too, each once. */
static skv_status shared_values(join *j, const json_t *a, skv_json_set *set, json_t *list)
{
    skv_budget *budget = j->s->exprs->budget;
    const json_t *value;
    size_t i, n = set->n;
    skv_status status = SKV_OK;
    bool *taken = skv_budget_alloc_zero(budget, n, sizeof *taken);
    if (!taken) return n > 0 ? skv_schema_no_memory(j->s) : SKV_OK;
    json_array_foreach(a, i, value)
    {
        size_t at = skv_json_set_find(set, value);
        if (at == SKV_JSON_SET_NONE || taken[at]) continue;
        taken[at] = true;
        if ((status = add_to(j, list, value)) != SKV_OK) break;
    }
    skv_budget_free(budget, taken, n, sizeof *taken);
    return status == SKV_OK ? skv_schema_count(j->s, 1, 0) : status;
}

static skv_status add_all(join *j, skv_json_set *set, const json_t *list)
{
    const json_t *value;
    size_t i, at;
    json_array_foreach(list, i, value)
    {
        if (!skv_json_set_add(set, value, &at)) return skv_schema_no_memory(j->s);
    }
    return SKV_OK;
}

static skv_status join_enums(join *j, const json_t *have, const json_t *value)
{
    if (!json_is_array(have) || !json_is_array(value)) {
        return skv_schema_fail(j->s, SKV_FORMAT, "\"enum\" is no list of values");
    }
    SKV_TRY(skv_schema_count(j->s, KEY_WORK, ARRAY_BYTES));
    json_t *list = json_array();
    skv_json_set set = {.budget = j->s->exprs->budget};
    skv_status status = add_all(j, &set, value);
    if (status == SKV_OK && list) status = shared_values(j, have, &set, list);
    j->never = json_array_size(list) == 0;
    skv_json_set_release(&set);
    if (status == SKV_OK) return put_new(j, j->own, "enum", list);
    json_decref(list);
    return status;
}

static skv_status join_required(join *j, const json_t *have, const json_t *value)
{
    if (!json_is_array(have) || !json_is_array(value)) {
        return skv_schema_fail(j->s, SKV_FORMAT, "\"required\" is no list of names");
    }
    if (j->required.n == 0) SKV_TRY(add_all(j, &j->required, have));
    return add_all(j, &j->required, value);
}

static skv_status put_required(join *j)
{
    if (j->required.n == 0) return SKV_OK;
    SKV_TRY(skv_schema_count(j->s, KEY_WORK, ARRAY_BYTES));
    json_t *list = json_array();
    SKV_TRY(put_new(j, j->own, "required", list));
    for (size_t i = 0; i < j->required.n; i++) SKV_TRY(add_to(j, list, j->required.at[i].value));
    return SKV_OK;
}

/* ---- other keywords ---- */

static skv_status join_bound(join *j, const char *key, const json_t *value, bool larger)
{
    const json_t *have = json_object_get(j->own, key);
    double a = json_number_value(have), b = json_number_value(value);
    bool take = larger ? b > a : b < a;
    if (json_is_integer(have) && json_is_integer(value)) { /* exact beyond 2^53 */
        json_int_t x = json_integer_value(have), y = json_integer_value(value);
        take = larger ? y > x : y < x;
    }
    return take ? put(j, j->own, key, value) : SKV_OK;
}

/* Values that must be equal where both have one. */
static skv_status join_equal(join *j, const char *key, const json_t *have, const json_t *value)
{
    if (skv_json_same(j->s->exprs->budget, have, value)) return SKV_OK;
    SKV_TRY(skv_schema_count(j->s, 1, 0));
    if (strcmp(key, "const") == 0) {
        j->never = true;
        return SKV_OK;
    }
    return skv_schema_fail(j->s, SKV_UNSUPPORTED,
                           "the keyword \"%.100s\" of two schemas cannot be joined", key);
}

static skv_status join_keyword(join *j, const char *key, const json_t *value)
{
    static const char *const larger[] = {"minimum", "exclusiveMinimum", "minLength", "minItems",
                                         "minProperties"};
    static const char *const smaller[] = {"maximum", "exclusiveMaximum", "maxLength", "maxItems",
                                          "maxProperties"};
    const json_t *have = json_object_get(j->own, key);
    if (!have) return put(j, j->own, key, value);
    if (have == value) return SKV_OK;
    if (skv_schema_keyword(key) != SKV_KEYWORD_USED) { /* refused later, unless it is harmless */
        return json_is_false(have) ? put(j, j->own, key, value) : SKV_OK;
    }
    if (strcmp(key, "type") == 0) return join_types(j, have, value);
    if (strcmp(key, "required") == 0) return join_required(j, have, value);
    if (strcmp(key, "enum") == 0) return join_enums(j, have, value);
    if (strcmp(key, "uniqueItems") == 0) { /* one that asks for it is enough */
        return json_is_true(value) ? put(j, j->own, key, value) : SKV_OK;
    }
    if (strcmp(key, "nullable") == 0) {
        (void)json_object_del(j->own, key);
        return SKV_OK;
    }
    bool inner = strcmp(key, "items") == 0 || strcmp(key, "additionalProperties") == 0 ||
                 strcmp(key, "additionalItems") == 0;
    if (inner && !json_is_array(have) && !json_is_array(value)) {
        return join_inner(j, key, have, value);
    }
    bool numbers = json_is_number(have) && json_is_number(value);
    for (size_t i = 0; numbers && i < sizeof larger / sizeof larger[0]; i++) {
        bool low = strcmp(key, larger[i]) == 0, high = strcmp(key, smaller[i]) == 0;
        if (low || high) return join_bound(j, key, value, low);
    }
    return join_equal(j, key, have, value);
}

/* ---- schemas ---- */

static skv_status wait_for(join *j, const json_t *schema)
{
    if (!skv_budget_grow(j->s->exprs->budget, &j->waiting, &j->waiting_capacity, j->n_waiting + 1,
                         sizeof(json_t *), LIST_MAX)) {
        return skv_schema_no_memory(j->s);
    }
    j->waiting[j->n_waiting++] = schema;
    return SKV_OK;
}

static skv_status wait_for_all(join *j, const json_t *parts)
{
    const json_t *part;
    size_t i;
    if (json_array_size(parts) == 0) {
        return skv_schema_fail(j->s, SKV_FORMAT, "\"allOf\" is no list of schemas");
    }
    json_array_foreach(parts, i, part)
    {
        SKV_TRY(wait_for(j, part));
    }
    return SKV_OK;
}

/* Keywords that are added elsewhere. */
static bool is_elsewhere(const char *key, const char *without)
{
    return strcmp(key, "$ref") == 0 || strcmp(key, "allOf") == 0 ||
           (without && strcmp(key, without) == 0);
}

static skv_status merge(join *j, const json_t *node, const char *without)
{
    const char *key;
    const json_t *value;
    SKV_TRY(join_properties(j, node));
    json_object_foreach(unconst(node), key, value)
    {
        if (is_note(key) || is_elsewhere(key, without) || strcmp(key, "properties") == 0) continue;
        SKV_TRY(join_keyword(j, key, value));
        if (j->never) break;
    }
    return SKV_OK;
}

/* Adds the schema's own keywords. */
static skv_status add_keywords(join *j, const json_t *node, const char *without)
{
    bool whole = true, says = false;
    const char *key;
    const json_t *value, *parts = json_object_get(node, "allOf"), *only = j->only;
    SKV_TRY(skv_schema_count(j->s, KEY_WORK * 2 * (uint64_t)json_object_size(node), 0));
    if (parts) SKV_TRY(wait_for_all(j, parts));
    json_object_foreach(unconst(node), key, value)
    {
        if (is_elsewhere(key, without)) {
            whole = false;
        } else if (!is_note(key)) {
            says = true;
        }
    }
    if (!says) return SKV_OK;
    if (!j->own && !only && whole) {
        j->only = node;
        return SKV_OK;
    }
    if (!j->own) {
        SKV_TRY(skv_schema_count(j->s, KEY_WORK, OBJECT_BYTES));
        json_t *own = json_object();
        SKV_TRY(keep(j->s, own));
        j->own = own;
        if (only) SKV_TRY(merge(j, only, NULL));
        j->only = NULL;
    }
    return merge(j, node, without);
}

/* Adds a schema: the target of its $ref first, then its own keywords. */
static skv_status add_schema(join *j, const json_t *schema, const char *without)
{
    if (without) j->part = schema;
    size_t first = j->seen.n, at;
    for (const json_t *node = schema;;) {
        if (json_is_boolean(node)) {
            j->never = j->never || json_is_false(node);
            break;
        }
        if (!json_is_object(node)) return skv_schema_fail(j->s, SKV_FORMAT, "no schema");
        size_t before = j->seen.n;
        if (!skv_json_set_add(&j->seen, node, &at)) return skv_schema_no_memory(j->s);
        if ((at >= first && at < before) || (at < first && node == j->part)) {
            return skv_schema_fail(j->s, SKV_FORMAT, "\"$ref\" leads back to itself");
        }
        if (at < before || !json_object_get(node, "$ref")) break;
        SKV_TRY(skv_schema_resolve(j->s, node, &node));
    }
    for (size_t i = j->seen.n; i-- > first && !j->never;) {
        SKV_TRY(add_keywords(j, j->seen.at[i].value, without));
    }
    return SKV_OK;
}

static skv_status add_waiting(join *j, const char *without)
{
    while (j->i_waiting < j->n_waiting && !j->never) {
        SKV_TRY(add_schema(j, j->waiting[j->i_waiting++], without));
        without = NULL;
    }
    return j->own && !j->never ? put_required(j) : SKV_OK;
}

skv_status skv_schema_join(skv_schema *s, const json_t *node, const char *without,
                           const json_t *branch, const json_t **out)
{
    skv_budget *budget = s->exprs->budget;
    join j = {.s = s, .seen = {.budget = budget, .same = true}, .required = {.budget = budget}};
    skv_status status = wait_for(&j, node);
    if (status == SKV_OK && branch) status = wait_for(&j, branch);
    if (status == SKV_OK) status = add_waiting(&j, without);
    skv_budget_free(budget, j.waiting, j.waiting_capacity, sizeof(json_t *));
    skv_json_set_release(&j.seen);
    skv_json_set_release(&j.required);
    if (status != SKV_OK) return status;
    *out = j.never ? json_false() : j.own ? j.own : j.only ? j.only : json_true();
    return SKV_OK;
}
