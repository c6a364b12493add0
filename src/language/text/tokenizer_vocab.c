/* The vocabulary's table: open addressing over the ids, at most half full. And lists of ids. */
#include "text/tokenizer_vocab.h"

#include <string.h>

#include "base/budget_mem.h"
#include "base/mem.h"
#include "base/size.h"
#include "text/tokenizer.h"

enum { IDS_MAX = 1 << 24, BYTES_MAX = 1 << 30 };

static bool allocate(skv_vocab *v, size_t n_ids, size_t n_bytes)
{
    size_t n_slots = 16;
    while (n_slots < n_ids * 2) n_slots *= 2;
    v->bytes = skv_alloc(n_bytes + 1, 1);
    v->texts = skv_alloc_zero(n_ids + 1, sizeof *v->texts);
    v->flags = skv_alloc_zero(n_ids + 1, sizeof *v->flags);
    v->slots = skv_alloc_zero(n_slots, sizeof *v->slots);
    v->n_ids = n_ids;
    v->bytes_capacity = n_bytes;
    v->mask = n_slots - 1;
    return v->bytes && v->texts && v->flags && v->slots;
}

skv_status skv_vocab_init(skv_vocab *v, size_t n_ids, size_t n_bytes, const char *name,
                          skv_error *err)
{
    *v = (skv_vocab){0};
    SKV_REQUIRE(n_ids <= IDS_MAX, err, SKV_RANGE, "%s: %zu token ids, at most %d", name, n_ids,
                (int)IDS_MAX);
    SKV_REQUIRE(n_bytes <= BYTES_MAX, err, SKV_RANGE, "%s: %zu bytes of token texts, at most %d",
                name, n_bytes, (int)BYTES_MAX);
    if (allocate(v, n_ids, n_bytes)) return SKV_OK;
    skv_vocab_release(v);
    return skv_fail(err, SKV_MEMORY, "%s: no memory for %zu tokens", name, n_ids);
}

void skv_vocab_release(skv_vocab *v)
{
    for (size_t i = 0; v->spellings && i < v->n_ids; i++) skv_free(v->spellings[i].text);
    skv_free(v->spellings);
    skv_free(v->bytes);
    skv_free(v->texts);
    skv_free(v->flags);
    skv_free(v->slots);
    *v = (skv_vocab){0};
}

static uint64_t tag_of(uint64_t hash)
{
    return hash & ~(uint64_t)UINT32_MAX;
}

static uint32_t id_in(uint64_t slot)
{
    return (uint32_t)slot - 1;
}

/* The slot of a text, or the empty one where it belongs. */
static size_t slot_of(const skv_vocab *v, const char *text, size_t n, uint64_t hash)
{
    size_t i = (size_t)hash & v->mask;
    for (; v->slots[i] != 0; i = (i + 1) & v->mask) {
        if (tag_of(v->slots[i]) != tag_of(hash)) continue;
        const struct skv_vocab_text *at = &v->texts[id_in(v->slots[i])];
        if (at->length == n && memcmp(v->bytes + at->start, text, n) == 0) break;
    }
    return i;
}

bool skv_vocab_put(skv_vocab *v, uint32_t id, const char *text, size_t n, unsigned flags)
{
    if (id >= v->n_ids || v->flags[id] != 0 || n > v->bytes_capacity - v->n_bytes) return false;
    uint64_t hash = skv_hash_text(text, n);
    size_t slot = slot_of(v, text, n, hash);
    if (v->slots[slot] != 0) return false;
    if (n > 0) memcpy(v->bytes + v->n_bytes, text, n);
    v->texts[id] = (struct skv_vocab_text){(uint32_t)v->n_bytes, (uint32_t)n};
    v->flags[id] = (uint8_t)(flags | SKV_TOKEN_PRESENT);
    v->n_bytes += n;
    v->slots[slot] = tag_of(hash) | (id + 1);
    return true;
}

bool skv_vocab_respell(skv_vocab *v, uint32_t id, const char *text, size_t n)
{
    if (!v->spellings) {
        v->spellings = skv_alloc_zero(v->n_ids + 1, sizeof *v->spellings);
        if (!v->spellings) return false;
    }
    char *copy = skv_strndup(text, n);
    if (!copy) return false;
    skv_free(v->spellings[id].text);
    v->spellings[id] = (struct skv_vocab_spelling){copy, n};
    return true;
}

const char *skv_vocab_spelling(const skv_vocab *v, uint32_t id, size_t *n)
{
    if (!v->spellings || !v->spellings[id].text) return skv_vocab_text(v, id, n);
    *n = v->spellings[id].n;
    return v->spellings[id].text;
}

uint32_t skv_vocab_find(const skv_vocab *v, const char *text, size_t n)
{
    if (!v->slots) return SKV_NO_TOKEN;
    uint64_t found = v->slots[slot_of(v, text, n, skv_hash_text(text, n))];
    return found == 0 ? SKV_NO_TOKEN : id_in(found);
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
}

int skv_byte_token_value(const char *text, size_t n)
{
    if (n != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>') return -1;
    int high = hex_digit(text[3]), low = hex_digit(text[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

int32_t *skv_ids_give_away(skv_ids *ids)
{
    skv_budget_shrink(ids->budget, &ids->data, &ids->capacity, skv_max_size(ids->n, 1),
                      sizeof *ids->data);
    int32_t *data = ids->data;
    if (ids->budget) skv_budget_give(ids->budget, ids->capacity * sizeof *data);
    *ids = (skv_ids){.max = ids->max, .budget = ids->budget};
    return data;
}

void skv_ids_release(skv_ids *ids)
{
    skv_budget_free(ids->budget, ids->data, ids->capacity, sizeof *ids->data);
    *ids = (skv_ids){0};
}

skv_status skv_ids_reserve(skv_ids *ids, size_t more, skv_error *err)
{
    size_t need = SIZE_MAX, grown = ids->capacity + ids->capacity / 2;
    bool fits = skv_size_add(ids->n, more, &need);
    if (fits && need <= ids->capacity) return SKV_OK;
    if (grown < need) grown = skv_max_size(need, 64);
    if (fits &&
        skv_budget_resize(ids->budget, &ids->data, &ids->capacity, grown, sizeof *ids->data))
        return SKV_OK;
    if (ids->budget) SKV_TRY(skv_budget_check(ids->budget, "tokenizing", err));
    return skv_fail(err, SKV_MEMORY, "no memory for %zu token ids", grown);
}

skv_status skv_ids_push(skv_ids *ids, int32_t id, skv_error *err)
{
    if (ids->max > 0 && ids->n >= ids->max) return SKV_FULL;
    if (ids->n == ids->capacity) SKV_TRY(skv_ids_reserve(ids, 1, err));
    ids->data[ids->n++] = id;
    return SKV_OK;
}

skv_status skv_ids_append(skv_ids *ids, const int32_t *more, size_t n, skv_error *err)
{
    for (size_t i = 0; i < n; i++) SKV_TRY(skv_ids_push(ids, more[i], err));
    return SKV_OK;
}
