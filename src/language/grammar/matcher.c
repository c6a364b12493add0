/* One answer on its way through a grammar: see skv/grammar.h. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "grammar/mask_maker.h"

/* The state that a matcher and its copies share. */
typedef struct skv_matcher_shared {
    skv_parse_space space;
    skv_mask_cache cache;
    skv_matcher *first;  /* all of them, a list */
    size_t tidied_bytes; /* in use when it was tidied last */
} skv_matcher_shared;

typedef struct moment {
    uint32_t place;
    bool ended;  /* by an ending token */
    uint8_t cut; /* skv_parse_limit that may have left out readings on the way here */
} moment;

/* Bytes on their way in: how far they were read. */
typedef struct reading {
    bool under_way;
    int32_t id; /* the token that they are; -1: none */
    size_t i;   /* bytes that were read, */
    moment at;  /* and where they lead */
    skv_parse_limit limit;
} reading;

struct skv_matcher {
    const skv_grammar *g;                      /* borrowed */
    const skv_token_table *table;              /* borrowed; may be NULL */
    skv_matcher_shared *shared;                /* owned by all that use it */
    skv_matcher *next;                         /* in the list of `shared` */
    skv_mask_maker maker;                      /* of the mask of now */
    reading reading;                           /* of the next token */
    size_t n_past;                             /* moments that can be gone back to, */
    size_t newest;                             /* in `past`: now */
    moment past[SKV_MATCHER_ROLLBACK_MAX + 1]; /* a ring */
};

enum { PAST = SKV_MATCHER_ROLLBACK_MAX + 1, BLOCK_BYTES = 16 /* an allocator's overhead */ };

/* The units that a mask takes at most where the caller sets no limit. */
static const uint64_t MASK_WORK_MAX = 50000000;

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
    skv_account *account = shared->space.account;
    skv_parse_space_release(&shared->space);
    skv_mask_cache_release(&shared->cache);
    skv_account_give(account, sizeof *shared + BLOCK_BYTES);
    skv_free(shared);
}

static skv_parse_limit make_shared(const skv_grammar *g, const skv_token_table *table,
                                   skv_account *account, skv_matcher_shared **out)
{
    if (!skv_account_take(account, sizeof **out + BLOCK_BYTES)) return SKV_LIMIT_ACCOUNT;
    skv_matcher_shared *shared = skv_alloc_zero(1, sizeof *shared);
    if (!shared) {
        skv_account_give(account, sizeof *shared + BLOCK_BYTES);
        return SKV_LIMIT_MEMORY;
    }
    bool made = skv_parse_space_init(&shared->space, g, account);
    skv_parse_limit limit = shared->space.limit;
    shared->space.account = account;
    if (made) limit = skv_mask_cache_init(&shared->cache, table, account);
    if (limit == SKV_LIMIT_NONE) {
        *out = shared;
    } else {
        free_shared(shared);
    }
    return limit;
}

/* Returns the memory of each matcher on its own. */
static size_t own_bytes(const skv_token_table *table)
{
    return sizeof(skv_matcher) + skv_mask_maker_bytes(table) + (size_t)2 * BLOCK_BYTES;
}

/* A matcher of some shared parts, in their list. */
static skv_parse_limit add_matcher(const skv_grammar *g, const skv_token_table *table,
                                   skv_matcher_shared *shared, skv_matcher **out)
{
    skv_account *account = shared->space.account;
    if (!skv_account_take(account, own_bytes(table))) return SKV_LIMIT_ACCOUNT;
    skv_matcher *m = skv_alloc_zero(1, sizeof *m);
    if (!m || !skv_mask_maker_init(&m->maker, &shared->space, &shared->cache)) {
        skv_account_give(account, own_bytes(table));
        skv_free(m);
        return SKV_LIMIT_MEMORY;
    }
    m->g = g;
    m->table = table;
    m->shared = shared;
    m->next = shared->first;
    shared->first = m;
    *out = m;
    return SKV_LIMIT_NONE;
}

static skv_status no_memory(skv_parse_limit limit, skv_error *err)
{
    return skv_fail(err, SKV_MEMORY, "grammar: %s",
                    limit == SKV_LIMIT_ACCOUNT ? skv_parse_limit_text(limit)
                                               : "no memory for a matcher");
}

