/* A team of processes whose members are threads of a test (skv/team.h). */
#ifndef SKV_TEST_THREAD_TEAM_H
#define SKV_TEST_THREAD_TEAM_H

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "base/fail.h"
#include "skv/team.h"

enum { MEMBERS_MAX = 4 };

typedef struct hub {
    size_t size;
    pthread_barrier_t all_here;
    const void *given[MEMBERS_MAX];
    void *taken[MEMBERS_MAX];
    size_t n_calls, fails_at; /* gathers of process 0; 0: never */
} hub;

typedef struct member {
    hub *hub;
    size_t rank;
} member;

static inline void meet(hub *h)
{
    (void)pthread_barrier_wait(&h->all_here);
}

static inline skv_status gather(void *ctx, const void *mine, void *all, size_t n, skv_error *err)
{
    const member *m = ctx;
    hub *h = m->hub;
    h->given[m->rank] = mine;
    if (m->rank == 0) h->n_calls++;
    meet(h);
    bool broken = h->n_calls == h->fails_at;
    for (size_t i = 0; i < h->size; i++) memcpy((char *)all + i * n, h->given[i], n);
    meet(h);
    return broken ? skv_fail(err, SKV_IO, "the wire is cut") : SKV_OK;
}

static inline skv_status exchange(void *ctx, const void *to, void *from, size_t n, skv_error *err)
{
    const member *m = ctx;
    hub *h = m->hub;
    (void)err;
    h->given[m->rank] = to;
    meet(h);
    for (size_t i = 0; i < h->size; i++) {
        memcpy((char *)from + i * n, (const char *)h->given[i] + m->rank * n, n);
    }
    meet(h);
    return SKV_OK;
}

static inline skv_status share(void *ctx, void *data, size_t n, skv_error *err)
{
    const member *m = ctx;
    hub *h = m->hub;
    (void)err;
    h->taken[m->rank] = data;
    meet(h);
    if (m->rank > 0) memcpy(data, h->taken[0], n);
    meet(h);
    return SKV_OK;
}

static inline skv_status collect(void *ctx, const void *mine, void *all, size_t n, skv_error *err)
{
    const member *m = ctx;
    hub *h = m->hub;
    (void)err;
    h->given[m->rank] = mine;
    meet(h);
    for (size_t i = 1; m->rank == 0 && i < h->size; i++) {
        memcpy((char *)all + i * n, h->given[i], n);
    }
    meet(h);
    return SKV_OK;
}

static inline void open_hub(hub *h, size_t size)
{
    *h = (hub){.size = size};
    (void)pthread_barrier_init(&h->all_here, NULL, (unsigned)size);
}

static inline skv_team join_hub(hub *h, member *m, size_t rank)
{
    *m = (member){h, rank};
    return (skv_team){.ctx = m,
                      .rank = rank,
                      .size = h->size,
                      .threads = 1,
                      .gather = gather,
                      .exchange = exchange,
                      .share = share,
                      .collect = collect,
                      .device = rank};
}

#endif
