/* One answer on its way through a grammar: see skv/grammar.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "grammar/mask_cache.h"

/* What a matcher and its copies share. */
typedef struct skv_matcher_shared {
    skv_parse_space space;
    skv_mask_cache cache;
    uint32_t *bits;      /* owned, [words of the table] the mask that is being made */
    skv_matcher *first;  /* all of them, a list */
    size_t tidied_bytes; /* in use when it was tidied last */
} skv_matcher_shared;

typedef struct moment {
    uint32_t place;
    bool ended;  /* by an ending token */
    uint8_t cut; /* skv_parse_limit that may have left out readings on the way here */
} moment;

struct skv_matcher {
    const skv_grammar *g;                      /* borrowed */
    const skv_token_table *table;              /* borrowed; may be NULL */
    skv_matcher_shared *shared;                /* owned by all that use it */
    skv_matcher *next;                         /* in the list of `shared` */
    size_t n_past;                             /* moments that can be gone back to */
    size_t newest;                             /* in `past`: now */
    moment past[SKV_MATCHER_ROLLBACK_MAX + 1]; /* a ring */
};

enum { LOAD_BEYOND = SKV_PARSE_LOAD_MAX + 1 };

static size_t words_of(const skv_token_table *table)
{
    return table != NULL ? table->n_tokens / 32 + 1 : 0;
}

static const moment *now(const skv_matcher *m)
{
    return &m->past[m->newest];
}

static const skv_place *place_now(const skv_matcher *m)
{
    return &m->shared->space.places[now(m)->place];
}

/* ---- life ---- */

static void free_shared(skv_matcher_shared *shared)
{
    skv_parse_space_release(&shared->space);
    skv_mask_cache_release(&shared->cache);
    skv_free(shared->bits);
    skv_free(shared);
}

static skv_matcher_shared *make_shared(const skv_grammar *g, const skv_token_table *table)
{
    skv_matcher_shared *shared = skv_alloc_zero(1, sizeof *shared);
    if (shared == NULL) return NULL;
    shared->bits = skv_alloc_zero(words_of(table), sizeof *shared->bits);
    bool made = shared->bits != NULL && skv_parse_space_init(&shared->space, g);
    if (made && !skv_mask_cache_init(&shared->cache, table)) {
        skv_parse_space_release(&shared->space);
        made = false;
    }
    if (made) return shared;
    skv_free(shared->bits);
    skv_free(shared);
    return NULL;
}

skv_status skv_matcher_create(const skv_grammar *grammar, const skv_token_table *table,
                              skv_matcher **out, skv_error *err)
{
    skv_matcher *m = skv_alloc_zero(1, sizeof *m);
    skv_matcher_shared *shared = m != NULL ? make_shared(grammar, table) : NULL;
    if (shared == NULL) {
        skv_free(m);
        return skv_fail(err, SKV_MEMORY, "grammar: no memory for a matcher");
    }
    m->g = grammar;
    m->table = table;
    m->shared = shared;
    shared->first = m;
    skv_parse_begin(&shared->space);
    m->past[0].place = skv_parse_start(&shared->space);
    m->past[0].cut = (uint8_t)shared->space.limit;
    if (m->past[0].place == SKV_PLACE_DEAD) {
        skv_status status =
            skv_fail(err, SKV_FULL, "grammar: %s", skv_parse_limit_text(shared->space.limit));
        skv_matcher_free(m);
        return status;
    }
    *out = m;
    return SKV_OK;
}

skv_status skv_matcher_copy(const skv_matcher *matcher, skv_matcher **out, skv_error *err)
{
    skv_matcher *m = skv_alloc(1, sizeof *m);
    SKV_REQUIRE(m != NULL, err, SKV_MEMORY, "grammar: no memory for a matcher");
    *m = *matcher;
    m->next = m->shared->first;
    m->shared->first = m;
    *out = m;
    return SKV_OK;
}