skv_status skv_matcher_create(const skv_grammar *grammar, const skv_token_table *table,
                              skv_account *account, skv_matcher **out, skv_error *err)
{
    skv_matcher_shared *shared = NULL;
    skv_matcher *m = NULL;
    skv_parse_limit limit = make_shared(grammar, table, account, &shared);
    if (limit != SKV_LIMIT_NONE) return no_memory(limit, err);
    limit = add_matcher(grammar, table, shared, &m);
    if (limit != SKV_LIMIT_NONE) {
        free_shared(shared);
        return no_memory(limit, err);
    }
    m->past[0].place = skv_parse_start(&shared->space);
    limit = shared->space.limit;
    m->past[0].cut = (uint8_t)limit;
    if (m->past[0].place == SKV_PLACE_DEAD) {
        skv_matcher_free(m);
        return skv_fail(err, limit == SKV_LIMIT_ACCOUNT ? SKV_MEMORY : SKV_FULL, "grammar: %s",
                        skv_parse_limit_text(limit));
    }
    *out = m;
    return SKV_OK;
}

skv_status skv_matcher_copy(const skv_matcher *matcher, skv_matcher **out, skv_error *err)
{
    skv_matcher *m = NULL;
    skv_parse_limit limit = add_matcher(matcher->g, matcher->table, matcher->shared, &m);
    if (limit != SKV_LIMIT_NONE) return no_memory(limit, err);
    m->n_past = matcher->n_past;
    m->newest = matcher->newest;
    memcpy(m->past, matcher->past, sizeof m->past);
    skv_mask_maker_copy_ready(&m->maker, &matcher->maker);
    *out = m;
    return SKV_OK;
}

void skv_matcher_free(skv_matcher *matcher)
{
    if (!matcher) return;
    skv_matcher_shared *shared = matcher->shared;
    skv_matcher **at = &shared->first;
    while (*at != matcher) at = &(*at)->next;
    *at = matcher->next;
    skv_mask_maker_release(&matcher->maker);
    skv_account_give(shared->space.account, own_bytes(matcher->table));
    skv_free(matcher);
    if (!shared->first) free_shared(shared);
}

/* ---- memory ---- */

static size_t list_kept(skv_matcher_shared *shared, uint32_t **kept)
{
    size_t n = 0;
    for (skv_matcher *m = shared->first; m; m = m->next) {
        for (size_t i = 0; i <= m->n_past; i++) {
            if (kept) kept[n] = &m->past[(m->newest + PAST - i) % PAST].place;
            n++;
        }
        if (m->reading.under_way) {
            if (kept) kept[n] = &m->reading.at.place;
            n++;
        }
        n += skv_mask_maker_list(&m->maker, kept ? kept + n : NULL);
    }
    return n;
}

/* Drops positions that no matcher is at or can go back to. */
static void tidy(skv_matcher_shared *shared)
{
    size_t n = list_kept(shared, NULL);
    uint32_t **kept = skv_alloc(n, sizeof(uint32_t *));
    if (!kept) return;
    list_kept(shared, kept);
    if (skv_parse_tidy(&shared->space, kept, n)) {
        shared->tidied_bytes = skv_parse_used_bytes(&shared->space);
    }
    skv_free(kept);
}

/* Begins a call: unused positions may be dropped. */
static void begin(skv_matcher_shared *shared)
{
    skv_parse_space *space = &shared->space;
    size_t used = skv_parse_used_bytes(space);
    space->limit = SKV_LIMIT_NONE;
    space->uncounted = 0;
    if (used >= SKV_PARSE_BYTES_TIDY && used >= 2 * shared->tidied_bytes) tidy(shared);
}

/* After a step that failed for want of memory: frees unused memory. Returns whether to retry the
 * step. Everything it tidies was made since the last time, so the time is well spent. */
