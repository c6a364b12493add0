/* JSON values within a budget: see json_set.h. */
#include "grammar/json_set.h"

#include <string.h>

#include "base/budget_mem.h"
#include "base/size.h"
#include "format/json_doc.h"
#include "skv/grammar.h"

enum {
    VALUES_MAX = 1 << 22,
    FIRST_SLOTS = 64,
    VALUE_WORK = 4, /* units for one value */
    BYTES_A_UNIT = 8
};

skv_status skv_grammar_json_load(skv_budget *budget, const char *text, size_t n, const char *name,
                                 skv_grammar_json *out, skv_error *err)
{
    *out = (skv_grammar_json){0};
    skv_json_bytes bytes;
    if (!skv_budget_json(budget, text, n, &bytes)) return skv_budget_check(budget, name, err);
    skv_status status = skv_json_load(text, n, SKV_GRAMMAR_TEXT_MAX, name, &out->json, err);
    skv_budget_give(budget, bytes.reader);
    out->n_bytes = bytes.values;
    if (status != SKV_OK) skv_budget_give(budget, bytes.values);
    return status;
}

void skv_grammar_json_release(skv_budget *budget, skv_grammar_json *json)
{
    json_decref(json->json);
    skv_budget_give(budget, json->n_bytes);
    *json = (skv_grammar_json){0};
}

/* ---- hashes ---- */

/* A value on its way to its hash, and how much of it was seen. */
typedef struct digest {
    uint64_t hash, work;
} digest;

static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 29;
}

static digest digest_bytes(uint64_t hash, const char *text, size_t n)
{
    digest d = {mix(hash, n), VALUE_WORK + n / BYTES_A_UNIT};
    for (size_t i = 0; i < n; i += sizeof(uint64_t)) {
        uint64_t word = 0;
        memcpy(&word, text + i, skv_min_size(sizeof word, n - i));
        d.hash = mix(d.hash, word);
    }
    return d;
}

static digest digest_text(const char *text, size_t n)
{
    return digest_bytes(JSON_STRING, text, n);
}

static digest digest_value(skv_budget *budget, const json_t *value);

/* The order of members makes no difference: their hashes are added. */
static digest digest_object(skv_budget *budget, const json_t *object)
{
    const char *key;
    const json_t *value;
    digest d = {mix(JSON_OBJECT, json_object_size(object)), VALUE_WORK};
    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        digest name = digest_text(key, strlen(key)), inner = digest_value(budget, value);
        d.hash += mix(name.hash, inner.hash);
        d.work += name.work + inner.work;
    }
    return d;
}

static digest digest_array(skv_budget *budget, const json_t *array)
{
    const json_t *value;
    size_t i;
    digest d = {mix(JSON_ARRAY, json_array_size(array)), VALUE_WORK};
    json_array_foreach(array, i, value)
    {
        digest inner = digest_value(budget, value);
        d.hash = mix(d.hash, inner.hash);
        d.work += inner.work;
    }
    return d;
}

static digest digest_scalar(const json_t *value)
{
    const json_int_t integer = json_integer_value(value);
    const double real = json_real_value(value) + 0.0; /* -0 is 0 */
    const uint64_t hash = mix(0, (uint64_t)json_typeof(value));
    if (json_is_string(value)) {
        return digest_text(json_string_value(value), json_string_length(value));
    }
    if (json_is_integer(value)) return (digest){mix(hash, (uint64_t)integer), VALUE_WORK};
    if (json_is_real(value)) return digest_bytes(hash, (const char *)&real, sizeof real);
    return (digest){hash, VALUE_WORK};
}

/* Values inside values are levels of the budget's depth. */
static digest digest_value(skv_budget *budget, const json_t *value)
{
    digest d = {0, 0};
    if (!json_is_object(value) && !json_is_array(value)) return digest_scalar(value);
    if (!skv_budget_enter(budget)) return d;
    d = json_is_object(value) ? digest_object(budget, value) : digest_array(budget, value);
    skv_budget_leave(budget);
    return d;
}

static skv_json_entry entry_of(const skv_json_set *set, const json_t *value)
{
    digest d = {mix(0, (uintptr_t)value), VALUE_WORK};
    if (!set->same) d = digest_value(set->budget, value);
    return (skv_json_entry){.value = value,
                            .hash = d.hash,
                            .work = (uint32_t)(d.work < UINT32_MAX ? d.work : UINT32_MAX)};
}

