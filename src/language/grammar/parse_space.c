/* Positions of a grammar: see parse_space.h. */
#include "grammar/parse_space.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "base/size.h"

enum {
    SCRATCH_MAX = 4 * SKV_PARSE_CONFIGS_MAX, /* states that read nothing count while a step runs */
    HEADS = 1 << 14,
    LINK_WORK = 12 /* units of work for an item of a chain, which is rarely in a cache */
};

static size_t place_bytes(const skv_parse_space *s)
{
    return sizeof *s->places + s->g->n_classes * sizeof *s->next;
}

static size_t fixed_bytes(const skv_parse_space *s)
{
    return 2 * s->n_heads * sizeof *s->frame_heads + SCRATCH_MAX * sizeof *s->scratch.at +
           (size_t)2 * SCRATCH_MAX * sizeof *s->scratch.slots;
}

size_t skv_parse_space_bytes(const skv_parse_space *s)
{
    return s->frames_capacity * sizeof *s->frames + s->configs_capacity * sizeof *s->configs +
           s->places_capacity * place_bytes(s) + fixed_bytes(s);
}

size_t skv_parse_used_bytes(const skv_parse_space *s)
{
    return s->n_frames * sizeof *s->frames + s->n_configs * sizeof *s->configs +
           s->n_places * place_bytes(s);
}

static void meet(skv_parse_space *s, skv_parse_limit limit)
{
    if (limit > s->limit) s->limit = limit;
}

/* ---- memory ---- */

/* Gives an array another size. `array` points to the pointer. */
static bool resize(void *array, size_t count, size_t size)
{
    void *old, *block;
    memcpy(&old, array, sizeof old);
    block = skv_realloc(old, count, size);
    if (!block) return false;
    memcpy(array, &block, sizeof block);
    return true;
}

/* Whether `more` further bytes are allowed; then they are counted. */
static bool take(skv_parse_space *s, size_t more)
{
    if (skv_parse_space_bytes(s) + more > SKV_PARSE_BYTES_MAX) {
        meet(s, SKV_LIMIT_MEMORY);
        return false;
    }
    if (skv_account_take(s->account, more)) return true;
    meet(s, SKV_LIMIT_ACCOUNT);
    return false;
}

/* Returns the capacity for at least one more item of `size` bytes: twice the current one, or a
 * quarter more if memory is short. 0: no memory. */
static size_t grown_count(skv_parse_space *s, size_t capacity, size_t size)
{
    skv_parse_limit before = s->limit;
    size_t twice = skv_max_size(64, 2 * capacity), more = skv_max_size(64, capacity / 4);
    if (take(s, (twice - capacity) * size)) return twice;
    if (!take(s, more * size)) return 0;
    s->limit = before;
    return capacity + more;
}

static bool grow(skv_parse_space *s, void *array, size_t *capacity, size_t size)
{
    size_t grown = grown_count(s, *capacity, size);
    if (grown == 0) return false;
    if (!resize(array, grown, size)) {
        skv_account_give(s->account, (grown - *capacity) * size);
        meet(s, SKV_LIMIT_MEMORY);
        return false;
    }
    *capacity = grown;
    return true;
}

/* Places and their rows of `next` grow together. */
static bool grow_places(skv_parse_space *s)
{
    size_t old = s->places_capacity, grown = grown_count(s, old, place_bytes(s));
    if (grown == 0) return false;
    if (!resize(&s->next, grown, s->g->n_classes * sizeof *s->next) ||
        !resize(&s->places, grown, sizeof *s->places)) {
        skv_account_give(s->account, (grown - old) * place_bytes(s));
        meet(s, SKV_LIMIT_MEMORY);
        return false;
    }
    s->places_capacity = grown;
    return true;
}

/* The dead position is the first one: every byte leads back to it. */
static bool add_dead_place(skv_parse_space *s)
{
    if (s->n_places == s->places_capacity && !grow_places(s)) return false;
    s->places[0] = (skv_place){0};
    memset(s->next, 0, s->g->n_classes * sizeof *s->next);
    s->n_places = 1;
    return true;
}

