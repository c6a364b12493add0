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
    bool ended; /* by an ending token */
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
    if (used < SKV_PARSE_BYTES_TIDY || (used < 2 * shared->tidied_bytes && !full)) return;
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

/* Adds the tokens that fit n configurations of one stack. */
static void mask_stack(skv_matcher *m, const skv_config *configs, size_t n)
{
    skv_matcher_shared *shared = m->shared;
    uint32_t states[SKV_PARSE_CONFIGS_MAX], frame = configs[0].frame;
    size_t n_states = key_states(m, configs, n, states);
    const skv_mask_entry *entry =
        skv_mask_cache_get(&shared->cache, &shared->space, states, n_states);
    if (entry == NULL) return;
    add_entry(entry, shared->bits, words_of(m->table));
    if (frame == SKV_FRAME_BOTTOM || entry->n_exits == 0) return;
    const skv_mask_walk walk = {m->table, &shared->space, shared->bits, NULL};
    uint32_t place = skv_parse_return(&shared->space, frame);
    if (place == SKV_PLACE_DEAD) return;
    for (uint32_t i = 0; i < entry->n_exits; i++) {
        skv_mask_walk_from(&walk, entry->exits[i], place);
    }
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

/* The limit that counts at a position. At the limit on depth what would nest deeper is not there
 * any more, so that it looks like the grammar's will. */
static skv_parse_limit limit_at(const skv_parse_space *space, uint32_t place)
{
    if (space->limit != SKV_LIMIT_NONE) return space->limit;
    if (space->places[place].cut != SKV_LIMIT_NONE) {
        return (skv_parse_limit)space->places[place].cut;
    }
    return depth_of(space, place) >= SKV_PARSE_DEPTH_SOFT ? SKV_LIMIT_DEPTH : SKV_LIMIT_NONE;
}

/*
 * A deep stack is walked as it is, so that the limit on depth counts; all others are put
 * together from masks of their states.
 */
static void mask_place(skv_matcher *m, uint32_t place)
{
    skv_parse_space *space = &m->shared->space;
    uint32_t first = space->places[place].first, n = space->places[place].n, i = 0;
    if (depth_of(space, place) >= SKV_PARSE_DEPTH_SOFT / 2) {
        const skv_mask_walk walk = {m->table, space, m->shared->bits, NULL};
        skv_mask_walk_from(&walk, UINT32_MAX, place);
        return;
    }
    skv_config group[SKV_PARSE_CONFIGS_MAX];
    while (i < n) {
        const skv_config *configs = space->configs + first; /* moves when the space grows */
        uint32_t n_group = 0;
        for (; i < n && (n_group == 0 || configs[i].frame == group[0].frame); i++) {
            group[n_group++] = configs[i];
        }
        mask_stack(m, group, n_group);
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
    begin(shared);
    memset(shared->bits, 0, words * sizeof *bits);
    mask_place(m, now(m)->place);
    if (place_now(m)->ends) {
        for (size_t i = 0; i < words; i++) shared->bits[i] |= m->table->ends[i];
    }
    memcpy(bits, shared->bits, skv_min_size(words, n_words) * sizeof *bits);
    if (n_bits % 32 != 0) bits[n_words - 1] &= (UINT32_C(1) << n_bits % 32) - 1;
    if (any_bit(bits, n_words) || place_now(m)->ends) return SKV_OK;
    skv_parse_limit limit = limit_at(&shared->space, now(m)->place);
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

static void go_to(skv_matcher *m, uint32_t place, bool ended)
{
    m->newest = (m->newest + 1) % (SKV_MATCHER_ROLLBACK_MAX + 1);
    m->past[m->newest] = (moment){place, ended};
    if (m->n_past < SKV_MATCHER_ROLLBACK_MAX) m->n_past++;
}

/* Why a byte does not fit: a limit, or the grammar. */
static skv_status refuse_byte(const skv_parse_space *space, uint32_t place, size_t i, char byte,
                              skv_error *err)
{
    skv_parse_limit limit = limit_at(space, place);
    if (limit != SKV_LIMIT_NONE) {
        return skv_fail(err, SKV_FULL, "grammar: byte %zu: %s", i, skv_parse_limit_text(limit));
    }
    return skv_fail(err, SKV_ARGUMENT, "grammar: byte %zu, 0x%02x, does not fit", i,
                    (unsigned)(uint8_t)byte);
}

skv_status skv_matcher_accept_bytes(skv_matcher *m, const char *bytes, size_t n, skv_error *err)
{
    skv_parse_space *space = &m->shared->space;
    SKV_REQUIRE(!now(m)->ended, err, SKV_ARGUMENT, "grammar: the answer has ended");
    begin(m->shared);
    uint32_t place = now(m)->place;
    for (size_t i = 0; i < n; i++) {
        space->steps = 0;
        uint32_t next = skv_parse_next(space, place, (uint8_t)bytes[i]);
        if (next == SKV_PLACE_DEAD) return refuse_byte(space, place, i, bytes[i], err);
        place = next;
    }
    go_to(m, place, false);
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
        go_to(m, now(m)->place, true);
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