void skv_matcher_free(skv_matcher *matcher)
{
    if (matcher == NULL) return;
    skv_matcher_shared *shared = matcher->shared;
    skv_matcher **at = &shared->first;
    while (*at != matcher) at = &(*at)->next;
    *at = matcher->next;
    if (shared->first == NULL) free_shared(shared);
    skv_free(matcher);
}

/* ---- memory ---- */

static size_t list_kept(skv_matcher_shared *shared, uint32_t **kept)
{
    size_t n = 0;
    for (skv_matcher *m = shared->first; m != NULL; m = m->next) {
        for (size_t i = 0; i <= m->n_past; i++) {
            size_t at =
                (m->newest + SKV_MATCHER_ROLLBACK_MAX + 1 - i) % (SKV_MATCHER_ROLLBACK_MAX + 1);
            if (kept != NULL) kept[n] = &m->past[at].place;
            n++;
        }
    }
    return n;
}

static size_t used_bytes(const skv_parse_space *s)
{
    return s->n_frames * sizeof *s->frames + s->n_configs * sizeof *s->configs +
           s->n_places * (sizeof *s->places + s->g->n_classes * sizeof *s->next);
}

/* Drops positions that no matcher stands on or can go back to. Begins a call: no position but
 * those of the matchers lives across it. Where it cannot be done, the limit on memory decides. */
static void begin(skv_matcher_shared *shared)
{
    skv_parse_space *space = &shared->space;
    bool full = space->limit == SKV_LIMIT_MEMORY;
    skv_parse_begin(space);
    size_t used = used_bytes(space);
    bool much = used >= SKV_PARSE_BYTES_TIDY && used >= 2 * shared->tidied_bytes;
    if (!much && !full) return;
    size_t n = list_kept(shared, NULL);
    uint32_t **kept = skv_alloc(n, sizeof(uint32_t *));
    if (kept != NULL) {
        list_kept(shared, kept);
        if (skv_parse_tidy(space, kept, n)) shared->tidied_bytes = used_bytes(space);
    }
    skv_free(kept);
}

/* ---- masks ---- */

static void add_entry(const skv_mask_entry *entry, uint32_t *bits, size_t words)
{
    if (entry->n_tokens == UINT32_MAX) {
        for (size_t i = 0; i < words; i++) bits[i] |= entry->tokens[i];
        return;
    }
    for (uint32_t i = 0; i < entry->n_tokens; i++) {
        bits[entry->tokens[i] / 32] |= UINT32_C(1) << entry->tokens[i] % 32;
    }
}

static int by_value(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* The states of one stack, those of a long repetition by their stand-ins: what the cache knows. */
static size_t key_states(const skv_matcher *m, const skv_config *configs, size_t n,
                         uint32_t *states)
{
    size_t n_states = 0;
    for (size_t i = 0; i < n; i++) {
        states[i] = skv_grammar_alias(m->g, configs[i].state, m->table->longest);
    }
    if (n > 1) qsort(states, n, sizeof *states, by_value);
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || states[i] != states[i - 1]) states[n_states++] = states[i];
    }
    return n_states;
}

/*
 * What a step takes beyond the load of the stand-ins: states far inside of long repetitions may
 * share a stand-in, but lead to copies of their own. A token goes from a copy to the next ones at
 * most, one a byte, so that all states of these copies are a bound; a step follows no edge of a
 * stack twice, before and behind its byte. configs: [n] sorted by state.
 */
static uint32_t load_of_copies(const skv_matcher *m, const skv_config *configs, size_t n)
{
    const uint32_t longest = (uint32_t)m->table->longest;
    const skv_unrolled *last = NULL;
    uint32_t copy = 0, last_copy = 0;
    size_t load = 0;
    for (size_t i = 0; i < n && n > 1; i++) {
        const skv_unrolled *u = skv_grammar_far(m->g, configs[i].state, longest, &copy);
        if (u == NULL) continue;
        load += (size_t)(u == last ? copy - last_copy : longest + 2) * u->stride;
        last = u;
        last_copy = copy;
    }
    if (load == 0) return 0;
    load += skv_ceil_div(2 * (m->g->n_edges + m->g->n_states),
                         SKV_PARSE_STEPS_MAX / SKV_PARSE_LOAD_MAX);
    return (uint32_t)skv_min_size(load, LOAD_BEYOND);
}

