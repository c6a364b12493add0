/* Prompts one after the other: see cache_replay.h. */
#include "cache_replay.h"

#include <stdlib.h>
#include <string.h>

#include "input.h"

static size_t count_same(const cache_prompt *a, const int32_t *ids, size_t n)
{
    const size_t n_both = a->n < n ? a->n : n;
    size_t i = 0;
    while (i < n_both && a->ids[i] == ids[i]) i++;
    return i;
}

/* Never 0. Runs are identified by 64-bit hashes, which is enough for statistics. */
static uint64_t hash_run(const int32_t *ids)
{
    uint64_t sum = UINT64_C(0x9e3779b97f4a7c15);
    for (size_t i = 0; i < CACHE_RUN; i++) {
        sum = (sum ^ (uint32_t)ids[i]) * UINT64_C(0xff51afd7ed558ccd);
        sum ^= sum >> 32;
    }
    return sum | 1;
}

/* The place of a hash, or the free one where it belongs. */
static uint64_t *find_place(uint64_t *runs, size_t n_places, uint64_t hash)
{
    size_t i = (size_t)(hash >> 1) & (n_places - 1);
    while (runs[i] != 0 && runs[i] != hash) i = (i + 1) & (n_places - 1);
    return &runs[i];
}

static void grow(cache_replay *r, size_t n_more)
{
    size_t n = r->n_places > 0 ? r->n_places : 1024;
    while (n < 2 * (r->n_runs + n_more)) n *= 2;
    if (n == r->n_places) return;
    uint64_t *runs = cli_alloc(n, sizeof *runs);
    memset(runs, 0, n * sizeof *runs);
    for (size_t i = 0; i < r->n_places; i++) {
        if (r->runs[i] != 0) *find_place(runs, n, r->runs[i]) = r->runs[i];
    }
    free(r->runs);
    r->runs = runs;
    r->n_places = n;
}

static size_t count_new(cache_replay *r, const int32_t *ids, size_t n)
{
    size_t n_known = 0, end = 0; /* end: of the last run that is known */
    for (size_t i = 0; i + CACHE_RUN <= n && r->n_places > 0; i++) {
        if (*find_place(r->runs, r->n_places, hash_run(ids + i)) == 0) continue;
        const size_t from = i > end ? i : end;
        end = i + CACHE_RUN;
        n_known += end - from;
    }
    return n - n_known;
}

static void keep_runs(cache_replay *r, const int32_t *ids, size_t n)
{
    grow(r, n);
    for (size_t i = 0; i + CACHE_RUN <= n; i++) {
        const uint64_t hash = hash_run(ids + i);
        uint64_t *place = find_place(r->runs, r->n_places, hash);
        r->n_runs += *place == 0;
        *place = hash;
    }
}

/* Of n known tokens those up to the last state that an earlier prompt with the same ids has. */
static size_t up_to_state(const cache_replay *r, const int32_t *ids, size_t n)
{
    size_t most = 0;
    for (size_t i = 0; i < r->n; i++) {
        const cache_prompt *p = &r->at[i];
        const size_t n_same = count_same(p, ids, n);
        for (size_t k = 0; k < p->n_states && p->states[k] <= n_same; k++) {
            if (p->states[k] > most) most = p->states[k];
        }
    }
    return most;
}

static void place_states(const cache_replay *r, cache_prompt *p, const cache_look *look)
{
    const skv_read_prompt read = {.ids = p->ids,
                                  .n = p->n - 1,
                                  .n_found = look->n_cached,
                                  .n_known = look->n_cached + look->n_stateless};
    p->n_states = skv_checkpoint_places(r->vocab, &read, CACHE_STATES, p->states);
}

void cache_replay_add(cache_replay *r, int32_t *ids, size_t n, cache_look *out)
{
    *out = (cache_look){.n_ids = n, .n_new = count_new(r, ids, n), .n_same = SIZE_MAX};
    size_t most = 0;
    for (size_t i = 0; i < r->n; i++) {
        const size_t n_same = count_same(&r->at[i], ids, n);
        if (n_same == 0 || n_same < most) continue;
        most = n_same;
        out->i_with = i;
    }
    if (most > 0 && most < n) out->n_same = most;
    const size_t usable = most < n ? most : n - 1; /* the last id is always computed */
    out->n_cached = usable / CACHE_BLOCK * CACHE_BLOCK;
    cache_prompt added = {.ids = ids, .n = n};
    if (r->states) {
        const size_t n_known = out->n_cached;
        out->n_cached = up_to_state(r, ids, n_known);
        out->n_stateless = n_known - out->n_cached;
        place_states(r, &added, out);
    }
    if (r->shift) out->n_cached = cache_shift_add(&r->blocks, ids, n);
    keep_runs(r, ids, n);
    if (r->n == r->room) {
        r->room = 2 * r->room + 8;
        cache_prompt *at = cli_alloc(r->room, sizeof *at);
        if (r->n > 0) memcpy(at, r->at, r->n * sizeof *at);
        free(r->at);
        r->at = at;
    }
    r->at[r->n++] = added;
}

void cache_replay_release(cache_replay *r)
{
    for (size_t i = 0; i < r->n; i++) free(r->at[i].ids);
    free(r->at);
    free(r->runs);
    cache_shift_release(&r->blocks);
    *r = (cache_replay){.n = 0};
}

size_t cache_look_lost(const cache_look *look)
{
    const size_t n_computed = look->n_ids - look->n_cached;
    return n_computed > look->n_new ? n_computed - look->n_new : 0;
}