bool skv_json_same(skv_budget *budget, const json_t *a, const json_t *b)
{
    if (a == b) return true;
    digest x = digest_value(budget, a), y = digest_value(budget, b);
    return skv_budget_work(budget, x.work + y.work) && x.hash == y.hash && json_equal(a, b);
}

/* ---- the table ---- */

void skv_json_set_release(skv_json_set *set)
{
    skv_budget_free(set->budget, set->at, set->capacity, sizeof *set->at);
    skv_budget_free(set->budget, set->slots, set->n_slots, sizeof *set->slots);
    *set = (skv_json_set){.budget = set->budget, .same = set->same};
}

static bool is_it(const skv_json_set *set, const skv_json_entry *a, const skv_json_entry *b)
{
    if (a->hash != b->hash) return false;
    return set->same ? a->value == b->value : json_equal(a->value, b->value) != 0;
}

/* The slot of an equal value, or the free one where it would go. The steps count, so that values
 * made to collide are an end of the budget. */
static size_t slot_of(const skv_json_set *set, const skv_json_entry *e, bool *found)
{
    size_t mask = set->n_slots - 1, slot = (size_t)(e->hash >> 7) & mask;
    *found = false;
    for (; set->slots[slot] != 0; slot = (slot + 1) & mask) {
        *found = is_it(set, &set->at[set->slots[slot] - 1], e);
        if (*found || !skv_budget_work(set->budget, 1)) break;
    }
    return slot;
}

static bool grow_slots(skv_json_set *set)
{
    size_t n_slots = skv_max_size(FIRST_SLOTS, 2 * set->n_slots);
    if (set->n_slots > 0 && set->n < set->n_slots / 2) return true;
    uint32_t *slots = skv_budget_alloc_zero(set->budget, n_slots, sizeof *slots);
    if (!slots || !skv_budget_work(set->budget, set->n)) {
        skv_budget_free(set->budget, slots, n_slots, sizeof *slots);
        return false;
    }
    skv_budget_free(set->budget, set->slots, set->n_slots, sizeof *slots);
    set->slots = slots;
    set->n_slots = n_slots;
    for (size_t i = 0; i < set->n; i++) {
        size_t slot = (size_t)(set->at[i].hash >> 7) & (n_slots - 1);
        while (slots[slot] != 0) slot = (slot + 1) & (n_slots - 1);
        slots[slot] = (uint32_t)(i + 1);
    }
    return true;
}

bool skv_json_set_add(skv_json_set *set, const json_t *value, size_t *index)
{
    bool found = false;
    skv_json_entry e = entry_of(set, value);
    if (!skv_budget_work(set->budget, 2 * (uint64_t)e.work) || !grow_slots(set)) return false;
    size_t slot = slot_of(set, &e, &found);
    if (!found) {
        if (!skv_budget_grow(set->budget, &set->at, &set->capacity, set->n + 1, sizeof *set->at,
                             VALUES_MAX) ||
            set->slots[slot] != 0) {
            return false;
        }
        set->at[set->n++] = e;
        set->slots[slot] = (uint32_t)set->n;
    }
    *index = set->slots[slot] - 1;
    return true;
}

static size_t find(const skv_json_set *set, const skv_json_entry *e)
{
    bool found = false;
    if (set->n == 0 || !skv_budget_work(set->budget, 2 * (uint64_t)e->work)) {
        return SKV_JSON_SET_NONE;
    }
    size_t slot = slot_of(set, e, &found);
    return found ? set->slots[slot] - 1 : SKV_JSON_SET_NONE;
}

size_t skv_json_set_find(const skv_json_set *set, const json_t *value)
{
    skv_json_entry e = entry_of(set, value);
    return find(set, &e);
}

static bool is_text(const json_t *value, const char *text, size_t n)
{
    return json_string_length(value) == n && json_is_string(value) &&
           memcmp(json_string_value(value), text, n) == 0;
}

size_t skv_json_set_find_text(const skv_json_set *set, const char *text, size_t n)
{
    digest d = digest_text(text, n);
    size_t mask = set->n_slots - 1, slot = (size_t)(d.hash >> 7) & mask;
    if (set->n == 0 || !skv_budget_work(set->budget, 2 * d.work)) return SKV_JSON_SET_NONE;
    for (; set->slots[slot] != 0; slot = (slot + 1) & mask) {
        const skv_json_entry *e = &set->at[set->slots[slot] - 1];
        if (e->hash == d.hash && is_text(e->value, text, n)) return set->slots[slot] - 1;
        if (!skv_budget_work(set->budget, 1)) break;
    }
    return SKV_JSON_SET_NONE;
}
