/* A look at one row of logits: see logit_look.h. */
#include "backend/cpu/logit_look.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "kernels/logits.h"

enum {
    LIST_MAX = 2048, /* of a bucket that is listed; a fuller one is spread again */
    TAIL = 4,        /* buckets reach so many times as far down as the maxima of blocks */
    TEAM_BLOCKS = 64 /* fewer blocks are not worth waking a thread for */
};

static const double LOG2_E = 1.4426950408889634, FACTOR_MAX = 0x1p900;

#define TAKE(field, count)                                                                         \
    do {                                                                                           \
        if (memory) (field) = (void *)(memory + used);                                             \
        used += skv_round_up((count) * sizeof *(field), SKV_ALIGN);                                \
    } while (0)

/* Lays a look out in `memory` (NULL: only counts) and returns the bytes it takes. */
static size_t lay_out(skv_look *l, size_t vocab, unsigned char *memory)
{
    size_t used = 0;
    TAKE(l->maxima, skv_logit_blocks(vocab));
    TAKE(l->block_sums, skv_logit_blocks(vocab));
    TAKE(l->sums, 2 * (size_t)SKV_LOGIT_BUCKETS);
    TAKE(l->ids, LIST_MAX);
    TAKE(l->weights, LIST_MAX);
    return used;
}
#undef TAKE

size_t skv_look_bytes(size_t vocab)
{
    skv_look counted;
    return lay_out(&counted, vocab, NULL);
}

void skv_look_lay_out(skv_look *l, size_t vocab, const skv_logit_kernels *kernels,
                      unsigned char *memory)
{
    *l = (skv_look){.kernels = *kernels, .row = {.n = vocab}, .team = {.n = 1}};
    (void)lay_out(l, vocab, memory);
    l->row.maxima = l->maxima;
}

skv_status skv_look_init(skv_look *l, size_t vocab, skv_cpu_level level, skv_error *err)
{
    skv_kernels kernels;
    *l = (skv_look){.row = {.n = vocab}};
    SKV_REQUIRE(vocab >= 1 && vocab <= SKV_LOGIT_VOCAB_MAX, err, SKV_RANGE,
                "sampler: a vocabulary of %zu, expected 1 to %d", vocab, (int)SKV_LOGIT_VOCAB_MAX);
    unsigned char *memory = skv_alloc_aligned(skv_look_bytes(vocab), 1);
    SKV_REQUIRE(memory, err, SKV_MEMORY, "sampler: no memory for a vocabulary of %zu", vocab);
    skv_kernels_init(&kernels, level, skv_cpu_detect());
    skv_look_lay_out(l, vocab, &kernels.logits, memory);
    l->memory = memory;
    return SKV_OK;
}

void skv_look_release(skv_look *l)
{
    skv_free(l->memory);
    *l = (skv_look){0};
}

/* ---- the largest ---- */

static size_t block_end(const skv_look *l, size_t b)
{
    return skv_min_size((b + 1) * SKV_LOGIT_BLOCK, l->row.n);
}

void skv_look_at_blocks(skv_look *l, const float *x, size_t n)
{
    const size_t n_blocks = skv_logit_blocks(n);
    size_t first = 0;
    l->row.x = x;
    l->row.n = n;
    for (size_t b = 1; b < n_blocks; b++) {
        if (l->maxima[b] > l->maxima[first]) first = b;
    }
    l->max = l->maxima[first];
    l->scale.factor = -1;
    l->best = first * SKV_LOGIT_BLOCK;
    while (l->best + 1 < block_end(l, first) && !(x[l->best] == l->max)) l->best++;
    if (!(x[l->best] == l->max)) l->best = 0; /* NaN alone */
}

void skv_look_at(skv_look *l, const float *x)
{
    l->kernels.maxima(l->maxima, x, l->row.n);
    skv_look_at_blocks(l, x, l->row.n);
}

/* Puts one into the n_top largest so far, of which there are n; it comes behind its equals. */
static size_t keep(skv_candidate *top, size_t n, size_t n_top, skv_candidate c)
{
    if (n == n_top && !(c.logit > top[n - 1].logit)) return n;
    size_t at = 0, end = n;
    while (at < end) {
        const size_t middle = at + (end - at) / 2;
        if (top[middle].logit >= c.logit) {
            at = middle + 1;
        } else {
            end = middle;
        }
    }
    const size_t n_moved = (n < n_top ? n : n_top - 1) - at;
    memmove(top + at + 1, top + at, n_moved * sizeof *top);
    top[at] = c;
    return n < n_top ? n + 1 : n_top;
}

