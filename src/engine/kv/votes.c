/* Votes and the choice that is made of them: see votes.h. */
#include "kv/votes.h"

#include "base/mem.h"
#include "base/size.h"

static size_t n_tracks_of(const skv_kv_votes *votes)
{
    return votes->track0[votes->n_slots];
}

static skv_area_spec area_spec(size_t n_tracks, size_t stride)
{
    return (skv_area_spec){
        .kind = SKV_AREA_F32, .n_rows = n_tracks, .n_columns = stride, .lasts = true};
}

skv_bytes skv_kv_votes_bytes(const skv_backend *be, size_t n_tracks, size_t stride)
{
    const skv_area_spec spec = area_spec(n_tracks, stride);
    const skv_bytes choice = {.host = n_tracks * stride * sizeof(uint32_t)};
    return skv_bytes_add(be->areas_bytes(be, &spec, 1), choice);
}

skv_rows skv_kv_votes_of(const skv_kv_votes *votes, size_t slot)
{
    return (skv_rows){votes->votes, votes->track0[slot] * votes->stride, votes->stride};
}

skv_status skv_kv_votes_init(skv_kv_votes *votes, skv_backend *be, size_t n_layers,
                             const size_t *n_heads, size_t n_slots, size_t stride, skv_error *err)
{
    *votes = (skv_kv_votes){.be = be, .n_layers = n_layers, .n_slots = n_slots, .stride = stride};
    votes->voted = skv_alloc_zero(n_layers, sizeof *votes->voted);
    votes->track0 = skv_alloc_zero(n_slots + 1, sizeof *votes->track0);
    if (votes->track0) {
        for (size_t s = 0; s < n_slots; s++) {
            votes->track0[s + 1] = votes->track0[s] + n_heads[s];
        }
        const skv_area_spec spec = area_spec(n_tracks_of(votes), stride);
        if (votes->voted && be->areas_create(be, &spec, 1, &votes->votes, NULL) == SKV_OK) {
            return SKV_OK;
        }
    }
    skv_kv_votes_release(votes);
    return skv_fail(err, SKV_MEMORY, "eviction: no memory for the votes of %zu rows", stride);
}

void skv_kv_votes_release(skv_kv_votes *votes)
{
    if (votes->votes) votes->be->areas_free(votes->be, &votes->votes, 1);
    skv_free(votes->voted);
    skv_free(votes->track0);
    *votes = (skv_kv_votes){0};
}

void skv_kv_choice_release(skv_kv_choice *choice, size_t n_tracks)
{
    if (choice->rows) skv_unmap(choice->rows, n_tracks * choice->stride * sizeof *choice->rows);
    skv_free(choice->n);
    *choice = (skv_kv_choice){0};
}

/* The last n rows of every head of a slot. */
static void keep_last(const skv_kv_votes *votes, size_t slot, const size_t *n_rows, size_t n,
                      skv_kv_choice *out)
{
    for (size_t t = votes->track0[slot]; t < votes->track0[slot + 1]; t++) {
        out->n[t] = skv_min_size(n, n_rows[t]);
        for (size_t i = 0; i < out->n[t]; i++) {
            out->rows[t * out->stride + i] = (uint32_t)(n_rows[t] - out->n[t] + i);
        }
    }
}

static size_t least_of(const size_t *n, size_t first, size_t end)
{
    size_t least = SIZE_MAX;
    for (size_t i = first; i < end; i++) least = skv_min_size(least, n[i]);
    return least;
}

/* Of slot s, whose votes are `scores`, which are overwritten. */
static void choose(const skv_kv_votes *votes, const skv_eviction *how, size_t s,
                   const size_t *n_rows, const size_t *last_rows, skv_mapped scores, float *scratch,
                   skv_kv_choice *out)
{
    size_t n_scored = 0, i_scored = 0, track0 = votes->track0[s], end = votes->track0[s + 1];
    if (last_rows[s] != SKV_SLOT_SCORED) {
        keep_last(votes, s, n_rows, last_rows[s], out);
        return;
    }
    for (size_t i = 0; i < votes->n_slots; i++) {
        n_scored += last_rows[i] == SKV_SLOT_SCORED;
        i_scored += i < s && last_rows[i] == SKV_SLOT_SCORED;
    }
    skv_evict_slot slot = {
        .how = how,
        .i_slot = i_scored,
        .n_slots = n_scored,
        .n_heads = end - track0,
        .n_rows = n_rows + track0,
        .n_window = skv_min_size(how->window, least_of(n_rows, track0, end)),
        .votes = scores.at,
        .stride = scores.ld,
        .scratch = scratch,
    };
    skv_evict_choose(&slot, out->rows + track0 * out->stride, out->stride, out->n + track0);
}

skv_status skv_kv_choice_init(skv_kv_choice *choice, const skv_kv_votes *votes, skv_error *err)
{
    size_t n_tracks = n_tracks_of(votes);
    *choice = (skv_kv_choice){.stride = votes->stride};
    choice->n = skv_alloc_zero(n_tracks, sizeof *choice->n);
    choice->rows = skv_map_zero(n_tracks * choice->stride * sizeof *choice->rows);
    if (choice->n && choice->rows) return SKV_OK;
    skv_kv_choice_release(choice, n_tracks);
    return skv_fail(err, SKV_MEMORY, "eviction: no memory for %zu rows", votes->stride);
}

static skv_status take_scratch(const skv_kv_votes *votes, float **out, skv_error *err)
{
    *out = skv_alloc(votes->stride, sizeof **out);
    SKV_REQUIRE(*out, err, SKV_MEMORY, "eviction: no memory for %zu rows", votes->stride);
    return SKV_OK;
}

/* The votes of slots [first, end): the one wait for all that were cast. */
static skv_mapped map_votes(const skv_kv_votes *votes, size_t first, size_t end)
{
    const size_t n_tracks = votes->track0[end] - votes->track0[first];
    return votes->be->map(votes->be, skv_kv_votes_of(votes, first), n_tracks, votes->stride,
                          SKV_MAP_BOTH);
}

skv_status skv_kv_votes_choose_slot(skv_kv_votes *votes, const skv_eviction *how, size_t slot,
                                    const size_t *n_rows, const size_t *last_rows,
                                    skv_kv_choice *out, skv_error *err)
{
    float *scratch;
    SKV_TRY(take_scratch(votes, &scratch, err));
    const skv_mapped scores = map_votes(votes, slot, slot + 1);
    choose(votes, how, slot, n_rows, last_rows, scores, scratch, out);
    votes->be->unmap(votes->be, scores);
    skv_free(scratch);
    return SKV_OK;
}

skv_status skv_kv_votes_choose(skv_kv_votes *votes, const skv_eviction *how, const size_t *n_rows,
                               const size_t *last_rows, skv_kv_choice *out, skv_error *err)
{
    float *scratch;
    SKV_TRY(skv_kv_choice_init(out, votes, err));
    skv_status status = take_scratch(votes, &scratch, err);
    if (status != SKV_OK) {
        skv_kv_choice_release(out, n_tracks_of(votes));
        return status;
    }
    const skv_mapped all = map_votes(votes, 0, votes->n_slots);
    for (size_t s = 0; s < votes->n_slots; s++) {
        const skv_mapped scores = {all.at + votes->track0[s] * all.ld, all.ld};
        choose(votes, how, s, n_rows, last_rows, scores, scratch, out);
    }
    votes->be->unmap(votes->be, all);
    skv_free(scratch);
    return SKV_OK;
}
