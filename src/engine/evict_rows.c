/* Eviction of sequences: from a prompt's votes to the rows that stay. */
#include "base/mem.h"
#include "base/size.h"
#include "engine/engine.h"
#include "ranks/ranks_tell.h"
#include "skv/inspect.h"

/* Which of the engine's two plans a sequence has. */
static skv_plan *spread_plan_of(const skv_sequence *s)
{
    skv_engine *e = s->engine;
    return &e->spread_plans[s->plan == &e->teacher_plan];
}

static skv_status make_spread_plan(const skv_sequence *s, skv_error *err)
{
    skv_plan *plan = spread_plan_of(s);
    if (s->plan->by_query_head || plan->layers) return SKV_OK;
    skv_status status = skv_plan_spread(plan, s->plan, s->engine->config, err);
    if (status == SKV_OK) {
        status =
            skv_kv_layout_bind(&plan->layout, s->engine->store, s->engine->options.context, err);
    }
    if (status != SKV_OK) skv_plan_release(plan);
    return status;
}

skv_status skv_sequence_set_eviction(skv_sequence *s, const skv_eviction *eviction, skv_error *err)
{
    SKV_TRY(skv_eviction_check(eviction, err));
    const skv_prefill how = s->reader ? SKV_PREFILL_KVPRED : SKV_PREFILL_FULL;
    SKV_TRY(skv_engine_check(s->engine, SKV_WHERE_GENERATE, how, eviction, err));
    bool evicted = s->cache.kept;
    SKV_REQUIRE(!evicted || eviction->by_query_head == s->plan->by_query_head, err, SKV_UNSUPPORTED,
                "eviction: rows were evicted by %s head, which the sequence cannot change",
                s->plan->by_query_head ? "query" : "KV");
    if (eviction->by_query_head) SKV_TRY(make_spread_plan(s, err));
    s->eviction = *eviction;
    skv_kv_votes_release(&s->votes);
    skv_tell_eviction(s, eviction);
    return SKV_OK;
}

/* ---- the form of slots ---- */

/* Of the layers that read a slot: how far back they see, as votes.h has it. */
static size_t last_rows_of(const skv_sequence *s, size_t slot)
{
    size_t furthest = 0, n_full = 0, n_windowed = 0;
    for (size_t i = 0; i < s->plan->n_layers; i++) {
        size_t window = s->engine->config->layers[i].window;
        if (s->plan->layers[i].slot != slot) continue;
        furthest = skv_max_size(furthest, window);
        *(window > 0 ? &n_windowed : &n_full) += 1;
    }
    if (n_windowed == 0) return SKV_SLOT_SCORED;
    return n_full > 0 ? SKV_SLOT_WHOLE : furthest;
}

/* The layout that the sequence has after the eviction. */
static const skv_kv_layout *layout_after(const skv_sequence *s)
{
    bool spreads = s->eviction.by_query_head && !s->plan->by_query_head;
    return spreads ? &spread_plan_of(s)->layout : s->cache.layout;
}

/* Heads that have votes of their own in each slot. */
static void count_heads(const skv_sequence *s, size_t *n_heads)
{
    const skv_kv_layout *layout = layout_after(s);
    for (size_t i = 0; i < layout->n_slots; i++) {
        n_heads[i] = layout->track0[i + 1] - layout->track0[i];
    }
}

/* ---- before a prompt ---- */

static skv_status start_votes(skv_sequence *s, size_t n, skv_error *err)
{
    size_t n_slots = s->cache.layout->n_slots;
    size_t *n_heads = skv_alloc(n_slots, sizeof *n_heads);
    SKV_REQUIRE(n_heads, err, SKV_MEMORY, "eviction: no memory for %zu slots", n_slots);
    if (s->eviction.by_query_head) {
        skv_status made = make_spread_plan(s, err);
        if (made != SKV_OK) {
            skv_free(n_heads);
            return made;
        }
    }
    count_heads(s, n_heads);
    skv_status status = skv_kv_votes_init(&s->votes, s->engine->be, s->plan->n_layers, n_heads,
                                          n_slots, skv_kv_cache_most_rows(&s->cache) + n, err);
    skv_free(n_heads);
    if (status != SKV_OK) return status;
    size_t n_voters = skv_min_size(n, skv_eviction_voters(&s->eviction));
    s->votes.by_query_head = layout_after(s) != s->cache.layout;
    s->votes.to = s->n_seen + n;
    s->votes.from = s->votes.to - n_voters;
    return SKV_OK;
}

