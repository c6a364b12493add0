/* Masks of states: see mask_maker.h. */
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "grammar/mask_maker.h"

enum { HEADS = 1024, BLOCK_BYTES = 16 /* the allocator's overhead for an entry */ };

skv_parse_limit skv_mask_cache_init(skv_mask_cache *c, const skv_token_table *table,
                                    skv_account *account)
{
    *c = (skv_mask_cache){0};
    if (!skv_account_take(account, HEADS * sizeof(skv_mask_entry *))) return SKV_LIMIT_ACCOUNT;
    c->heads = skv_alloc_zero(HEADS, sizeof(skv_mask_entry *));
    if (!c->heads) {
        skv_account_give(account, HEADS * sizeof(skv_mask_entry *));
        return SKV_LIMIT_MEMORY;
    }
    c->table = table;
    c->account = account;
    return SKV_LIMIT_NONE;
}

static size_t token_words(const skv_mask_cache *c, const skv_mask_entry *e)
{
    return e->n_tokens == UINT32_MAX ? skv_mask_words(c->table) : e->n_tokens;
}

static size_t entry_bytes(const skv_mask_cache *c, const skv_mask_entry *e)
{
    size_t words = e->n_states + token_words(c, e) + e->n_exits;
    return sizeof *e + words * sizeof(uint32_t) + BLOCK_BYTES;
}

/* ---- order of use ---- */

static void unlink_use(skv_mask_cache *c, skv_mask_entry *e)
{
    if (e->newer) {
        e->newer->older = e->older;
    } else {
        c->newest = e->older;
    }
    if (e->older) {
        e->older->newer = e->newer;
    } else {
        c->oldest = e->newer;
    }
}

static void link_use(skv_mask_cache *c, skv_mask_entry *e)
{
    e->newer = NULL;
    e->older = c->newest;
    if (c->newest) {
        c->newest->newer = e;
    } else {
        c->oldest = e;
    }
    c->newest = e;
}

static void drop(skv_mask_cache *c, skv_mask_entry *e)
{
    skv_mask_entry **at = &c->heads[e->hash % HEADS];
    while (*at != e) at = &(*at)->link;
    *at = e->link;
    unlink_use(c, e);
    c->n_bytes -= entry_bytes(c, e);
    skv_account_give(c->account, entry_bytes(c, e));
    skv_free(e);
}

/* Drops the entry that was unused for longest; false: all that are left are pinned. */
static bool drop_oldest(skv_mask_cache *c)
{
    skv_mask_entry *e = c->oldest;
    while (e && e->n_pins > 0) e = e->newer;
    if (!e) return false;
    drop(c, e);
    return true;
}

void skv_mask_cache_drop(skv_mask_cache *c)
{
    while (drop_oldest(c)) continue;
}

void skv_mask_cache_release(skv_mask_cache *c)
{
    if (!c->heads) return;
    while (c->oldest) drop(c, c->oldest);
    skv_account_give(c->account, HEADS * sizeof(skv_mask_entry *));
    skv_free(c->heads);
    *c = (skv_mask_cache){0};
}

/* ---- entries ---- */

static uint32_t hash_states(const uint32_t *states, size_t n)
{
    uint64_t mix = n;
    for (size_t i = 0; i < n; i++) mix = skv_mix64(mix ^ states[i]);
    return (uint32_t)(mix >> 32);
}

skv_mask_entry *skv_mask_cache_find(skv_mask_cache *c, const uint32_t *states, size_t n)
{
    uint32_t hash = hash_states(states, n);
    for (skv_mask_entry *e = c->heads[hash % HEADS]; e; e = e->link) {
        if (e->hash != hash || e->n_states != n) continue;
        if (memcmp(e->states, states, n * sizeof *states) != 0) continue;
        unlink_use(c, e);
        link_use(c, e);
        return e;
    }
    return NULL;
}

static size_t count_bits(const uint32_t *bits, size_t words)
{
    size_t n = 0;
    for (size_t i = 0; i < words; i++) n += (size_t)__builtin_popcount(bits[i]);
    return n;
}

/* Copies the bits, or the list of tokens if that is shorter. */
static void copy_tokens(const skv_mask_cache *c, const uint32_t *bits, skv_mask_entry *e)
{
    size_t words = skv_mask_words(c->table), n = 0;
    if (e->n_tokens == UINT32_MAX) {
        memcpy(e->tokens, bits, words * sizeof *bits);
        return;
    }
    for (size_t i = 0; i < words && n < e->n_tokens; i++) {
        for (uint32_t rest = bits[i]; rest != 0; rest &= rest - 1) {
            e->tokens[n++] = (uint32_t)(i * 32) + (uint32_t)__builtin_ctz(rest);
        }
    }
}

/* Memory for an entry: older ones make room for it. */
static skv_parse_limit make_room(skv_mask_cache *c, size_t n_bytes)
{
    while (c->n_bytes + n_bytes > SKV_MASK_CACHE_BYTES_MAX && drop_oldest(c)) continue;
    while (!skv_account_take(c->account, n_bytes)) {
        if (!drop_oldest(c)) return SKV_LIMIT_ACCOUNT;
    }
    return SKV_LIMIT_NONE;
}

skv_parse_limit skv_mask_cache_add(skv_mask_cache *c, const skv_mask_found *found,
                                   skv_mask_entry **out)
{
    size_t words = skv_mask_words(c->table), n_tokens = count_bits(found->bits, words);
    skv_mask_entry made = {.n_states = (uint32_t)found->n_states,
                           .n_tokens = n_tokens < words ? (uint32_t)n_tokens : UINT32_MAX,
                           .n_exits = (uint32_t)found->exits->n,
                           .toll = *found->toll,
                           .hash = hash_states(found->states, found->n_states)};
    size_t n_bytes = entry_bytes(c, &made);
    skv_parse_limit limit = make_room(c, n_bytes);
    if (limit != SKV_LIMIT_NONE) return limit;
    skv_mask_entry *e = skv_alloc(1, n_bytes - BLOCK_BYTES);
    if (!e) {
        skv_account_give(c->account, n_bytes);
        return SKV_LIMIT_MEMORY;
    }
    *e = made;
    e->states = (uint32_t *)(e + 1);
    e->tokens = e->states + e->n_states;
    e->exits = e->tokens + token_words(c, e);
    memcpy(e->states, found->states, e->n_states * sizeof *e->states);
    copy_tokens(c, found->bits, e);
    if (e->n_exits > 0) memcpy(e->exits, found->exits->nodes, e->n_exits * sizeof *e->exits);
    c->n_bytes += n_bytes;
    e->link = c->heads[e->hash % HEADS];
    c->heads[e->hash % HEADS] = e;
    link_use(c, e);
    *out = e;
    return SKV_LIMIT_NONE;
}