static bool init_arrays(skv_parse_space *s)
{
    s->frame_heads = skv_alloc_zero(HEADS, sizeof *s->frame_heads);
    s->place_heads = skv_alloc_zero(HEADS, sizeof *s->place_heads);
    s->scratch.at = skv_alloc(SCRATCH_MAX, sizeof *s->scratch.at);
    s->scratch.slots = skv_alloc_zero((size_t)2 * SCRATCH_MAX, sizeof *s->scratch.slots);
    if (!s->frame_heads || !s->place_heads || !s->scratch.at || !s->scratch.slots) {
        meet(s, SKV_LIMIT_MEMORY);
        return false;
    }
    if (!grow(s, &s->frames, &s->frames_capacity, sizeof *s->frames)) return false;
    /* Never NULL: positions without configurations point into them too. */
    if (!grow(s, &s->configs, &s->configs_capacity, sizeof *s->configs)) return false;
    s->frames[SKV_FRAME_BOTTOM] = (skv_frame){0};
    s->n_frames = 1;
    return add_dead_place(s);
}

bool skv_parse_space_init(skv_parse_space *s, const skv_grammar *g, skv_account *account)
{
    *s = (skv_parse_space){.g = g, .account = account, .n_heads = HEADS};
    if (!skv_account_take(account, fixed_bytes(s))) {
        *s = (skv_parse_space){.limit = SKV_LIMIT_ACCOUNT}; /* there is nothing to release */
        return false;
    }
    if (init_arrays(s)) return true;
    skv_parse_limit limit = s->limit;
    skv_parse_space_release(s);
    s->limit = limit;
    return false;
}

void skv_parse_space_release(skv_parse_space *s)
{
    if (!s->g) return;
    skv_account_give(s->account, skv_parse_space_bytes(s));
    skv_free(s->frames);
    skv_free(s->places);
    skv_free(s->configs);
    skv_free(s->next);
    skv_free(s->frame_heads);
    skv_free(s->place_heads);
    skv_free(s->scratch.at);
    skv_free(s->scratch.slots);
    *s = (skv_parse_space){0};
}

const char *skv_parse_limit_text(skv_parse_limit limit)
{
    switch (limit) {
    case SKV_LIMIT_NONE: return "no limit";
    case SKV_LIMIT_DEPTH: return "nesting beyond the limit of 192 to 256 rules";
    case SKV_LIMIT_CONFIGS: return "more than 1024 ways to read the text at once";
    case SKV_LIMIT_EDGES: return "more than 262144 edges for one byte";
    case SKV_LIMIT_MEMORY: return "more than 64 MiB of positions, or no memory";
    case SKV_LIMIT_ACCOUNT: return "other requests hold the memory that it needs";
    }
    return "a limit";
}

/* ---- frames ---- */

static uint32_t hash_pair(uint32_t a, uint32_t b)
{
    return (uint32_t)(skv_mix64((uint64_t)a << 32 | b) >> 32);
}

/* The frame of a call, UINT32_MAX at a limit. */
static uint32_t push_frame(skv_parse_space *s, uint32_t below, uint32_t state)
{
    uint32_t *head = &s->frame_heads[hash_pair(below, state) & (s->n_heads - 1)];
    s->uncounted += LINK_WORK;
    for (uint32_t i = *head; i != 0; i = s->frames[i].link) {
        s->uncounted += LINK_WORK;
        if (s->frames[i].below == below && s->frames[i].state == state) return i;
    }
    uint32_t depth = s->frames[below].depth + 1;
    if (depth > SKV_PARSE_DEPTH_MAX) {
        meet(s, SKV_LIMIT_DEPTH);
        return UINT32_MAX;
    }
    if (s->n_frames == s->frames_capacity &&
        !grow(s, &s->frames, &s->frames_capacity, sizeof *s->frames)) {
        return UINT32_MAX;
    }
    uint32_t made = (uint32_t)s->n_frames++;
    s->frames[made] = (skv_frame){below, state, depth, *head};
    *head = made;
    return made;
}

/* ---- closures ---- */

/* Only the slots that are in use are cleared: a step is often a handful of configurations. */
static void scratch_forget(skv_parse_scratch *c)
{
    bool many = c->n > SCRATCH_MAX / 8;
    if (many) memset(c->slots, 0, (size_t)2 * SCRATCH_MAX * sizeof *c->slots);
    for (size_t i = 0; i < c->n && !many; i++) {
        size_t slot = hash_pair(c->at[i].frame, c->at[i].state) & (2 * SCRATCH_MAX - 1);
        while (c->slots[slot] != 0) {
            c->slots[slot] = 0;
            slot = (slot + 1) & (2 * SCRATCH_MAX - 1);
        }
    }
    c->n = 0;
    c->edges = 0;
    c->depth = 0;
    c->ends = false;
}

