/* Masks in pieces: see mask_maker.h. */
#include "grammar/mask_maker.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"

enum {
    LOAD_BEYOND = SKV_PARSE_LOAD_MAX + 1,
    SPEND_EVERY = 1024 /* units of work between two looks at the budget, while entries are added */
};

/* ---- life ---- */

size_t skv_mask_maker_bytes(const skv_token_table *table)
{
    return 2 * skv_mask_words(table) * sizeof(uint32_t);
}

bool skv_mask_maker_init(skv_mask_maker *m, skv_parse_space *space, skv_mask_cache *cache)
{
    size_t words = skv_mask_words(cache->table);
    *m = (skv_mask_maker){.space = space, .cache = cache};
    m->bits = skv_alloc_zero(2 * words, sizeof *m->bits);
    if (!m->bits) return false;
    m->entry_bits = m->bits + words;
    m->walk.table = cache->table;
    m->walk.space = space;
    return true;
}

static void unpin(skv_mask_maker *m)
{
    if (m->entry) m->entry->n_pins--;
    m->entry = NULL;
}

void skv_mask_maker_release(skv_mask_maker *m)
{
    if (!m->bits) return;
    unpin(m);
    skv_node_list_release(&m->exits, m->space->account);
    skv_free(m->bits);
    m->bits = NULL;
}

void skv_mask_maker_reset(skv_mask_maker *m)
{
    unpin(m);
    m->stage = SKV_MAKING_NONE;
}

void skv_mask_maker_copy_ready(skv_mask_maker *m, const skv_mask_maker *other)
{
    if (other->stage != SKV_MAKING_DONE) return;
    memcpy(m->bits, other->bits, skv_mask_words(m->cache->table) * sizeof *m->bits);
    m->stage = SKV_MAKING_DONE;
}

size_t skv_mask_maker_list(skv_mask_maker *m, uint32_t **kept)
{
    bool walks = m->stage == SKV_MAKING_ENTRY || m->stage == SKV_MAKING_EXITS ||
                 m->stage == SKV_MAKING_WHOLE;
    size_t n = walks ? skv_mask_walk_list(&m->walk, kept) : 0;
    if (m->stage != SKV_MAKING_EXITS) return n;
    if (kept) kept[n] = &m->rest;
    return n + 1;
}

/* ---- the whole position ---- */

static void clear(uint32_t *bits, const skv_mask_maker *m)
{
    memset(bits, 0, skv_mask_words(m->cache->table) * sizeof *bits);
}

static void begin_whole(skv_mask_maker *m, uint32_t place)
{
    unpin(m);
    clear(m->bits, m);
    m->space->limit = SKV_LIMIT_NONE;
    m->stage = SKV_MAKING_WHOLE;
    m->walk.bits = m->bits;
    m->walk.exits = NULL;
    m->walk.toll = NULL;
    skv_mask_walk_begin(&m->walk, SKV_TRIE_ROOT, place);
}

bool skv_mask_maker_fall_back(skv_mask_maker *m, uint32_t place)
{
    if (m->stage == SKV_MAKING_WHOLE) return false;
    begin_whole(m, place);
    m->limit = m->soft_limit = SKV_LIMIT_NONE;
    return true;
}

/* ---- one stack ---- */

static int by_value(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Writes the cache key of one stack: its states, with stand-ins for those of long repetitions. */
static size_t key_states(const skv_mask_maker *m, const skv_config *configs, size_t n,
                         uint32_t *states)
{
    const size_t longest = m->cache->table->longest;
    size_t n_states = 0;
    for (size_t i = 0; i < n; i++) {
        states[i] = skv_grammar_alias(m->space->g, configs[i].state, longest);
    }
    if (n > 1) qsort(states, n, sizeof *states, by_value);
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || states[i] != states[i - 1]) states[n_states++] = states[i];
    }
    return n_states;
}

static size_t edges_of_copy(const skv_grammar *g, const skv_unrolled *u)
{
    size_t n = 0;
    for (uint32_t i = 0; i < u->stride; i++) n += g->states[u->base + i].n;
    return n;
}

/*
 * Bounds the load of a step beyond that of the stand-ins. States deep inside long repetitions may
 * share a stand-in but lead to different copies. A token advances by at most one copy a byte, so
 * all states of the reachable copies are a bound; a step follows no edge of a stack twice, before
 * and after its byte. configs: [n] sorted by state.
 */