/*
 * Adds the tokens that fit n configurations of one stack. Returns the load that they add to a step
 * of a token, from LOAD_BEYOND on where a limit is met or cannot be ruled out.
 *
 * Behind the rule's end a step goes on from each place of the token where it ended.
 */
static uint32_t mask_stack(skv_matcher *m, const skv_config *configs, size_t n)
{
    skv_matcher_shared *shared = m->shared;
    skv_parse_space *space = &shared->space;
    uint32_t states[SKV_PARSE_CONFIGS_MAX], frame = configs[0].frame;
    size_t n_states = key_states(m, configs, n, states);
    const skv_mask_entry *entry = skv_mask_cache_get(&shared->cache, space, states, n_states);
    if (entry == NULL || entry->toll.cut) return LOAD_BEYOND;
    if (space->frames[frame].depth + entry->toll.depth >= SKV_PARSE_DEPTH_SOFT) return LOAD_BEYOND;
    add_entry(entry, shared->bits, words_of(m->table));
    uint32_t load = entry->toll.load + load_of_copies(m, configs, n);
    if (frame == SKV_FRAME_BOTTOM || entry->toll.ends == 0) return load;
    uint32_t place = skv_parse_return(space, frame);
    skv_mask_toll rest = {.load = space->places[place].load};
    const skv_mask_walk walk = {m->table, space, shared->bits, NULL, &rest};
    for (uint32_t i = 0; i < entry->n_exits && space->limit == SKV_LIMIT_NONE; i++) {
        skv_mask_walk_from(&walk, entry->exits[i], place);
    }
    if (rest.cut || space->limit != SKV_LIMIT_NONE) return LOAD_BEYOND;
    return load + 1 + entry->toll.ends * rest.load;
}

static uint32_t depth_of(const skv_parse_space *space, uint32_t place)
{
    const skv_place *p = &space->places[place];
    uint32_t depth = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        uint32_t d = space->frames[space->configs[p->first + i].frame].depth;
        depth = d > depth ? d : depth;
    }
    return depth;
}

/* The limit that counts at a position that was reached across the limit `cut`. At the limit on
 * depth what would nest deeper is not there any more, so that it looks like the grammar's will. */
static skv_parse_limit limit_at(const skv_parse_space *space, uint32_t place, uint8_t cut)
{
    if (space->limit != SKV_LIMIT_NONE) return space->limit;
    if (space->places[place].cut > cut) cut = space->places[place].cut;
    if (cut != SKV_LIMIT_NONE) return (skv_parse_limit)cut;
    return depth_of(space, place) >= SKV_PARSE_DEPTH_SOFT ? SKV_LIMIT_DEPTH : SKV_LIMIT_NONE;
}

/* Puts the mask together from masks of states; false where the position as a whole may meet a
 * limit, so that it may allow less. */
static bool mask_stacks(skv_matcher *m, uint32_t place)
{
    skv_parse_space *space = &m->shared->space;
    uint32_t first = space->places[place].first, n = space->places[place].n, i = 0, load = 0;
    skv_config group[SKV_PARSE_CONFIGS_MAX];
    while (i < n && load < LOAD_BEYOND) {
        const skv_config *configs = space->configs + first; /* moves when the space grows */
        uint32_t n_group = 0;
        for (; i < n && (n_group == 0 || configs[i].frame == group[0].frame); i++) {
            group[n_group++] = configs[i];
        }
        load += mask_stack(m, group, n_group);
    }
    return load < LOAD_BEYOND;
}

