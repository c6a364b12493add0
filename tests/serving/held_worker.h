/*
 * Constraints that tell a test what the scheduler's worker does: a gate holds it up, so that what
 * is submitted meanwhile is there at once; a turn notes which answer's first token came before
 * which.
 */
#ifndef SKV_TESTS_HELD_WORKER_H
#define SKV_TESTS_HELD_WORKER_H

#include <math.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "skv/serve.h"

static inline void pause_ms(long ms)
{
    const struct timespec t = {.tv_nsec = ms * 1000000};
    nanosleep(&t, NULL);
}

/* A constraint that holds up the worker until it is let go, and allows one token only. */
typedef struct gate {
    atomic_bool open, entered;
    atomic_int n_released;
} gate;

static inline void gate_init(gate *g)
{
    atomic_init(&g->open, false);
    atomic_init(&g->entered, false);
    atomic_init(&g->n_released, 0);
}

static inline void *gate_begin(void *user)
{
    return user;
}

static inline bool gate_mask(void *state, float *logits, size_t vocab)
{
    gate *g = state;
    atomic_store(&g->entered, true);
    while (!atomic_load(&g->open)) pause_ms(1);
    for (size_t i = 0; i < vocab; i++) {
        if (i != 7) logits[i] = -HUGE_VALF;
    }
    return true;
}

static inline void held_accept(void *state, int32_t id)
{
    (void)state, (void)id;
}

static inline void held_end(void *state)
{
    (void)state;
}

static inline void gate_release(void *user)
{
    atomic_fetch_add(&((gate *)user)->n_released, 1);
}

static inline skv_constraint gate_constraint(gate *g)
{
    gate_init(g);
    return (skv_constraint){.user = g,
                            .begin = gate_begin,
                            .mask = gate_mask,
                            .accept = held_accept,
                            .end = held_end,
                            .release = gate_release};
}

static inline void gate_wait(gate *g)
{
    while (!atomic_load(&g->entered)) pause_ms(1);
}

/* Notes which answer's first token came before which. It allows every token. */
typedef struct turn {
    atomic_size_t *n_begun;
    size_t at;
} turn;

static inline void *turn_begin(void *user)
{
    return user;
}

static inline bool turn_mask(void *state, float *logits, size_t vocab)
{
    turn *t = state;
    (void)logits, (void)vocab;
    if (t->at == SIZE_MAX) t->at = atomic_fetch_add(t->n_begun, 1);
    return true;
}

static inline void turn_release(void *user)
{
    (void)user;
}

static inline skv_constraint turn_constraint(turn *t, atomic_size_t *n_begun)
{
    *t = (turn){.n_begun = n_begun, .at = SIZE_MAX};
    return (skv_constraint){.user = t,
                            .begin = turn_begin,
                            .mask = turn_mask,
                            .accept = held_accept,
                            .end = held_end,
                            .release = turn_release};
}

#endif
