/* The last prompts of each key: see past_prompts.h. */
#include "scheduler/past_prompts.h"

#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "kv/kv_cache.h"

enum {
    RUN_TOKENS = 16,  /* texts have met again where so many tokens agree, */
    GAP_TOKENS = 128, /* after at most so many on each side that do not. */
    GAPS_MAX = 4,     /* Looked at in one pair of prompts, */
    TIES_MAX = 4      /* and in so many pairs */
};

/* ---- comparing ---- */

/* Tokens at the beginning that two texts have in common. */
static size_t count_common(const int32_t *a, size_t n_a, const int32_t *b, size_t n_b)
{
    const size_t n = skv_min_size(n_a, n_b);
    size_t i = 0;
    while (n - i >= SKV_PAGE_ROWS && memcmp(a + i, b + i, SKV_PAGE_ROWS * sizeof *a) == 0) {
        i += SKV_PAGE_ROWS;
    }
    while (i < n && a[i] == b[i]) i++;
    return i;
}

/* The remainder of a text. */
typedef struct rest {
    const int32_t *ids;
    size_t n;
} rest;

static void skip(rest *r, size_t n)
{
    r->ids += n;
    r->n -= n;
}

static bool agree(const rest *a, size_t i, const rest *b, size_t j)
{
    return i + RUN_TOKENS <= a->n && j + RUN_TOKENS <= b->n && a->ids[i] == b->ids[j] &&
           memcmp(a->ids + i, b->ids + j, RUN_TOKENS * sizeof *a->ids) == 0;
}

/* Skips the parts that differ in both, as little as possible; false: they do not meet again
 * nearby. */
static bool skip_gap(rest *a, rest *b)
{
    for (size_t n = 1; n <= 2 * GAP_TOKENS; n++) {
        const size_t end = skv_min_size(n, GAP_TOKENS);
        for (size_t i = n - skv_min_size(n, GAP_TOKENS); i <= end; i++) {
            if (!agree(a, i, b, n - i)) continue;
            skip(a, i);
            skip(b, n - i);
            return true;
        }
    }
    return false;
}

/* Tokens that both share after the first that differs. */
static size_t count_rejoined(rest a, rest b)
{
    size_t n = 0;
    for (size_t i = 0; i < GAPS_MAX && skip_gap(&a, &b); i++) {
        const size_t n_run = count_common(a.ids, a.n, b.ids, b.n);
        n += n_run;
        skip(&a, n_run);
        skip(&b, n_run);
    }
    return n;
}

/* ---- remembering ---- */

static void forget(skv_past_prompts *all, skv_past_prompt *p)
{
    all->n_ids -= p->n;
    skv_account_give(all->account, p->n * sizeof *p->ids);
    skv_free(p->ids);
    *p = (skv_past_prompt){.used = 0};
}

/* The oldest prompt goes: of `owner`, or of all where that is NULL; false: there is none. */
static bool forget_oldest(skv_past_prompts *all, const uint64_t *owner)
{
    skv_past_prompt *oldest = NULL;
    for (size_t i = 0; i < SKV_PAST_PROMPTS; i++) {
        skv_past_prompt *p = &all->at[i];
        if (p->used == 0 || (owner && p->owner != *owner)) continue;
        if (!oldest || p->used < oldest->used) oldest = p;
    }
    if (oldest) forget(all, oldest);
    return oldest;
}

/* Whether one of the two continues the other. Most that do not differ in the last block too. */
static bool begins_alike(const skv_past_prompt *p, rest added)
{
    const size_t n = skv_min_size(p->n, added.n), last = n - SKV_PAGE_ROWS;
    return memcmp(p->ids + last, added.ids + last, SKV_PAGE_ROWS * sizeof *p->ids) == 0 &&
           memcmp(p->ids, added.ids, last * sizeof *p->ids) == 0;
}

/* In the place of one that ends sooner, or of the same tokens. */
static void add_pin(skv_past_pin *pins, const skv_past_pin *added)
{
    skv_past_pin *place = &pins[0];
    for (size_t i = 0; i < SKV_PAST_PINS; i++) {
        if (pins[i].end > 0 && pins[i].n == added->n && pins[i].key == added->key) {
            pins[i].end = added->end > pins[i].end ? added->end : pins[i].end;
            return;
        }
        if (pins[i].end < place->end) place = &pins[i];
    }
    if (added->end > place->end) *place = *added;
}

/* Prompts that ids continue are no longer needed, but for their pins; true: ids themselves are the
 * beginning of one. */
static bool merge(skv_past_prompts *all, uint64_t owner, uint64_t domain, rest added,
                  skv_past_pin *pins)
{
    for (size_t i = 0; i < SKV_PAST_PROMPTS; i++) {
        skv_past_prompt *p = &all->at[i];
        if (p->used == 0 || p->owner != owner || p->domain != domain) continue;
        if (!begins_alike(p, added)) continue;
        if (p->n >= added.n) {
            p->used = ++all->clock;
            return true;
        }
        for (size_t k = 0; k < SKV_PAST_PINS; k++) add_pin(pins, &p->pins[k]);
        forget(all, p);
    }
    return false;
}

