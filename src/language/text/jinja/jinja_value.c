/* Values of a template, their memory, and dicts: see jinja_value.h. */
#include "text/jinja/jinja_value.h"

#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "base/size.h"

enum { BLOCK_BYTES = 32 * 1024, PIECE_ALIGN = 16 };

struct skv_jblock {
    skv_jblock *next; /* owned */
    size_t used;      /* bytes of `data` */
    size_t size;      /* bytes of `data` */
    size_t reserved;  /* keeps `data` 16-byte aligned */
    unsigned char data[];
};

void skv_jarena_init(skv_jarena *arena, skv_budget *budget)
{
    *arena = (skv_jarena){.budget = budget};
}

void skv_jarena_detach(skv_jarena *arena)
{
    if (arena->budget) skv_budget_give(arena->budget, arena->n_bytes);
    arena->budget = NULL;
    arena->n_bytes = 0;
}

void skv_jarena_release(skv_jarena *arena)
{
    skv_jarena_detach(arena);
    while (arena->head) {
        skv_jblock *next = arena->head->next;
        skv_free(arena->head);
        arena->head = next;
    }
}

static skv_jblock *new_block(skv_jarena *arena, size_t n)
{
    size_t bytes;
    if (!skv_size_add(n, sizeof(skv_jblock), &bytes)) bytes = SIZE_MAX;
    if (!skv_budget_take(arena->budget, bytes)) return NULL;
    skv_jblock *block = skv_alloc(bytes, 1);
    if (block) {
        *block = (skv_jblock){.size = n};
        arena->n_bytes += bytes;
    } else {
        skv_budget_give(arena->budget, bytes);
    }
    return block;
}

/* A large piece gets a block of its own after the head, so that the head's rest stays in use. */
static skv_jblock *block_for(skv_jarena *arena, size_t n)
{
    skv_jblock *head = arena->head;
    if (head && head->size - head->used >= n) return head;
    skv_jblock *block = new_block(arena, skv_max_size(n, BLOCK_BYTES));
    if (!block) return NULL;
    if (head && n > BLOCK_BYTES) {
        block->next = head->next;
        head->next = block;
    } else {
        block->next = head;
        arena->head = block;
    }
    return block;
}

/* A size that overflows is still requested from the budget, so that the budget reports it. */
void *skv_jarena_take(skv_jarena *arena, size_t count, size_t size)
{
    size_t n;
    if (!skv_size_mul(count, size, &n) || n > SIZE_MAX / 2) n = SIZE_MAX / 2;
    n = skv_round_up(skv_max_size(n, 1), PIECE_ALIGN);
    skv_jblock *block = block_for(arena, n);
    if (!block) return NULL;
    void *piece = block->data + block->used;
    block->used += n;
    memset(piece, 0, n);
    return piece;
}

const char *skv_j_type_name(skv_jv v)
{
    static const char *const names[] = {[SKV_J_UNDEFINED] = "Undefined",
                                        [SKV_J_MISSING] = "missing",
                                        [SKV_J_NONE] = "NoneType",
                                        [SKV_J_BOOL] = "bool",
                                        [SKV_J_INT] = "int",
                                        [SKV_J_FLOAT] = "float",
                                        [SKV_J_STRING] = "str",
                                        [SKV_J_LIST] = "list",
                                        [SKV_J_TUPLE] = "tuple",
                                        [SKV_J_DICT] = "dict",
                                        [SKV_J_RANGE] = "range",
                                        [SKV_J_VIEW] = "dict view",
                                        [SKV_J_ITERATOR] = "generator",
                                        [SKV_J_NAMESPACE] = "Namespace",
                                        [SKV_J_LOOP] = "LoopContext",
                                        [SKV_J_MACRO] = "Macro",
                                        [SKV_J_FUNCTION] = "function",
                                        [SKV_J_METHOD] = "method"};
    return names[v.kind];
}

bool skv_jstr_is(const skv_jstr *s, const char *text)
{
    return s->size == strlen(text) && memcmp(s->data, text, s->size) == 0;
}

size_t skv_j_count_chars(const char *data, size_t size)
{
    size_t n = 0;
    for (size_t i = 0; i < size; i++) n += ((unsigned char)data[i] & 0xc0) != 0x80;
    return n;
}

size_t skv_j_next_char(const skv_jstr *s, size_t at)
{
    at++;
    while (at < s->size && ((unsigned char)s->data[at] & 0xc0) == 0x80) at++;
    return at;
}

size_t skv_j_offset(const skv_jstr *s, size_t i)
{
    if (s->n_chars == s->size) return i;
    size_t at = 0;
    for (; i && at < s->size; i--) at = skv_j_next_char(s, at);
    return at;
}

