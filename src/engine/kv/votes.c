/* Votes and the choice that is made of them: see votes.h. */
#include "kv/votes.h"

#include "base/mem.h"
#include "base/size.h"

static size_t n_tracks_of(const skv_kv_votes *votes)
{
    return votes->track0[votes->n_slots];
}

size_t skv_kv_votes_bytes(size_t n_tracks, size_t stride)
{
    return n_tracks * stride * sizeof(float);
}

skv_status skv_kv_votes_init(skv_kv_votes *votes, size_t n_layers, const size_t *n_heads,
                             size_t n_slots, size_t stride, skv_error *err)
{
    *votes = (skv_kv_votes){.n_layers = n_layers, .n_slots = n_slots, .stride = stride};
    votes->voted = skv_alloc_zero(n_layers, sizeof *votes->voted);
    votes->track0 = skv_alloc_zero(n_slots + 1, sizeof *votes->track0);
    if (votes->track0) {
        for (size_t s = 0; s < n_slots; s++) {
            votes->track0[s + 1] = votes->track0[s] + n_heads[s];
        }
        votes->votes = skv_map_zero(skv_kv_votes_bytes(n_tracks_of(votes), stride));
    }
    if (votes->voted && votes->votes) return SKV_OK;
    skv_kv_votes_release(votes);
    return skv_fail(err, SKV_MEMORY, "eviction: no memory for the votes of %zu rows", stride);
}

void skv_kv_votes_release(skv_kv_votes *votes)
{
    if (votes->votes && votes->track0) {
        skv_unmap(votes->votes, skv_kv_votes_bytes(n_tracks_of(votes), votes->stride));
    }
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

static void choose(skv_kv_votes *votes, const skv_eviction *how, size_t s, const size_t *n_rows,
                   const size_t *last_rows, float *scratch, skv_kv_choice *out)
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
        .votes = votes->votes + track0 * votes->stride,
        .stride = votes->stride,
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

skv_status skv_kv_votes_choose_slot(skv_kv_votes *votes, const skv_eviction *how, size_t slot,
                                    const size_t *n_rows, const size_t *last_rows,
                                    skv_kv_choice *out, skv_error *err)
{
    float *scratch;
    SKV_TRY(take_scratch(votes, &scratch, err));
    choose(votes, how, slot, n_rows, last_rows, scratch, out);
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
    for (size_t s = 0; s < votes->n_slots; s++) {
        choose(votes, how, s, n_rows, last_rows, scratch, out);
    }
    skv_free(scratch);
    return SKV_OK;
}