/*
 * Makes the mask of now in shared->bits. Where limits come near, the position is walked as it is,
 * by the very steps that accept takes. A walk that ran out of memory begins again without what is
 * not used.
 */
static void make_mask(skv_matcher *m)
{
    skv_matcher_shared *shared = m->shared;
    const skv_mask_walk walk = {m->table, &shared->space, shared->bits, NULL, NULL};
    size_t n_bytes = words_of(m->table) * sizeof *shared->bits;
    begin(shared);
    memset(shared->bits, 0, n_bytes);
    bool made = mask_stacks(m, now(m)->place);
    for (size_t i = 0; i < 2 && !made; i++) {
        begin(shared);
        memset(shared->bits, 0, n_bytes);
        skv_mask_walk_from(&walk, UINT32_MAX, now(m)->place);
        made = shared->space.limit != SKV_LIMIT_MEMORY;
    }
}

static bool any_bit(const uint32_t *bits, size_t words)
{
    for (size_t i = 0; i < words; i++) {
        if (bits[i] != 0) return true;
    }
    return false;
}

skv_status skv_matcher_mask(skv_matcher *m, uint32_t *bits, size_t n_bits, skv_error *err)
{
    skv_matcher_shared *shared = m->shared;
    size_t words = words_of(m->table), n_words = skv_ceil_div(n_bits, 32);
    SKV_REQUIRE(m->table != NULL, err, SKV_ARGUMENT, "grammar: the matcher has no vocabulary");
    memset(bits, 0, n_words * sizeof *bits);
    if (now(m)->ended) return SKV_OK;
    make_mask(m);
    SKV_REQUIRE(shared->space.limit < SKV_LIMIT_STEPS, err, SKV_FULL, "grammar: the next token: %s",
                skv_parse_limit_text(shared->space.limit));
    if (place_now(m)->ends) {
        for (size_t i = 0; i < words; i++) shared->bits[i] |= m->table->ends[i];
    }
    memcpy(bits, shared->bits, skv_min_size(words, n_words) * sizeof *bits);
    if (n_bits % 32 != 0) bits[n_words - 1] &= (UINT32_C(1) << n_bits % 32) - 1;
    if (any_bit(bits, n_words) || place_now(m)->ends) return SKV_OK;
    skv_parse_limit limit = limit_at(&shared->space, now(m)->place, now(m)->cut);
    return skv_fail(err, SKV_FULL, "grammar: no token fits: %s",
                    limit != SKV_LIMIT_NONE ? skv_parse_limit_text(limit)
                                            : "the vocabulary cannot spell what has to follow");
}

void skv_mask_logits(const uint32_t *bits, float *logits, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if ((bits[i / 32] >> i % 32 & 1) == 0) logits[i] = -INFINITY;
    }
}

/* ---- going on ---- */

static void go_to(skv_matcher *m, moment to)
{
    m->newest = (m->newest + 1) % (SKV_MATCHER_ROLLBACK_MAX + 1);
    m->past[m->newest] = to;
    if (m->n_past < SKV_MATCHER_ROLLBACK_MAX) m->n_past++;
}

/* Why a byte does not fit: a limit, or the grammar. */
static skv_status refuse_byte(const skv_parse_space *space, moment at, size_t i, char byte,
                              skv_error *err)
{
    skv_parse_limit limit = limit_at(space, at.place, at.cut);
    if (limit != SKV_LIMIT_NONE) {
        return skv_fail(err, SKV_FULL, "grammar: byte %zu: %s", i, skv_parse_limit_text(limit));
    }
    return skv_fail(err, SKV_ARGUMENT, "grammar: byte %zu, 0x%02x, does not fit", i,
                    (unsigned)(uint8_t)byte);
}