/* Adds a configuration that is not there yet; the loop of `close_scratch` follows its edges. */
static void scratch_add(skv_parse_space *s, uint32_t frame, uint32_t state)
{
    skv_parse_scratch *c = &s->scratch;
    if (state == SKV_STATE_END && frame == SKV_FRAME_BOTTOM) {
        c->ends = true;
        return;
    }
    size_t slot = hash_pair(frame, state) & (2 * SCRATCH_MAX - 1);
    for (; c->slots[slot] != 0; slot = (slot + 1) & (2 * SCRATCH_MAX - 1)) {
        const skv_config *there = &c->at[c->slots[slot] - 1];
        if (there->frame == frame && there->state == state) return;
    }
    if (c->n == SCRATCH_MAX) {
        meet(s, SKV_LIMIT_CONFIGS);
        return;
    }
    c->at[c->n++] = (skv_config){frame, state};
    c->slots[slot] = (uint32_t)c->n;
}

static void follow_call(skv_parse_space *s, uint32_t frame, const skv_edge *e)
{
    if (e->nests && s->frames[frame].depth >= SKV_PARSE_DEPTH_SOFT) {
        meet(s, SKV_LIMIT_DEPTH);
        return;
    }
    if (e->target != SKV_STATE_END) frame = push_frame(s, frame, e->target);
    if (frame == UINT32_MAX) return;
    if (s->frames[frame].depth > s->scratch.depth) s->scratch.depth = s->frames[frame].depth;
    scratch_add(s, frame, e->rule);
}

/* Counts the edges of a state that is looked at; false at the limit. */
static bool count_edges(skv_parse_space *s, const skv_state *state)
{
    s->scratch.edges += state->n + 1;
    if (s->scratch.edges <= SKV_PARSE_EDGES_MAX) return true;
    meet(s, SKV_LIMIT_EDGES);
    return false;
}

/* Follows all edges that read nothing. */
static void close_scratch(skv_parse_space *s)
{
    skv_parse_scratch *c = &s->scratch;
    for (size_t i = 0; i < c->n; i++) {
        skv_config at = c->at[i];
        if (at.state == SKV_STATE_END) {
            const skv_frame *f = &s->frames[at.frame];
            scratch_add(s, f->below, f->state);
            continue;
        }
        const skv_state *state = &s->g->states[at.state];
        if (!count_edges(s, state)) return;
        for (uint32_t k = 0; k < state->n; k++) {
            const skv_edge *e = &s->g->edges[state->first + k];
            if (e->kind == SKV_EDGE_FREE) scratch_add(s, at.frame, e->target);
            if (e->kind == SKV_EDGE_CALL) follow_call(s, at.frame, e);
        }
    }
}

static bool reads_bytes(const skv_grammar *g, uint32_t state)
{
    for (uint32_t k = 0; k < g->states[state].n; k++) {
        if (g->edges[g->states[state].first + k].kind == SKV_EDGE_BYTES) return true;
    }
    return false;
}

static int by_frame(const void *a, const void *b)
{
    const skv_config *x = a, *y = b;
    if (x->frame != y->frame) return x->frame < y->frame ? -1 : 1;
    return (x->state > y->state) - (x->state < y->state);
}

/* ---- positions ---- */

static uint32_t hash_configs(const skv_config *at, size_t n, bool ends)
{
    uint64_t hash = ends ? 1 : 0;
    for (size_t i = 0; i < n; i++) {
        hash = skv_mix64(hash ^ ((uint64_t)at[i].frame << 32 | at[i].state));
    }
    return (uint32_t)(hash >> 32);
}

static uint32_t add_place(skv_parse_space *s, const skv_config *at, size_t n, uint32_t hash,
                          bool ends)
{
    while (s->n_configs + n > s->configs_capacity) {
        if (!grow(s, &s->configs, &s->configs_capacity, sizeof *s->configs)) return SKV_PLACE_DEAD;
    }
    if (s->n_places == s->places_capacity && !grow_places(s)) return SKV_PLACE_DEAD;
    if (n > 0) memmove(s->configs + s->n_configs, at, n * sizeof *at);
    uint32_t *head = &s->place_heads[hash & (s->n_heads - 1)];
    uint32_t made = (uint32_t)s->n_places++;
    s->places[made] = (skv_place){.first = (uint32_t)s->n_configs,
                                  .n = (uint32_t)n,
                                  .hash = hash,
                                  .link = *head,
                                  .ends = ends};
    memset(s->next + made * s->g->n_classes, 0xff, s->g->n_classes * sizeof *s->next);
    s->n_configs += n;
    *head = made;
    return made;
}

