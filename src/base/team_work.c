/* Sums and agreement in a team of processes: see team_work.h. */
#include "base/team_work.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "base/size.h"

enum {
    PART = 1 << 16,        /* floats that a process adds up at a time */
    FEW = 1 << 13,         /* floats that each adds up itself: one message in place of two */
    SHARE_BYTES = 1 << 26, /* of one message */
    DOUBLES_MAX = 64
};

skv_status skv_team_check(const skv_team *team, skv_error *err)
{
    if (!team) return SKV_OK;
    SKV_REQUIRE(team->size > 0 && team->size <= SKV_TEAM_MAX && team->rank < team->size, err,
                SKV_ARGUMENT, "team: process %zu of %zu, at most %d", team->rank, team->size,
                SKV_TEAM_MAX);
    SKV_REQUIRE(team->gather && team->exchange && team->share, err, SKV_ARGUMENT,
                "team: a function is missing");
    return SKV_OK;
}

/* Gathers each process's contribution, [size][n]; NULL with *err filled on failure. */
static void *gather_all(const skv_team *team, const void *mine, size_t n, skv_status *status,
                        skv_error *err)
{
    void *all = skv_alloc(team->size, n);
    *status = all ? team->gather(team->ctx, mine, all, n, err)
                  : skv_fail(err, SKV_MEMORY, "team: no memory for %zu processes", team->size);
    if (*status == SKV_OK) return all;
    skv_free(all);
    return NULL;
}

/* ---- agreement ---- */

/* Makes the first failure the result on every process. The failing process is named unless all
 * failed alike. */
static skv_status take_first(const skv_team *team, const skv_error *all, skv_error *err)
{
    size_t first = team->size, n_alike = 0;
    for (size_t i = team->size; i-- > 0;) {
        if (all[i].status != SKV_OK) first = i;
    }
    if (first == team->size) return SKV_OK;
    for (size_t i = 0; i < team->size; i++) {
        n_alike += strcmp(all[i].text, all[first].text) == 0 && all[i].status != SKV_OK;
    }
    const skv_error *e = &all[first];
    skv_status status = skv_fail(err, e->status, "%s", e->text);
    char prefix[64];
    (void)snprintf(prefix, sizeof prefix, "process %zu of %zu", first, team->size);
    return n_alike == team->size ? status : skv_fail_within(err, status, prefix);
}

skv_status skv_team_agree(const skv_team *team, skv_status mine, skv_error *err)
{
    if (skv_team_size(team) == 1) return mine;
    skv_error own = {.status = mine}, unheard;
    if (mine != SKV_OK) {
        (void)snprintf(own.text, sizeof own.text, "%s", err ? err->text : skv_status_name(mine));
    }
    skv_status status;
    skv_error *all = gather_all(team, &own, sizeof own, &status, err ? err : &unheard);
    if (!all) return mine != SKV_OK ? mine : status;
    status = take_first(team, all, err);
    skv_free(all);
    return status;
}

skv_status skv_team_same(const skv_team *team, uint64_t mine, const char *what, skv_error *err)
{
    if (skv_team_size(team) == 1) return SKV_OK;
    skv_status status;
    uint64_t *all = gather_all(team, &mine, sizeof mine, &status, err);
    size_t other = 0;
    if (!all) return status;
    while (other < team->size && all[other] == all[0]) other++;
    skv_free(all);
    SKV_REQUIRE(other == team->size, err, SKV_ARGUMENT, "process %zu of %zu has %s than process 0",
                other, team->size, what);
    return SKV_OK;
}

skv_status skv_team_any(const skv_team *team, bool mine, bool *any, skv_error *err)
{
    double sum = mine ? 1 : 0;
    SKV_TRY(skv_team_sum_doubles(team, &sum, 1, err));
    *any = sum > 0;
    return SKV_OK;
}

/* ---- sums ---- */

skv_status skv_team_sum_doubles(const skv_team *team, double *x, size_t n, skv_error *err)
{
    if (skv_team_size(team) == 1) return SKV_OK;
    SKV_REQUIRE(n <= DOUBLES_MAX, err, SKV_RANGE, "team: a sum of %zu numbers", n);
    skv_status status;
    double *all = gather_all(team, x, n * sizeof *x, &status, err);
    if (!all) return status;
    for (size_t i = 0; i < n; i++) {
        x[i] = 0;
        for (size_t rank = 0; rank < team->size; rank++) x[i] += all[rank * n + i];
    }
    skv_free(all);
    return SKV_OK;
}

size_t skv_team_scratch(const skv_team *team)
{
    size_t size = skv_team_size(team);
    return size == 1 ? 0 : (2 * size + 1) * PART;
}

/* One block of size * n floats: every process adds up the n of its part. */
static skv_status sum_block(const skv_team *team, float *block, size_t n, float *scratch,
                            skv_error *err)
{
    float *parts = scratch, *sum = scratch + team->size * PART;
    SKV_TRY(team->exchange(team->ctx, block, parts, n * sizeof *block, err));
    memcpy(sum, parts, n * sizeof *sum);
    for (size_t rank = 1; rank < team->size; rank++) {
        const float *part = parts + rank * n;
        for (size_t i = 0; i < n; i++) sum[i] += part[i];
    }
    return team->gather(team->ctx, sum, block, n * sizeof *sum, err);
}

/* Every process adds up all n floats. */
static skv_status sum_few(const skv_team *team, float *x, size_t n, float *scratch, skv_error *err)
{
    SKV_TRY(team->gather(team->ctx, x, scratch, n * sizeof *x, err));
    memcpy(x, scratch, n * sizeof *x);
    for (size_t rank = 1; rank < team->size; rank++) {
        const float *part = scratch + rank * n;
        for (size_t i = 0; i < n; i++) x[i] += part[i];
    }
    return SKV_OK;
}

skv_status skv_team_sum(const skv_team *team, float *x, size_t n, float *scratch, skv_error *err)
{
    size_t size = skv_team_size(team), at = 0;
    if (size == 1) return SKV_OK;
    if (n <= FEW) return sum_few(team, x, n, scratch, err);
    for (; n - at >= size * PART; at += size * PART) {
        SKV_TRY(sum_block(team, x + at, PART, scratch, err));
    }
    if (at == n) return SKV_OK;
    /* The rest is filled up to equal parts. */
    float *rest = scratch + (size + 1) * PART;
    size_t part = skv_ceil_div(n - at, size);
    memset(rest, 0, part * size * sizeof *rest);
    memcpy(rest, x + at, (n - at) * sizeof *rest);
    SKV_TRY(sum_block(team, rest, part, scratch, err));
    memcpy(x + at, rest, (n - at) * sizeof *rest);
    return SKV_OK;
}

skv_status skv_team_share(const skv_team *team, void *data, size_t n, skv_error *err)
{
    if (skv_team_size(team) == 1) return SKV_OK;
    unsigned char *bytes = data;
    for (size_t at = 0; at < n; at += SHARE_BYTES) {
        size_t n_now = skv_min_size(SHARE_BYTES, n - at);
        SKV_TRY(team->share(team->ctx, bytes + at, n_now, err));
    }
    return SKV_OK;
}

uint64_t skv_team_hash(uint64_t hash, const void *data, size_t n)
{
    const unsigned char *bytes = data;
    for (size_t at = 0; at < n; at += sizeof(uint64_t)) {
        uint64_t word = 0;
        memcpy(&word, bytes + at, skv_min_size(sizeof word, n - at));
        hash = skv_mix64(hash ^ word);
    }
    return hash;
}