static bool make_room(skv_matcher_shared *shared)
{
    skv_parse_space *space = &shared->space;
    skv_parse_limit limit = space->limit;
    if (limit != SKV_LIMIT_MEMORY && limit != SKV_LIMIT_ACCOUNT) return false;
    size_t before = skv_parse_used_bytes(space), cached = shared->cache.n_bytes;
    tidy(shared);
    size_t freed = before - skv_parse_used_bytes(space);
    if (limit == SKV_LIMIT_ACCOUNT) {
        skv_mask_cache_drop(&shared->cache);
        skv_parse_shrink(space);
        freed += cached - shared->cache.n_bytes;
    }
    return freed >= before / 4 && freed > 0;
}

size_t skv_matcher_bytes(const skv_matcher *matcher)
{
    const skv_matcher_shared *shared = matcher->shared;
    size_t n_bytes = sizeof *shared + skv_parse_space_bytes(&shared->space) + shared->cache.n_bytes;
    for (const skv_matcher *m = shared->first; m; m = m->next) {
        n_bytes += own_bytes(m->table) + m->maker.exits.capacity * sizeof *m->maker.exits.nodes;
    }
    return n_bytes;
}

void skv_matcher_shrink(skv_matcher *matcher)
{
    tidy(matcher->shared);
    skv_mask_cache_drop(&matcher->shared->cache);
    skv_parse_shrink(&matcher->shared->space);
}

/* ---- masks ---- */

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

/* Returns the limit that applies at a position that was reached across the limit `cut`. At the
 * limit on depth, deeper nesting has already been dropped, so that its absence looks like the
 * grammar's choice. */
static skv_parse_limit limit_at(const skv_parse_space *space, uint32_t place, uint8_t cut)
{
    if (space->limit != SKV_LIMIT_NONE) return space->limit;
    if (space->places[place].cut > cut) cut = space->places[place].cut;
    if (cut != SKV_LIMIT_NONE) return (skv_parse_limit)cut;
    return depth_of(space, place) >= SKV_PARSE_DEPTH_SOFT ? SKV_LIMIT_DEPTH : SKV_LIMIT_NONE;
}

static bool any_bit(const uint32_t *bits, size_t words)
{
    for (size_t i = 0; i < words; i++) {
        if (bits[i] != 0) return true;
    }
    return false;
}

/* Why there is no mask. */
static skv_status refuse_mask(skv_parse_limit limit, skv_error *err)
{
    skv_status status = SKV_FULL;
    if (limit == SKV_LIMIT_EDGES) status = SKV_RANGE;
    if (limit == SKV_LIMIT_ACCOUNT) status = SKV_MEMORY;
    return skv_fail(err, status, "grammar: the next token: %s", skv_parse_limit_text(limit));
}

/* The bits of the maker are the mask but for the tokens that end the answer. */
static skv_status finish_mask(skv_matcher *m, skv_error *err)
{
    size_t words = skv_mask_words(m->table);
    uint32_t *bits = m->maker.bits;
    if (place_now(m)->ends) {
        for (size_t i = 0; i < words; i++) bits[i] |= m->table->ends[i];
        return SKV_OK;
    }
    if (any_bit(bits, words)) return SKV_OK;
    m->shared->space.limit = m->maker.limit;
    skv_parse_limit limit = limit_at(&m->shared->space, now(m)->place, now(m)->cut);
    skv_mask_maker_reset(&m->maker);
    return skv_fail(err, SKV_FULL, "grammar: no token fits: %s",
                    limit != SKV_LIMIT_NONE ? skv_parse_limit_text(limit)
                                            : "the vocabulary cannot spell what has to follow");
}

/* After the answer has ended no token fits. */
static void make_empty(skv_matcher *m)
{
    memset(m->maker.bits, 0, skv_mask_words(m->table) * sizeof *m->maker.bits);
    m->maker.stage = SKV_MAKING_DONE;
}

/* Continues with the current mask. Near a limit, walks the position as a whole, with the same steps
 * as accept; if memory runs out, frees unused memory and retries. */