/* The one index of a sorted set. */
static uint32_t intern(skv_parse_space *s, const skv_config *at, size_t n, bool ends)
{
    if (n == 0 && !ends) return SKV_PLACE_DEAD;
    uint32_t hash = hash_configs(at, n, ends);
    for (uint32_t i = s->place_heads[hash & (s->n_heads - 1)]; i != 0; i = s->places[i].link) {
        const skv_place *p = &s->places[i];
        s->uncounted += LINK_WORK;
        if (p->hash != hash || p->n != n || p->ends != ends) continue;
        if (n == 0 || memcmp(s->configs + p->first, at, n * sizeof *at) == 0) return i;
    }
    return add_place(s, at, n, hash, ends);
}

/* Records the load of the step that ends here. n: configurations of the position. */
static void note_load(skv_parse_space *s, uint32_t place, size_t n)
{
    enum { LOOKED_SHARE = SCRATCH_MAX / SKV_PARSE_CONFIGS_MAX };
    const size_t edges_share = SKV_PARSE_EDGES_MAX / SKV_PARSE_LOAD_MAX;
    const skv_parse_scratch *c = &s->scratch;
    skv_place *p = &s->places[place];
    size_t load = skv_max_size(n, skv_ceil_div(c->n, LOOKED_SHARE));
    load = skv_max_size(load, skv_ceil_div(c->edges, edges_share));
    p->load = (uint16_t)skv_min_size(UINT16_MAX, skv_max_size(p->load, load));
    p->depth = (uint16_t)skv_max_size(p->depth, c->depth);
}

/* The work of the step that ends here, which keeps n configurations: edges, entries of the hash
 * table, and sorting. */
static void count_work(skv_parse_space *s, size_t n)
{
    const skv_parse_scratch *c = &s->scratch;
    size_t digits = 0;
    while (n >> digits > 1) digits++;
    s->uncounted += c->edges + 2 * c->n + n * (digits + 1) / 2 + 4;
}

/* Follows edges that read nothing, and makes a position of the states that read a byte. */
static uint32_t take_place(skv_parse_space *s)
{
    skv_parse_scratch *c = &s->scratch;
    close_scratch(s);
    skv_config kept[SKV_PARSE_CONFIGS_MAX];
    size_t n = 0;
    for (size_t i = 0; i < c->n; i++) {
        if (c->at[i].state == SKV_STATE_END || !reads_bytes(s->g, c->at[i].state)) continue;
        if (n == SKV_PARSE_CONFIGS_MAX) {
            meet(s, SKV_LIMIT_CONFIGS);
            break;
        }
        kept[n++] = c->at[i];
    }
    if (n > 1) qsort(kept, n, sizeof *kept, by_frame);
    count_work(s, n);
    uint32_t place = s->limit < SKV_LIMIT_EDGES ? intern(s, kept, n, c->ends) : SKV_PLACE_DEAD;
    if (place != SKV_PLACE_DEAD) note_load(s, place, n);
    scratch_forget(c);
    return place;
}

uint32_t skv_parse_start(skv_parse_space *s)
{
    scratch_add(s, SKV_FRAME_BOTTOM, s->g->start);
    return take_place(s);
}

uint32_t skv_parse_return(skv_parse_space *s, uint32_t frame)
{
    scratch_add(s, s->frames[frame].below, s->frames[frame].state);
    return take_place(s);
}

uint32_t skv_parse_at(skv_parse_space *s, const uint32_t *states, size_t n)
{
    skv_config at[SKV_PARSE_CONFIGS_MAX];
    if (n > SKV_PARSE_CONFIGS_MAX) return SKV_PLACE_DEAD;
    for (size_t i = 0; i < n; i++) at[i] = (skv_config){SKV_FRAME_BOTTOM, states[i]};
    return intern(s, at, n, false);
}

uint32_t skv_parse_step(skv_parse_space *s, uint32_t place, uint8_t byte)
{
    uint32_t first = s->places[place].first, n = s->places[place].n;
    skv_parse_limit before = s->limit;
    if (before >= SKV_LIMIT_EDGES) return SKV_PLACE_DEAD;
    s->limit = SKV_LIMIT_NONE;
    for (uint32_t i = 0; i < n; i++) {
        skv_config at = s->configs[first + i];
        const skv_state *state = &s->g->states[at.state];
        if (!count_edges(s, state)) break;
        for (uint32_t k = 0; k < state->n; k++) {
            const skv_edge *e = &s->g->edges[state->first + k];
            if (e->kind == SKV_EDGE_BYTES && byte >= e->lo && byte <= e->hi) {
                scratch_add(s, at.frame, e->target);
            }
        }
    }
    uint32_t next = take_place(s);
    if (s->limit < SKV_LIMIT_EDGES) {
        if (s->limit != SKV_LIMIT_NONE) s->places[place].cut = (uint8_t)s->limit;
        s->next[place * s->g->n_classes + s->g->classes[byte]] = next;
    }
    meet(s, before);
    return next;
}

