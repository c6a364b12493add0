/* Masks of states: see mask_cache.h. */
#include "grammar/mask_cache.h"

#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "base/size.h"

enum { HEADS = 1024 };

static size_t words_of(const skv_token_table *table)
{
    return table->n_tokens / 32 + 1;
}

bool skv_mask_cache_init(skv_mask_cache *c, const skv_token_table *table)
{
    *c = (skv_mask_cache){.table = table};
    c->heads = skv_alloc_zero(HEADS, sizeof(skv_mask_entry *));
    c->bits = table != NULL ? skv_alloc_zero(words_of(table), sizeof *c->bits) : NULL;
    if (c->heads != NULL && (c->bits != NULL || table == NULL)) return true;
    skv_mask_cache_release(c);
    return false;
}

static void free_entry(skv_mask_entry *entry)
{
    skv_free(entry->states);
    skv_free(entry->tokens);
    skv_free(entry->exits);
    skv_free(entry);
}

void skv_mask_cache_release(skv_mask_cache *c)
{
    for (skv_mask_entry *e = c->newest; e != NULL;) {
        skv_mask_entry *older = e->older;
        free_entry(e);
        e = older;
    }
    skv_free(c->heads);
    skv_free(c->bits);
    skv_free(c->exits);
    *c = (skv_mask_cache){0};
}

static size_t entry_bytes(const skv_mask_cache *c, const skv_mask_entry *e)
{
    size_t tokens = e->n_tokens == UINT32_MAX ? words_of(c->table) : e->n_tokens;
    return sizeof *e + (e->n_states + tokens + e->n_exits) * sizeof(uint32_t);
}

/* ---- order of use ---- */

static void unlink_use(skv_mask_cache *c, skv_mask_entry *e)
{
    if (e->newer != NULL) {
        e->newer->older = e->older;
    } else {
        c->newest = e->older;
    }
    if (e->older != NULL) {
        e->older->newer = e->newer;
    } else {
        c->oldest = e->newer;
    }
}

static void link_use(skv_mask_cache *c, skv_mask_entry *e)
{
    e->newer = NULL;
    e->older = c->newest;
    if (c->newest != NULL) {
        c->newest->newer = e;
    } else {
        c->oldest = e;
    }
    c->newest = e;
}

static void drop_oldest(skv_mask_cache *c)
{
    skv_mask_entry *e = c->oldest;
    skv_mask_entry **at = &c->heads[e->hash % HEADS];
    while (*at != e) at = &(*at)->link;
    *at = e->link;
    unlink_use(c, e);
    c->n_bytes -= entry_bytes(c, e);
    free_entry(e);
}

/* ---- walks ---- */

static void add_exit(skv_mask_cache *c, skv_parse_space *space, uint32_t node)
{
    if (c->n_exits == c->exits_capacity) {
        size_t grown = skv_max_size(256, 2 * c->exits_capacity);
        uint32_t *exits = skv_realloc(c->exits, grown, sizeof *exits);
        if (exits == NULL) {
            space->limit = SKV_LIMIT_MEMORY;
            return;
        }
        c->exits = exits;
        c->exits_capacity = grown;
    }
    c->exits[c->n_exits++] = node;
}

/* ends: nodes above this one where the rule has ended. Returns them with this one. */
static uint32_t pay(skv_mask_toll *toll, const skv_place *p, uint32_t ends)
{
    ends += p->ends ? 1 : 0;
    if (p->load > toll->load) toll->load = p->load;
    if (p->depth > toll->depth) toll->depth = p->depth;
    if (ends > toll->ends) toll->ends = ends;
    return ends;
}