skv_status skv_sequence_expect(skv_sequence *s, size_t n, skv_error *err)
{
    const bool had_votes = s->votes.votes;
    skv_kv_votes_release(&s->votes);
    /* A prompt that fits loses nothing: it runs as without eviction. */
    const bool fits = s->eviction.method == SKV_EVICT_NONE ||
                      skv_kv_cache_most_rows(&s->cache) + n <= s->eviction.capacity;
    if (!fits) SKV_TRY(start_votes(s, n, err));
    if (had_votes || !fits) skv_tell_expect(s, n);
    return SKV_OK;
}

size_t skv_sequence_deep_from(const skv_sequence *s, size_t n)
{
    const skv_kv_votes *votes = &s->votes;
    if (!votes->votes || s->eviction.last_only || votes->from >= votes->to) return n;
    size_t first = votes->from > s->n_seen ? votes->from - s->n_seen : 0;
    return s->n_seen < votes->to ? skv_min_size(first, n) : n;
}

/* ---- after it ---- */

size_t skv_eviction_most_rows(const skv_sequence *s, const skv_eviction *how, size_t n)
{
    for (size_t i = 0; i < s->plan->layout.n_slots; i++) {
        if (last_rows_of(s, i) != SKV_SLOT_SCORED) return n;
    }
    return skv_evict_most_rows(how, n);
}

size_t skv_sequence_evict_needs(const skv_sequence *s)
{
    if (!s->votes.votes) return 0;
    if (s->votes.by_query_head) {
        return skv_kv_layout_pages(layout_after(s), s->eviction.capacity);
    }
    size_t most = skv_eviction_most_rows(s, &s->eviction, s->votes.to);
    return skv_kv_cache_evict_needs(&s->cache, most);
}

static skv_status choose_rows(skv_sequence *s, skv_kv_choice *out, skv_error *err)
{
    size_t n_slots = s->votes.n_slots, n_tracks = s->votes.track0[n_slots];
    size_t *numbers = skv_alloc(n_slots + n_tracks, sizeof *numbers);
    SKV_REQUIRE(numbers, err, SKV_MEMORY, "eviction: no memory for %zu heads", n_tracks);
    size_t *last_rows = numbers, *n_rows = numbers + n_slots;
    for (size_t i = 0; i < n_slots; i++) last_rows[i] = last_rows_of(s, i);
    /* The heads of a slot are alike before the first eviction, which is when they are spread. */
    for (size_t i = 0; i < n_slots; i++) {
        for (size_t t = s->votes.track0[i]; t < s->votes.track0[i + 1]; t++) {
            size_t track = s->votes.by_query_head ? s->cache.layout->track0[i] : t;
            n_rows[t] = skv_kv_cache_track_rows(&s->cache, track);
        }
    }
    skv_status status = skv_kv_votes_choose(&s->votes, &s->eviction, n_rows, last_rows, out, err);
    skv_free(numbers);
    return status;
}

skv_status skv_sequence_choose_slot(skv_sequence *s, size_t slot, size_t n, skv_kv_choice *out,
                                    skv_error *err)
{
    size_t n_slots = s->votes.n_slots, n_tracks = s->votes.track0[n_slots];
    size_t *numbers = skv_alloc(n_slots + n_tracks, sizeof *numbers);
    SKV_REQUIRE(numbers, err, SKV_MEMORY, "eviction: no memory for %zu heads", n_tracks);
    for (size_t i = 0; i < n_slots; i++) numbers[i] = last_rows_of(s, i);
    for (size_t t = 0; t < n_tracks; t++) numbers[n_slots + t] = n;
    skv_status status = skv_kv_votes_choose_slot(&s->votes, &s->eviction, slot, numbers + n_slots,
                                                 numbers, out, err);
    skv_free(numbers);
    return status;
}