static uint32_t load_of_copies(const skv_mask_maker *m, const skv_config *configs, size_t n)
{
    const skv_grammar *g = m->space->g;
    const uint32_t longest = (uint32_t)m->cache->table->longest;
    const skv_unrolled *last = NULL;
    uint32_t copy = 0, last_copy = 0;
    size_t n_states = 0, n_edges = 0, edges = 0;
    for (size_t i = 0; i < n && n > 1 && n_states < LOAD_BEYOND; i++) {
        const skv_unrolled *u = skv_grammar_far(g, configs[i].state, longest, &copy);
        if (!u) continue;
        size_t n_copies = u == last ? copy - last_copy : longest + 2;
        n_states += n_copies * u->stride;
        if (n_states >= LOAD_BEYOND) break;
        if (u != last) edges = edges_of_copy(g, u);
        n_edges += n_copies * edges;
        last = u;
        last_copy = copy;
    }
    size_t share = SKV_PARSE_EDGES_MAX / SKV_PARSE_LOAD_MAX;
    size_t load = n_states + skv_ceil_div(2 * (n_edges + n_states), share);
    return (uint32_t)skv_min_size(load, LOAD_BEYOND);
}

static void add_entry(const skv_mask_maker *m, const skv_mask_entry *entry)
{
    if (entry->n_tokens == UINT32_MAX) {
        size_t words = skv_mask_words(m->cache->table);
        for (size_t i = 0; i < words; i++) m->bits[i] |= entry->tokens[i];
        m->space->uncounted += words / 16 + 1;
        return;
    }
    m->space->uncounted += entry->n_tokens / 8 + 1;
    for (uint32_t i = 0; i < entry->n_tokens; i++) {
        m->bits[entry->tokens[i] / 32] |= UINT32_C(1) << entry->tokens[i] % 32;
    }
}

static void next_stack(skv_mask_maker *m)
{
    unpin(m);
    m->i_config += m->n_group;
    m->stage = SKV_MAKING_STACK;
}

/* Begins the exits: where the rule of this stack ends inside a token, the token continues in the
 * stack below. */
static void begin_exits(skv_mask_maker *m, skv_mask_entry *entry, uint32_t rest)
{
    m->entry = entry;
    m->entry->n_pins++;
    m->i_exit = 0;
    m->rest = rest;
    m->toll = (skv_mask_toll){.load = m->space->places[rest].load};
    m->walk.bits = m->bits;
    m->walk.exits = NULL;
    m->walk.toll = &m->toll;
    m->walk.at = m->walk.end = 0;
    m->stage = SKV_MAKING_EXITS;
}

/* Adds the tokens of an entry, and their share of the load of a step: LOAD_BEYOND if a limit is met
 * or cannot be ruled out. Changes nothing if it gets stuck. */
static void take_entry(skv_mask_maker *m, skv_mask_entry *entry, const skv_config *group)
{
    uint32_t frame = group[0].frame, depth = m->space->frames[frame].depth + entry->toll.depth;
    bool goes_on = frame != SKV_FRAME_BOTTOM && entry->toll.ends > 0;
    if (entry->toll.cut || depth >= SKV_PARSE_DEPTH_SOFT) {
        m->load = LOAD_BEYOND;
        return;
    }
    uint32_t rest = goes_on ? skv_parse_return(m->space, frame) : SKV_PLACE_DEAD;
    if (m->space->limit >= SKV_LIMIT_EDGES) return;
    add_entry(m, entry);
    m->load += m->copies_load + entry->toll.load;
    if (goes_on) {
        begin_exits(m, entry, rest);
    } else {
        next_stack(m);
    }
}

static void begin_entry(skv_mask_maker *m, const uint32_t *states, size_t n_states)
{
    uint32_t place = skv_parse_at(m->space, states, n_states);
    if (place == SKV_PLACE_DEAD) return;
    clear(m->entry_bits, m);
    m->exits.n = 0;
    m->toll = (skv_mask_toll){0};
    m->walk.bits = m->entry_bits;
    m->walk.exits = &m->exits;
    m->walk.toll = &m->toll;
    skv_mask_walk_begin(&m->walk, SKV_TRIE_ROOT, place);
    m->stage = SKV_MAKING_ENTRY;
}

static const skv_config *group_of(const skv_mask_maker *m, uint32_t place)
{
    return m->space->configs + m->space->places[place].first + m->i_config;
}