void skv_mask_walk_from(const skv_mask_walk *w, uint32_t above, uint32_t place)
{
    const skv_token_table *t = w->table;
    skv_parse_space *space = w->space;
    uint32_t places[SKV_TOKEN_BYTES_MAX + 1], ends[SKV_TOKEN_BYTES_MAX + 1]; /* [depth] */
    bool root = above == UINT32_MAX;
    uint32_t end = root ? (uint32_t)t->n_nodes : t->nodes[above].skip;
    places[root ? 0 : t->nodes[above].depth] = place;
    ends[root ? 0 : t->nodes[above].depth] = 0;
    for (uint32_t i = root ? 0 : above + 1; i < end;) {
        const skv_token_node node = t->nodes[i];
        uint32_t next = skv_parse_next(space, places[node.depth - 1], node.byte);
        if (w->toll != NULL && space->places[places[node.depth - 1]].cut != SKV_LIMIT_NONE) {
            w->toll->cut = true;
            return;
        }
        if (next == SKV_PLACE_DEAD) {
            i = node.skip;
            continue;
        }
        places[node.depth] = next;
        if (w->toll != NULL) {
            ends[node.depth] = pay(w->toll, &space->places[next], ends[node.depth - 1]);
        }
        for (uint32_t k = 0; k < node.n_ids; k++) {
            uint32_t id = t->ids[node.first_id + k];
            w->bits[id / 32] |= UINT32_C(1) << id % 32;
        }
        if (w->cache != NULL && node.skip > i + 1 && space->places[next].ends) {
            add_exit(w->cache, space, i);
        }
        i++;
    }
}

/* ---- entries ---- */

static uint32_t *copy_words(const uint32_t *words, size_t n)
{
    uint32_t *out = skv_alloc(n, sizeof *out);
    if (out != NULL && n > 0) memcpy(out, words, n * sizeof *out);
    return out;
}

/* The bits, or their list where that is shorter. */
static uint32_t *copy_tokens(const skv_mask_cache *c, uint32_t *n_tokens)
{
    size_t words = words_of(c->table), n = 0;
    for (size_t i = 0; i < words; i++) n += (size_t)__builtin_popcount(c->bits[i]);
    *n_tokens = UINT32_MAX;
    if (n >= words) return copy_words(c->bits, words);
    uint32_t *out = skv_alloc(n, sizeof *out);
    *n_tokens = 0;
    for (size_t i = 0; i < words && out != NULL; i++) {
        for (uint32_t rest = c->bits[i]; rest != 0; rest &= rest - 1) {
            out[(*n_tokens)++] = (uint32_t)(i * 32) + (uint32_t)__builtin_ctz(rest);
        }
    }
    return out;
}

static skv_mask_entry *make_entry(skv_mask_cache *c, skv_parse_space *space, const uint32_t *states,
                                  size_t n)
{
    skv_mask_toll toll = {0};
    const skv_mask_walk walk = {c->table, space, c->bits, c, &toll};
    memset(c->bits, 0, words_of(c->table) * sizeof *c->bits);
    c->n_exits = 0;
    uint32_t place = skv_parse_at(space, states, n);
    if (place == SKV_PLACE_DEAD) return NULL;
    skv_mask_walk_from(&walk, UINT32_MAX, place);
    if (toll.cut) {
        memset(c->bits, 0, words_of(c->table) * sizeof *c->bits);
        c->n_exits = 0;
    }
    skv_mask_entry *e = space->limit < SKV_LIMIT_STEPS ? skv_alloc_zero(1, sizeof *e) : NULL;
    if (e == NULL) return NULL;
    e->toll = toll;
    e->states = copy_words(states, n);
    e->tokens = copy_tokens(c, &e->n_tokens);
    e->exits = copy_words(c->exits, c->n_exits);
    e->n_states = (uint32_t)n;
    e->n_exits = (uint32_t)c->n_exits;
    if (e->states != NULL && e->tokens != NULL && e->exits != NULL) return e;
    free_entry(e);
    return NULL;
}

const skv_mask_entry *skv_mask_cache_get(skv_mask_cache *c, skv_parse_space *space,
                                         const uint32_t *states, size_t n)
{
    uint64_t mix = n;
    for (size_t i = 0; i < n; i++) mix = skv_mix64(mix ^ states[i]);
    uint32_t hash = (uint32_t)(mix >> 32);
    skv_mask_entry **head = &c->heads[hash % HEADS];
    for (skv_mask_entry *e = *head; e != NULL; e = e->link) {
        if (e->hash != hash || e->n_states != n) continue;
        if (memcmp(e->states, states, n * sizeof *states) != 0) continue;
        unlink_use(c, e);
        link_use(c, e);
        return e;
    }
    skv_mask_entry *e = make_entry(c, space, states, n);
    if (e == NULL) return NULL;
    e->hash = hash;
    c->n_bytes += entry_bytes(c, e);
    while (c->n_bytes > SKV_MASK_CACHE_BYTES_MAX && c->oldest != NULL) drop_oldest(c);
    e->link = *head;
    *head = e;
    link_use(c, e);
    return e;
}