bool skv_j_space(uint32_t code)
{
    if (code < 0x80) return (code >= 9 && code <= 13) || (code >= 28 && code <= 32);
    return code == 0x85 || code == 0xa0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200a) ||
           code == 0x2028 || code == 0x2029 || code == 0x202f || code == 0x205f || code == 0x3000;
}

enum { KEY_DEPTH_MAX = 16, INDEX_FROM = 8, BYTES_A_UNIT = 16 };

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

static bool hash_value(skv_budget *budget, skv_jv key, unsigned depth, uint64_t *hash)
{
    size_t n_bytes = key.kind == SKV_J_STRING ? key.as.s->size : 0;
    if (!skv_budget_work(budget, 1 + n_bytes / BYTES_A_UNIT)) return false;
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
        if (!hash_value(budget, key.as.list->items[i], depth + 1, &part)) return false;
        *hash = skv_mix64(*hash ^ part);
    }
    return true;
}

bool skv_jdict_hash(skv_budget *budget, skv_jv key, uint64_t *hash)
{
    return hash_value(budget, key, 0, hash);
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

bool skv_jdict_same_key(skv_budget *budget, skv_jv a, skv_jv b)
{
    if (skv_j_is_number(a) && skv_j_is_number(b)) return same_number(a, b);
    if (a.kind != b.kind) return false;
    switch (a.kind) {
    case SKV_J_UNDEFINED:
    case SKV_J_NONE: return true;
    case SKV_J_STRING:
        return a.as.s->size == b.as.s->size &&
               skv_budget_work(budget, a.as.s->size / BYTES_A_UNIT) &&
               memcmp(a.as.s->data, b.as.s->data, a.as.s->size) == 0;
    case SKV_J_TUPLE: break;
    case SKV_J_RANGE:
        return a.as.range->n == b.as.range->n &&
               (!a.as.range->n || (a.as.range->start == b.as.range->start &&
                                   (a.as.range->n == 1 || a.as.range->step == b.as.range->step)));
    default: return a.as.list == b.as.list;
    }
    if (a.as.list->n != b.as.list->n || !skv_budget_work(budget, a.as.list->n)) return false;
    for (size_t i = 0; i < a.as.list->n; i++)
        if (!skv_jdict_same_key(budget, a.as.list->items[i], b.as.list->items[i])) return false;
    return true;
}

/* The pair's number, or dict->n. */
static size_t locate(skv_budget *budget, const skv_jdict *dict, skv_jv key, uint64_t hash)
{
    if (!dict->n_index) {
        for (size_t i = 0; i < dict->n; i++)
            if (dict->pairs[i].hash == hash && skv_jdict_same_key(budget, dict->pairs[i].key, key))
                return i;
        return dict->n;
    }
    for (size_t slot = hash;; slot++) {
        uint32_t at = dict->index[slot & (dict->n_index - 1)];
        if (!at || !skv_budget_work(budget, 1)) return dict->n;
        const skv_jpair *pair = &dict->pairs[at - 1];
        if (pair->hash == hash && skv_jdict_same_key(budget, pair->key, key)) return at - 1;
    }
}

const skv_jv *skv_jdict_find(skv_budget *budget, const skv_jdict *dict, skv_jv key, uint64_t hash)
{
    size_t i = locate(budget, dict, key, hash);
    return i < dict->n ? &dict->pairs[i].value : NULL;
}

/* Counts its steps, as locate does: keys may be made to collide. False beyond the budget. */
static bool index_pair(skv_budget *budget, skv_jdict *dict, size_t i)
{
    const size_t first = dict->pairs[i].hash;
    size_t slot = first;
    while (dict->index[slot & (dict->n_index - 1)]) slot++;
    dict->index[slot & (dict->n_index - 1)] = (uint32_t)(i + 1);
    return skv_budget_work(budget, slot - first);
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
    for (size_t i = 0; dict->n_index && i < dict->n; i++)
        if (!index_pair(arena->budget, dict, i)) return false;
    return true;
}

bool skv_jdict_put(skv_jarena *arena, skv_jdict *dict, uint64_t hash, skv_jv key, skv_jv value)
{
    size_t i = locate(arena->budget, dict, key, hash);
    if (i < dict->n) {
        dict->pairs[i].value = value;
        return true;
    }
    if (!grow(arena, dict)) return false;
    dict->pairs[dict->n] = (skv_jpair){.key = key, .value = value, .hash = hash};
    dict->n++;
    return !dict->n_index || index_pair(arena->budget, dict, dict->n - 1);
}

const skv_jv *skv_jdict_get(skv_budget *budget, const skv_jdict *dict, const skv_jstr *key)
{
    uint64_t hash;
    skv_jv text = {.kind = SKV_J_STRING, .as.s = key};
    return hash_value(budget, text, 0, &hash) ? skv_jdict_find(budget, dict, text, hash) : NULL;
}
