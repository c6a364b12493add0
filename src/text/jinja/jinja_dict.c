/* Dicts: see jinja_dict.h. */
#include "text/jinja/jinja_dict.h"

#include <string.h>

#include "base/rng.h"
#include "base/size.h"

enum { KEY_DEPTH_MAX = 16, INDEX_FROM = 8 };

uint64_t skv_jdict_hash_text(const skv_jstr *text)
{
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a, then mixed */
    for (size_t i = 0; i < text->size; i++)
        hash = (hash ^ (unsigned char)text->data[i]) * 0x100000001b3u;
    return skv_mix64(hash);
}

/* 1, 1.0 and True are one key. */
static uint64_t hash_number(double f)
{
    if (f >= -9.2e18 && f <= 9.2e18 && f == (double)(int64_t)f)
        return skv_mix64((uint64_t)(int64_t)f);
    uint64_t bits;
    memcpy(&bits, &f, sizeof bits);
    return skv_mix64(bits);
}

static bool hash_value(skv_jv key, unsigned depth, uint64_t *hash)
{
    switch (key.kind) {
    case SKV_J_STRING: *hash = skv_jdict_hash_text(key.as.s); return true;
    case SKV_J_BOOL: *hash = skv_mix64(key.as.b); return true;
    case SKV_J_INT: *hash = skv_mix64((uint64_t)key.as.i); return true;
    case SKV_J_FLOAT: *hash = hash_number(key.as.f); return true;
    case SKV_J_TUPLE: break;
    case SKV_J_LIST:
    case SKV_J_DICT:
    case SKV_J_VIEW: return false;
    default: *hash = skv_mix64(0x5eed0000u + key.kind); return true;
    }
    if (depth == KEY_DEPTH_MAX) return false;
    *hash = 0x7475706c65u;
    for (size_t i = 0; i < key.as.list->n; i++) {
        uint64_t part;
        if (!hash_value(key.as.list->items[i], depth + 1, &part)) return false;
        *hash = skv_mix64(*hash ^ part);
    }
    return true;
}

bool skv_jdict_hash(skv_jv key, uint64_t *hash)
{
    return hash_value(key, 0, hash);
}

/* int and float compare exactly: 2**53 + 1 is not 2.0**53. */
static bool same_number(skv_jv a, skv_jv b)
{
    int64_t i = 0, k = 0;
    bool a_int = skv_j_as_int(a, &i), b_int = skv_j_as_int(b, &k);
    if (a_int && b_int) return i == k;
    if (!a_int && !b_int) return a.as.f == b.as.f;
    double f = a_int ? b.as.f : a.as.f;
    int64_t n = a_int ? i : k;
    return f >= -9223372036854775808.0 && f < 9223372036854775808.0 && f == (double)(int64_t)f &&
           (int64_t)f == n;
}

static bool is_number(skv_jv v)
{
    return v.kind == SKV_J_BOOL || v.kind == SKV_J_INT || v.kind == SKV_J_FLOAT;
}

bool skv_jdict_same_key(skv_jv a, skv_jv b)
{
    if (is_number(a) && is_number(b)) return same_number(a, b);
    if (a.kind != b.kind) return false;
    switch (a.kind) {
    case SKV_J_UNDEFINED:
    case SKV_J_NONE: return true;
    case SKV_J_STRING:
        return a.as.s->size == b.as.s->size &&
               memcmp(a.as.s->data, b.as.s->data, a.as.s->size) == 0;
    case SKV_J_TUPLE: break;
    case SKV_J_RANGE:
        return a.as.range->n == b.as.range->n &&
               (!a.as.range->n || (a.as.range->start == b.as.range->start &&
                                   (a.as.range->n == 1 || a.as.range->step == b.as.range->step)));
    default: return a.as.list == b.as.list;
    }
    if (a.as.list->n != b.as.list->n) return false;
    for (size_t i = 0; i < a.as.list->n; i++)
        if (!skv_jdict_same_key(a.as.list->items[i], b.as.list->items[i])) return false;
    return true;
}

/* The pair's number, or dict->n. */
static size_t locate(const skv_jdict *dict, skv_jv key, uint64_t hash)
{
    if (!dict->n_index) {
        for (size_t i = 0; i < dict->n; i++)
            if (dict->pairs[i].hash == hash && skv_jdict_same_key(dict->pairs[i].key, key))
                return i;
        return dict->n;
    }
    for (size_t slot = hash;; slot++) {
        uint32_t at = dict->index[slot & (dict->n_index - 1)];
        if (!at) return dict->n;
        const skv_jpair *pair = &dict->pairs[at - 1];
        if (pair->hash == hash && skv_jdict_same_key(pair->key, key)) return at - 1;
    }
}

const skv_jv *skv_jdict_find(const skv_jdict *dict, skv_jv key, uint64_t hash)
{
    size_t i = locate(dict, key, hash);
    return i < dict->n ? &dict->pairs[i].value : NULL;
}

static void index_pair(skv_jdict *dict, size_t i)
{
    size_t slot = dict->pairs[i].hash;
    while (dict->index[slot & (dict->n_index - 1)]) slot++;
    dict->index[slot & (dict->n_index - 1)] = (uint32_t)(i + 1);
}

/* Room for one more pair; at most half of the index is in use. */
static bool grow(skv_jarena *arena, skv_jdict *dict)
{
    if (dict->n < dict->capacity) return true;
    size_t capacity = dict->capacity ? 2 * dict->capacity : 4;
    if (capacity > UINT32_MAX / 4) return false;
    skv_jpair *pairs = skv_jarena_take(arena, capacity, sizeof *pairs);
    if (!pairs) return false;
    if (dict->n) memcpy(pairs, dict->pairs, dict->n * sizeof *pairs);
    if (capacity > INDEX_FROM) {
        uint32_t *index = skv_jarena_take(arena, 2 * capacity, sizeof *index);
        if (!index) return false;
        dict->index = index;
        dict->n_index = 2 * capacity;
    }
    dict->pairs = pairs;
    dict->capacity = capacity;
    if (dict->n_index)
        for (size_t i = 0; i < dict->n; i++) index_pair(dict, i);
    return true;
}

bool skv_jdict_put(skv_jarena *arena, skv_jdict *dict, uint64_t hash, skv_jv key, skv_jv value)
{
    size_t i = locate(dict, key, hash);
    if (i < dict->n) {
        dict->pairs[i].value = value;
        return true;
    }
    if (!grow(arena, dict)) return false;
    dict->pairs[dict->n] = (skv_jpair){.key = key, .value = value, .hash = hash};
    dict->n++;
    if (dict->n_index) index_pair(dict, dict->n - 1);
    return true;
}

const skv_jv *skv_jdict_get(const skv_jdict *dict, const skv_jstr *key)
{
    return skv_jdict_find(dict, (skv_jv){.kind = SKV_J_STRING, .as.s = key},
                          skv_jdict_hash_text(key));
}

const skv_jv *skv_jdict_get_text(const skv_jdict *dict, const char *key)
{
    skv_jstr text = {.data = key, .size = strlen(key)};
    return skv_jdict_get(dict, &text);
}