/* The next stack of a position, or its end. */
static void begin_stack(skv_mask_maker *m, uint32_t place)
{
    const skv_place *p = &m->space->places[place];
    const skv_config *group = group_of(m, place);
    uint32_t states[SKV_PARSE_CONFIGS_MAX], n_left = p->n - m->i_config, n = 0;
    if (n_left == 0) {
        m->stage = SKV_MAKING_DONE;
        return;
    }
    while (n < n_left && group[n].frame == group[0].frame) n++;
    m->n_group = n;
    m->copies_load = load_of_copies(m, group, n);
    if (m->copies_load >= LOAD_BEYOND) {
        m->load = LOAD_BEYOND;
        return;
    }
    size_t n_states = key_states(m, group, n, states);
    skv_mask_entry *entry = skv_mask_cache_find(m->cache, states, n_states);
    if (entry) {
        take_entry(m, entry, group);
    } else {
        begin_entry(m, states, n_states);
    }
}

/* The walk from the states of a stack has ended: its entry goes into the cache. */
static void finish_entry(skv_mask_maker *m, uint32_t place)
{
    const skv_config *group = group_of(m, place);
    uint32_t states[SKV_PARSE_CONFIGS_MAX];
    size_t n_states = key_states(m, group, m->n_group, states);
    if (m->toll.cut) {
        clear(m->entry_bits, m);
        m->exits.n = 0;
    }
    /* A copy of the matcher may have made it meanwhile. */
    skv_mask_entry *entry = skv_mask_cache_find(m->cache, states, n_states);
    const skv_mask_found found = {states, n_states, m->entry_bits, &m->exits, &m->toll};
    if (!entry) {
        skv_parse_limit limit = skv_mask_cache_add(m->cache, &found, &entry);
        if (limit != SKV_LIMIT_NONE) {
            m->space->limit = limit;
            return;
        }
        m->space->uncounted += skv_mask_words(m->cache->table) / 4;
    }
    take_entry(m, entry, group);
}

/* Continues the rule, after a step, from each place in a token where it ended. */
static void next_exit(skv_mask_maker *m)
{
    if (m->toll.cut || m->space->limit != SKV_LIMIT_NONE) {
        m->load = LOAD_BEYOND;
    } else if (m->i_exit < m->entry->n_exits) {
        skv_mask_walk_begin(&m->walk, m->entry->exits[m->i_exit++], m->rest);
    } else {
        m->load += 1 + m->entry->toll.ends * m->toll.load;
        next_stack(m);
    }
}

/* ---- all of it ---- */

static void advance(skv_mask_maker *m, uint32_t place)
{
    switch (m->stage) {
    case SKV_MAKING_NONE:
        clear(m->bits, m);
        m->space->limit = SKV_LIMIT_NONE;
        m->i_config = m->n_group = m->load = m->copies_load = 0;
        m->stage = SKV_MAKING_STACK;
        break;
    case SKV_MAKING_STACK: begin_stack(m, place); break;
    case SKV_MAKING_ENTRY: finish_entry(m, place); break;
    case SKV_MAKING_EXITS: next_exit(m); break;
    case SKV_MAKING_WHOLE: m->stage = SKV_MAKING_DONE; break;
    case SKV_MAKING_DONE: break;
    }
    bool in_parts = m->stage != SKV_MAKING_WHOLE && m->stage != SKV_MAKING_DONE;
    if (m->load >= LOAD_BEYOND && in_parts) begin_whole(m, place);
}

static skv_walk_state go(skv_mask_maker *m, uint32_t place, skv_budget *budget)
{
    while (m->stage != SKV_MAKING_DONE) {
        if (m->stage >= SKV_MAKING_ENTRY) {
            skv_walk_state state = skv_mask_walk_on(&m->walk, budget);
            if (state != SKV_WALK_DONE) return state;
        }
        advance(m, place);
        if (m->space->limit >= SKV_LIMIT_EDGES) return SKV_WALK_STUCK;
        /* Stacks with known entries take no walk, but there may be a thousand of them. */
        bool spends = m->stage == SKV_MAKING_STACK && m->space->uncounted >= SPEND_EVERY;
        if (spends && !skv_parse_spend(m->space, budget)) return SKV_WALK_PAUSED;
    }
    return SKV_WALK_DONE;
}

skv_walk_state skv_mask_maker_go(skv_mask_maker *m, uint32_t place, skv_budget *budget)
{
    m->space->limit = m->soft_limit;
    skv_walk_state state = go(m, place, budget);
    m->limit = m->space->limit;
    if (m->limit < SKV_LIMIT_EDGES) m->soft_limit = m->limit;
    return state;
}