/* A bound: so many logits are at least as large, since so many blocks have one. */
static float bound_of_top(const skv_look *l, size_t n_top, skv_candidate *top)
{
    const size_t n_blocks = skv_logit_blocks(l->row.n);
    size_t n = 0;
    if (n_blocks < n_top) return -HUGE_VALF;
    for (size_t b = 0; b < n_blocks; b++) {
        n = keep(top, n, n_top, (skv_candidate){(int32_t)b, l->maxima[b]});
    }
    return top[n - 1].logit;
}

size_t skv_look_top(const skv_look *l, size_t n_top, skv_candidate *top)
{
    size_t n = 0;
    assert(n_top <= SKV_PICK_MAX);
    if (n_top == 0) return 0;
    const float bound = bound_of_top(l, n_top, top);
    for (size_t b = 0; b < skv_logit_blocks(l->row.n); b++) {
        if (l->maxima[b] < bound) continue;
        for (size_t i = b * SKV_LOGIT_BLOCK; i < block_end(l, b); i++) {
            const float x = l->row.x[i];
            if (x >= bound) n = keep(top, n, n_top, (skv_candidate){(int32_t)i, x});
        }
    }
    return n;
}

/* ---- intervals of floats ---- */

/* Numbers in the order of floats; zeros of both signs are neighbours. */
static uint32_t key_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits >> 31 ? ~bits : bits | UINT32_C(1) << 31;
}