static size_t most_ids(const skv_past_prompts *all)
{
    if (!all->account) return all->max_ids;
    const size_t part = skv_account_max(all->account) / SKV_PAST_PART;
    return skv_min_size(all->max_ids, part / sizeof *all->at->ids);
}

static skv_past_prompt *free_place(skv_past_prompts *all)
{
    for (size_t i = 0; i < SKV_PAST_PROMPTS; i++) {
        if (all->at[i].used == 0) return &all->at[i];
    }
    return NULL;
}

/* A place for n ids, which are counted; NULL: they take too much. */
static skv_past_prompt *take_place(skv_past_prompts *all, uint64_t owner, size_t n)
{
    const size_t most = most_ids(all);
    size_t n_own = 0;
    if (n > most) return NULL;
    for (size_t i = 0; i < SKV_PAST_PROMPTS; i++) {
        n_own += all->at[i].used > 0 && all->at[i].owner == owner;
    }
    if (n_own == SKV_PAST_PROMPTS_OWN) (void)forget_oldest(all, &owner);
    if (!free_place(all)) (void)forget_oldest(all, NULL);
    while (all->n_ids > most - n && forget_oldest(all, NULL)) continue;
    while (!skv_account_take(all->account, n * sizeof *all->at->ids)) {
        if (!forget_oldest(all, NULL)) return NULL;
    }
    return free_place(all);
}

bool skv_past_prompts_add(skv_past_prompts *all, uint64_t owner, uint64_t domain,
                          const int32_t *ids, size_t n)
{
    if (n < SKV_PAGE_ROWS) return false;
    skv_past_pin pins[SKV_PAST_PINS] = {{.n = 0}};
    if (merge(all, owner, domain, (rest){ids, n}, pins)) return true;
    int32_t *copy = skv_alloc(n, sizeof *copy);
    skv_past_prompt *p = copy ? take_place(all, owner, n) : NULL;
    if (!p) {
        skv_free(copy);
        return false;
    }
    memcpy(copy, ids, n * sizeof *ids);
    *p = (skv_past_prompt){
        .owner = owner, .domain = domain, .used = ++all->clock, .ids = copy, .n = n};
    memcpy(p->pins, pins, sizeof pins);
    all->n_ids += n;
    return true;
}

/* The longest pin that ends after `now`; NULL: none. */
static const skv_past_pin *longest_pin(const skv_past_prompt *p, uint64_t now)
{
    const skv_past_pin *longest = NULL;
    for (size_t i = 0; p->used > 0 && i < SKV_PAST_PINS; i++) {
        const skv_past_pin *pin = &p->pins[i];
        if (pin->end > now && (!longest || pin->n > longest->n)) longest = pin;
    }
    return longest;
}

/* The oldest pinned prompt of an owner that has more than its part loses its longest pin. */
static bool unpin_oldest(skv_past_prompts *all, uint64_t owner)
{
    size_t n_pinned = 0;
    skv_past_prompt *oldest = NULL;
    for (size_t i = 0; i < SKV_PAST_PROMPTS; i++) {
        skv_past_prompt *p = &all->at[i];
        const skv_past_pin *pin = p->owner == owner ? longest_pin(p, 0) : NULL;
        if (!pin) continue;
        n_pinned += pin->n;
        if (!oldest || p->used < oldest->used) oldest = p;
    }
    if (n_pinned <= all->max_pinned / SKV_PIN_PART) return false;
    oldest->pins[longest_pin(oldest, 0) - oldest->pins] = (skv_past_pin){.n = 0};
    return true;
}

/* Ends an owner's pin of this key. */
static void end_key(skv_past_prompts *all, uint64_t owner, uint64_t key)
{
    for (size_t i = 0; i < SKV_PAST_PROMPTS * SKV_PAST_PINS; i++) {
        skv_past_prompt *p = &all->at[i / SKV_PAST_PINS];
        skv_past_pin *pin = &p->pins[i % SKV_PAST_PINS];
        if (p->used > 0 && p->owner == owner && pin->key == key) pin->end = 0;
    }
}

void skv_past_prompts_pin(skv_past_prompts *all, uint64_t owner, const skv_past_pin *pin)
{
    skv_past_prompt *last = NULL;
    for (size_t i = 0; i < SKV_PAST_PROMPTS; i++) {
        skv_past_prompt *p = &all->at[i];
        if (p->used == all->clock && p->used > 0 && p->owner == owner) last = p;
    }
    if (pin->key != 0) end_key(all, owner, pin->key);
    if (!last) return;
    add_pin(last->pins, pin);
    while (unpin_oldest(all, owner)) continue;
}