/* The rows go to a cache with a track for each query head, which becomes the sequence's. */
static skv_status spread(skv_sequence *s, const skv_kv_choice *choice, skv_error *err)
{
    const skv_plan *plan = spread_plan_of(s);
    size_t n_slots = plan->layout.n_slots;
    size_t *times = skv_alloc(n_slots, sizeof *times);
    SKV_REQUIRE(times, err, SKV_MEMORY, "eviction: no memory for %zu slots", n_slots);
    for (size_t i = 0; i < n_slots; i++) {
        const size_t *own = s->cache.layout->track0 + i, *after = plan->layout.track0 + i;
        times[i] = (after[1] - after[0]) / (own[1] - own[0]);
    }
    skv_kv_cache cache = {.store = NULL};
    skv_status status = skv_kv_cache_init(&cache, &plan->layout, err);
    if (status == SKV_OK) status = skv_kv_cache_spread(&cache, &s->cache, times, choice, err);
    skv_free(times);
    if (status != SKV_OK) {
        skv_kv_cache_release(&cache);
        return status;
    }
    skv_kv_cache_release(&s->cache);
    s->cache = cache;
    s->plan = plan;
    return SKV_OK;
}

skv_status skv_sequence_evict(skv_sequence *s, skv_error *err)
{
    if (!s->votes.votes) return SKV_OK;
    SKV_REQUIRE(s->n_seen == s->votes.to, err, SKV_ARGUMENT,
                "eviction: the sequence has %zu tokens, the expected prompt ends at %zu", s->n_seen,
                s->votes.to);
    size_t n_tracks = s->votes.track0[s->votes.n_slots];
    skv_kv_choice choice;
    SKV_TRY(choose_rows(s, &choice, err));
    skv_status status = s->votes.by_query_head ? spread(s, &choice, err)
                                               : skv_kv_cache_evict(&s->cache, &choice, err);
    skv_kv_choice_release(&choice, n_tracks);
    if (status != SKV_OK) return status;
    skv_kv_votes_release(&s->votes);
    skv_tell_evict(s);
    return SKV_OK;
}

/* ---- rows that the caller chooses ---- */

/* The rows of a track at these positions; false: they do not ascend, or one is not there. */
static bool find_rows(const skv_kv_cache *cache, size_t track, const skv_head_rows *head,
                      uint32_t *rows)
{
    const size_t n_rows = skv_kv_cache_track_rows(cache, track);
    for (size_t i = 0, r = 0; i < head->n; i++, r++) {
        while (r < n_rows && skv_kv_cache_position(cache, track, r) < head->positions[i]) r++;
        if (r == n_rows || skv_kv_cache_position(cache, track, r) != head->positions[i]) {
            return false;
        }
        rows[i] = (uint32_t)r;
    }
    return true;
}

static skv_status keep_named(const skv_sequence *s, const skv_head_rows *head, skv_kv_choice *out,
                             skv_error *err)
{
    const size_t layer = head->i_layer, i_head = head->i_head;
    skv_kv_shape shape;
    SKV_REQUIRE(skv_sequence_kv_shape(s, layer, &shape) && i_head < shape.n_heads, err,
                SKV_ARGUMENT, "keep: layer %zu has no head %zu", layer, i_head);
    SKV_REQUIRE(last_rows_of(s, shape.slot) == SKV_SLOT_SCORED, err, SKV_UNSUPPORTED,
                "keep: the rows of layer %zu lie in a sliding window, which drops them by itself",
                layer);
    const size_t track = s->cache.layout->track0[shape.slot] + i_head;
    SKV_REQUIRE(out->n[track] == 0, err, SKV_ARGUMENT,
                "keep: the rows of layer %zu, head %zu are named twice", layer, i_head);
    SKV_REQUIRE(head->n >= 1 && find_rows(&s->cache, track, head, out->rows + track * out->stride),
                err, SKV_ARGUMENT,
                "keep: layer %zu, head %zu: %zu positions, expected one or more that it holds, "
                "in ascending order",
                layer, i_head, head->n);
    out->n[track] = head->n;
    return SKV_OK;
}

