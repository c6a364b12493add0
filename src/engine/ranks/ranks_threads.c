/*
 * Ranks that are threads of this program (skv/ranks.h): a team in one memory. All arrive with an
 * address each, copy from those of the others, and leave when all have copied:
 *
 *     given[rank] = mine; arrive | wait for all | copy from given[..] | wait until all have copied
 *
 * A follower that fails breaks the team: whoever arrives, or waits for others to, is told why.
 */
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/mem.h"
#include "base/size.h"
#include "base/system.h"
#include "skv/ranks.h"

typedef struct member {
    skv_ranks_threads *all;
    skv_team team;
    pthread_t thread; /* of a follower */
    const void *given;
} member;

struct skv_ranks_threads {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    size_t n, n_started; /* ranks; those that are there, with rank 0 */
    size_t n_here, n_copying;
    uint64_t round;
    skv_error broken; /* status SKV_OK: it is not */
    member members[SKV_RANKS_THREADS_MAX];
};

/* ---- meetings ---- */

/* All ranks are here, and their addresses stay good until `leave`. */
static skv_status arrive(member *m, const void *given, skv_error *err)
{
    skv_ranks_threads *t = m->all;
    (void)pthread_mutex_lock(&t->mutex);
    const uint64_t round = t->round;
    m->given = given;
    if (t->broken.status == SKV_OK && ++t->n_here == t->n) {
        t->n_here = 0;
        t->n_copying = t->n;
        t->round++;
        (void)pthread_cond_broadcast(&t->changed);
    }
    while (t->round == round && t->broken.status == SKV_OK) {
        (void)pthread_cond_wait(&t->changed, &t->mutex);
    }
    const skv_error broken = t->broken;
    const bool all_here = t->round != round;
    (void)pthread_mutex_unlock(&t->mutex);
    return all_here ? SKV_OK : skv_fail(err, broken.status, "%s", broken.text);
}

static void leave(member *m)
{
    skv_ranks_threads *t = m->all;
    (void)pthread_mutex_lock(&t->mutex);
    if (--t->n_copying == 0) (void)pthread_cond_broadcast(&t->changed);
    while (t->n_copying > 0) (void)pthread_cond_wait(&t->changed, &t->mutex);
    (void)pthread_mutex_unlock(&t->mutex);
}

static skv_status gather(void *ctx, const void *mine, void *all, size_t n, skv_error *err)
{
    member *m = ctx;
    SKV_TRY(arrive(m, mine, err));
    for (size_t i = 0; i < m->all->n; i++) {
        memcpy((char *)all + i * n, m->all->members[i].given, n);
    }
    leave(m);
    return SKV_OK;
}

static skv_status exchange(void *ctx, const void *to, void *from, size_t n, skv_error *err)
{
    member *m = ctx;
    SKV_TRY(arrive(m, to, err));
    for (size_t i = 0; i < m->all->n; i++) {
        const char *given = m->all->members[i].given;
        memcpy((char *)from + i * n, given + m->team.rank * n, n);
    }
    leave(m);
    return SKV_OK;
}

static skv_status share(void *ctx, void *data, size_t n, skv_error *err)
{
    member *m = ctx;
    SKV_TRY(arrive(m, data, err));
    if (m->team.rank > 0) memcpy(data, m->all->members[0].given, n);
    leave(m);
    return SKV_OK;
}

static skv_status collect(void *ctx, const void *mine, void *all, size_t n, skv_error *err)
{
    member *m = ctx;
    SKV_TRY(arrive(m, mine, err));
    for (size_t i = 1; m->team.rank == 0 && i < m->all->n; i++) {
        memcpy((char *)all + i * n, m->all->members[i].given, n);
    }
    leave(m);
    return SKV_OK;
}

/* ---- life ---- */

static void break_team(member *m, const skv_error *why)
{
    skv_ranks_threads *t = m->all;
    char prefix[64];
    (void)snprintf(prefix, sizeof prefix, "process %zu of %zu", m->team.rank, t->n);
    (void)pthread_mutex_lock(&t->mutex);
    if (t->broken.status == SKV_OK) {
        t->broken = *why;
        t->broken.status = skv_fail_within(&t->broken, why->status, prefix);
        (void)pthread_cond_broadcast(&t->changed);
    }
    (void)pthread_mutex_unlock(&t->mutex);
}

static void *follow(void *arg)
{
    member *m = arg;
    skv_error err = {.text = ""};
    err.status = skv_ranks_follow(&m->team, &err);
    if (err.status != SKV_OK) break_team(m, &err);
    return NULL;
}

/* Signals are for the threads that the program has for them. */
static int start_thread(member *m)
{
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_BLOCK, &all, &before);
    const int code = pthread_create(&m->thread, NULL, follow, m);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return code;
}

static void join_team(skv_ranks_threads *t, size_t rank)
{
    member *m = &t->members[rank];
    *m = (member){.all = t};
    m->team = (skv_team){.ctx = m,
                         .rank = rank,
                         .size = t->n,
                         .threads = skv_max_size(skv_processors_allowed() / t->n, 1),
                         .gather = gather,
                         .exchange = exchange,
                         .share = share,
                         .collect = collect,
                         .device = rank,
                         .one_memory = true};
}

static void end_all(skv_ranks_threads *t)
{
    for (size_t i = 1; i < t->n_started; i++) (void)pthread_join(t->members[i].thread, NULL);
    (void)pthread_cond_destroy(&t->changed);
    (void)pthread_mutex_destroy(&t->mutex);
    skv_free(t);
}

skv_status skv_ranks_threads_start(size_t n, skv_ranks_threads **out, skv_error *err)
{
    SKV_REQUIRE(n > 0 && n <= SKV_RANKS_THREADS_MAX, err, SKV_RANGE,
                "ranks: %zu threads, expected 1 to %d", n, (int)SKV_RANKS_THREADS_MAX);
    skv_ranks_threads *t = skv_alloc_zero(1, sizeof *t);
    SKV_REQUIRE(t, err, SKV_MEMORY, "ranks: no memory for %zu threads", n);
    t->n = n;
    (void)pthread_mutex_init(&t->mutex, NULL);
    (void)pthread_cond_init(&t->changed, NULL);
    for (size_t i = 0; i < n; i++) join_team(t, i);
    int code = 0;
    for (t->n_started = 1; t->n_started < n; t->n_started++) {
        code = start_thread(&t->members[t->n_started]);
        if (code != 0) break;
    }
    if (code == 0) {
        *out = t;
        return SKV_OK;
    }
    const skv_status status = skv_fail(err, SKV_IO, "ranks: a thread does not start (%d)", code);
    const skv_error ended = {.status = status};
    break_team(&t->members[0], &ended);
    end_all(t);
    return status;
}

const skv_team *skv_ranks_threads_team(const skv_ranks_threads *threads)
{
    return &threads->members[0].team;
}

skv_status skv_ranks_threads_end(skv_ranks_threads *threads, skv_error *err)
{
    if (!threads) return SKV_OK;
    skv_error broken;
    const skv_error ended = {.status = SKV_CANCELLED, .text = "the ranks have ended"};
    const skv_status told = skv_ranks_end(&threads->members[0].team, &broken);
    break_team(&threads->members[0], &ended); /* no engine that is still open waits for others */
    end_all(threads);
    return told == SKV_OK ? SKV_OK : skv_fail(err, told, "%s", broken.text);
}