static skv_status make_mask(skv_matcher *m, skv_budget *budget, bool *ready, skv_error *err)
{
    skv_matcher_shared *shared = m->shared;
    skv_walk_state state = SKV_WALK_STUCK;
    *ready = m->maker.stage == SKV_MAKING_DONE;
    if (*ready) return SKV_OK;
    *ready = now(m)->ended;
    if (*ready) {
        make_empty(m);
        return SKV_OK;
    }
    begin(shared);
    for (bool go_on = true; go_on;) {
        state = skv_mask_maker_go(&m->maker, now(m)->place, budget);
        go_on = state == SKV_WALK_STUCK &&
                (make_room(shared) || skv_mask_maker_fall_back(&m->maker, now(m)->place));
    }
    (void)skv_parse_spend(&shared->space, budget);
    *ready = state == SKV_WALK_DONE;
    if (state == SKV_WALK_PAUSED) return SKV_OK;
    if (state == SKV_WALK_DONE) return finish_mask(m, err);
    skv_parse_limit limit = m->maker.limit;
    skv_mask_maker_reset(&m->maker);
    return refuse_mask(limit, err);
}

skv_status skv_matcher_prepare(skv_matcher *m, skv_budget *budget, bool *ready, skv_error *err)
{
    *ready = false;
    SKV_REQUIRE(m->table, err, SKV_ARGUMENT, "grammar: the matcher has no vocabulary");
    skv_status status = make_mask(m, budget, ready, err);
    if (status != SKV_OK) *ready = false;
    return status;
}

skv_status skv_matcher_mask(skv_matcher *m, uint32_t *bits, size_t n_bits, skv_error *err)
{
    const skv_limits limits = {.work = MASK_WORK_MAX};
    size_t words = skv_mask_words(m->table), n_words = skv_ceil_div(n_bits, 32);
    bool ready;
    skv_budget budget;
    skv_budget_init(&budget, &limits);
    SKV_TRY(skv_matcher_prepare(m, &budget, &ready, err));
    if (!ready) {
        skv_mask_maker_reset(&m->maker);
        return skv_budget_check(&budget, "grammar: the next token", err);
    }
    size_t n_both = skv_min_size(words, n_words);
    memcpy(bits, m->maker.bits, n_both * sizeof *bits);
    if (n_words > n_both) memset(bits + n_both, 0, (n_words - n_both) * sizeof *bits);
    if (n_bits % 32 != 0) bits[n_words - 1] &= (UINT32_C(1) << n_bits % 32) - 1;
    SKV_REQUIRE(any_bit(bits, n_words) || now(m)->ended || place_now(m)->ends, err, SKV_FULL,
                "grammar: no token fits: none of the first %zu", n_bits);
    return SKV_OK;
}

/* Most words are all ones or all zeros. */
static bool mask_word(float *logits, size_t n, uint32_t bits)
{
    if (bits == UINT32_MAX) return n > 0;
    if (bits == 0) {
        for (size_t i = 0; i < n; i++) logits[i] = -INFINITY;
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        if ((bits >> i & 1) == 0) logits[i] = -INFINITY;
    }
    return (n < 32 ? bits & ((UINT32_C(1) << n) - 1) : bits) != 0;
}

bool skv_matcher_mask_logits(const skv_matcher *m, float *logits, size_t n)
{
    assert(m->maker.stage == SKV_MAKING_DONE);
    size_t words = skv_mask_words(m->table);
    bool any = false;
    for (size_t i = 0; i < n; i += 32) {
        uint32_t bits = i / 32 < words ? m->maker.bits[i / 32] : 0;
        any = mask_word(logits + i, skv_min_size(n - i, 32), bits) || any;
    }
    return any;
}

const uint32_t *skv_matcher_mask_bits(const skv_matcher *m, size_t n)
{
    assert(m->maker.stage == SKV_MAKING_DONE);
    return n <= skv_mask_words(m->table) * 32 ? m->maker.bits : NULL;
}

void skv_mask_logits(const uint32_t *bits, float *logits, size_t n)
{
    for (size_t i = 0; i < n; i += 32) {
        (void)mask_word(logits + i, skv_min_size(n - i, 32), bits[i / 32]);
    }
}

/* ---- going on ---- */

/* Discards unfinished work that started here. */
static void forget_work(skv_matcher *m)
{
    skv_mask_maker_reset(&m->maker);
    m->reading.under_way = false;
}

static void go_to(skv_matcher *m, moment to)
{
    m->newest = (m->newest + 1) % PAST;
    m->past[m->newest] = to;
    if (m->n_past < SKV_MATCHER_ROLLBACK_MAX) m->n_past++;
    forget_work(m);
}

