/* Text at another place: see cache_shift.h. The rules are those of scheduler/shift.c. */
#include "cache_shift.h"

#include <stdlib.h>
#include <string.h>

#include "cache_replay.h"
#include "input.h"

enum { RUN_TOKENS = 256, PARTS = 16, CANDIDATES = 8 };

static const uint64_t BASE = UINT64_C(0x9e3779b97f4a7c15); /* odd */

/* Tokens [at, at + n) of a prompt that came from another place. */
typedef struct part {
    size_t at, n;
} part;

static uint64_t weigh(int32_t id)
{
    uint64_t h = (uint32_t)id + UINT64_C(0x632be59bd9b4e019);
    h = (h ^ (h >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    h = (h ^ (h >> 27)) * UINT64_C(0x94d049bb133111eb);
    return h ^ (h >> 31);
}

/* A sum that can be moved along a text. */
static uint64_t sum_block(const int32_t *ids)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < CACHE_BLOCK; i++) sum = sum * BASE + weigh(ids[i]);
    return sum;
}

/* ---- the blocks of earlier prompts ---- */

static size_t *find_place(const cache_shift *s, uint64_t hash)
{
    size_t i = (size_t)(hash >> 20) & (s->n_places - 1);
    while (s->newest[i] != 0 && s->at[s->newest[i] - 1].hash != hash) {
        i = (i + 1) & (s->n_places - 1);
    }
    return &s->newest[i];
}

static size_t newest_of(const cache_shift *s, uint64_t hash)
{
    return s->n_places > 0 ? *find_place(s, hash) - 1 : SIZE_MAX; /* 0 - 1: SIZE_MAX */
}

static size_t find_after(const cache_shift *s, size_t parent, uint64_t hash)
{
    size_t b = newest_of(s, hash);
    while (b != SIZE_MAX && s->at[b].parent != parent) b = s->at[b].older;
    return b;
}

static void grow(cache_shift *s)
{
    if (s->n < s->room) return;
    s->room = 2 * s->room + 512;
    cache_shift_block *at = cli_alloc(s->room, sizeof *at);
    if (s->n > 0) memcpy(at, s->at, s->n * sizeof *at);
    free(s->at);
    free(s->newest);
    s->at = at;
    for (s->n_places = 1; s->n_places < 2 * s->room;) s->n_places *= 2;
    s->newest = cli_alloc(s->n_places, sizeof *s->newest);
    memset(s->newest, 0, s->n_places * sizeof *s->newest);
    for (size_t i = 0; i < s->n; i++) *find_place(s, at[i].hash) = i + 1; /* the newest stays */
}

static size_t add_block(cache_shift *s, size_t parent, uint64_t hash, bool taken)
{
    grow(s);
    size_t *place = find_place(s, hash);
    s->at[s->n] = (cache_shift_block){hash, parent, *place - 1, taken};
    *place = ++s->n;
    return s->n - 1;
}

static bool is_taken(const part *parts, size_t n_parts, size_t begin)
{
    for (size_t i = 0; i < n_parts; i++) {
        if (parts[i].at < begin + CACHE_BLOCK && parts[i].at + parts[i].n > begin) return true;
    }
    return false;
}

static void keep_blocks(cache_shift *s, const int32_t *ids, size_t n, const part *parts,
                        size_t n_parts)
{
    size_t last = SIZE_MAX;
    for (size_t at = 0; at + CACHE_BLOCK <= n; at += CACHE_BLOCK) {
        const uint64_t hash = sum_block(ids + at);
        const size_t known = find_after(s, last, hash);
        last = known != SIZE_MAX ? known : add_block(s, last, hash, is_taken(parts, n_parts, at));
    }
}

/* ---- tokens that a prompt takes ---- */

static size_t count_prefix(const cache_shift *s, const int32_t *ids, size_t n)
{
    size_t last = SIZE_MAX, at = 0;
    for (; at + CACHE_BLOCK <= n; at += CACHE_BLOCK) {
        last = find_after(s, last, sum_block(ids + at));
        if (last == SIZE_MAX) break;
    }
    return at;
}

/* The run that begins with block b: as far as its text goes on like ids[0..n). */
static size_t follow_run(const cache_shift *s, size_t b, const int32_t *ids, size_t n)
{
    size_t n_run = CACHE_BLOCK;
    for (; n_run + CACHE_BLOCK <= n; n_run += CACHE_BLOCK) {
        b = find_after(s, b, sum_block(ids + n_run));
        if (b == SIZE_MAX || s->at[b].taken) break;
    }
    return n_run;
}

static size_t longest_run(const cache_shift *s, uint64_t sum, const int32_t *ids, size_t n)
{
    size_t most = 0, n_tried = 0;
    for (size_t b = newest_of(s, sum); b != SIZE_MAX && n_tried < CANDIDATES; b = s->at[b].older) {
        if (s->at[b].taken) continue;
        const size_t n_run = follow_run(s, b, ids, n);
        if (n_run > most) most = n_run;
        n_tried++;
    }
    return most;
}

/* The first run of ids[first..n). */
static bool find_run(const cache_shift *s, const int32_t *ids, size_t first, size_t n, part *out)
{
    uint64_t sum = 0, top = 1; /* top: of the number that leaves the window */
    for (size_t i = 1; i < CACHE_BLOCK; i++) top *= BASE;
    for (size_t at = first; at + RUN_TOKENS <= n; at++) {
        sum = at == first
                  ? sum_block(ids + at)
                  : (sum - weigh(ids[at - 1]) * top) * BASE + weigh(ids[at + CACHE_BLOCK - 1]);
        const size_t n_run = longest_run(s, sum, ids + at, n - at);
        if (n_run < RUN_TOKENS) continue;
        *out = (part){at, n_run};
        return true;
    }
    return false;
}

size_t cache_shift_add(cache_shift *s, const int32_t *ids, size_t n)
{
    const size_t usable = n > 0 ? n - 1 : 0; /* the last id is always computed */
    part parts[PARTS];
    size_t n_parts = 0, at = count_prefix(s, ids, usable), n_cached = at;
    while (n_parts < PARTS && find_run(s, ids, at, usable, &parts[n_parts])) {
        at = parts[n_parts].at + parts[n_parts].n;
        n_cached += parts[n_parts++].n;
    }
    keep_blocks(s, ids, n, parts, n_parts);
    return n_cached;
}

void cache_shift_release(cache_shift *s)
{
    free(s->at);
    free(s->newest);
    *s = (cache_shift){.n = 0};
}