const skv_past_prompt *skv_past_prompts_pinned(const skv_past_prompts *all, size_t i, uint64_t now,
                                               size_t *n)
{
    const skv_past_pin *pin = longest_pin(&all->at[i], now);
    if (!pin) return NULL;
    *n = skv_min_size(pin->n, all->at[i].n);
    return &all->at[i];
}

void skv_past_prompts_release(skv_past_prompts *all)
{
    while (forget_oldest(all, NULL)) continue;
}

/* ---- explaining ---- */

/* How many tokens the prompts of a key share with the beginning of a new one. */
typedef struct overlap {
    size_t of[SKV_PAST_PROMPTS]; /* by prompt; 0: of another key too */
    size_t n_same, n_other;      /* the most: in its own domain, and in others */
    bool any;                    /* there are prompts of its own domain */
} overlap;

static void find_overlap(const skv_past_prompts *all, const skv_begun_prompt *b, overlap *out)
{
    *out = (overlap){.any = false};
    for (size_t i = 0; i < SKV_PAST_PROMPTS; i++) {
        const skv_past_prompt *p = &all->at[i];
        if (p->used == 0 || p->owner != b->owner) continue;
        const bool same = p->domain == b->domain;
        size_t *most = same ? &out->n_same : &out->n_other;
        out->of[i] = count_common(p->ids, p->n, b->ids, b->n);
        *most = skv_max_size(*most, out->of[i]);
        out->any = out->any || same;
    }
}

/* The newest prompt before `used` that a new one leaves where it leaves all of its domain; NULL:
 * none. */
static const skv_past_prompt *next_parting(const skv_past_prompts *all, const skv_begun_prompt *b,
                                           const overlap *has, uint64_t used)
{
    const skv_past_prompt *newest = NULL;
    for (size_t i = 0; i < SKV_PAST_PROMPTS; i++) {
        const skv_past_prompt *p = &all->at[i];
        if (p->used == 0 || p->owner != b->owner || p->domain != b->domain) continue;
        if (has->of[i] < has->n_same || p->n == has->n_same || p->used >= used) continue;
        if (!newest || p->used > newest->used) newest = p;
    }
    return newest;
}

/* Of those prompts, the one that shares most of the rest. */
static skv_cache_miss part(const skv_past_prompts *all, const skv_begun_prompt *b,
                           const overlap *has, const skv_past_prompt **with)
{
    const size_t n = has->n_same;
    const rest sent = {b->ids + n, skv_max_size(b->n_usable, n) - n};
    skv_cache_miss out = {.reason = SKV_MISS_NONE, .token = n};
    uint64_t used = UINT64_MAX;
    for (size_t i = 0; i < TIES_MAX && n < b->n; i++) {
        const skv_past_prompt *p = next_parting(all, b, has, used);
        if (!p) break;
        const size_t n_more = count_rejoined((rest){p->ids + n, p->n - n}, sent);
        used = p->used;
        if (out.reason == SKV_MISS_TEXT && n_more <= out.lost_tokens) continue;
        out.reason = SKV_MISS_TEXT;
        out.lost_tokens = n_more;
        *with = p;
    }
    return out;
}

static size_t whole_blocks(size_t n, size_t most)
{
    return skv_min_size(n, most) / SKV_PAGE_ROWS * SKV_PAGE_ROWS;
}

skv_cache_miss skv_past_prompts_explain(const skv_past_prompts *all, const skv_begun_prompt *b,
                                        const skv_past_prompt **with)
{
    const size_t most = whole_blocks(b->n_usable, b->n);
    skv_cache_miss out = {.reason = SKV_MISS_NONE, .token = b->n_found};
    *with = NULL;
    if (b->looked && b->n_found >= most) {
        if (most == 0) out.reason = SKV_MISS_BLOCK;
        return out;
    }
    overlap has;
    find_overlap(all, b, &has);
    const size_t n_same = whole_blocks(has.n_same, b->looked ? most : b->n - 1);
    const size_t n_other = whole_blocks(has.n_other, most);
    if (!b->looked) {
        out.reason = SKV_MISS_OFF;
        out.lost_tokens = n_same;
    } else if (b->n_rows > b->n_found) {
        out.reason = SKV_MISS_STATE;
        out.lost_tokens = b->n_rows - b->n_found;
    } else if (n_same > b->n_found) {
        out.reason = SKV_MISS_EVICTED;
        out.lost_tokens = n_same - b->n_found;
    } else if (n_other > b->n_found) {
        out.reason = SKV_MISS_FORM;
        out.lost_tokens = n_other - b->n_found;
    } else if (!has.any) {
        if (b->n_found == 0) out.reason = SKV_MISS_NEW;
    } else if (has.n_same >= b->n_found) {
        out = part(all, b, &has, with);
    }
    return out;
}