/* Tracks that are not in the choice keep their rows, in windows those that a window can see. */
static void keep_others(const skv_sequence *s, skv_kv_choice *out)
{
    const skv_kv_layout *layout = s->cache.layout;
    for (size_t slot = 0; slot < layout->n_slots; slot++) {
        const size_t last = last_rows_of(s, slot);
        for (size_t t = layout->track0[slot]; t < layout->track0[slot + 1]; t++) {
            const size_t n = skv_kv_cache_track_rows(&s->cache, t);
            if (out->n[t] > 0) continue;
            out->n[t] = last == SKV_SLOT_SCORED ? n : skv_min_size(n, last);
            for (size_t i = 0; i < out->n[t]; i++) {
                out->rows[t * out->stride + i] = (uint32_t)(n - out->n[t] + i);
            }
        }
    }
}

static skv_status check_keep(const skv_sequence *s, skv_error *err)
{
    /* As for methods that use positions only. */
    static const skv_eviction own = {.method = SKV_EVICT_STREAMING};
    const skv_prefill how = s->reader ? SKV_PREFILL_KVPRED : SKV_PREFILL_FULL;
    SKV_REQUIRE(!s->engine->ranks, err, SKV_UNSUPPORTED,
                "keep: several ranks: a process has only its own heads");
    SKV_TRY(skv_engine_check(s->engine, SKV_WHERE_GENERATE, how, &own, err));
    SKV_REQUIRE(!s->eviction.by_query_head || s->plan->by_query_head, err, SKV_UNSUPPORTED,
                "keep: the sequence evicts rows by query head, and has none of them yet");
    SKV_REQUIRE(!s->votes.votes, err, SKV_ARGUMENT,
                "keep: a prompt is announced, whose end evicts rows");
    return SKV_OK;
}

skv_status skv_sequence_keep(skv_sequence *s, const skv_head_rows *heads, size_t n, skv_error *err)
{
    const size_t n_tracks = skv_kv_layout_tracks(s->cache.layout);
    SKV_TRY(check_keep(s, err));
    skv_sequence_keep_ready(s, 0);
    /* One row where there are none: no map is empty. */
    skv_kv_choice choice = {.stride = skv_max_size(1, skv_kv_cache_most_rows(&s->cache))};
    choice.n = skv_alloc_zero(n_tracks, sizeof *choice.n);
    choice.rows = skv_map_zero(n_tracks * choice.stride * sizeof *choice.rows);
    skv_status status = choice.n && choice.rows
                            ? SKV_OK
                            : skv_fail(err, SKV_MEMORY, "keep: no memory for %zu rows of %zu heads",
                                       choice.stride, n_tracks);
    for (size_t i = 0; i < n && status == SKV_OK; i++) {
        status = keep_named(s, &heads[i], &choice, err);
    }
    if (status == SKV_OK) {
        keep_others(s, &choice);
        status = skv_kv_cache_evict(&s->cache, &choice, err);
    }
    skv_kv_choice_release(&choice, n_tracks);
    return status;
}

size_t skv_sequence_kept(const skv_sequence *s, size_t i_layer, size_t i_head, size_t *out,
                         size_t max)
{
    if (i_layer >= s->plan->n_layers) return 0;
    const skv_kv_layout *layout = s->cache.layout;
    const size_t slot = s->plan->layers[i_layer].slot;
    if (slot == SKV_NO_SLOT) return 0;
    const size_t track = layout->track0[slot] + i_head;
    if (i_head >= layout->track0[slot + 1] - layout->track0[slot]) return 0;
    size_t n = skv_kv_cache_track_rows(&s->cache, track);
    for (size_t i = 0; i < n && i < max; i++) {
        out[i] = skv_kv_cache_position(&s->cache, track, i);
    }
    return n;
}
