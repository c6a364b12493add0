/* Eviction as sequences know it: what a prompt's votes are for, and what comes of them. */
#include "base/mem.h"
#include "base/size.h"
#include "engine/engine.h"

skv_status skv_sequence_set_eviction(skv_sequence *s, const skv_eviction *eviction, skv_error *err)
{
    SKV_TRY(skv_eviction_check(eviction, err));
    SKV_REQUIRE(!eviction->by_query_head, err, SKV_UNSUPPORTED,
                "eviction: rows of each query head are not kept apart");
    s->eviction = *eviction;
    skv_kv_votes_release(&s->votes);
    return SKV_OK;
}

/* ---- what slots are ---- */

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

/* Heads that have votes of their own in each slot. */
static void count_heads(const skv_sequence *s, size_t *n_heads)
{
    const skv_kv_layout *layout = s->cache.layout;
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
    count_heads(s, n_heads);
    skv_status status = skv_kv_votes_init(&s->votes, s->plan->n_layers, n_heads, n_slots,
                                          skv_kv_cache_most_rows(&s->cache) + n, err);
    skv_free(n_heads);
    if (status != SKV_OK) return status;
    size_t n_voters = skv_min_size(n, skv_eviction_voters(&s->eviction));
    s->votes.to = s->n_seen + n;
    s->votes.from = s->votes.to - n_voters;
    return SKV_OK;
}

skv_status skv_sequence_expect(skv_sequence *s, size_t n, skv_error *err)
{
    skv_kv_votes_release(&s->votes);
    if (s->eviction.method == SKV_EVICT_NONE) return SKV_OK;
    /* What fits loses nothing: it is run as if nothing had been asked for. */
    if (skv_kv_cache_most_rows(&s->cache) + n <= s->eviction.capacity) return SKV_OK;
    return start_votes(s, n, err);
}

size_t skv_sequence_deep_from(const skv_sequence *s, size_t n)
{
    const skv_kv_votes *votes = &s->votes;
    if (!votes->votes || s->eviction.last_only || votes->from >= votes->to) return n;
    size_t first = votes->from > s->n_seen ? votes->from - s->n_seen : 0;
    return s->n_seen < votes->to ? skv_min_size(first, n) : n;
}

/* ---- behind it ---- */

size_t skv_sequence_evict_needs(const skv_sequence *s)
{
    if (!s->votes.votes) return 0;
    return skv_kv_cache_evict_needs(&s->cache, s->n_seen);
}

static skv_status choose_rows(skv_sequence *s, skv_kv_choice *out, skv_error *err)
{
    size_t n_slots = s->votes.n_slots, n_tracks = s->votes.track0[n_slots];
    size_t *numbers = skv_alloc(n_slots + n_tracks, sizeof *numbers);
    SKV_REQUIRE(numbers, err, SKV_MEMORY, "eviction: no memory for %zu heads", n_tracks);
    size_t *last_rows = numbers, *n_rows = numbers + n_slots;
    for (size_t i = 0; i < n_slots; i++) last_rows[i] = last_rows_of(s, i);
    for (size_t t = 0; t < n_tracks; t++) n_rows[t] = skv_kv_cache_track_rows(&s->cache, t);
    skv_status status = skv_kv_votes_choose(&s->votes, &s->eviction, n_rows, last_rows, out, err);
    skv_free(numbers);
    return status;
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
    skv_status status = skv_kv_cache_evict(&s->cache, &choice, err);
    skv_kv_choice_release(&choice, n_tracks);
    if (status == SKV_OK) skv_kv_votes_release(&s->votes);
    return status;
}

size_t skv_sequence_kept(const skv_sequence *s, size_t i_layer, size_t i_head, size_t *out,
                         size_t max)
{
    if (i_layer >= s->plan->n_layers) return 0;
    const skv_kv_layout *layout = s->cache.layout;
    size_t slot = s->plan->layers[i_layer].slot, track = layout->track0[slot] + i_head;
    if (i_head >= layout->track0[slot + 1] - layout->track0[slot]) return 0;
    size_t n = skv_kv_cache_track_rows(&s->cache, track);
    for (size_t i = 0; i < n && i < max; i++) {
        out[i] = skv_kv_cache_position(&s->cache, track, i);
    }
    return n;
}