/* Why a byte does not fit: a limit, or the grammar. */
static skv_status refuse_byte(const skv_parse_space *space, moment at, size_t i, char byte,
                              skv_error *err)
{
    skv_parse_limit limit = limit_at(space, at.place, at.cut);
    if (limit == SKV_LIMIT_NONE) {
        return skv_fail(err, SKV_ARGUMENT, "grammar: byte %zu, 0x%02x, does not fit", i,
                        (unsigned)(uint8_t)byte);
    }
    skv_status status = limit == SKV_LIMIT_ACCOUNT ? SKV_MEMORY : SKV_FULL;
    return skv_fail(err, status, "grammar: byte %zu: %s", i, skv_parse_limit_text(limit));
}

/* Reads bytes as far as they fit and the budget allows. */
static skv_walk_state read_bytes(skv_matcher *m, const char *bytes, size_t n, skv_budget *budget)
{
    skv_parse_space *space = &m->shared->space;
    reading *r = &m->reading;
    while (r->i < n) {
        if (!skv_parse_spend(space, budget)) return SKV_WALK_PAUSED;
        uint32_t next = skv_parse_next(space, r->at.place, (uint8_t)bytes[r->i]);
        space->uncounted++;
        if (next == SKV_PLACE_DEAD) return SKV_WALK_STUCK;
        r->at.cut = (uint8_t)skv_max_size(r->at.cut, space->places[r->at.place].cut);
        r->at.place = next;
        r->i++;
    }
    return SKV_WALK_DONE;
}

/* Reads the bytes of token `id`, or of no token (-1). A token may be read in pieces. */
static skv_status accept(skv_matcher *m, int32_t id, const char *bytes, size_t n,
                         skv_budget *budget, skv_error *err)
{
    skv_parse_space *space = &m->shared->space;
    reading *r = &m->reading;
    if (!r->under_way || id < 0 || r->id != id) {
        *r = (reading){.under_way = true, .id = id, .at = *now(m)};
    }
    begin(m->shared);
    skv_walk_state state;
    do {
        if (r->limit < SKV_LIMIT_EDGES) space->limit = r->limit;
        state = read_bytes(m, bytes, n, budget);
        r->limit = space->limit;
    } while (state == SKV_WALK_STUCK && make_room(m->shared));
    (void)skv_parse_spend(space, budget);
    if (state == SKV_WALK_PAUSED) return SKV_OK;
    r->under_way = false;
    if (state == SKV_WALK_DONE) {
        go_to(m, r->at);
        return SKV_OK;
    }
    return refuse_byte(space, r->at, r->i, bytes[r->i], err);
}

skv_status skv_matcher_accept_bytes(skv_matcher *m, const char *bytes, size_t n, skv_error *err)
{
    SKV_REQUIRE(!now(m)->ended, err, SKV_ARGUMENT, "grammar: the answer has ended");
    return accept(m, -1, bytes, n, NULL, err);
}

static skv_status accept_token(skv_matcher *m, int32_t id, skv_budget *budget, skv_error *err)
{
    const skv_token_table *t = m->table;
    SKV_REQUIRE(t, err, SKV_ARGUMENT, "grammar: the matcher has no vocabulary");
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
    return accept(m, id, t->bytes + t->starts[id], n, budget, err);
}

skv_status skv_matcher_accept(skv_matcher *m, int32_t id, skv_budget *budget, bool *done,
                              skv_error *err)
{
    assert(done || !budget);
    if (done) *done = false;
    SKV_TRY(accept_token(m, id, budget, err));
    if (done) *done = !m->reading.under_way;
    return SKV_OK;
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
    if (n > 0) forget_work(m);
    m->newest = (m->newest + PAST - n) % PAST;
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
        space->uncounted++;
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
    skv_parse_space *space = &m->shared->space;
    uint32_t place = now(m)->place, next = SKV_PLACE_DEAD;
    while (n < max && space->uncounted < MASK_WORK_MAX) {
        int byte = only_byte(space, place, &next);
        if (byte < 0 || byte == SKV_TOKEN_MARK || space->limit != SKV_LIMIT_NONE) break;
        out[n++] = (char)byte;
        place = next;
    }
    return n;
}