static float of_key(uint32_t key)
{
    const uint32_t bits = key >> 31 ? key & ~(UINT32_C(1) << 31) : ~key;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

typedef bool holds_fn(const void *user, float x);

/* The first key of [low, high) whose float `holds`, as do all after it; high: none. */
static uint32_t first_that(uint32_t low, uint32_t high, holds_fn *holds, const void *user)
{
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (holds(user, of_key(middle))) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

typedef struct weight_bound {
    const skv_logit_scale *scale;
    uint64_t least;
} weight_bound;

static bool weighs_enough(const void *user, float x)
{
    const weight_bound *bound = user;
    return skv_logit_weight(bound->scale, x) >= bound->least;
}

typedef struct bucket_bound {
    const skv_logit_scale *scale;
    uint32_t bucket;
} bucket_bound;

static bool is_up_to_bucket(const void *user, float x)
{
    const bucket_bound *bound = user;
    return skv_logit_bucket(bound->scale, x) <= bound->bucket;
}

/* The floats that belong to bucket b. */
static void interval_of(const skv_logit_scale *s, uint32_t b, float *low, float *high)
{
    const uint32_t first = key_of(s->low), end = key_of(s->high);
    const bucket_bound own = {s, b}, before = {s, b - 1};
    *low = of_key(first_that(first, end, is_up_to_bucket, &own));
    *high = b == 0 ? s->high : of_key(first_that(first, end, is_up_to_bucket, &before) - 1);
}

/* ---- the passes that weigh, by the team ---- */

typedef struct team_pass {
    const skv_look *look;
    const skv_logit_scale *scale;
    uint64_t *sums; /* of blocks, or of buckets: */
    bool spreads;
} team_pass;

/* Part i of the blocks. The sums of buckets of all but the first lie apart. */
static void run_part(void *arg, size_t i, size_t i_thread)
{
    const team_pass *pass = arg;
    const skv_look *l = pass->look;
    const size_t n_blocks = skv_logit_blocks(l->row.n), n = l->team.n;
    const size_t first = n_blocks * i / n, end = n_blocks * (i + 1) / n;
    const size_t n_logits = skv_min_size(end * SKV_LOGIT_BLOCK, l->row.n) - first * SKV_LOGIT_BLOCK;
    const skv_logit_row row = {
        .x = l->row.x + first * SKV_LOGIT_BLOCK, .maxima = l->maxima + first, .n = n_logits};
    uint64_t *apart = l->team.sums + (i - 1) * SKV_LOGIT_BUCKETS;
    (void)i_thread;
    if (!pass->spreads) {
        l->kernels.weigh(pass->sums + first, &row, pass->scale);
        return;
    }
    if (i > 0) memset(apart, 0, SKV_LOGIT_BUCKETS * sizeof *apart);
    l->kernels.spread(i > 0 ? apart : pass->sums, &row, pass->scale);
}

/* Whole numbers: their sums do not depend on the parts. */
static void run_team(const team_pass *pass)
{
    const skv_look_team *team = &pass->look->team;
    if (team->n == 1 || skv_logit_blocks(pass->look->row.n) < team->n * TEAM_BLOCKS) {
        const skv_look *l = pass->look;
        (pass->spreads ? l->kernels.spread : l->kernels.weigh)(pass->sums, &l->row, pass->scale);
        return;
    }
    skv_pool_run(team->pool, team->n, run_part, (void *)(uintptr_t)pass);
    for (size_t i = 0; pass->spreads && i + 1 < team->n; i++) {
        const uint64_t *apart = team->sums + i * SKV_LOGIT_BUCKETS;
        for (size_t b = 0; b < SKV_LOGIT_BUCKETS; b++) pass->sums[b] += apart[b];
    }
}

/* ---- weights in blocks ---- */

/* All of the row that may be drawn, unless that is there already. */
static void weigh_row(skv_look *l, double factor)
{
    const skv_logit_scale s = {
        .max = l->max, .factor = factor, .low = l->last.logit, .high = l->max};
    if (!(l->scale.factor < factor) && !(l->scale.factor > factor) && !(l->scale.low < s.low) &&
        !(l->scale.low > s.low)) {
        return;
    }
    run_team(&(team_pass){.look = l, .scale = &s, .sums = l->block_sums});
    l->scale = s;
    l->total = 0;
    for (size_t b = 0; b < skv_logit_blocks(l->row.n); b++) l->total += l->block_sums[b];
}

/* The token at this place of their sum, by id. */
static int32_t token_of_blocks(const skv_look *l, uint64_t at)
{
    size_t b = 0;
    while (at >= l->block_sums[b]) at -= l->block_sums[b++];
    size_t i = b * SKV_LOGIT_BLOCK;
    for (;; i++) {
        const float x = l->row.x[i];
        const uint64_t weight = x >= l->last.logit ? skv_logit_weight(&l->scale, x) : 0;
        if (at < weight) return (int32_t)i;
        at -= weight;
    }
}

/* ---- weights in buckets ---- */

/* Buckets of equal width from s->high down to `low`; values below it are in the last. */
static void set_width(skv_logit_scale *s, float low)
{
    const double width = (double)s->high - (double)low;
    s->per = width > 0 ? SKV_LOGIT_BUCKETS / width : 0;
}

/* How far down buckets reach: where most logits of a row lie, if blocks are alike. */
static float reach_of(const skv_look *l, float low)
{
    float lowest = l->max;
    for (size_t b = 0; b < skv_logit_blocks(l->row.n); b++) {
        if (l->maxima[b] < lowest && l->maxima[b] >= low) lowest = l->maxima[b];
    }
    const float reach = l->max - TAIL * (l->max - lowest);
    return lowest < l->max && reach > low ? reach : low;
}

/* The values that may be drawn of [s->low, s->high], in buckets; all of it together. */
static uint64_t spread(const skv_look *l, const skv_logit_scale *s, uint64_t *sums)
{
    uint64_t total = 0;
    memset(sums, 0, SKV_LOGIT_BUCKETS * sizeof *sums);
    run_team(&(team_pass){.look = l, .scale = s, .sums = sums, .spreads = true});
    if (l->n_tied > 0 && l->last.logit >= s->low && l->last.logit <= s->high) {
        sums[skv_logit_bucket(s, l->last.logit)] -= l->n_tied * skv_logit_weight(s, l->last.logit);
    }
    for (size_t b = 0; b < SKV_LOGIT_BUCKETS; b++) total += sums[b];
    return total;
}

/* All of the row that may be drawn. */
static void spread_row(skv_look *l, double factor)
{
    skv_logit_scale s = {.max = l->max, .factor = factor, .low = l->last.logit, .high = l->max};
    set_width(&s, reach_of(l, s.low));
    l->scale = s;
    l->total = spread(l, &s, l->sums);
}

/* Everything of at least this weight may be drawn. */
static void allow(skv_look *l, double factor, uint64_t least)
{
    const skv_logit_scale s = {.max = l->max, .factor = factor};
    const weight_bound bound = {&s, least};
    const uint32_t lowest = first_that(key_of(-FLT_MAX), key_of(l->max), weighs_enough, &bound);
    l->last = (skv_candidate){INT32_MAX, of_key(lowest)};
    l->n_tied = 0;
}

static bool may_be_drawn(const skv_look *l, uint32_t id)
{
    const float x = l->row.x[id];
    return x > l->last.logit || (x == l->last.logit && id <= (uint32_t)l->last.id);
}

/* ---- cuts ---- */

/* The bucket in which the sum of the first ones becomes `need`; *above: the sum before it. */
static uint32_t bucket_at(const uint64_t *sums, uint64_t need, uint64_t *above)
{
    uint32_t b = 0;
    while (b + 1 < SKV_LOGIT_BUCKETS && *above + sums[b] < need) *above += sums[b++];
    return b;
}

/* The weights of the logits of an interval; false: they are too many for the list. */
static bool list(skv_look *l, const skv_logit_scale *s, float low, float high, size_t *n)
{
    size_t i_block = 0;
    *n = l->kernels.between(l->ids, LIST_MAX, &l->row, low, high, &i_block);
    for (size_t i = 0; i < *n; i++) {
        l->weights[i] = may_be_drawn(l, l->ids[i]) ? skv_logit_weight(s, l->row.x[l->ids[i]]) : 0;
    }
    return i_block == skv_logit_blocks(l->row.n);
}

typedef struct listed {
    const skv_look *look;
    size_t n;
    uint64_t need;
} listed;

static uint64_t listed_from(const listed *all, float x)
{
    const skv_look *l = all->look;
    uint64_t sum = 0;
    for (size_t i = 0; i < all->n; i++) sum += l->row.x[l->ids[i]] >= x ? l->weights[i] : 0;
    return sum;
}

static bool is_too_little(const void *user, float x)
{
    const listed *all = user;
    return listed_from(all, x) < all->need;
}

/* Logits x are the last that may be drawn, as many of them as it takes from `above` to `need`. */
static void end_at(skv_look *l, float x, uint64_t above, uint64_t need)
{
    const uint64_t weight = skv_logit_weight(&l->scale, x);
    uint64_t sum = above, n_equal = 0, n_kept = 0;
    int32_t last = 0;
    for (size_t i_block = 0, n; i_block < skv_logit_blocks(l->row.n);) {
        n = l->kernels.between(l->ids, LIST_MAX, &l->row, x, x, &i_block);
        n_equal += n;
        for (size_t i = 0; i < n && sum < need; i++) {
            last = (int32_t)l->ids[i];
            sum += weight;
            n_kept++;
        }
    }
    assert(n_kept > 0);
    l->last = (skv_candidate){last, x};
    l->n_tied = n_equal - n_kept;
    l->total = sum;
}

/* Only the first that have the sum `need` together, which is more than nothing and at most the
 * total, may be drawn. */
static void cut(skv_look *l, uint64_t need)
{
    skv_logit_scale s = l->scale;
    const uint64_t *sums = l->sums;
    uint64_t above = 0;
    float low, high;
    size_t n = 0;
    for (;;) { /* of two logits the smaller one comes into a later bucket, so intervals shrink */
        interval_of(&s, bucket_at(sums, need, &above), &low, &high);
        if (low >= high || list(l, &s, low, high, &n)) break;
        s.low = low;
        s.high = high;
        set_width(&s, low);
        (void)spread(l, &s, l->sums + SKV_LOGIT_BUCKETS);
        sums = l->sums + SKV_LOGIT_BUCKETS;
    }
    if (low < high) {
        const listed all = {l, n, need - above};
        const uint32_t end = key_of(high) + 1;
        low = of_key(first_that(key_of(low), end, is_too_little, &all) - 1);
        above += listed_from(&all, of_key(key_of(low) + 1));
    }
    end_at(l, low, above, need);
}

/* Equal weights count tokens. */
static void keep_first(skv_look *l, size_t n)
{
    spread_row(l, 0);
    if (l->total > n * SKV_LOGIT_ONE) cut(l, n * SKV_LOGIT_ONE);
}

/* ---- a draw ---- */

static uint64_t share_of(uint64_t total, double share)
{
    const double part = ceil((double)total * share);
    const uint64_t need = part < (double)total ? (uint64_t)part : total;
    return need > 0 ? need : 1;
}

static uint64_t place_of(uint64_t total, double u)
{
    const uint64_t at = (uint64_t)((double)total * u);
    return at < total ? at : total - 1;
}

/* The token at this place of the sum of all that may be drawn: bucket by bucket, by id in each. */
static int32_t token_of_buckets(skv_look *l, uint64_t at)
{
    uint64_t sum = 0;
    float low, high;
    interval_of(&l->scale, bucket_at(l->sums, at + 1, &sum), &low, &high);
    for (size_t i_block = 0, n; i_block < skv_logit_blocks(l->row.n);) {
        n = l->kernels.between(l->ids, LIST_MAX, &l->row, low, high, &i_block);
        for (size_t i = 0; i < n; i++) {
            if (!may_be_drawn(l, l->ids[i])) continue;
            sum += skv_logit_weight(&l->scale, l->row.x[l->ids[i]]);
            if (sum > at) return (int32_t)l->ids[i];
        }
    }
    return (int32_t)l->best; /* not reached: `at` is less than the sum */
}

/* Of the largest, which are few. */
static int32_t draw_from_top(const skv_look *l, const skv_sampling *s, double factor, double u)
{
    skv_candidate top[SKV_PICK_MAX];
    uint64_t weights[SKV_PICK_MAX], total = 0, kept = 0;
    const skv_logit_scale scale = {.max = l->max, .factor = factor};
    const size_t n_top = skv_look_top(l, s->top_k, top);
    size_t n = 0, n_kept = 0, i = 0;
    for (; n < n_top && top[n].logit >= l->last.logit; n++) {
        weights[n] = skv_logit_weight(&scale, top[n].logit);
        total += weights[n];
    }
    if (n == 0) return (int32_t)l->best; /* not reached: the best may be drawn */
    const uint64_t need = share_of(total, s->top_p);
    while (n_kept < n && kept < need) kept += weights[n_kept++];
    uint64_t at = place_of(kept, u);
    while (i + 1 < n_kept && at >= weights[i]) at -= weights[i++];
    return top[i].id;
}

int32_t skv_look_draw(skv_look *l, const skv_sampling *s, double u)
{
    assert(s->temperature > 0);
    if (!isfinite(l->max)) return (int32_t)l->best;
    const double factor = fmin(LOG2_E / s->temperature, FACTOR_MAX);
    const double least = ceil(s->min_p * (double)SKV_LOGIT_ONE);
    allow(l, factor, least > 1 ? (uint64_t)least : 1);
    if (s->top_k > 0 && s->top_k <= SKV_PICK_MAX) return draw_from_top(l, s, factor, u);
    const bool many = s->top_k > 0 && s->top_k < l->row.n;
    if (!many && s->top_p >= 1) {
        weigh_row(l, factor);
        return token_of_blocks(l, place_of(l->total, u));
    }
    if (many) keep_first(l, s->top_k);
    spread_row(l, factor);
    if (s->top_p < 1) cut(l, share_of(l->total, s->top_p));
    const int32_t id = token_of_buckets(l, place_of(l->total, u));
    l->scale.factor = -1; /* `total` is not that of blocks */
    return id;
}

double skv_look_norm(skv_look *l)
{
    if (!isfinite(l->max)) return (double)l->max;
    allow(l, LOG2_E, 1);
    weigh_row(l, LOG2_E);
    return (double)l->max + log((double)l->total / (double)SKV_LOGIT_ONE);
}

float skv_look_penalised(const skv_sampling *s, const skv_penalty *penalty, float logit)
{
    double x = (double)logit;
    x = x > 0 ? x / s->repetition_penalty : x * s->repetition_penalty;
    if (penalty->n_generated > 0) x -= s->presence_penalty;
    x -= s->frequency_penalty * (double)penalty->n_generated;
    return (float)x;
}