/* Goes on from `at` as far as the bytes fit, and returns how many did. */
static size_t read_bytes(skv_parse_space *space, moment *at, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        space->steps = 0;
        uint32_t next = skv_parse_next(space, at->place, (uint8_t)bytes[i]);
        if (next == SKV_PLACE_DEAD) return i;
        if (space->places[at->place].cut > at->cut) at->cut = space->places[at->place].cut;
        at->place = next;
    }
    return n;
}

skv_status skv_matcher_accept_bytes(skv_matcher *m, const char *bytes, size_t n, skv_error *err)
{
    skv_parse_space *space = &m->shared->space;
    SKV_REQUIRE(!now(m)->ended, err, SKV_ARGUMENT, "grammar: the answer has ended");
    begin(m->shared);
    moment at = *now(m);
    size_t i = read_bytes(space, &at, bytes, n);
    if (i < n && space->limit == SKV_LIMIT_MEMORY) {
        begin(m->shared); /* drops what is not used */
        at = *now(m);
        i = read_bytes(space, &at, bytes, n);
    }
    if (i < n) return refuse_byte(space, at, i, bytes[i], err);
    go_to(m, at);
    return SKV_OK;
}

skv_status skv_matcher_accept(skv_matcher *m, int32_t id, skv_error *err)
{
    const skv_token_table *t = m->table;
    SKV_REQUIRE(t != NULL, err, SKV_ARGUMENT, "grammar: the matcher has no vocabulary");
    SKV_REQUIRE(id >= 0 && (size_t)id < t->n_tokens, err, SKV_ARGUMENT,
                "grammar: token %d, the vocabulary has %zu", (int)id, t->n_tokens);
    SKV_REQUIRE(!now(m)->ended, err, SKV_ARGUMENT, "grammar: token %d after the answer's end",
                (int)id);
    if (skv_token_table_is_end(t, (size_t)id) && place_now(m)->ends) {
        moment at = *now(m);
        at.ended = true;
        go_to(m, at);
        return SKV_OK;
    }
    size_t n = t->starts[id + 1] - t->starts[id];
    SKV_REQUIRE(n > 0 && n <= SKV_TOKEN_BYTES_MAX, err, SKV_ARGUMENT,
                "grammar: token %d does not fit", (int)id);
    return skv_matcher_accept_bytes(m, t->bytes + t->starts[id], n, err);
}

bool skv_matcher_is_complete(const skv_matcher *m)
{
    return now(m)->ended || place_now(m)->ends;
}

bool skv_matcher_is_finished(const skv_matcher *m)
{
    return now(m)->ended || (place_now(m)->ends && place_now(m)->n == 0);
}

bool skv_matcher_rollback(skv_matcher *m, size_t n)
{
    if (n > m->n_past) return false;
    m->newest = (m->newest + SKV_MATCHER_ROLLBACK_MAX + 1 - n) % (SKV_MATCHER_ROLLBACK_MAX + 1);
    m->n_past -= n;
    return true;
}

/* The one byte that can follow, -1 when there are several, or none, or the answer may end. */
static int only_byte(skv_parse_space *space, uint32_t place, uint32_t *next)
{
    const skv_grammar *g = space->g;
    int only = -1;
    if (space->places[place].ends) return -1;
    for (size_t c = 0; c < g->n_classes; c++) {
        uint32_t to = skv_parse_next(space, place, g->examples[c]);
        if (to == SKV_PLACE_DEAD) continue;
        if (only >= 0 || g->sizes[c] > 1) return -1;
        only = g->examples[c];
        *next = to;
    }
    return only;
}

size_t skv_matcher_forced(skv_matcher *m, char *out, size_t max)
{
    size_t n = 0;
    if (now(m)->ended) return 0;
    begin(m->shared);
    uint32_t place = now(m)->place, next = SKV_PLACE_DEAD;
    while (n < max) {
        int byte = only_byte(&m->shared->space, place, &next);
        if (byte < 0 || m->shared->space.limit != SKV_LIMIT_NONE) break;
        out[n++] = (char)byte;
        place = next;
    }
    return n;
}