/* ---- dropping unused positions ---- */

/* Marks the stacks of a kept position. */
static void mark_frames(const skv_parse_space *s, uint32_t place, uint32_t *frames)
{
    const skv_place *p = &s->places[place];
    for (uint32_t i = 0; i < p->n; i++) {
        uint32_t f = s->configs[p->first + i].frame;
        for (; frames[f] == 0; f = s->frames[f].below) frames[f] = 1;
    }
}

/* Moves marked frames together; a frame's index is above that of the one below it. */
static void move_frames(skv_parse_space *s, uint32_t *frames)
{
    size_t n = 1;
    memset(s->frame_heads, 0, s->n_heads * sizeof *s->frame_heads);
    for (size_t i = 1; i < s->n_frames; i++) {
        if (frames[i] == 0) continue;
        skv_frame f = s->frames[i];
        f.below = frames[f.below];
        uint32_t *head = &s->frame_heads[hash_pair(f.below, f.state) & (s->n_heads - 1)];
        f.link = *head;
        *head = (uint32_t)n;
        s->frames[n] = f;
        frames[i] = (uint32_t)n++;
    }
    s->n_frames = n;
}

/* Moves marked positions together. The order of frames stays, so sets stay sorted. */
static void move_places(skv_parse_space *s, const uint32_t *frames, uint32_t *places)
{
    size_t n_old = s->n_places;
    s->n_places = 1;
    s->n_configs = 0;
    memset(s->place_heads, 0, s->n_heads * sizeof *s->place_heads);
    for (size_t i = 1; i < n_old; i++) {
        if (places[i] == 0) continue;
        skv_place p = s->places[i];
        skv_config *to = s->configs + s->n_configs;
        memmove(to, s->configs + p.first, p.n * sizeof *to);
        for (uint32_t k = 0; k < p.n; k++) to[k].frame = frames[to[k].frame];
        places[i] = add_place(s, to, p.n, hash_configs(to, p.n, p.ends), p.ends);
    }
}

static void tidy(skv_parse_space *s, uint32_t **kept, size_t n, uint32_t *frames, uint32_t *places)
{
    frames[SKV_FRAME_BOTTOM] = 1;
    for (size_t i = 0; i < n; i++) {
        mark_frames(s, *kept[i], frames);
        places[*kept[i]] = 1;
    }
    frames[SKV_FRAME_BOTTOM] = 0;
    places[SKV_PLACE_DEAD] = 0;
    move_frames(s, frames);
    move_places(s, frames, places);
    for (size_t i = 0; i < n; i++) *kept[i] = places[*kept[i]];
}

/* Arrays keep their size, since the same room will be needed again. */
bool skv_parse_tidy(skv_parse_space *s, uint32_t **kept, size_t n)
{
    size_t n_bytes = (s->n_frames + s->n_places) * sizeof(uint32_t);
    uint32_t *frames = skv_alloc_zero(s->n_frames, sizeof *frames);
    uint32_t *places = skv_alloc_zero(s->n_places, sizeof *places);
    bool made = frames && places;
    skv_account_take_anyway(s->account, n_bytes); /* this is how memory becomes free */
    s->uncounted += s->n_frames + s->n_places + n;
    if (made) tidy(s, kept, n, frames, places);
    s->uncounted += s->n_configs + s->n_places * s->g->n_classes / 16;
    skv_free(frames);
    skv_free(places);
    skv_account_give(s->account, n_bytes);
    return made;
}

static void shrink(skv_parse_space *s, void *array, size_t n, size_t *capacity, size_t size)
{
    n = skv_max_size(n, 64);
    if (n >= *capacity || !resize(array, n, size)) return;
    skv_account_give(s->account, (*capacity - n) * size);
    *capacity = n;
}

void skv_parse_shrink(skv_parse_space *s)
{
    size_t n = skv_max_size(s->n_places, 64);
    shrink(s, &s->frames, s->n_frames, &s->frames_capacity, sizeof *s->frames);
    shrink(s, &s->configs, s->n_configs, &s->configs_capacity, sizeof *s->configs);
    if (n >= s->places_capacity) return;
    if (!resize(&s->next, n, s->g->n_classes * sizeof *s->next)) return;
    skv_account_give(s->account, (s->places_capacity - n) * place_bytes(s));
    s->places_capacity = n;
    (void)resize(&s->places, n, sizeof *s->places); /* where it stays larger, that does no harm */
}
